//! Checkpoint sets: what is committed, seen in the view, kept and removed.

mod crashes;
mod late;
mod planned;
mod removal;
mod repeats;
mod restored;
mod retained;
mod shared;
mod unpinned;
mod view;

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::checkpoints::{SetCounts, SetUpkeep};
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{Backend, ManualClock};

use super::harness::{Harness, body, collect, create, put, store_with};
use super::versions::delete;
use crate::{
    CheckpointOutcome, Error, GenerationState, ListObjects, NamedObject, NewCommit, ObjectName,
    ObjectStore, ReadConditions, Result, Selection, SetState, WriteConditions,
};

const NOW_MS: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;
const RULES: &str = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp"}]}"#;
/// A marker that names two files.
const MARKER: &[u8] = b"\x80\x04\x8c\x0c__0_0.distcp\x8c\x0c__1_0.distcp.";
const SET: &str = "run-1/step-1/";

/// Three replicas with a versioned bucket `b` that has these rules, and the clock of all.
async fn ruled(rules: &str) -> (Harness, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let harness = Harness::at(3, 3, clock.clone());
    create(&harness.store, "b").await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    // Writes are ordered above the moment at which versioning began.
    clock.advance_ms(3000);
    harness.store.checkpoints().set_rules("b", rules.into()).await.unwrap();
    (harness, clock)
}

/// Another proxy over the same devices, with faults that `choose` selects.
fn with_faults(
    harness: &Harness,
    clock: &Arc<ManualClock>,
    choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> ObjectStore {
    let node: Arc<dyn Backend> = Arc::new(FaultyBackend::new(harness.memory.clone(), choose));
    store_with(&node, 3, 3, 0, clock.clone())
}

/// Writes an object; returns the generation that it made.
async fn save(store: &ObjectStore, key: &str, bytes: &[u8]) -> Option<CheckpointOutcome> {
    let bytes = Bytes::copy_from_slice(bytes);
    put(store, key, body(bytes), WriteConditions::default()).await.unwrap().checkpoint
}

/// Saves a whole checkpoint whose shards have these contents.
async fn save_set(store: &ObjectStore, set: &str, shards: &[u8]) -> CheckpointOutcome {
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        assert_eq!(save(store, &format!("{set}{name}"), shards).await, None);
    }
    save(store, &format!("{set}.metadata"), MARKER).await.unwrap()
}

fn committed(generation: u64) -> CheckpointOutcome {
    CheckpointOutcome::Committed { generation }
}

fn is_pending(outcome: &CheckpointOutcome, why: &str) -> bool {
    matches!(outcome, CheckpointOutcome::Pending { reason, .. } if reason.contains(why))
}

fn is_refused(outcome: &CheckpointOutcome, why: &str) -> bool {
    matches!(outcome, CheckpointOutcome::Refused { reason } if reason.contains(why))
}

/// Reads a key of the view.
async fn view(store: &ObjectStore, key: &str) -> Result<Bytes> {
    let viewed = store.checkpoints().resolve("b", key).await?;
    let name = ObjectName { key: &viewed.key, version: viewed.version };
    let read = store.get("b", name, Selection::Whole, &ReadConditions::default()).await?;
    assert!(viewed.is(&read.object), "another object than the view means");
    collect(read).await
}

/// Keys and folded prefixes of the view.
async fn listed(store: &ObjectStore, prefix: &str, delimiter: Option<&str>) -> Vec<String> {
    let list = ListObjects {
        prefix: prefix.into(),
        delimiter: delimiter.map(str::to_owned),
        limit: 1000,
        ..ListObjects::default()
    };
    let page = store.checkpoints().list("b", &list).await.unwrap();
    assert_eq!(page.next, None);
    let mut names: Vec<String> = page.objects.into_iter().map(|(key, _)| key).collect();
    names.extend(page.prefixes);
    names.sort();
    names
}

async fn state(store: &ObjectStore, set: &str) -> SetState {
    store.checkpoints().set("b", set).await.unwrap()
}

