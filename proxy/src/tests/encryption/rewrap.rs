//! Rewrapping of data keys from an old master key to the new one, for versions of all kinds.

mod run;

use martlet_protocol::VersionId;
use martlet_protocol::entry::Attributes;

use super::super::harness::{Harness, body, pattern};
use super::{customer, get, managed, put, session, with_keys};
use crate::{
    Error, Keys, NewUpload, ObjectName, ObjectStore, ReadConditions, Result, Rewrap, RewrapOptions,
    RewrapProgress, Selection,
};

/// Rewraps the bucket, in pages of so many versions.
async fn rewrap(store: &ObjectStore, page: usize) -> (Result<()>, RewrapProgress) {
    let rewrap = Rewrap::new("b", RewrapOptions::default()).with_page(page);
    let outcome = store.data_keys().rewrap(&rewrap).await;
    (outcome, rewrap.progress())
}

async fn get_version(store: &ObjectStore, id: VersionId) -> Result<u64> {
    let name = ObjectName { key: "k", version: Some(id) };
    let none = ReadConditions::default();
    let read = session(store, Keys::default()).get("b", name, Selection::Whole, &none).await?;
    super::collect(read).await.map(|bytes| bytes.len() as u64)
}

#[tokio::test]
async fn every_version_is_wrapped_anew_and_stays_what_it_was() {
    let harness = Harness::with_bucket(1).await;
    let old = with_keys(&harness.store, &[1]);
    put(&old, managed(), "a", body(pattern(100_000, 1))).await.unwrap();
    put(&old, Keys::default(), "plain", body(pattern(3000, 1))).await.unwrap();
    put(&old, customer(7), "theirs", body(pattern(3000, 1))).await.unwrap();
    old.buckets().set_versioning("b", true).await.unwrap();
    let mut versions = Vec::new();
    for size in [100, 20_000, 300_000] {
        let written = put(&old, managed(), "k", body(pattern(size, 2))).await.unwrap().object;
        versions.push((written.version.unwrap().name(), size as u64, written.modified_ms));
    }
    super::super::versions::delete(&old, "k").await;
    let both = with_keys(&harness.store, &[2, 1]);
    put(&both, managed(), "z", body(pattern(3000, 3))).await.unwrap();
    let (refused, _) = rewrap(&harness.store, 10).await;
    assert!(matches!(refused, Err(Error::NoMasterKey)));
    assert!(both.data_keys().can_wrap() && !harness.store.data_keys().can_wrap());
    for (page, changed) in [(2, 4), (100, 0), (1, 0)] {
        let (outcome, progress) = rewrap(&both, page).await;
        outcome.unwrap();
        assert_eq!((progress.seen, progress.rewrapped, progress.failed), (8, changed, 0));
        assert_eq!((progress.pass, progress.expected), (1, None));
    }
    let new = with_keys(&harness.store, &[2]);
    let whole = Selection::Whole;
    assert_eq!(get(&new, Keys::default(), "a", whole).await.unwrap(), pattern(100_000, 1));
    assert_eq!(get(&new, customer(7), "theirs", whole).await.unwrap(), pattern(3000, 1));
    assert_eq!(get(&new, Keys::default(), "plain", whole).await.unwrap(), pattern(3000, 1));
    for (id, size, modified_ms) in versions {
        assert_eq!(get_version(&new, id).await.unwrap(), size);
        assert!(get_version(&old, id).await.is_err(), "the old key opens it no more");
        let listed = super::super::versions::all_versions(&new).await;
        let listed = listed.into_iter().find(|it| it.id == id).unwrap();
        assert_eq!(listed.modified_ms, modified_ms, "it was modified then, not now");
    }
}

#[tokio::test]
async fn data_keys_that_can_not_be_unwrapped_are_counted_and_kept() {
    let harness = Harness::with_bucket(1).await;
    put(&with_keys(&harness.store, &[1]), managed(), "k", body(pattern(3000, 1))).await.unwrap();
    let new = with_keys(&harness.store, &[2]);
    let (outcome, progress) = rewrap(&new, 10).await;
    let sentence = outcome.unwrap_err().to_string();
    assert!(sentence.contains("1 versions still need the old master key"), "{sentence}");
    assert_eq!((progress.rewrapped, progress.failed), (0, 1));
    assert!(progress.failure.unwrap().contains("was not given"));
    let both = with_keys(&harness.store, &[2, 1]);
    let (outcome, progress) = rewrap(&both, 10).await;
    assert_eq!((outcome.is_ok(), progress.rewrapped), (true, 1));
    assert!(get(&new, Keys::default(), "k", Selection::Whole).await.is_ok());
}

#[tokio::test]
async fn uploads_that_began_before_are_counted() {
    let harness = Harness::with_bucket(1).await;
    let begin = |store: &ObjectStore, keys| {
        let new = NewUpload { attributes: Attributes::default(), checksum: None };
        let session = session(store, keys);
        async move { session.uploads().create("b", "up", new).await.unwrap().id }
    };
    let old = with_keys(&harness.store, &[1]);
    let upload = begin(&old, managed()).await;
    begin(&old, Keys::default()).await;
    begin(&old, customer(1)).await;
    let both = with_keys(&harness.store, &[2, 1]);
    begin(&both, managed()).await;
    assert_eq!(both.data_keys().outdated_uploads("b").await.unwrap(), 1);
    let (outcome, progress) = rewrap(&both, 10).await;
    let sentence = outcome.unwrap_err().to_string();
    assert!(sentence.contains("1 open uploads need the old master key"), "{sentence}");
    assert_eq!((progress.uploads, progress.pass), (1, 1));
    both.uploads().abort("b", "up", upload).await.unwrap();
    assert_eq!(both.data_keys().outdated_uploads("b").await.unwrap(), 0);
    assert!(rewrap(&both, 10).await.0.is_ok());
}
