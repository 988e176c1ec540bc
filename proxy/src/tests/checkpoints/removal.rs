//! Pins, holds, withdrawal and retention.

use martlet_protocol::backend::{RegisterDrop, Want};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::lock::LockViolation;
use martlet_protocol::{BackendExt, BucketId, Clock, DeviceId, RegisterKey, Term, VersionId};

use super::super::harness::settle;
use super::super::versions::all_versions;
use super::*;
use crate::{LostVersioning, NewBucket, PlannedWithdrawal, adopt_bucket, settings_of_adopted};

pub(super) const SHARD: &str = "run-1/step-1/__0_0.distcp";

pub(super) async fn version_of(harness: &Harness, key: &str) -> VersionId {
    let read = harness.head(key, Selection::Whole).await.unwrap();
    read.object.version.expect("the bucket keeps versions").name()
}

/// Saves a set, and its marker again. Returns the version of [`SHARD`], which both generations need.
pub(super) async fn two_generations(harness: &Harness) -> VersionId {
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let version = version_of(harness, SHARD).await;
    assert_eq!(save(store, &format!("{SET}.metadata"), MARKER).await, Some(committed(2)));
    version
}

/// Lets the grace time pass, and the worker remove what is due.
pub(super) async fn after_grace(store: &ObjectStore, clock: &ManualClock) {
    clock.advance_ms(21 * MINUTE_MS);
    upkeep(store).await;
}

#[tokio::test]
async fn a_pinned_version_outlives_every_delete() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let version = version_of(&harness, SHARD).await;
    let refused = store.versions().delete("b", SHARD, version).await;
    assert!(matches!(refused, Err(Error::Locked(LockViolation::Pinned))));
    save(store, SHARD, b"two").await;
    let refused = store.versions().delete("b", SHARD, version).await;
    assert!(matches!(refused, Err(Error::Locked(LockViolation::Pinned))), "beside the head too");
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
    assert_eq!(store.checkpoints().withdraw("b", SET, None, false).await.unwrap(), 1);
    assert_eq!(store.checkpoints().withdraw("b", SET, None, false).await.unwrap(), 0);
    assert!(matches!(view(store, SHARD).await, Err(Error::NoSuchKey)));
    // A reader that began before has its time.
    clock.advance_ms(19 * MINUTE_MS);
    upkeep(store).await;
    assert!(store.versions().delete("b", SHARD, version).await.is_err());
    clock.advance_ms(MINUTE_MS);
    upkeep(store).await;
    store.versions().delete("b", SHARD, version).await.unwrap();
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "two", "objects stay");
    upkeep(store).await;
    assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_version_that_two_generations_share_stays_for_the_other() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    let version = two_generations(&harness).await;
    store.checkpoints().withdraw("b", SET, Some(2), false).await.unwrap();
    after_grace(store, &clock).await;
    assert_eq!(state(store, SET).await.generations.len(), 1);
    assert!(store.versions().delete("b", SHARD, version).await.is_err(), "generation 1 needs it");
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
    store.checkpoints().withdraw("b", SET, Some(1), false).await.unwrap();
    after_grace(store, &clock).await;
    store.versions().delete("b", SHARD, version).await.unwrap();
}

#[tokio::test]
async fn a_set_whose_objects_are_all_deleted_is_withdrawn() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    delete(store, &format!("{SET}.metadata")).await;
    upkeep(store).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "one", "some objects are left");
    delete(store, SHARD).await;
    delete(store, &format!("{SET}__1_0.distcp")).await;
    upkeep(store).await;
    assert!(matches!(view(store, SHARD).await, Err(Error::NoSuchKey)));
    assert_eq!(listed(store, "", None).await, [""; 0]);
    after_grace(store, &clock).await;
    let left = all_versions(store).await;
    assert!(left.iter().all(|version| version.object.is_none()), "their bytes go: {left:?}");
}