/// One pass of the worker over all sets.
async fn upkeep(store: &ObjectStore) -> SetCounts {
    let mut counts = SetCounts::default();
    for bucket in store.buckets_with_sets().await.unwrap() {
        let mut after = None;
        loop {
            let (more, next) = store.look_after(&bucket.companion, after.as_deref()).await.unwrap();
            counts.add(&more);
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    counts
}

#[tokio::test]
async fn rules_need_versions() {
    let harness = Harness::new(3, 3);
    let store = &harness.store;
    create(store, "b").await;
    let refused = store.checkpoints().set_rules("b", RULES.into()).await;
    assert!(matches!(refused, Err(Error::InvalidBucketState(why)) if why.contains("versioning")));
    store.buckets().set_versioning("b", true).await.unwrap();
    let malformed = store.checkpoints().set_rules("b", b"{}".to_vec()).await;
    assert!(matches!(malformed, Err(Error::InvalidArgument(_))));
    assert_eq!(store.checkpoints().rules("b").await.unwrap(), None);
    store.checkpoints().set_rules("b", RULES.into()).await.unwrap();
    assert_eq!(store.checkpoints().rules("b").await.unwrap().unwrap(), RULES.as_bytes());
    let suspended = store.buckets().set_versioning("b", false).await;
    assert!(matches!(suspended, Err(Error::InvalidBucketState(_))));
    store.checkpoints().delete_rules("b").await.unwrap();
    store.buckets().set_versioning("b", false).await.unwrap();
    assert!(matches!(view(store, "x").await, Err(Error::NoSuchBucket)), "no rules, no view");
}

#[tokio::test]
async fn a_marker_commits_the_existing_objects() {
    let (harness, _) = ruled(RULES).await;
    let store = &harness.store;
    assert_eq!(save_set(store, SET, b"one").await, committed(1));
    let shard = format!("{SET}__0_0.distcp");
    // The next save: the view stays, the bucket doesn't.
    save(store, &shard, b"two").await;
    delete(store, &format!("{SET}__1_0.distcp")).await;
    delete(store, &format!("{SET}.metadata")).await;
    assert_eq!(view(store, &shard).await.unwrap(), "one");
    assert_eq!(view(store, &format!("{SET}__1_0.distcp")).await.unwrap(), "one");
    assert_eq!(harness.get(&shard, Selection::Whole).await.unwrap(), "two");
    save(store, &format!("{SET}__1_0.distcp"), b"two").await;
    assert_eq!(save(store, &format!("{SET}.metadata"), MARKER).await, Some(committed(2)));
    assert_eq!(view(store, &shard).await.unwrap(), "two");
    // Each generation is addressed by its number.
    assert_eq!(view(store, "run-1/step-1@1/__0_0.distcp").await.unwrap(), "one");
    assert_eq!(view(store, "run-1/step-1@2/__0_0.distcp").await.unwrap(), "two");
    for absent in ["run-1/step-1@3/.metadata", "run-1/step-1/x", "run-1/step-2/.metadata"] {
        assert!(matches!(view(store, absent).await, Err(Error::NoSuchKey)), "{absent}");
    }
}

#[tokio::test]
async fn objects_outside_of_sets_make_no_generation() {
    let (harness, _) = ruled(RULES).await;
    let store = &harness.store;
    for key in
        [".metadata", "run-1/.metadata", "run-1/step-1/a/.metadata", "run-1/step-1@1/.metadata"]
    {
        assert_eq!(save(store, key, MARKER).await, None, "{key}");
    }
    assert_eq!(view(store, ".metadata").await.unwrap(), MARKER);
}

#[tokio::test]
async fn a_marker_before_its_shards_waits_for_them() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, &format!("{SET}__0_0.distcp"), b"noted").await;
    let outcome = save(store, &format!("{SET}.metadata"), MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing: __1_0.distcp"), "{outcome}");
    assert!(matches!(view(store, &format!("{SET}.metadata")).await, Err(Error::NoSuchKey)));
    clock.advance_ms(2 * MINUTE_MS);
    let counts = upkeep(store).await;
    assert_eq!((counts.pending, counts.done), (1, 0));
    assert_eq!(counts.oldest_pending_ms, 2 * MINUTE_MS);
    save(store, &format!("{SET}__1_0.distcp"), b"missing").await;
    assert_eq!(upkeep(store).await.done, 1);
    assert_eq!(view(store, &format!("{SET}__0_0.distcp")).await.unwrap(), "noted");
    assert_eq!(view(store, &format!("{SET}__1_0.distcp")).await.unwrap(), "missing");
    assert_eq!(upkeep(store).await.committed, 1);
}

#[tokio::test]
async fn a_pending_generation_takes_nothing_of_a_later_save() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, &format!("{SET}__0_0.distcp"), b"first").await;
    save(store, &format!("{SET}.metadata"), MARKER).await;
    // The job starts again, and its marker is still to come.
    assert_eq!(save(store, &format!("{SET}__0_0.distcp"), b"second").await, None);
    assert_eq!(save(store, &format!("{SET}__1_0.distcp"), b"second").await, None);
    clock.advance_ms(2 * MINUTE_MS);
    assert_eq!(upkeep(store).await.committed, 0);
    assert_eq!(upkeep(store).await.committed, 0);
    assert!(matches!(view(store, &format!("{SET}.metadata")).await, Err(Error::NoSuchKey)));
    assert_eq!(save(store, &format!("{SET}.metadata"), MARKER).await, Some(committed(2)));
    assert_eq!(view(store, &format!("{SET}__0_0.distcp")).await.unwrap(), "second");
}

