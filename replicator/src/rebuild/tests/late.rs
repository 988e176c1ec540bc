//! Deletes of extents that come late: a hold is in force, and a rebuild has brought an entry back (rule X8).

use martlet_protocol::ErrorKind;
use martlet_protocol::backend::Presence;

use super::*;
use crate::testing::delayed::DelayedCalls;
use crate::{Reclaim, ReclaimOptions};

/// Writes an entry that names an extent, as a rebuild does.
async fn bring_back(world: &MultiNodeWorld, key: &RegisterKey, extent: ExtentRef) {
    let (extents, parts, part_checksums) = (vec![extent], Vec::new(), Vec::new());
    let body = Body::Extents(Manifest { policy: POLICY, extents, parts, part_checksums });
    let entry = write(key, world.stamps.issue(), 100, body);
    world.write_on(&world.primaries(key), &entry).await;
}

/// Checks that deletes that are on their way are refused once a hold is in force, and that all copies
/// stay.
async fn check_refused(
    world: &MultiNodeWorld,
    delayed: &DelayedCalls,
    key: &RegisterKey,
    extent: ExtentRef,
) {
    delayed.delay(None);
    IndexLoss::hold(&world.shared, &clock(world)).await.unwrap();
    world.clock.advance_ms(HOLD_SETTLES_MS);
    bring_back(world, key, extent).await;
    let outcomes = delayed.deliver(world).await;
    assert!(!outcomes.is_empty());
    for outcome in outcomes {
        let refusal = outcome.unwrap_err();
        assert!(refusal.kind() == ErrorKind::Unavailable && refusal.had_no_effect(), "{refusal}");
    }
    for home in homes(world, extent.id) {
        let presence = world.memory(home).presence(home, &[extent.id]).await.unwrap();
        assert_eq!(presence, [Presence::Here], "{home}");
    }
}

/// An extent without an entry, whose deletes by the sweep are on their way to its three homes.
async fn swept_late() -> (MultiNodeWorld, DelayedCalls, RegisterKey, ExtentRef) {
    let (world, delayed) = DelayedCalls::world(7);
    make_bucket(&world).await;
    let key = key_with(&world, 3);
    let extent = store(&world, &key, 100).await;
    world.clock.advance_ms(2 * COMMIT_WINDOW_MS);
    let mut sweep = sweep(&world);
    run_once(&mut sweep).await.unwrap();
    world.clock.advance_ms(2 * GRACE_MS);
    delayed.delay(Some("delete-"));
    for _ in 0..3 {
        sweep.step().await.unwrap_err();
    }
    delayed.delay(None);
    assert!(has(&world, extent).await);
    (world, delayed, key, extent)
}

#[tokio::test(start_paused = true)]
async fn x8_late_deletes_of_the_sweep_take_nothing_that_a_rebuild_brought_back() {
    let (world, delayed, key, extent) = swept_late().await;
    check_refused(&world, &delayed, &key, extent).await;
    // In time they are executed.
    let (world, delayed, _, extent) = swept_late().await;
    world.clock.advance_ms(10_000);
    let outcomes = delayed.deliver(&world).await;
    assert!(outcomes.len() == 3 && outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(!has(&world, extent).await);
}

#[tokio::test(start_paused = true)]
async fn x8_late_deletes_of_reclaim_take_nothing_that_a_rebuild_brought_back() {
    let (world, delayed) = DelayedCalls::world(7);
    make_bucket(&world).await;
    let key = key_with(&world, 3);
    let extent = put(&world, &key).await;
    world.clock.advance_ms(1);
    let newer = write(&key, world.stamps.issue(), 0, Body::Empty);
    world.write_on(&world.primaries(&key), &newer).await;
    world.clock.advance_ms(2 * GRACE_MS);
    let options = ReclaimOptions { grace_ms: GRACE_MS };
    let mut reclaim = Reclaim::new(world.shared.clone(), world.clock.clone(), options);
    delayed.delay(Some("delete-"));
    let progress = run_once(&mut reclaim).await.unwrap();
    assert!(progress.freed == 0 && progress.kept > 0, "{progress:?}");
    check_refused(&world, &delayed, &key, extent).await;
}

#[tokio::test(start_paused = true)]
async fn x8_a_late_delete_for_a_mark_elsewhere_takes_nothing_that_a_rebuild_brought_back() {
    let (world, delayed) = DelayedCalls::world(7);
    make_bucket(&world).await;
    let key = key_with(&world, 3);
    let extent = store(&world, &key, 100).await;
    let device = homes(&world, extent.id)[1];
    let records = world.memory(device).list_extents(device, None, usize::MAX).await.unwrap();
    let mut progress = StepProgress::default();
    delayed.delay(Some("delete-"));
    // The copies that are missing elsewhere don't wait for a device that refuses.
    check_marks(&world.step(), device, records, &*world.clock, &mut progress).await.unwrap();
    assert!(progress.done == 0 && progress.freed == 0 && progress.kept > 0, "{progress:?}");
    check_refused(&world, &delayed, &key, extent).await;
}

#[tokio::test(start_paused = true)]
async fn x8_the_time_of_deletes_begins_with_the_look_at_the_hold() {
    let world = MultiNodeWorld::new(5);
    let hold = CollectionHold::default();
    let deletes = async || hold.deletes(&world.step(), world.clock.now_ms()).await;
    let looked_ms = world.clock.now_ms();
    let first = deletes().await.unwrap();
    assert!((looked_ms..looked_ms + HOLD_SETTLES_MS).contains(&first.not_after_ms), "{first:?}");
    world.clock.advance_ms(9_000);
    assert_eq!(deletes().await, Some(first), "the state is kept");
    world.clock.advance_ms(1_000);
    let next = deletes().await.unwrap();
    assert_eq!(next.not_after_ms, first.not_after_ms + 10_000);
    IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    world.clock.advance_ms(HOLD_SETTLES_MS);
    assert_eq!(deletes().await, None);
    let now_ms = world.clock.now_ms();
    assert_eq!(CollectionHold::deletes_now(&world.step(), now_ms).await, None);
}
