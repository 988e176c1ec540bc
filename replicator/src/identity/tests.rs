//! Identity rounds use the sets and name the term; `replace` decides on a quorum's entry.

use std::sync::Arc;

use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Value;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, Clock, ErrorKind, ManualClock, Phase, WriteId};
use parking_lot::Mutex;

use super::*;
use crate::collect::{Collect, CollectOptions};
use crate::testing::multi_node::{MultiNodeWorld, key};
use crate::{DeviceScope, run_once};

fn tombstone() -> Candidate {
    let entry = Entry { order: Stamp::ZERO, write_id: WriteId::random(), value: Value::Tombstone };
    Candidate { entry, inline: None, keep_body: false }
}

#[tokio::test]
async fn while_both_sets_decide_a_round_needs_a_quorum_of_each() {
    let world = MultiNodeWorld::new(4);
    world.grow(4).await;
    let new = DeviceId(4);
    world.memory(new).set_voting(new, true).await.unwrap();
    let ring = world.index();
    let joint = Term::of(ring.change(), Phase::Joint);
    world.shared.raise_term(joint);
    let key = world.key_moving_to(new);
    let sets = world.step().sets(key.placement());
    assert!(sets.is_joint());
    let write = world.write(&key);
    let common: Vec<DeviceId> =
        sets.members().filter(|id| sets.is_of(0, *id) && sets.is_of(1, *id)).collect();
    world.write_on(&common[..1], &write).await;
    // Without a device of both sets and the new device, the new set has no quorum, but the old set
    // has.
    for device in [common[1], new] {
        world.memory(device).set_offline(device, true);
    }
    let cluster = world.step();
    let settled = run_round(&cluster, &world.stamps, &key, None, Stamp::ZERO).await;
    assert!(settled.is_err());
    world.memory(new).set_offline(new, false);
    let settled =
        run_round(&cluster, &world.stamps, &key, None, Stamp::ZERO).await.unwrap().unwrap();
    assert_eq!(settled.entry.write_id, write.entry.write_id);
    assert_eq!(world.read_on(new, &key).await, Some(settled.entry));
}

#[tokio::test]
async fn a_worker_that_receives_a_newer_term_restarts_under_it() {
    let world = MultiNodeWorld::new(4);
    let key = key("k");
    let write = world.write(&key);
    world.write_on(&world.primaries(&key), &write).await;
    let new = Term::of(world.index().change(), Phase::New);
    for device in world.primaries(&key) {
        world.memory(device).raise_term(device, new).await.unwrap();
    }
    let cluster = world.step();
    assert_eq!(cluster.term(), Term::NONE);
    let settled = run_round(&cluster, &world.stamps, &key, None, Stamp::ZERO).await.unwrap();
    assert_eq!(settled.unwrap().entry.write_id, write.entry.write_id);
    assert_eq!(cluster.term(), new);
}

#[tokio::test]
async fn a_ring_that_is_over_is_no_base_for_a_round() {
    let world = MultiNodeWorld::new(4);
    let key = key("k");
    world.write_on(&world.primaries(&key), &world.write(&key)).await;
    let later = Term::of(world.index().change() + 1, Phase::Joint);
    for device in world.primaries(&key) {
        world.memory(device).raise_term(device, later).await.unwrap();
    }
    let cluster = world.step();
    assert!(run_round(&cluster, &world.stamps, &key, None, Stamp::ZERO).await.is_err());
    assert!(cluster.is_behind() && cluster.holders(key.placement()).in_transition);
}

#[tokio::test]
async fn a_replacement_is_decided_on_the_newest_write_and_ordered_above() {
    let world = MultiNodeWorld::new(4);
    let key = key("k");
    let primaries = world.primaries(&key);
    let (old, new) = (world.write(&key), world.write(&key));
    world.write_on(&primaries, &old).await;
    world.write_on(&primaries[..2], &new).await;
    let cluster = world.step();
    let only =
        |id: WriteId| move |found: Option<Candidate>| (found?.entry.write_id == id).then(tombstone);
    world.memory(primaries[2]).set_offline(primaries[2], true);
    let kept = replace(&cluster, &world.stamps, &key, only(old.entry.write_id)).await.unwrap();
    assert_eq!(kept, None, "another has come between");
    assert_eq!(world.read_on(primaries[0], &key).await, Some(new.entry.clone()));
    let replaced = replace(&cluster, &world.stamps, &key, only(new.entry.write_id)).await;
    let order = replaced.unwrap().unwrap().entry.order;
    assert!(order > new.entry.order);
    let held = world.read_on(primaries[1], &key).await.unwrap();
    assert!(held.value.is_tombstone() && held.order == order);
}

type SentWrites = Arc<Mutex<Vec<(DeviceId, EntryWrite)>>>;

/// Makes a cluster whose replicas get no write; returns the writes that were sent to them.
fn with_stopped_writes() -> (MultiNodeWorld, SentWrites) {
    let sent = SentWrites::default();
    let seen = sent.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let seen = seen.clone();
        let choose = move |call: &Call<'_>| {
            let Some(write) = call.write.filter(|_| call.op == CallKind::Write) else {
                return Fault::None;
            };
            seen.lock().push((call.device, write.clone()));
            Fault::Refuse(ErrorKind::Unavailable)
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    (world, sent)
}

#[tokio::test]
async fn a_write_stopped_before_its_accept_restores_no_collected_key() {
    for known_before in [false, true] {
        let (world, sent) = with_stopped_writes();
        let (key, age_ms) = (key("k"), 2 * FIRST_HAND_AGE_MS_MAX);
        let primaries = world.primaries(&key);
        let write = world.write(&key);
        world.write_on(&primaries, &write).await;
        let read_ms = world.clock.now_ms();
        let cluster = world.step();
        if !known_before {
            let settled = run_round(&cluster, &world.stamps, &key, None, Stamp::ZERO).await;
            assert!(settled.is_err(), "its accepts are on their way");
        }
        let mut gone = world.write(&key);
        gone.entry.value = Value::Tombstone;
        world.write_on(&primaries, &gone).await;
        let collect = CollectOptions { age_ms };
        let mut collect =
            Collect::new(world.shared.clone(), world.clock.clone(), DeviceScope::All, collect);
        for _ in 0..3 {
            world.clock.advance_ms(age_ms + 1000);
            run_once(&mut collect).await.unwrap();
        }
        if known_before {
            let candidate = Candidate { entry: write.entry, inline: None, keep_body: false };
            let known = Some(ReadCandidate { candidate, read_ms });
            assert!(run_round(&cluster, &world.stamps, &key, known, Stamp::ZERO).await.is_err());
        }
        let late = std::mem::take(&mut *sent.lock());
        assert_eq!(late.len(), 3);
        for (device, write) in late {
            assert_eq!(world.held(device, &key).await.entry, None);
            let reply = world.memory(device).write(device, write).await.unwrap();
            assert_eq!(reply, WriteReply::OutOfTime);
        }
        assert_eq!(world.read_on(primaries[0], &key).await, None);
    }
}
