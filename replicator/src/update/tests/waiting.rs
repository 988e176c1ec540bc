//! Hints that wait for silent members, beside hints that can be delivered.

use martlet_protocol::BucketId;
use martlet_protocol::backend::RECENT_HINTS_MAX;

use super::*;
use crate::testing::recorded::{NodeRequests, recorded};
use crate::testing::storm::SplitMix;

const KEEPER: DeviceId = DeviceId(0);

/// Returns the number of calls of a kind to the keeper, and forgets all calls.
fn calls(requests: &NodeRequests, kind: CallKind) -> usize {
    let taken = std::mem::take(&mut *requests.lock());
    taken.into_iter().filter(|(device, call)| *device == KEEPER && *call == Some(kind)).count()
}

/// Returns a bucket of one shard whose members include `with`, and not `without` or the keeper, above `above`.
fn bucket(world: &MultiNodeWorld, with: DeviceId, without: DeviceId, above: u8) -> BucketId {
    let all = (above + 1..=u8::MAX).map(|byte| BucketId([byte; 16]));
    let mut fitting = all.filter(|bucket| {
        let members = world.primaries(&RegisterKey::object(*bucket, 1, "k"));
        members.contains(&with) && !members.contains(&without) && !members.contains(&KEEPER)
    });
    fitting.next().expect("one of many buckets fits")
}

/// Stores hints of a bucket on the keeper.
async fn keep(world: &MultiNodeWorld, bucket: BucketId, count: usize) -> Vec<RegisterKey> {
    let keys = (0..count).map(|number| RegisterKey::object(bucket, 1, &format!("k{number}")));
    let keys: Vec<RegisterKey> = keys.collect();
    for key in &keys {
        world.keep_on(KEEPER, &world.write(key)).await;
    }
    keys
}

#[tokio::test]
async fn hints_of_a_silent_member_are_not_read_again_until_it_returns() {
    let (world, requests) = recorded(6, |reply| reply);
    let out = DeviceId(1);
    keep(&world, bucket(&world, out, DeviceId(2), 0), 5 * BATCH).await;
    world.memory(out).set_offline(out, true);
    let mut update = worker(&world);
    run_once(&mut update).await.unwrap();
    assert_eq!(calls(&requests, CallKind::Hints), 6);
    for _ in 0..10 {
        let progress = run_once(&mut update).await.unwrap();
        assert_eq!((progress.items, progress.backlog), (0, 5 * BATCH as u64));
        assert_eq!(calls(&requests, CallKind::Hints), 0, "old hints were read");
    }
    world.memory(out).set_offline(out, false);
    let progress = run_once(&mut update).await.unwrap();
    assert_eq!((progress.done, progress.backlog), (5 * BATCH as u64, 0));
    assert_eq!(world.hints().await, 0);
}

#[tokio::test]
async fn a_new_hint_reaches_members_that_answer_while_old_ones_wait() {
    let (world, requests) = recorded(6, |reply| reply);
    let out = DeviceId(1);
    let bucket = bucket(&world, out, DeviceId(2), 0);
    keep(&world, bucket, 3 * BATCH).await;
    world.memory(out).set_offline(out, true);
    let mut update = worker(&world);
    run_once(&mut update).await.unwrap();
    // The last key of all, and a newer write of an old one.
    for name in ["z", "k1"] {
        let key = RegisterKey::object(bucket, 1, name);
        let hint = world.write(&key);
        world.keep_on(KEEPER, &hint).await;
        calls(&requests, CallKind::Hints);
        assert_eq!(run_once(&mut update).await.unwrap().kept, 1);
        assert_eq!(calls(&requests, CallKind::Hints), 0, "old hints were read");
        for device in world.primaries(&key).into_iter().filter(|device| *device != out) {
            assert_eq!(world.read_on(device, &key).await.as_ref(), Some(&hint.entry), "{name}");
        }
    }
    world.memory(out).set_offline(out, false);
    assert_eq!(run_once(&mut update).await.unwrap().done, 3 * BATCH as u64 + 1);
    assert_eq!(world.hints().await, 0);
}

