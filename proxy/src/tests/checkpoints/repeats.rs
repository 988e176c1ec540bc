//! Clients that repeat requests, leave before the reply, or save again before a generation is complete.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::Clock;

use super::crashes::{REFUSED, refuse_manifests, save_shards};
use super::late::{STANDSTILL, is_marker, reason, until_set};
use super::removal::{SHARD, after_grace, version_of};
use super::*;
use crate::tests::conditional::create_only;

const OTHER: &str = "run-1/step-1/__1_0.distcp";
/// Longest wait for what a process does in the background.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a generation is in the view.
async fn until_shown(store: &ObjectStore, key: &str, clock: &ManualClock) {
    let begun = std::time::Instant::now();
    while view(store, key).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", store.checkpoints().set("b", SET).await);
        upkeep(store).await;
        clock.advance_ms(1);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_copy_that_a_client_repeats_changes_no_generation() {
    let rules = r#"{"rules": [{"pattern": "s-*/", "profile": "orbax", "settle": 60}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    save(store, "s-1/a", b"bytes").await;
    let noted = version_of(&harness, "s-1/a").await;
    let outcome = save(store, "s-1/commit_success.txt", b"").await.unwrap();
    assert!(is_pending(&outcome, "settling for 60 s"), "{outcome}");
    // No reply came in time, so the client sends the same again.
    clock.advance_ms(50_000);
    save(store, "s-1/a", b"bytes").await;
    save(store, "s-1/b", b"late").await;
    assert_eq!(upkeep(store).await.done, 0);
    clock.advance_ms(11_000);
    assert_eq!(upkeep(store).await.done, 1);
    assert_eq!(listed(store, "s-1/", None).await, ["s-1/a", "s-1/b", "s-1/commit_success.txt"]);
    assert_eq!(store.checkpoints().resolve("b", "s-1/a").await.unwrap().version, Some(noted));
    assert_eq!(view(store, "s-1/a").await.unwrap(), "bytes");
    assert!(store.versions().delete("b", "s-1/a", noted).await.is_err(), "it is pinned");
}

#[tokio::test]
async fn a_marker_that_a_client_repeats_makes_the_generation_of_its_last_version() {
    let rules = r#"{"rules": [{"pattern": "s-*/", "profile": "orbax", "settle": 60}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    save(store, "s-1/a", b"bytes").await;
    save(store, "s-1/commit_success.txt", b"").await;
    clock.advance_ms(50_000);
    save(store, "s-1/commit_success.txt", b"").await;
    clock.advance_ms(11_000);
    upkeep(store).await;
    let first = state(store, "s-1/").await.generations.remove(0);
    assert!(first.reason.unwrap().contains("commit_success.txt was replaced"));
    clock.advance_ms(50_000);
    upkeep(store).await;
    upkeep(store).await;
    let set = state(store, "s-1/").await;
    let states: Vec<_> = set.generations.iter().map(|it| it.state).collect();
    assert_eq!(states, [GenerationState::Removing, GenerationState::Committed]);
    assert_eq!(view(store, "s-1/a").await.unwrap(), "bytes");
}

/// A generation that lacks a shard.
async fn half_saved(rules: &str) -> (Harness, Arc<ManualClock>) {
    let (harness, clock) = ruled(rules).await;
    save(&harness.store, SHARD, b"one").await;
    let outcome = save(&harness.store, &format!("{SET}.metadata"), MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing: __1_0.distcp"), "{outcome}");
    (harness, clock)
}

/// A generation that lacks a shard, of which another was replaced.
async fn replaced(rules: &str) -> (Harness, Arc<ManualClock>) {
    let (harness, clock) = half_saved(rules).await;
    save(&harness.store, SHARD, b"two").await;
    save(&harness.store, OTHER, b"two").await;
    upkeep(&harness.store).await;
    assert!(reason(&harness.store).await.starts_with("__0_0.distcp was replaced or deleted"));
    (harness, clock)
}

#[tokio::test]
async fn a_generation_that_cannot_be_completed_ends_after_a_day() {
    let (harness, clock) = replaced(RULES).await;
    let store = &harness.store;
    let (plan, _) = store.checkpoints().plan("b", "", None).await.unwrap();
    assert_eq!((plan.len(), plan[0].deletes_objects), (1, false));
    clock.advance_ms(plan[0].due_ms - clock.now_ms() - 1);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Pending);
    clock.advance_ms(1);
    upkeep(store).await;
    let generation = state(store, SET).await.generations.remove(0);
    assert_eq!(generation.state, GenerationState::Removing);
    assert_eq!(generation.reason.as_ref(), Some(&plan[0].reason));
    after_grace(store, &clock).await;
    assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "two");
    assert_eq!(save(store, &format!("{SET}.metadata"), MARKER).await, Some(committed(2)));
}

