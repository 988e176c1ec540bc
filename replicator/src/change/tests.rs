//! Whole ring changes, and conditions that block them.

use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::backend::{BucketFence, CallKind, EntryWrite, Want, WriteReply};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, Clock, ManualClock, Phase, Stamp};

use super::*;
use crate::run_once;
use crate::sync::SyncDevices;
use crate::testing::growth::{key_of, successor};
use crate::testing::multi_node::MultiNodeWorld;

mod storm;

const NEW: DeviceId = DeviceId(4);

fn worker(world: &MultiNodeWorld) -> RingChange {
    RingChange::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

/// Gives votes to devices without votes.
async fn sync(world: &MultiNodeWorld) {
    let mut sync = SyncDevices::new(world.shared.clone(), world.clock.clone(), DeviceScope::All);
    run_once(&mut sync).await.unwrap();
}

/// Runs the change, and gives votes to devices without, until no work is left for now.
async fn run(world: &MultiNodeWorld) -> StepProgress {
    world.clock.advance_ms(1000);
    sync(world).await;
    run_once(&mut worker(world)).await.unwrap()
}

/// Four devices that know their term, with `count` keys on them.
async fn world(count: u64) -> MultiNodeWorld {
    let world = MultiNodeWorld::new(4);
    run(&world).await;
    for number in 0..count {
        let key = key_of(number);
        let write = if number % 3 == 0 { world.inline(&key) } else { world.write(&key) };
        world.write_on(&world.primaries(&key), &write).await;
    }
    world
}

fn term(world: &MultiNodeWorld, phase: Phase) -> Term {
    Term::of(world.index().change(), phase)
}

async fn terms(world: &MultiNodeWorld, count: u32) -> Vec<Term> {
    let mut terms = Vec::new();
    for id in 0..count {
        terms.push(world.term_of(DeviceId(id)).await);
    }
    terms
}

async fn joined(world: &MultiNodeWorld, device: DeviceId) -> u64 {
    world.memory(device).devices().await.unwrap()[0].joined
}

/// Checks that all primaries of every key hold its first write or a newer one.
async fn assert_all_held(world: &MultiNodeWorld, count: u64) {
    for number in 0..count {
        let key = key_of(number);
        for device in world.primaries(&key) {
            let view = world.held(device, &key).await;
            assert!(view.entry.is_some(), "key {number} is missing on {device}");
            assert_eq!(view.inline.is_some(), number % 3 == 0, "key {number} on {device}");
        }
    }
}

#[tokio::test]
async fn devices_without_a_state_receive_the_rings_term() {
    let world = MultiNodeWorld::new(4);
    let progress = run_once(&mut worker(&world)).await.unwrap();
    assert_eq!((progress.done, progress.backlog), (4, 0));
    assert_eq!(terms(&world, 4).await, vec![term(&world, Phase::New); 4]);
    assert_eq!(run_once(&mut worker(&world)).await.unwrap().done, 0, "and that is all");
}

#[tokio::test]
async fn a_new_device_joins_with_everything_that_moves_to_it_and_decides_then() {
    let world = world(600).await;
    world.grow(4).await;
    let fence = BucketFence { bucket: key_of(1).bucket, generation: 3, open: true };
    world.memory(DeviceId(0)).fence(DeviceId(0), fence).await.unwrap();
    let progress = run(&world).await;
    assert_eq!((progress.backlog, progress.kept), (0, 0));
    assert_eq!(terms(&world, 5).await, vec![term(&world, Phase::New); 5]);
    assert_eq!(joined(&world, NEW).await, world.index().change());
    assert_all_held(&world, 600).await;
    assert_eq!(world.memory(NEW).fences(NEW).await.unwrap(), [fence]);
    // Registers were copied unchanged, without a ballot.
    let moved = world.key_moving_to(NEW);
    let orders: Vec<_> = world.primaries(&moved);
    let mut seen = Vec::new();
    for device in orders {
        seen.push(world.read_on(device, &moved).await.map(|entry| entry.order));
    }
    assert!(seen.iter().all(|order| *order == seen[0]));
    assert_eq!(run(&world).await.done, 0, "nothing is left to do");
}

/// Reply of a device to a first-hand write of a generation.
async fn reply_to(
    world: &MultiNodeWorld,
    device: DeviceId,
    key: &martlet_protocol::RegisterKey,
    generation: u64,
) -> Result<WriteReply> {
    let write = EntryWrite { generation, ..world.write(key) };
    world.memory(device).write(device, write).await
}

#[tokio::test]
async fn m2_a_new_holder_stores_no_first_hand_write_before_it_has_the_fences() {
    let world = world(600).await;
    world.grow(4).await;
    world.clock.advance_ms(1000);
    sync(&world).await;
    assert!(world.is_voting(NEW).await);
    let key = world.key_moving_to(NEW);
    let fence = BucketFence { bucket: key.bucket, generation: 3, open: true };
    for device in 0..4 {
        world.memory(DeviceId(device)).fence(DeviceId(device), fence).await.unwrap();
    }
    let absent = martlet_protocol::RegisterKey { name: "absent".into(), ..key };
    let mut worker = worker(&world);
    let joint = term(&world, Phase::Joint);
    let mut refused = 0;
    while joined(&world, NEW).await == 0 {
        match reply_to(&world, NEW, &absent, 2).await {
            Ok(reply) => assert_eq!(reply, WriteReply::Fenced),
            Err(error) => {
                assert!(error.had_no_effect(), "{error}");
                refused += 1;
            }
        }
        // A few registers a step: the joint phase takes several.
        worker.step().await.unwrap();
    }
    assert!(refused > 0 && world.term_of(NEW).await >= joint);
    // Above the floor of the device that joined.
    world.clock.advance_ms(120_000);
    assert_eq!(reply_to(&world, NEW, &absent, 2).await.unwrap(), WriteReply::Fenced);
    assert_eq!(reply_to(&world, NEW, &absent, 3).await.unwrap(), WriteReply::Stored);
}

#[tokio::test]
async fn p3_a_change_waits_until_most_nodes_have_the_ring() {
    let world = world(20).await;
    world.grow(4).await;
    sync(&world).await;
    world.shared.set_spread(&world.index(), false);
    let before = terms(&world, 5).await;
    for _ in 0..3 {
        let progress = run(&world).await;
        assert!(progress.kept > 0, "{progress:?}");
    }
    let begun = terms(&world, 5).await;
    assert_eq!(begun[..4], before[..4], "a change began that too few have heard of");
    assert!(begun.iter().all(|raised| *raised < term(&world, Phase::Joint)));
    world.shared.set_spread(&world.index(), true);
    assert_eq!(run(&world).await.backlog, 0);
    assert_eq!(terms(&world, 5).await, vec![term(&world, Phase::New); 5]);
}

#[tokio::test]
async fn a_joined_device_promises_nothing_that_old_holders_may_have_promised() {
    let world = world(50).await;
    world.grow(4).await;
    let far = Stamp::at_ms(world.clock.now_ms() + 60_000);
    run(&world).await;
    let absent = world.key_moving_to(NEW);
    let absent = martlet_protocol::RegisterKey { name: "absent".into(), ..absent };
    let reply = world.memory(NEW).promise(NEW, &absent, far, Term::ANY).await.unwrap();
    assert!(matches!(reply, martlet_protocol::backend::PromiseReply::Behind(_)));
}

/// A slow device delays the copy of fences. The floor and the time of the last calls are those after it.
#[tokio::test]
async fn a_device_whose_fences_take_minutes_joins_with_a_floor_above_the_present() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let (slow, passing) = (Arc::new(AtomicBool::new(false)), clock.clone());
    let is_slow = slow.clone();
    let world = MultiNodeWorld::wrapped(4, clock, move |_, inner| {
        let (slow, clock) = (is_slow.clone(), passing.clone());
        Arc::new(FaultyBackend::new(inner, move |call| {
            if call.op == CallKind::Fences && slow.load(Ordering::Relaxed) {
                clock.advance_ms(60_000);
            }
            Fault::None
        }))
    });
    run(&world).await;
    world.grow(4).await;
    sync(&world).await;
    slow.store(true, Ordering::Relaxed);
    assert_eq!(run_once(&mut worker(&world)).await.unwrap().backlog, 0);
    assert_eq!(joined(&world, NEW).await, world.index().change());
    let absent = world.key_moving_to(NEW);
    let absent = martlet_protocol::RegisterKey { name: "absent".into(), ..absent };
    let present = Stamp::at_ms(world.clock.now_ms());
    let reply = world.memory(NEW).promise(NEW, &absent, present, Term::ANY).await.unwrap();
    assert!(matches!(reply, martlet_protocol::backend::PromiseReply::Behind(_)), "{reply:?}");
}