#[tokio::test]
async fn a_member_that_returns_gets_its_hints_without_a_walk_over_those_of_others() {
    let (world, requests) = recorded(6, |reply| reply);
    let (first, second) = (DeviceId(1), DeviceId(2));
    let before = bucket(&world, second, first, 0);
    keep(&world, before, 8 * BATCH).await;
    let keys = keep(&world, bucket(&world, first, second, before.0[0]), 3).await;
    for device in [first, second] {
        world.memory(device).set_offline(device, true);
    }
    let mut update = worker(&world);
    assert_eq!(run_once(&mut update).await.unwrap().backlog, 8 * BATCH as u64 + 3);
    world.memory(first).set_offline(first, false);
    calls(&requests, CallKind::Hints);
    let progress = run_once(&mut update).await.unwrap();
    assert_eq!((progress.done, progress.backlog), (3, 8 * BATCH as u64));
    assert_eq!(calls(&requests, CallKind::Hints), 2, "a page of others, and its own");
    for key in &keys {
        assert_eq!(held(&world, key).await.iter().flatten().count(), 3);
    }
    world.memory(second).set_offline(second, false);
    let progress = run_once(&mut update).await.unwrap();
    assert_eq!((progress.done, progress.backlog), (8 * BATCH as u64, 0));
}

#[tokio::test(start_paused = true)]
async fn hints_of_a_node_without_arrivals_are_read_in_each_pass() {
    let world = MultiNodeWorld::new(6);
    world.memory(KEEPER).set_earlier(KEEPER, true);
    let bucket = bucket(&world, DeviceId(1), DeviceId(2), 0);
    let mut update = worker(&world);
    for count in 1..4 {
        keep(&world, bucket, count).await;
        assert_eq!(run_once(&mut update).await.unwrap().done, count as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn arrivals_that_a_device_remembers_no_more_are_found_by_a_walk() {
    let world = MultiNodeWorld::new(6);
    let bucket = bucket(&world, DeviceId(1), DeviceId(2), 0);
    let mut update = worker(&world);
    run_once(&mut update).await.unwrap();
    keep(&world, bucket, RECENT_HINTS_MAX + 1).await;
    run_once(&mut update).await.unwrap();
    run_once(&mut update).await.unwrap();
    assert_eq!(world.hints().await, 0);
}

/// Devices come and go, and hints are stored meanwhile. One worker delivers all of them in the end.
#[tokio::test(start_paused = true)]
async fn all_hints_are_delivered_once_their_members_are_back() {
    for seed in 0..40 {
        eprintln!("seed {seed}");
        let (world, mut chance) = (MultiNodeWorld::new(6), SplitMix::new(seed));
        let (mut update, mut kept) = (worker(&world), 0);
        for number in 0..300 {
            let device = DeviceId(u32::try_from(chance.below(6)).unwrap());
            match chance.below(4) {
                0 => world.memory(device).set_offline(device, chance.below(2) == 0),
                1 => {
                    update.step().await.unwrap();
                }
                _ => {
                    let bucket = BucketId([u8::try_from(chance.below(200)).unwrap() + 1; 16]);
                    let key = RegisterKey::object(bucket, 1, &format!("k{number}"));
                    let hint = world.write(&key);
                    // A device that is out keeps nothing.
                    kept += usize::from(world.memory(device).keep_hint(device, hint).await.is_ok());
                }
            }
        }
        assert!(kept > 20, "seed {seed}: {kept} hints");
        // One stays out for a day.
        let out = DeviceId(u32::try_from(chance.below(6)).unwrap());
        for device in world.devices() {
            world.memory(device).set_offline(device, device == out);
        }
        for _ in 0..5 {
            run_once(&mut update).await.unwrap();
            tokio::time::advance(Duration::from_hours(5)).await;
        }
        world.memory(out).set_offline(out, false);
        for _ in 0..5 {
            run_once(&mut update).await.unwrap();
        }
        assert_eq!(world.hints().await, 0, "seed {seed}");
    }
}