#[tokio::test]
async fn a_set_settles_for_the_time_of_its_rule() {
    let rules = r#"{"rules": [{"pattern": "s-*/", "profile": "orbax", "settle": 120}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    let outcome = save(store, "s-1/commit_success.txt", b"").await.unwrap();
    assert!(is_pending(&outcome, "settling for 120 s"), "{outcome}");
    save(store, "s-1/late", b"late").await;
    clock.advance_ms(119_000);
    assert_eq!(upkeep(store).await.done, 0);
    clock.advance_ms(1000);
    assert_eq!(upkeep(store).await.done, 1);
    assert_eq!(listed(store, "s-1/", None).await, ["s-1/commit_success.txt", "s-1/late"]);
}

#[tokio::test]
async fn a_rule_may_refuse_a_second_generation() {
    let rules =
        r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "recommit": "refuse"}]}"#;
    let (harness, _) = ruled(rules).await;
    let store = &harness.store;
    assert_eq!(save_set(store, SET, b"one").await, committed(1));
    let outcome = save_set(store, SET, b"two").await;
    assert!(is_refused(&outcome, "generation 1 is committed"), "{outcome}");
    assert_eq!(view(store, &format!("{SET}__0_0.distcp")).await.unwrap(), "one");
    store.checkpoints().withdraw("b", SET, None, false).await.unwrap();
    assert_eq!(save_set(store, SET, b"three").await, committed(2));
}

fn named(store_keys: &[(&str, &[u8])]) -> Vec<NamedObject> {
    let named = |(key, bytes): &(&str, &[u8])| NamedObject {
        key: (*key).to_owned(),
        etag: format!("\"{}\"", hex::encode(<md5::Md5 as md5::Digest>::digest(bytes))),
        size: bytes.len() as u64,
    };
    store_keys.iter().map(named).collect()
}

#[tokio::test]
async fn an_explicit_commit_takes_exactly_what_it_names() {
    let (harness, _) = ruled(RULES).await;
    let store = &harness.store;
    for (key, bytes) in [("tmp/a", b"a"), ("tmp/b", b"b"), ("tmp/c", b"c")] {
        save(store, key, bytes).await;
    }
    let commit = |objects, published_as: &str| NewCommit {
        folder: "tmp/".into(),
        published_as: Some(published_as.to_owned()),
        objects,
    };
    let sets = store.checkpoints();
    let wrong = commit(named(&[("tmp/a", b"x"), ("tmp/z", b"z"), ("tmp/b", b"b")]), SET);
    let refused = sets.commit("b", &wrong).await.unwrap_err().to_string();
    assert_eq!(refused, "2 objects are not as named: tmp/a differs, tmp/z is missing");
    for (objects, published_as) in [
        (named(&[("tmp/a", b"a")]), "elsewhere/"),
        (named(&[("other/a", b"a")]), SET),
        (named(&[("tmp/a", b"a"), ("tmp/a", b"a")]), SET),
        (named(&[]), SET),
    ] {
        let refused = sets.commit("b", &commit(objects, published_as)).await;
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }
    let both = commit(named(&[("tmp/a", b"a"), ("tmp/b", b"b")]), SET);
    assert_eq!(sets.commit("b", &both).await.unwrap(), committed(1));
    assert_eq!(sets.commit("b", &both).await.unwrap(), committed(1), "a client that repeats it");
    assert_eq!(listed(store, SET, None).await, ["run-1/step-1/a", "run-1/step-1/b"]);
    assert_eq!(view(store, "run-1/step-1/a").await.unwrap(), "a");
    // The folder may go: the set was published under another name.
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        delete(store, key).await;
    }
    assert_eq!(upkeep(store).await.committed, 1);
    assert_eq!(view(store, "run-1/step-1/a").await.unwrap(), "a");
}

#[tokio::test]
async fn two_savers_make_a_generation_for_each_marker_at_most() {
    let (harness, _) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"zero").await;
    let marker = format!("{SET}.metadata");
    let saves = (0..6).map(|_| save(store, &marker, MARKER));
    let outcomes = futures::future::join_all(saves).await;
    let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
    assert_eq!(outcomes.len(), 6);
    let set = state(store, SET).await;
    let in_view: Vec<_> = set
        .generations
        .iter()
        .filter(|it| it.state == GenerationState::Committed)
        .map(|it| it.number)
        .collect();
    for outcome in &outcomes {
        match outcome {
            CheckpointOutcome::Committed { generation } => assert!(in_view.contains(generation)),
            other => assert!(is_refused(other, "later"), "{other}"),
        }
    }
    let mut markers: Vec<_> = set.generations.iter().map(|it| it.marker.clone()).collect();
    markers.sort();
    markers.dedup();
    assert_eq!(markers.len(), set.generations.len(), "one generation for each marker");
}
