//! Calls that give votes, floors and joined changes, and come late or to another device (rules G1, G2).

use martlet_protocol::ErrorKind;

use super::*;
use crate::testing::delayed::DelayedCalls;

/// Syncs the wiped device; the last call is on its way.
async fn sync_without_end(world: &MultiNodeWorld, delayed: &DelayedCalls, name: &'static str) {
    let key = key_on(world, WIPED);
    world.write_on(&world.primaries(&key), &world.write(&key)).await;
    world.wipe(WIPED).await;
    delayed.delay(Some(name));
    assert_eq!(run(world).await.done, 0);
    delayed.delay(None);
    assert!(!world.is_voting(WIPED).await);
}

#[tokio::test]
async fn votes_for_a_device_are_no_votes_for_the_next_disk_in_its_place() {
    let (world, delayed) = DelayedCalls::world(5);
    sync_without_end(&world, &delayed, "set-voting").await;
    world.wipe(WIPED).await;
    let outcomes = delayed.deliver(&world).await;
    assert!(!outcomes.is_empty());
    assert!(!world.is_voting(WIPED).await, "the new disk is empty");
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(run(&world).await.done, 1, "it gets its own votes after its own sync");
}

#[tokio::test]
async fn votes_that_come_after_minutes_are_refused() {
    let (world, delayed) = DelayedCalls::world(5);
    sync_without_end(&world, &delayed, "set-voting").await;
    // The device got its votes by another try, and has lost them since by wrong sums.
    assert_eq!(run(&world).await.done, 1);
    world.memory(WIPED).set_voting(WIPED, false).await.unwrap();
    world.clock.advance_ms(5 * 60_000);
    for outcome in delayed.deliver(&world).await {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(!world.is_voting(WIPED).await);
}

#[tokio::test]
async fn a_floor_counts_on_the_disk_that_has_it_alone() {
    let (world, delayed) = DelayedCalls::world(5);
    sync_without_end(&world, &delayed, "raise-floor").await;
    let key = key_on(&world, WIPED);
    let peer = others(&world, &key, WIPED)[0];
    let old = world.memory(peer);
    world.wipe(peer).await;
    let refused = delayed.deliver(&world).await;
    assert!(refused.iter().any(|it| it.as_ref().is_err_and(|it| it.kind() == ErrorKind::Conflict)));
    // The old disk returns. It has no floor, and the new sync raises it again.
    old.set_offline(peer, false);
    world.put_in_place(peer, old);
    assert_eq!(world.held(peer, &key).await.promise, Stamp::ZERO);
}