#[tokio::test]
async fn a_write_on_one_previous_holder_is_settled_before_its_move() {
    let world = world(10).await;
    world.grow(4).await;
    let key = world.key_moving_to(NEW);
    let sets = world.step().sets(key.placement());
    let one = sets.members().next().unwrap();
    let partial = world.write(&key);
    world.write_on(&[one], &partial).await;
    run(&world).await;
    let entry = world.read_on(NEW, &key).await.unwrap();
    assert_eq!(entry.write_id, partial.entry.write_id);
    assert!(entry.order > partial.entry.order, "at a fresh ballot");
}

#[tokio::test]
async fn moves_are_found_once_for_a_ring_and_dropped_when_its_change_is_over() {
    let world = world(30).await;
    let (first, mut worker) = (world.index(), worker(&world));
    worker.step().await.unwrap();
    assert!(!worker.moves.is_of(&first), "nothing moves");
    for id in [4, 5] {
        let ring = world.grow(id).await;
        assert_eq!(worker.step().await.unwrap().backlog, ring.moves().len() as u64);
        assert!(worker.moves.is_of(&ring));
        sync(&world).await;
        worker.step().await.unwrap();
        assert_eq!(world.term_of(DeviceId(id)).await, term(&world, Phase::Joint));
        assert!(worker.moves.is_of(&ring));
        run_once(&mut worker).await.unwrap();
        assert_eq!(joined(&world, DeviceId(id)).await, ring.change());
        worker.step().await.unwrap();
        assert!(!worker.moves.is_of(&ring) && worker.joining.is_empty());
    }
    assert_eq!(terms(&world, 6).await, vec![term(&world, Phase::New); 6]);
    assert_all_held(&world, 30).await;
}

