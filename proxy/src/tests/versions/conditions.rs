//! Deletes that name the state that they delete: the current version, or one by its id.

use super::{all_versions, put_version, shown, versioned};
use crate::{DeleteConditions, ETagCondition, Error, ObjectStore, Result};
use martlet_protocol::VersionId;
use martlet_protocol::lock::Bypass;

fn sized(size: u64) -> DeleteConditions {
    DeleteConditions { size: Some(size), ..DeleteConditions::default() }
}

async fn remove(store: &ObjectStore, id: VersionId, conditions: &DeleteConditions) -> Result<()> {
    let removed = store.versions().delete_past("b", "k", id, Bypass::Nothing, conditions).await;
    removed.map(drop)
}

fn is_refused<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::PreconditionFailed(_)))
}

#[tokio::test]
async fn a_delete_is_judged_by_the_current_version_and_a_marker_fits_none() {
    let harness = versioned().await;
    let store = &harness.store;
    assert!(store.delete("b", "k", sized(3)).await.is_ok(), "there is nothing to be another");
    assert!(shown(store).await.is_empty(), "and nothing to put a marker in front of");
    put_version(store, "k", "four").await.unwrap();
    put_version(store, "k", "one").await.unwrap();
    let modified_ms = all_versions(store).await[0].modified_ms;
    let modified = |modified_s| DeleteConditions { modified_s: Some(modified_s), ..sized(3) };
    assert!(is_refused(&store.delete("b", "k", sized(4)).await));
    assert!(is_refused(&store.delete("b", "k", modified(modified_ms / 1000 + 1)).await));
    assert!(store.delete("b", "k", modified(modified_ms / 1000)).await.unwrap().is_marker);
    let any =
        DeleteConditions { if_match: Some(ETagCondition::Any), ..DeleteConditions::default() };
    for conditions in [sized(3), sized(0), any] {
        assert!(is_refused(&store.delete("b", "k", conditions).await));
    }
    assert_eq!(shown(store).await, ["k -*", "k 3", "k 4"]);
}

#[tokio::test]
async fn the_removal_of_a_version_is_judged_by_that_version() {
    let harness = versioned().await;
    let store = &harness.store;
    let first = put_version(store, "k", "four").await.unwrap();
    let second = put_version(store, "k", "one").await.unwrap();
    let marker = super::delete(store, "k").await.version.unwrap();
    assert!(is_refused(&remove(store, first, &sized(3)).await));
    assert!(is_refused(&remove(store, second, &sized(4)).await));
    assert!(is_refused(&remove(store, marker, &sized(0)).await));
    assert_eq!(shown(store).await, ["k -*", "k 3", "k 4"]);
    for (id, size) in [(first, 4), (first, 9), (second, 3)] {
        remove(store, id, &sized(size)).await.unwrap();
    }
    assert_eq!(shown(store).await, ["k -*"]);
    store.buckets().set_versioning("b", false).await.unwrap();
    let null = put_version(store, "k", "null").await.unwrap();
    assert!(is_refused(&remove(store, null, &sized(3)).await));
    remove(store, null, &sized(4)).await.unwrap();
    assert_eq!(shown(store).await, ["k -*"]);
}

#[tokio::test]
async fn a_condition_that_needs_an_object_fails_where_no_version_has_the_id() {
    let harness = versioned().await;
    let store = &harness.store;
    let any =
        &DeleteConditions { if_match: Some(ETagCondition::Any), ..DeleteConditions::default() };
    let gone = put_version(store, "k", "gone").await.unwrap();
    remove(store, gone, any).await.unwrap();
    for id in [gone, VersionId::Null] {
        assert!(is_refused(&remove(store, id, any).await), "of a key without versions");
    }
    put_version(store, "k", "kept").await.unwrap();
    for id in [gone, VersionId::Null] {
        assert!(is_refused(&remove(store, id, any).await), "of a key with another version");
        remove(store, id, &sized(9)).await.expect("an absent version has no other size");
    }
    assert_eq!(shown(store).await, ["k 4*"]);
}
