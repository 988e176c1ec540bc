//! Buckets that keep versions, as clients see them (rules R4, R8).

mod conditions;
mod dying;
mod faults;
mod listing;
mod locks;
mod lost_fences;
mod nulls;
mod raised;
mod removal;
mod uploads;

use bytes::Bytes;
use martlet_protocol::backend::{RegisterDrop, Want};
use martlet_protocol::{BackendExt, DeviceId, RegisterKey, Term, Version, VersionId};

use super::conditional::create_only;
use super::harness::{Harness, body, collect, create, pattern, put, settle};
use crate::{
    Deleted, Error, ListVersions, ListedVersion, ObjectName, ObjectStore, ReadConditions, Result,
    Selection, WriteConditions,
};

/// A harness with three replicas and a bucket `b` that keeps versions.
async fn versioned() -> Harness {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    harness
}

/// Writes an object; returns its version.
async fn put_version(store: &ObjectStore, key: &str, bytes: impl Into<Bytes>) -> Result<VersionId> {
    let written = put(store, key, body(bytes.into()), WriteConditions::default()).await?;
    Ok(written.object.version.expect("the bucket keeps versions").name())
}

async fn get_version(
    store: &ObjectStore,
    key: &str,
    version: impl Into<Option<VersionId>>,
) -> Result<Bytes> {
    let name = ObjectName { key, version: version.into() };
    collect(store.get("b", name, Selection::Whole, &ReadConditions::default()).await?).await
}

pub(super) async fn delete(store: &ObjectStore, key: &str) -> Deleted {
    store.delete("b", key, &WriteConditions::default()).await.unwrap()
}

pub(super) async fn all_versions(store: &ObjectStore) -> Vec<ListedVersion> {
    let list = ListVersions { limit: 100_000, ..ListVersions::default() };
    let page = store.versions().list("b", list).await.unwrap();
    assert_eq!(page.next, None);
    page.versions
}

/// Lists versions: keys, with `*` for the current version and `-` for delete markers.
async fn shown(store: &ObjectStore) -> Vec<String> {
    let shown = |version: ListedVersion| {
        let size = version.object.map_or("-".to_owned(), |object| object.size.to_string());
        let latest = if version.is_latest { "*" } else { "" };
        let null = if version.id == VersionId::Null { " null" } else { "" };
        format!("{} {size}{latest}{null}", version.key)
    };
    all_versions(store).await.into_iter().map(shown).collect()
}

fn is_marker(outcome: &Result<Bytes>, was_named: bool) -> bool {
    matches!(outcome, Err(Error::DeleteMarker { was_named: found, .. }) if *found == was_named)
}

#[tokio::test]
async fn every_version_stays_until_it_is_removed() {
    let harness = versioned().await;
    let store = &harness.store;
    let bytes = [Bytes::from_static(b"one"), pattern(20_000, 2), pattern(3_000_000, 3)];
    let mut ids = Vec::new();
    for bytes in &bytes {
        ids.push(put_version(store, "k", bytes.clone()).await.unwrap());
    }
    for (id, bytes) in ids.iter().zip(&bytes) {
        assert_eq!(get_version(store, "k", *id).await.unwrap(), bytes);
    }
    assert_eq!(get_version(store, "k", None).await.unwrap(), bytes[2]);
    assert_eq!(shown(store).await, ["k 3000000*", "k 20000", "k 3"]);
    // Deletes the one in the middle, the current one, and at last the only one.
    let gone = store.versions().delete("b", "k", ids[1]).await.unwrap();
    assert_eq!((gone.version, gone.is_marker), (Some(ids[1]), false));
    assert!(matches!(get_version(store, "k", ids[1]).await, Err(Error::NoSuchVersion)));
    assert_eq!(get_version(store, "k", None).await.unwrap(), bytes[2]);
    store.versions().delete("b", "k", ids[2]).await.unwrap();
    assert_eq!(get_version(store, "k", None).await.unwrap(), bytes[0]);
    assert_eq!(shown(store).await, ["k 3*"]);
    store.versions().delete("b", "k", ids[0]).await.unwrap();
    assert!(matches!(get_version(store, "k", None).await, Err(Error::NoSuchKey)));
    assert!(shown(store).await.is_empty());
    let again = store.versions().delete("b", "k", ids[0]).await.unwrap();
    assert_eq!((again.stamp, again.is_marker), (None, false), "nothing was there");
    store.buckets().delete("b").await.unwrap();
}