/// Another process ends the change while a device joins here.
#[tokio::test]
async fn a_device_that_joins_is_forgotten_when_another_process_ends_the_change() {
    let world = world(3000).await;
    world.grow(4).await;
    sync(&world).await;
    let mut slow = worker(&world);
    while slow.joining.is_empty() {
        slow.step().await.unwrap();
    }
    run(&world).await;
    assert_eq!(term(&world, Phase::New), world.term_of(NEW).await);
    let progress = slow.step().await.unwrap();
    assert!(slow.joining.is_empty() && progress.idle, "{progress:?}");
    assert_eq!((progress.backlog, progress.oldest_age_ms), (0, 0));
}

#[tokio::test]
async fn old_requests_are_refused_once_both_sets_decide() {
    let world = world(10).await;
    let before = term(&world, Phase::New);
    world.grow(4).await;
    let mut worker = worker(&world);
    assert_eq!(worker.step().await.unwrap().kept, 1, "the new one has no vote yet");
    sync(&world).await;
    worker.step().await.unwrap();
    for device in [NEW, DeviceId(0)] {
        let read = world.memory(device).read(device, &key_of(1), Want::Entry, before).await;
        assert_eq!(read.unwrap_err().newer_term(), Some(term(&world, Phase::Joint)));
    }
}

/// A quorum of the old set decides: one silent device doesn't block the change, two do.
#[tokio::test]
async fn silence_of_too_many_blocks_and_later_it_goes_on() {
    let world = world(300).await;
    world.grow(4).await;
    sync(&world).await;
    let ring = world.index();
    for silent in [DeviceId(0), DeviceId(1)] {
        world.memory(silent).set_offline(silent, true);
    }
    let progress = run(&world).await;
    assert!(progress.idle && progress.kept > 0, "{progress:?}");
    assert_eq!(progress.backlog, ring.moves().len() as u64);
    assert_eq!(joined(&world, NEW).await, 0);
    assert_eq!(world.term_of(DeviceId(2)).await, term(&world, Phase::Joint));
    world.memory(DeviceId(0)).set_offline(DeviceId(0), false);
    let progress = run(&world).await;
    assert_eq!(world.term_of(DeviceId(2)).await, term(&world, Phase::New), "{progress:?}");
    assert_eq!(world.term_of(DeviceId(1)).await, Term::of(ring.change(), Phase::Old));
    world.memory(DeviceId(1)).set_offline(DeviceId(1), false);
    run(&world).await;
    assert_eq!(terms(&world, 5).await, vec![term(&world, Phase::New); 5], "the late one is told");
    assert_all_held(&world, 300).await;
}

#[tokio::test]
async fn a_new_holder_that_is_silent_keeps_both_deciding() {
    let world = world(30).await;
    world.grow(4).await;
    sync(&world).await;
    worker(&world).step().await.unwrap();
    world.memory(NEW).set_offline(NEW, true);
    let progress = run(&world).await;
    assert!(progress.idle && progress.backlog > 0);
    assert_eq!(world.term_of(DeviceId(0)).await, term(&world, Phase::Joint));
    world.memory(NEW).set_offline(NEW, false);
    run(&world).await;
    assert_eq!(world.term_of(DeviceId(0)).await, term(&world, Phase::New));
    assert_all_held(&world, 30).await;
}

