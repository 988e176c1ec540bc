//! Releases that come late: after a ring change, or after primaries lost their copies (rule X9).

use martlet_protocol::backend::{RingEpoch, RingEpochs};
use martlet_protocol::testing::MemoryBackend;
use martlet_ring::Ring;

use super::*;
use crate::testing::delayed::DelayedCalls;
use crate::testing::growth::successor;

fn known_ring(world: &MultiNodeWorld) -> RingEpoch {
    let ring = world.data(POLICY);
    RingEpoch::of(POLICY, ring.epoch(), &ring.hash())
}

/// Nodes that know the ring of extents.
fn know_ring(world: &MultiNodeWorld, nodes: impl IntoIterator<Item = u32>) -> Vec<Arc<RingEpochs>> {
    let ring = known_ring(world);
    let nodes = nodes.into_iter().map(DeviceId);
    let known = nodes.map(|device| {
        let rings = Arc::new(RingEpochs::default());
        rings.raise(ring);
        let memory = MemoryBackend::new(world.clock.clone(), [device]).with_rings(rings.clone());
        world.put_in_place(device, Arc::new(memory));
        rings
    });
    known.collect()
}

fn set_shared_ring(world: &MultiNodeWorld, ring: Arc<Ring>) {
    world.edit(|parts| {
        parts.data.insert(POLICY, ring);
    });
}

/// Moves everything from the first three devices to the others, over several rings.
fn turn_over(world: &MultiNodeWorld) {
    let mut ring = world.data(POLICY);
    for gone in 0..3 {
        ring = successor(&ring, |builder| builder.set_weight(DeviceId(gone), 0.0).unwrap());
    }
    set_shared_ring(world, ring);
}

/// Extents on all six devices; the ring names the first three.
async fn strays(world: &MultiNodeWorld) -> Vec<ExtentId> {
    let all: Vec<DeviceId> = (0..6).map(DeviceId).collect();
    let ids: Vec<ExtentId> = (0..4).map(extent_id).collect();
    for id in &ids {
        world.extent_on(&all, *id, "object").await;
    }
    world.clock.advance_ms(60_000);
    ids
}

fn weights(first: f64, last: f64) -> Ring {
    ring_of((0..6).map(|id| (id, if id < 3 { first } else { last })))
}

#[tokio::test]
async fn releases_by_two_rings_never_drop_all_copies() {
    for knows in [true, false] {
        let (world, delayed) = DelayedCalls::world(6);
        world.set_data_ring(weights(1.0, 0.0));
        let rings = know_ring(&world, 0..6);
        let ids = strays(&world).await;
        // The releases of the last three devices are on their way.
        delayed.delay(Some("release"));
        run(&world).await;
        delayed.delay(None);
        assert!(ids.iter().all(|id| world.copies(6)[id].len() == 6));
        // They are primaries of the next rings, by which the first three release theirs.
        let widened = successor(&world.data(POLICY), |builder| {
            (3..6).for_each(|id| builder.set_weight(DeviceId(id), 1.0).unwrap());
        });
        set_shared_ring(&world, widened);
        turn_over(&world);
        assert!(ids.iter().all(|id| world.data_primaries(*id).iter().all(|it| it.0 > 2)));
        if knows {
            for ring in &rings {
                ring.raise(known_ring(&world));
            }
        }
        let progress = run(&world).await;
        // A node without the ring states nothing by it.
        assert_eq!(progress.freed > 0, knows);
        let outcomes = delayed.deliver(&world).await;
        assert!(!outcomes.is_empty());
        assert_eq!(outcomes.iter().all(Result::is_err), knows);
        for id in &ids {
            assert!(world.copies(6).get(id).is_some_and(|it| it.len() >= 3), "knows {knows}");
        }
    }
}

#[tokio::test]
async fn a_release_that_comes_after_primaries_lost_their_copies_is_refused() {
    let (world, delayed) = DelayedCalls::world(6);
    world.set_data_ring(weights(1.0, 0.0));
    let ids = strays(&world).await;
    delayed.delay(Some("release"));
    run(&world).await;
    delayed.delay(None);
    // Minutes later the disks of all primaries are gone.
    world.clock.advance_ms(5 * 60_000);
    for device in (0..3).map(DeviceId) {
        world.wipe(device).await;
    }
    let outcomes = delayed.deliver(&world).await;
    assert!(outcomes.len() >= 3 && outcomes.iter().all(Result::is_err));
    for id in &ids {
        assert_eq!(world.copies(6)[id].len(), 3);
    }
}

#[tokio::test]
async fn a_release_that_comes_twice_drops_no_copy_with_other_bytes() {
    let (world, delayed) = DelayedCalls::world(6);
    world.set_data_ring(weights(1.0, 0.0));
    let ids = strays(&world).await;
    delayed.delay(Some("release"));
    run(&world).await;
    delayed.delay(None);
    run(&world).await;
    assert!(ids.iter().all(|id| world.copies(6)[id].len() == 3), "the second release went through");
    // The same bytes come back: what is named may go while the condition holds.
    let stray = DeviceId(4);
    world.extent_on(&[stray], ids[0], "object").await;
    assert!(delayed.deliver(&world).await.iter().all(Result::is_ok));
    assert_eq!(world.copies(6)[&ids[0]].len(), 3);
}

#[tokio::test]
async fn a_node_of_an_earlier_release_keeps_its_copies() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(6, clock, |_, memory| {
        let lacks = |op| matches!(op, CallKind::ReleaseCopies | CallKind::PresenceBy);
        Arc::new(FaultyBackend::new(memory, move |call| {
            if lacks(call.op) { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
        }))
    });
    world.set_data_ring(weights(1.0, 0.0));
    let ids = strays(&world).await;
    let progress = run(&world).await;
    assert_eq!(progress.freed, 0);
    assert!(progress.kept > 0 && ids.iter().all(|id| world.copies(6)[id].len() == 6));
}

/// A node whose clock is ahead refuses each release. Its other extents are copied all the same, in
/// the same pass.
#[tokio::test]
async fn refused_releases_do_not_stop_the_repair_of_other_extents() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(6, clock, |_, memory| {
        Arc::new(FaultyBackend::new(memory, move |call| match call.op {
            CallKind::ReleaseCopies => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        }))
    });
    world.set_data_ring(weights(1.0, 0.0));
    let ids = strays(&world).await;
    let alone: Vec<ExtentId> = (100..1400).map(extent_id).collect();
    for id in &alone {
        world.extent_on(&[DeviceId(4)], *id, "object").await;
    }
    world.clock.advance_ms(60_000);
    let progress = run(&world).await;
    assert!(ids.iter().all(|id| world.copies(6)[id].len() == 6), "strays stay");
    let copies = world.copies(6);
    let lacking = alone.iter().filter(|id| copies[*id].len() < 4).count();
    assert_eq!((lacking, progress.freed), (0, 0), "{progress:?}");
}