#[tokio::test]
async fn the_newest_of_a_series_stay() {
    let rules = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 2}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    // The order of commits counts: step 1 is saved again at last.
    for step in [1, 2, 3, 1] {
        save_set(store, &format!("run-1/step-{step}/"), format!("{step}").as_bytes()).await;
        clock.advance_ms(MINUTE_MS);
    }
    save_set(store, "run-2/step-1/", b"another series").await;
    let (dry, _) = store.checkpoints().would_retire("b", "run-1/step-1/", None).await.unwrap();
    let named = |plan: &[PlannedWithdrawal]| {
        plan.iter().map(|it| (it.set.clone(), it.number)).collect::<Vec<_>>()
    };
    let expected = [("run-1/step-1/".to_owned(), 1), ("run-1/step-2/".to_owned(), 1)];
    assert_eq!(named(&dry), expected);
    assert!(dry.iter().all(|it| it.deletes_objects && it.due_ms < clock.now_ms()));
    let (plan, next) = store.checkpoints().plan("b", "", None).await.unwrap();
    assert_eq!((named(&plan), next), (expected.to_vec(), None), "of all series");
    upkeep(store).await;
    assert_eq!(store.checkpoints().plan("b", "", None).await.unwrap().0, [], "it is done");
    let shards = |step: u32| format!("run-1/step-{step}/__0_0.distcp");
    assert!(matches!(view(store, &shards(2)).await, Err(Error::NoSuchKey)));
    assert_eq!(view(store, &shards(1)).await.unwrap(), "1");
    assert_eq!(view(store, &shards(3)).await.unwrap(), "3");
    assert_eq!(view(store, "run-2/step-1/__0_0.distcp").await.unwrap(), "another series");
    assert_eq!(harness.get(&shards(2), Selection::Whole).await.unwrap(), "2", "hidden first");
    after_grace(store, &clock).await;
    assert!(matches!(harness.get(&shards(2), Selection::Whole).await, Err(Error::NoSuchKey)));
    assert_eq!(harness.get(&shards(1), Selection::Whole).await.unwrap(), "1");
    let versions = all_versions(store).await;
    let of = |key: &str| versions.iter().filter(|version| version.key == key).count();
    assert_eq!((of(&shards(2)), of(&shards(1)), of(&shards(3))), (0, 1, 1));
}