/// A new holder that is wiped in the joint phase gets its votes from both sets, and joins anew.
#[tokio::test]
async fn a_new_holder_that_is_wiped_meanwhile_begins_anew() {
    let world = world(300).await;
    world.grow(4).await;
    let mut worker = worker(&world);
    sync(&world).await;
    let both = term(&world, Phase::Joint);
    for _ in 0..3 {
        worker.step().await.unwrap();
    }
    assert_eq!(world.term_of(NEW).await, both);
    world.wipe(NEW).await;
    for _ in 0..10 {
        worker.step().await.unwrap();
        assert_eq!(world.term_of(DeviceId(0)).await, both, "it has to wait for its votes");
    }
    run(&world).await;
    assert_eq!(terms(&world, 5).await, vec![term(&world, Phase::New); 5]);
    assert_all_held(&world, 300).await;
}

/// A device of both sets that is wiped in the joint phase copies from previous holders too.
#[tokio::test]
async fn a_holder_that_is_wiped_meanwhile_learns_from_those_before_too() {
    let world = world(60).await;
    world.grow(4).await;
    sync(&world).await;
    worker(&world).step().await.unwrap();
    let key = world.key_moving_to(NEW);
    let sets = world.step().sets(key.placement());
    let gone = sets.set(0).find(|id| !sets.is_of(1, *id)).unwrap();
    let common = sets.members().next().unwrap();
    // Known to the leaving device and to the device that forgets.
    let write = world.write(&key);
    world.write_on(&[gone, common], &write).await;
    world.wipe(common).await;
    world.memory(gone).set_offline(gone, true);
    sync(&world).await;
    assert!(!world.is_voting(common).await, "who leaves is asked too");
    world.memory(gone).set_offline(gone, false);
    run(&world).await;
    assert!(world.is_voting(common).await);
    assert_eq!(world.term_of(common).await, term(&world, Phase::New));
    let entry = world.read_on(common, &key).await.unwrap();
    assert_eq!(entry.write_id, write.entry.write_id);
}

/// A dead device is removed from the ring: the remaining quorums have its contents.
#[tokio::test]
async fn data_of_a_removed_device_is_copied_from_the_others() {
    let world = world(300).await;
    let dead = DeviceId(1);
    world.memory(dead).set_offline(dead, true);
    let ring = successor(&world.index(), |builder| {
        builder.remove(dead, true).unwrap();
    });
    assert!(ring.device(dead).is_none() && ring.moves().len() > 100);
    world.follow(ring);
    let progress = run(&world).await;
    assert_eq!((progress.backlog, progress.kept), (0, 0), "{progress:?}");
    for device in [0, 2, 3].map(DeviceId) {
        assert_eq!(world.term_of(device).await, term(&world, Phase::New));
    }
    assert_all_held(&world, 300).await;
}

/// Copying is interrupted again and again, by a process that ends.
#[tokio::test]
async fn a_new_holder_reads_each_register_once_and_goes_on_where_it_was() {
    let walks = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = walks.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |device, memory| {
        let counted = counted.clone();
        Arc::new(FaultyBackend::new(memory, move |call| {
            let reads = matches!(call.op, CallKind::Walk | CallKind::Read) && device != NEW;
            counted.fetch_add(u64::from(reads), Ordering::SeqCst);
            Fault::None
        }))
    });
    run(&world).await;
    for number in 0..3000 {
        let key = key_of(number);
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
    }
    // No register may have changed since the sums were compared.
    world.clock.advance_ms(60 * 60 * 1000);
    let ring = world.grow(4).await;
    sync(&world).await;
    let mut steps = 0;
    while joined(&world, NEW).await < ring.change() {
        worker(&world).step().await.unwrap();
        steps += 1;
        assert!(steps < 40, "it begins at zero again and again");
    }
    assert!(steps > 4, "{steps}");
    let partitions = ring.moves().len() as u64;
    let walks = walks.load(Ordering::SeqCst);
    // One walk of one source for each partition, and one more where a step ended within it.
    assert!(walks <= partitions + steps, "{walks} walks for {partitions} partitions");
    run(&world).await;
    for number in 0..3000 {
        for device in world.primaries(&key_of(number)) {
            assert!(world.held(device, &key_of(number)).await.entry.is_some(), "{number}");
        }
    }
}
