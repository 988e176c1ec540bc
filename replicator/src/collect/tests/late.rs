//! Drops of tombstones that come late: after the next ring change, or after minutes (rules T1, P3).

use martlet_protocol::ErrorKind;

use super::*;
use crate::testing::delayed::DelayedCalls;

/// A tombstone whose drops are on their way to its primaries.
async fn drops_under_way() -> (MultiNodeWorld, DelayedCalls, RegisterKey) {
    let (world, delayed) = DelayedCalls::world(5);
    delete_in(&world, 1).await;
    delayed.delay(Some("drop-"));
    assert_eq!(run(&world).await.done, 0);
    delayed.delay(None);
    let key = key_of(0);
    assert_eq!(holders(&world, &key).await, 3);
    (world, delayed, key)
}

/// Delivers the drops; returns the kinds of their errors.
async fn refusals(world: &MultiNodeWorld, delayed: &DelayedCalls) -> Vec<ErrorKind> {
    let outcomes = delayed.deliver(world).await;
    assert!(!outcomes.is_empty());
    outcomes.into_iter().filter_map(|outcome| outcome.err().map(|error| error.kind())).collect()
}

#[tokio::test]
async fn t1_a_drop_that_comes_after_minutes_is_refused() {
    let (world, delayed, key) = drops_under_way().await;
    world.clock.advance_ms(5 * 60_000);
    let refused = refusals(&world, &delayed).await;
    assert!(refused.iter().all(|kind| *kind == ErrorKind::Unavailable), "{refused:?}");
    assert_eq!(holders(&world, &key).await, 3, "a copy of the entry may have come meanwhile");
    // In time it is executed.
    let (world, delayed, key) = drops_under_way().await;
    world.clock.advance_ms(30_000);
    assert_eq!(refusals(&world, &delayed).await, []);
    assert!(holders(&world, &key).await < 3);
    assert_eq!(run(&world).await.kept, 0);
    assert_eq!(holders(&world, &key).await, 0);
}

#[tokio::test]
async fn t1_a_drop_of_an_earlier_term_is_refused() {
    let (world, delayed, key) = drops_under_way().await;
    for device in world.devices() {
        world.memory(device).raise_term(device, Term(world.step().term().0 + 1)).await.unwrap();
    }
    let refused = refusals(&world, &delayed).await;
    assert!(refused.iter().all(|kind| *kind == ErrorKind::Conflict), "{refused:?}");
    assert_eq!(holders(&world, &key).await, 3);
}

/// Promises alone are dropped under the same condition.
#[tokio::test]
async fn t1_a_late_drop_of_a_promise_is_refused() {
    let (world, delayed) = DelayedCalls::world(5);
    let key = key("promised");
    let primaries = world.primaries(&key);
    world.promise_on(&primaries, &key, world.stamps.issue()).await;
    world.clock.advance_ms(2 * PROMISE_AGE_MS);
    delayed.delay(Some("drop-"));
    run(&world).await;
    delayed.delay(None);
    world.clock.advance_ms(5 * 60_000);
    let refused = refusals(&world, &delayed).await;
    assert!(refused.iter().all(|kind| *kind == ErrorKind::Unavailable), "{refused:?}");
    let held = world.held(primaries[0], &key).await;
    assert!(held.promise > Stamp::ZERO, "{held:?}");
}