#[tokio::test]
async fn readers_hold_what_they_read() {
    let rules = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 1}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let sets = store.checkpoints();
    assert_eq!(sets.hold("b", SET, None, 60 * MINUTE_MS).await.unwrap(), 1);
    assert!(matches!(sets.hold("b", SET, Some(7), 1).await, Err(Error::NoSuchKey)));
    assert!(matches!(sets.hold("b", "run-9/step-9/", None, 1).await, Err(Error::NoSuchKey)));
    assert!(matches!(sets.hold("b", SET, None, u64::MAX).await, Err(Error::InvalidArgument(_))));
    save_set(store, "run-1/step-2/", b"two").await;
    upkeep(store).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "one", "retention waits");
    sets.withdraw("b", SET, None, true).await.unwrap();
    after_grace(store, &clock).await;
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one", "so does removal");
    clock.advance_ms(60 * MINUTE_MS);
    upkeep(store).await;
    assert!(matches!(harness.get(SHARD, Selection::Whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn nothing_older_comes_back_when_a_generation_goes() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, SHARD, b"before").await;
    save_set(store, SET, b"one").await;
    store.checkpoints().withdraw("b", SET, None, true).await.unwrap();
    after_grace(store, &clock).await;
    let read = harness.get(SHARD, Selection::Whole).await;
    assert!(matches!(read, Err(Error::DeleteMarker { .. })), "{read:?}");
    let kept = all_versions(store).await.into_iter().filter(|version| version.object.is_some());
    assert_eq!(kept.count(), 1, "what no generation names is left to lifecycle rules");
}

#[tokio::test]
async fn abandoned_sets_are_removed_after_their_last_write() {
    let rules =
        r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "abandon_after": 3600}]}"#;
    let (harness, clock) = ruled(rules).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    save(store, &format!("{SET}.metadata"), MARKER).await;
    clock.advance_ms(59 * MINUTE_MS);
    save(store, &format!("{SET}other"), b"still writing").await;
    clock.advance_ms(59 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Pending);
    clock.advance_ms(MINUTE_MS);
    upkeep(store).await;
    assert_eq!(state(store, SET).await.generations[0].state, GenerationState::Removing);
    after_grace(store, &clock).await;
    assert!(matches!(harness.get(SHARD, Selection::Whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_version_that_a_pending_generation_noted_is_not_deleted() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    // The next save keeps a shard, and lacks the other one.
    delete(store, &format!("{SET}__1_0.distcp")).await;
    let outcome = save(store, &format!("{SET}.metadata"), MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing"), "{outcome}");
    store.checkpoints().withdraw("b", SET, Some(1), true).await.unwrap();
    after_grace(store, &clock).await;
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one");
    save(store, &format!("{SET}__1_0.distcp"), b"two").await;
    upkeep(store).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
}

#[tokio::test]
async fn numbers_are_given_once() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    assert_eq!(save_set(store, SET, b"one").await, committed(1));
    store.checkpoints().withdraw("b", SET, None, true).await.unwrap();
    after_grace(store, &clock).await;
    upkeep(store).await;
    assert_eq!(save_set(store, SET, b"two").await, committed(2));
}

#[tokio::test]
async fn sets_without_a_rule_leave_the_view_and_keep_their_objects() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let version = version_of(&harness, SHARD).await;
    let sets = store.checkpoints();
    sets.delete_rules("b").await.unwrap();
    upkeep(store).await;
    after_grace(store, &clock).await;
    assert!(matches!(view(store, SHARD).await, Err(Error::NoSuchBucket)));
    // Rules that were edited find their sets again.
    sets.set_rules("b", RULES.into()).await.unwrap();
    upkeep(store).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
    sets.delete_rules("b").await.unwrap();
    for _ in 0..2 {
        upkeep(store).await;
        clock.advance_ms(24 * 60 * MINUTE_MS);
    }
    upkeep(store).await;
    after_grace(store, &clock).await;
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one");
    store.versions().delete("b", SHARD, version).await.unwrap();
}

#[tokio::test]
async fn records_go_with_their_bucket() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    store.checkpoints().withdraw("b", SET, None, true).await.unwrap();
    after_grace(store, &clock).await;
    store.buckets().delete("b").await.unwrap();
    for _ in 0..4 {
        upkeep(store).await;
    }
    assert_eq!(store.buckets_with_sets().await.unwrap(), []);
    // A bucket of the same name starts without sets.
    create(store, "b").await;
    store.buckets().set_versioning("b", true).await.unwrap();
    clock.advance_ms(3000);
    store.checkpoints().set_rules("b", RULES.into()).await.unwrap();
    assert_eq!(listed(store, "", None).await, [""; 0]);
}

#[tokio::test]
async fn records_wait_for_a_bucket_whose_register_is_lost() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    let lost = store.bucket("b").await.unwrap();
    let register = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "b");
    settle().await;
    for device in (1..=3).map(DeviceId) {
        let held = harness.memory.read(device, &register, Want::Entry, Term::ANY).await.unwrap();
        let up_to = held.promise.max(held.entry.unwrap().order);
        let drop = RegisterDrop { key: register.clone(), up_to, collectable: false };
        harness.memory.drop_registers(device, &[drop]).await.unwrap();
    }
    for _ in 0..4 {
        upkeep(store).await;
    }
    assert_eq!(store.buckets_with_sets().await.unwrap().len(), 1, "no deletion was asked for");
    // The bucket comes back under another name, and its sets with it.
    let settings = settings_of_adopted(LostVersioning::Enabled, clock.now_ms()).unwrap();
    let (owner, index_shards) = (lost.owner.clone(), lost.index_shards);
    let new = NewBucket { owner, index_shards, policy: None, settings };
    adopt_bucket(store.buckets(), "again", new, lost.id).await.unwrap();
    clock.advance_ms(3000);
    store.checkpoints().set_rules("again", RULES.into()).await.unwrap();
    upkeep(store).await;
    let found = store.checkpoints().set("again", SET).await.unwrap();
    assert_eq!(found.generations.len(), 1);
}