#[tokio::test]
async fn a_delete_puts_a_marker_in_front_and_its_removal_undoes_it() {
    let harness = versioned().await;
    let store = &harness.store;
    let id = put_version(store, "k", "one").await.unwrap();
    let deleted = delete(store, "k").await;
    let marker = deleted.version.expect("a marker has an id");
    assert!(deleted.is_marker);
    assert!(is_marker(&get_version(store, "k", None).await, false));
    assert!(is_marker(&get_version(store, "k", marker).await, true));
    assert_eq!(get_version(store, "k", id).await.unwrap(), "one");
    assert_eq!(shown(store).await, ["k -*", "k 3"]);
    let page = store.list("b", crate::ListObjects { limit: 10, ..Default::default() }).await;
    assert!(page.unwrap().objects.is_empty());
    let gone = store.versions().delete("b", "k", marker).await.unwrap();
    assert!(gone.is_marker);
    assert_eq!(get_version(store, "k", None).await.unwrap(), "one");
    assert!(delete(store, "none").await.is_marker, "also of a key that isn't there");
    assert_eq!(shown(store).await, ["k 3*", "none -*"]);
    assert!(matches!(store.buckets().delete("b").await, Err(Error::BucketNotEmpty)));
}

#[tokio::test]
async fn conditions_are_judged_by_the_current_version() {
    let harness = versioned().await;
    let store = &harness.store;
    let create = |bytes: &'static str| put(store, "k", body(bytes.into()), create_only());
    create("one").await.unwrap();
    assert!(matches!(create("no").await, Err(Error::PreconditionFailed(_))));
    delete(store, "k").await;
    create("three").await.unwrap();
    assert!(matches!(create("no").await, Err(Error::PreconditionFailed(_))));
    assert_eq!(shown(store).await, ["k 5*", "k -", "k 3"], "what failed left no version");
}

#[tokio::test]
async fn tags_and_copies_are_of_the_version_that_is_named() {
    let harness = versioned().await;
    let store = &harness.store;
    let old = put_version(store, "k", "old").await.unwrap();
    put_version(store, "k", "newer").await.unwrap();
    let tags = |tag: &str| vec![("t".to_owned(), tag.to_owned())];
    let name = ObjectName { key: "k", version: Some(old) };
    let tagged = store.versions().set_tags("b", name, tags("old")).await.unwrap();
    assert_eq!(tagged.object.version.unwrap().name(), old);
    store.versions().set_tags("b", "k", tags("new")).await.unwrap();
    let tag_of = async |name: ObjectName<'_>| {
        let conditions = ReadConditions::default();
        let read = store.head("b", name, Selection::Whole, &conditions).await.unwrap();
        read.object.attributes.tags[0].1.clone()
    };
    assert_eq!(tag_of(name).await, "old");
    assert_eq!(tag_of("k".into()).await, "new");
    assert_eq!(get_version(store, "k", old).await.unwrap(), "old");
    assert_eq!(shown(store).await, ["k 5*", "k 3"], "tags make no version");
    let mut copy = super::objects::copy_of("k");
    copy.source_version = Some(old);
    store.copy("b", "k", copy).await.unwrap();
    assert_eq!(get_version(store, "k", None).await.unwrap(), "old", "it is brought back");
    assert_eq!(shown(store).await, ["k 3*", "k 5", "k 3"]);
    let marker = delete(store, "k").await.version;
    let refused = store.versions().set_tags("b", "k", tags("x")).await;
    assert!(matches!(refused, Err(Error::DeleteMarker { was_named: false, .. })));
    let refused =
        store.versions().set_tags("b", ObjectName { key: "k", version: marker }, tags("x")).await;
    assert!(matches!(refused, Err(Error::DeleteMarker { was_named: true, .. })));
    let none = ObjectName { key: "k", version: Some(VersionId::Null) };
    let refused = store.versions().set_tags("b", none, tags("x")).await;
    assert!(matches!(refused, Err(Error::NoSuchVersion)));
}