#[tokio::test]
async fn a_rule_that_abandons_decides_when_a_generation_ends() {
    let rules = r#"{"rules": [
        {"pattern": "run-*/step-*/", "profile": "dcp", "abandon_after": 172800}]}"#;
    let (harness, clock) = replaced(rules).await;
    let store = &harness.store;
    clock.advance_ms(25 * 60 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Pending);
    clock.advance_ms(24 * 60 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(reason(store).await, "abandoned");
}

#[tokio::test]
async fn an_unclear_generation_ends_after_a_day() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    let dying = with_faults(&harness, &clock, refuse_manifests);
    save(&dying, &format!("{SET}.metadata"), MARKER).await.unwrap();
    clock.advance_ms(11 * MINUTE_MS);
    upkeep(store).await;
    assert!(reason(store).await.contains("unclear"));
    clock.advance_ms(23 * 60 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Pending);
    clock.advance_ms(2 * 60 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Removing);
}

#[tokio::test]
async fn a_client_that_leaves_delays_no_generation() {
    let (harness, clock) = half_saved(RULES).await;
    let store = &harness.store;
    let marker = format!("{SET}.metadata");
    let stands = Arc::new(AtomicBool::new(false));
    let standing = stands.clone();
    let proxy = with_faults(&harness, &clock, move |call| {
        if !is_marker(call) {
            return Fault::None;
        }
        standing.store(true, Ordering::Relaxed);
        Fault::Delay(100 * STANDSTILL)
    });
    let writing = Box::pin(save(&proxy, &marker, MARKER));
    // The request is dropped before any replica has the marker.
    let ended = futures::future::select(writing, Box::pin(until_set(&stands))).await;
    assert!(matches!(ended, futures::future::Either::Right(_)));
    drop(ended);
    save(store, OTHER, b"one").await;
    // The time of the cluster all but stands still.
    until_shown(store, SHARD, &clock).await;
}

#[tokio::test]
async fn a_marker_that_was_given_up_delays_no_generation() {
    let (harness, clock) = half_saved(RULES).await;
    let store = &harness.store;
    let marker = format!("{SET}.metadata");
    let refusing =
        with_faults(&harness, &clock, |call| if is_marker(call) { REFUSED } else { Fault::None });
    let again = put(&refusing, &marker, body(MARKER.into()), WriteConditions::default()).await;
    assert!(matches!(again, Err(Error::Backend(_))));
    save(store, OTHER, b"one").await;
    // The time of the cluster all but stands still.
    until_shown(store, SHARD, &clock).await;
}

#[tokio::test]
async fn a_refused_marker_whose_intent_could_not_end_delays_no_generation() {
    let (harness, clock) = half_saved(RULES).await;
    let store = &harness.store;
    let marker = format!("{SET}.metadata");
    // The intent is recorded on three replicas, and the record takes no change after that.
    let (changes, is_stuck) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(true)));
    let stuck = is_stuck.clone();
    let proxy = with_faults(&harness, &clock, move |call| {
        let is_record = call.write.is_some_and(|write| write.key.name.starts_with(b"s/"));
        let is_later = is_record && changes.fetch_add(1, Ordering::Relaxed) >= 3;
        if is_later && stuck.load(Ordering::Relaxed) { REFUSED } else { Fault::None }
    });
    let again = put(&proxy, &marker, body(MARKER.into()), create_only()).await;
    assert!(matches!(again, Err(Error::PreconditionFailed(_))), "{again:?}");
    is_stuck.store(false, Ordering::Relaxed);
    save(store, OTHER, b"one").await;
    until_shown(store, SHARD, &clock).await;
}
