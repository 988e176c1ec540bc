//! Processes that die in the middle of a commit, and what the worker makes of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use martlet_protocol::entry::{Mark, Value};
use martlet_protocol::{ErrorKind, RegisterKind};

use super::*;

pub(super) const REFUSED: Fault = Fault::Refuse(ErrorKind::Unavailable);

/// Shards of a set, without its marker.
pub(super) async fn save_shards(store: &ObjectStore, bytes: &[u8]) {
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        save(store, &format!("{SET}{name}"), bytes).await;
    }
}

/// Returns true if the call writes a manifest.
pub(super) fn is_manifest(call: &Call<'_>) -> bool {
    call.write.is_some_and(|write| write.key.name.starts_with(b"m/"))
}

/// Refuses manifests, as a proxy that dies once the marker is written.
pub(super) fn refuse_manifests(call: &Call<'_>) -> Fault {
    if is_manifest(call) { REFUSED } else { Fault::None }
}

/// Returns true if the call writes a pinned object to its head.
pub(super) fn is_pin(call: &Call<'_>) -> bool {
    call.write.is_some_and(|write| match &write.entry.value {
        Value::Object(object) => {
            write.key.kind == RegisterKind::Object
                && object.attributes.marks.get(Mark::Checkpoint).is_some()
        }
        _ => false,
    })
}

#[tokio::test]
async fn a_marker_without_recorded_objects_stays_pending() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    // The marker is written, and the proxy gets no further.
    let dying = with_faults(&harness, &clock, refuse_manifests);
    let marker = format!("{SET}.metadata");
    let outcome = save(&dying, &marker, MARKER).await.unwrap();
    assert!(matches!(outcome, CheckpointOutcome::Pending { generation: None, .. }), "{outcome}");
    clock.advance_ms(9 * MINUTE_MS);
    upkeep(store).await;
    let none = store.checkpoints().set("b", SET).await;
    assert!(matches!(none, Err(Error::NoSuchKey)), "the proxy may be at it");
    save_shards(store, b"two").await;
    clock.advance_ms(MINUTE_MS);
    for _ in 0..3 {
        upkeep(store).await;
        clock.advance_ms(MINUTE_MS);
    }
    let generations = state(store, SET).await.generations;
    assert_eq!(generations.len(), 1);
    assert_eq!(generations[0].state, GenerationState::Pending, "one or two? nobody knows");
    assert!(generations[0].reason.as_ref().unwrap().contains("unclear"));
    assert!(matches!(view(store, &marker).await, Err(Error::NoSuchKey)));
    // Writing the marker again tells.
    assert_eq!(save(store, &marker, MARKER).await, Some(committed(2)));
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Removing);
}

#[tokio::test]
async fn an_intent_without_a_marker_is_forgotten() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    // The marker's own write fails on all replicas.
    let dying = with_faults(&harness, &clock, |call| match call.write {
        Some(write)
            if write.key.name.ends_with(b"step-1/.metadata")
                && !write.key.name.starts_with(b"s/") =>
        {
            REFUSED
        }
        _ => Fault::None,
    });
    let marker = format!("{SET}.metadata");
    let write = put(&dying, &marker, body(MARKER.into()), WriteConditions::default()).await;
    assert!(write.is_err());
    clock.advance_ms(25 * 60 * MINUTE_MS);
    upkeep(store).await;
    upkeep(store).await;
    assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_refused_marker_leaves_no_intent() {
    let (harness, _) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let marker = format!("{SET}.metadata");
    for _ in 0..100 {
        let only_new = super::super::conditional::create_only();
        let refused = put(store, &marker, body(MARKER.into()), only_new).await;
        assert!(matches!(refused, Err(Error::PreconditionFailed(_))));
    }
    assert_eq!(state(store, SET).await.generations.len(), 1);
}

#[tokio::test]
async fn pins_are_set_before_a_generation_is_seen() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    // Dies after a few writes of pins.
    for allowed in [0, 1, 4] {
        let count = Arc::new(AtomicUsize::new(0));
        let dying = with_faults(&harness, &clock, move |call| {
            let is_late = is_pin(call) && count.fetch_add(1, Ordering::Relaxed) >= allowed;
            if is_late { REFUSED } else { Fault::None }
        });
        let outcome = save(&dying, &format!("{SET}.metadata"), MARKER).await.unwrap();
        assert!(is_pending(&outcome, "being pinned"), "{allowed}: {outcome}");
        assert!(matches!(view(store, &format!("{SET}.metadata")).await, Err(Error::NoSuchKey)));
    }
    clock.advance_ms(2 * MINUTE_MS);
    upkeep(store).await;
    let set = state(store, SET).await;
    assert!(set.generations.iter().any(|it| it.state == GenerationState::Committed));
    assert_eq!(view(store, &format!("{SET}__0_0.distcp")).await.unwrap(), "one");
}

#[tokio::test]
async fn a_version_that_goes_before_it_is_pinned_ends_its_generation() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    let dying =
        with_faults(&harness, &clock, |call| if is_pin(call) { REFUSED } else { Fault::None });
    let marker = format!("{SET}.metadata");
    let outcome = save(&dying, &marker, MARKER).await.unwrap();
    assert!(is_pending(&outcome, "being pinned"), "{outcome}");
    let shard = format!("{SET}__0_0.distcp");
    let version = harness.head(&shard, Selection::Whole).await.unwrap().object.version.unwrap();
    store.versions().delete("b", &shard, version.name()).await.unwrap();
    clock.advance_ms(2 * MINUTE_MS);
    upkeep(store).await;
    let generation = state(store, SET).await.generations.remove(0);
    assert_eq!(generation.state, GenerationState::Removing);
    assert!(matches!(view(store, &marker).await, Err(Error::NoSuchKey)));
    // Pins that were set are released in the end.
    clock.advance_ms(21 * MINUTE_MS);
    upkeep(store).await;
    let other = format!("{SET}__1_0.distcp");
    let version = harness.head(&other, Selection::Whole).await.unwrap().object.version.unwrap();
    store.versions().delete("b", &other, version.name()).await.unwrap();
}

#[tokio::test]
async fn a_marker_is_not_written_unless_its_intent_is_known() {
    let (harness, clock) = ruled(RULES).await;
    let is_out = Arc::new(AtomicBool::new(true));
    let out = is_out.clone();
    let proxy = with_faults(&harness, &clock, move |call| {
        let is_record = call
            .key
            .is_some_and(|key| key.kind == RegisterKind::Object && key.name.starts_with(b"s/"));
        if is_record && out.load(Ordering::Relaxed) { REFUSED } else { Fault::None }
    });
    let marker = format!("{SET}.metadata");
    let refused = put(&proxy, &marker, body(MARKER.into()), WriteConditions::default()).await;
    assert!(matches!(refused, Err(Error::Backend(_))));
    assert!(matches!(harness.get(&marker, Selection::Whole).await, Err(Error::NoSuchKey)));
    save_shards(&proxy, b"shards need no record").await;
    is_out.store(false, Ordering::Relaxed);
    assert_eq!(save(&proxy, &marker, MARKER).await, Some(committed(1)));
}