#[tokio::test]
async fn an_upload_makes_a_version_once() {
    let harness = versioned().await;
    let store = &harness.store;
    put_version(store, "key", "before").await.unwrap();
    let upload = super::multipart::begin(&harness, "key").await;
    let part = super::multipart::send(&harness, upload, 1, &pattern(30_000, 1)).await.unwrap();
    let complete = super::multipart::naming(&[(1, &part)]);
    let written = store.uploads().complete("b", "key", upload, complete.clone()).await.unwrap();
    let id = written.object.version.unwrap().name();
    let again = store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(again.object.version.unwrap().name(), id);
    assert_eq!(get_version(store, "key", id).await.unwrap(), pattern(30_000, 1));
    assert_eq!(shown(store).await, ["key 30000*", "key 6"]);
}

#[tokio::test]
async fn a_bucket_with_a_version_and_no_head_is_not_deleted() {
    let harness = versioned().await;
    let store = &harness.store;
    let first = put_version(store, "key", "first").await.unwrap();
    put_version(store, "key", "second").await.unwrap();
    settle().await;
    let bucket = store.bucket("b").await.unwrap();
    let head = RegisterKey::object(bucket.id, bucket.index_shards, "key");
    for device in (1..=3).map(DeviceId) {
        let held = harness.memory.read(device, &head, Want::Entry, Term::ANY).await.unwrap();
        let up_to = held.promise.max(held.entry.unwrap().order);
        let drop = RegisterDrop { key: head.clone(), up_to, collectable: false };
        harness.memory.drop_registers(device, &[drop]).await.unwrap();
    }
    let refused = store.buckets().delete("b").await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty)), "{refused:?}");
    assert_eq!(get_version(store, "key", first).await.unwrap(), "first");
}

#[tokio::test]
async fn a_repeated_completion_finds_its_version_behind_a_thousand_later_ones() {
    let harness = versioned().await;
    let store = &harness.store;
    let upload = super::multipart::begin(&harness, "key").await;
    let part = super::multipart::send(&harness, upload, 1, &pattern(30_000, 1)).await.unwrap();
    let complete = super::multipart::naming(&[(1, &part)]);
    let written = store.uploads().complete("b", "key", upload, complete.clone()).await.unwrap();
    let id = written.object.version.unwrap().name();
    for _ in 0..=1000 {
        put_version(store, "key", "later").await.unwrap();
    }
    let again = store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(again.object.version.map(Version::name), Some(id));
    assert_eq!(again.object.size, 30_000);
}

#[tokio::test]
async fn a_bucket_without_versions_has_null_ones() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    harness.put("k", "bytes").await.unwrap();
    assert_eq!(shown(store).await, ["k 5* null"]);
    assert_eq!(get_version(store, "k", VersionId::Null).await.unwrap(), "bytes");
    let other = "00".repeat(24).parse().unwrap();
    assert!(matches!(get_version(store, "k", Some(other)).await, Err(Error::NoSuchVersion)));
    assert_eq!(store.versions().delete("b", "k", other).await.unwrap().stamp, None);
    store.versions().delete("b", "k", VersionId::Null).await.unwrap();
    assert!(matches!(get_version(store, "k", None).await, Err(Error::NoSuchKey)));
}
