//! Copies whose bytes change on their way, and devices with different bytes under one id.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use martlet_protocol::testing::Call;

use super::*;
use crate::replicate::copy::copy_back;

/// A cluster whose writes of extents meet `fault` while the switch is on.
fn world(count: u32, fault: Fault) -> (MultiNodeWorld, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let switch = is_on.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(count, clock, move |_, memory| {
        let is_on = switch.clone();
        let choose = move |call: &Call<'_>| match call.op {
            CallKind::WriteExtent if is_on.load(Ordering::SeqCst) => fault,
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    (world, is_on)
}

async fn worker_ends(world: &MultiNodeWorld, after: Duration) -> bool {
    tokio::time::timeout(after, run(world)).await.is_ok()
}

/// Writes one extent to the first of its primaries alone, old enough to be copied.
async fn lacking(world: &MultiNodeWorld) -> (ExtentId, Vec<DeviceId>) {
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    world.extent_on(&primaries[..1], id, "object").await;
    world.clock.advance_ms(60_000);
    (id, primaries)
}

/// The reply is lost, or the worker dies before it: in both cases no worker compares.
#[tokio::test(start_paused = true)]
async fn bytes_that_change_on_the_way_to_a_primary_are_never_stored() {
    let cancelled = Duration::from_secs(1);
    let waits_for_reply = Duration::from_hours(1);
    for (byte, after) in [(0, cancelled), (15, cancelled), (7, waits_for_reply)] {
        let (world, is_on) = world(3, Fault::FlipByte(byte));
        let (id, primaries) = lacking(&world).await;
        is_on.store(true, Ordering::SeqCst);
        assert_eq!(worker_ends(&world, after).await, after == waits_for_reply);
        assert_eq!(world.copies(3)[&id], [primaries[0]], "byte {byte}");
        is_on.store(false, Ordering::SeqCst);
        run(&world).await;
        let right = world.record(primaries[0], id).await;
        for device in primaries {
            assert_eq!(world.record(device, id).await, right);
        }
    }
}

#[tokio::test]
async fn a_refused_copy_is_compared_with_the_copy_that_is_there() {
    let (world, is_on) = world(3, Fault::Refuse(ErrorKind::Conflict));
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    world.extent_on(&primaries, id, "object").await;
    let record = world.record(primaries[0], id).await;
    is_on.store(true, Ordering::SeqCst);
    let step = world.step();
    assert_eq!(copy(&step, &record, primaries[0], primaries[1]).await.unwrap(), 0);
    // Other bytes of the same length.
    world.replace_copy(primaries[1], id, 16).await;
    let error = copy(&step, &record, primaries[0], primaries[1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // Only the manifest knows which of the two are right.
    assert_eq!(world.copies(3)[&id].len(), 3);
    world.memory(primaries[1]).release_extents(primaries[1], &[id]).await.unwrap();
    let error = copy(&step, &record, primaries[0], primaries[1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "it was deleted there: {error}");
}

#[tokio::test]
async fn a_primary_with_other_bytes_keeps_the_right_copies_of_former_holders() {
    let world = MultiNodeWorld::new(5);
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    let stray = (0..5).map(DeviceId).find(|device| !primaries.contains(device)).unwrap();
    let mut all = primaries.clone();
    all.push(stray);
    world.extent_on(&all, id, "object").await;
    let right = world.record(stray, id).await;
    // Other bytes of the same length.
    world.replace_copy(primaries[1], id, 16).await;
    world.clock.advance_ms(60_000);
    for _ in 0..3 {
        let progress = run(&world).await;
        assert_eq!(progress.freed, 0);
        assert!(progress.kept > 0, "the wait is reported");
    }
    assert_eq!(world.record(stray, id).await, right);
    // An operator, or the audit, removes the wrong copy.
    world.memory(primaries[1]).release_extents(primaries[1], &[id]).await.unwrap();
    for _ in 0..2 {
        run(&world).await;
    }
    assert!(world.is_in_place(5, &[id]));
    assert_eq!(world.record(primaries[1], id).await, right);
}

#[tokio::test]
async fn neither_of_two_contents_is_spread_to_a_third_primary() {
    let world = MultiNodeWorld::new(3);
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    world.extent_on(&primaries[..2], id, "object").await;
    // Other bytes of the same length.
    world.replace_copy(primaries[1], id, 16).await;
    world.clock.advance_ms(60_000);
    for _ in 0..3 {
        let progress = run(&world).await;
        assert_eq!(progress.copied, 0);
    }
    let error = copy_back(&world.step(), primaries[2], id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(world.copies(3)[&id].len(), 2);
}
