//! Objects of withdrawn generations that are in use again before they are deleted.

use martlet_protocol::entry::Attributes;
use martlet_protocol::{Setting, VersionId};

use super::removal::{SHARD, after_grace, version_of};
use super::*;
use crate::NewUpload;

const ABANDONING: &str =
    r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "abandon_after": 3600}]}"#;
const NAMES: [&str; 3] = [".metadata", "__0_0.distcp", "__1_0.distcp"];

/// Deletes all objects of the set; returns their delete markers.
async fn empty(store: &ObjectStore) -> Vec<(String, VersionId)> {
    let mut markers = Vec::new();
    for name in NAMES {
        let key = format!("{SET}{name}");
        let marker = delete(store, &key).await.version.unwrap();
        markers.push((key, marker));
    }
    markers
}

async fn is_removing(store: &ObjectStore) -> bool {
    state(store, SET).await.generations[0].state == GenerationState::Removing
}

/// A bucket with a set of one shard that was abandoned and withdrawn.
async fn abandoned() -> (Harness, Arc<ManualClock>) {
    let (harness, clock) = ruled(ABANDONING).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    save(store, &format!("{SET}.metadata"), MARKER).await;
    clock.advance_ms(61 * MINUTE_MS);
    upkeep(store).await;
    assert!(is_removing(store).await);
    (harness, clock)
}

#[tokio::test]
async fn a_folder_that_is_restored_in_time_keeps_its_objects() {
    // All delete markers, or one of them, are deleted before the grace time ends.
    for restored in [NAMES.len(), 1] {
        let (harness, clock) = ruled(RULES).await;
        let store = &harness.store;
        save_set(store, SET, b"one").await;
        let markers = empty(store).await;
        upkeep(store).await;
        assert!(is_removing(store).await);
        for (key, marker) in &markers[markers.len() - restored..] {
            store.versions().delete("b", key, *marker).await.unwrap();
        }
        after_grace(store, &clock).await;
        let reason = state(store, SET).await.generations[0].reason.clone().unwrap();
        assert!(reason.contains("has objects again"), "{reason}");
        for _ in 0..2 {
            after_grace(store, &clock).await;
        }
        for (key, marker) in &markers[..markers.len() - restored] {
            store.versions().delete("b", key, *marker).await.unwrap();
        }
        assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one", "{restored}");
        assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
    }
}

#[tokio::test]
async fn a_later_save_into_an_emptied_folder_saves_only_what_is_current() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, &format!("{SET}notes"), b"of the first save").await;
    save_set(store, SET, b"one").await;
    let notes = delete(store, &format!("{SET}notes")).await.version.unwrap();
    let (shard, _) = (version_of(&harness, SHARD).await, empty(store).await);
    upkeep(store).await;
    assert!(is_removing(store).await);
    assert_eq!(save_set(store, SET, b"two").await, committed(2));
    // Restored after the second save was noted.
    store.versions().delete("b", &format!("{SET}notes"), notes).await.unwrap();
    after_grace(store, &clock).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "two");
    let name = ObjectName { key: SHARD, version: Some(shard) };
    let first = store.get("b", name, Selection::Whole, &ReadConditions::default()).await;
    assert!(matches!(first, Err(Error::NoSuchVersion)), "the first save goes");
    let notes = harness.get(&format!("{SET}notes"), Selection::Whole).await.unwrap();
    assert_eq!(notes, "of the first save");
}

#[tokio::test]
async fn a_save_that_goes_on_after_it_was_abandoned_keeps_its_objects() {
    for is_upload in [false, true] {
        let (harness, clock) = abandoned().await;
        let store = &harness.store;
        let rest = format!("{SET}__1_0.distcp");
        if is_upload {
            let upload = NewUpload { attributes: Attributes::default(), checksum: None };
            store.uploads().create("b", &rest, upload).await.unwrap();
        } else {
            save(store, &rest, b"late").await;
        }
        for _ in 0..2 {
            after_grace(store, &clock).await;
        }
        assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one");
        if !is_upload {
            let objects = named(&[(SHARD, b"one"), (&rest, b"late")]);
            let commit = NewCommit { folder: SET.into(), published_as: None, objects };
            let outcome = store.checkpoints().commit("b", &commit).await.unwrap();
            assert_eq!(outcome, committed(2), "an explicit commit takes what is there");
        }
    }
}

#[tokio::test]
async fn rules_that_abandon_nothing_any_more_keep_objects() {
    for rules in [Some(RULES), None] {
        let (harness, clock) = abandoned().await;
        let store = &harness.store;
        match rules {
            Some(rules) => store.checkpoints().set_rules("b", rules.into()).await.unwrap(),
            None => store.checkpoints().delete_rules("b").await.unwrap(),
        }
        for _ in 0..2 {
            after_grace(store, &clock).await;
        }
        assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one");
    }
}

/// Deletions of a worker with an outdated bucket are refused, and not passed over.
#[tokio::test]
async fn an_outdated_worker_forgets_no_generation_that_it_did_not_delete() {
    let (harness, clock) = ruled(ABANDONING).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    save(store, &format!("{SET}.metadata"), MARKER).await;
    clock.advance_ms(61 * MINUTE_MS);
    upkeep(store).await;
    assert!(is_removing(store).await);
    let node: Arc<dyn Backend> = harness.memory.clone();
    let remembering = store_with(&node, 3, 3, 60_000, clock.clone());
    remembering.bucket("b").await.unwrap();
    store.buckets().put_setting("b", Setting::Tagging, b"x".to_vec()).await.unwrap();
    // A fence of the new generation.
    store.buckets().set_versioning("b", true).await.unwrap();
    after_grace(&remembering, &clock).await;
    assert!(is_removing(store).await, "the first attempt is refused");
    after_grace(&remembering, &clock).await;
    assert!(matches!(harness.get(SHARD, Selection::Whole).await, Err(Error::NoSuchKey)));
    assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
}
