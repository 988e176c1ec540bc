//! Null versions: a key has one at most.

use martlet_protocol::backend::{BackendExt, CallKind};
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, ErrorKind, VersionId, Versioning};

use super::super::harness::{Harness, create, faulty, pattern, settle};
use super::{delete, get_version, put_version, shown, versioned};
use crate::Error;

#[tokio::test]
async fn objects_from_before_versioning_are_null_versions() {
    let harness = Harness::new(3, 3);
    let store = &harness.store;
    create(store, "b").await;
    harness.put("k", pattern(20_000, 1)).await.unwrap();
    assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Off);
    store.buckets().set_versioning("b", true).await.unwrap();
    assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Enabled);
    assert_eq!(shown(store).await, ["k 20000* null"]);
    put_version(store, "k", "second").await.unwrap();
    put_version(store, "k", "the third").await.unwrap();
    assert_eq!(shown(store).await, ["k 9*", "k 6", "k 20000 null"]);
    assert_eq!(get_version(store, "k", VersionId::Null).await.unwrap(), pattern(20_000, 1));
    store.versions().delete("b", "k", VersionId::Null).await.unwrap();
    assert_eq!(shown(store).await, ["k 9*", "k 6"]);
}

#[tokio::test]
async fn while_suspended_a_write_replaces_the_null_version_wherever_it_is() {
    let harness = versioned().await;
    let store = &harness.store;
    put_version(store, "k", "one").await.unwrap();
    store.buckets().set_versioning("b", false).await.unwrap();
    assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Suspended);
    assert_eq!(put_version(store, "k", "null1").await.unwrap(), VersionId::Null);
    assert_eq!(put_version(store, "k", "null-2").await.unwrap(), VersionId::Null);
    assert_eq!(shown(store).await, ["k 6* null", "k 3"]);
    store.buckets().set_versioning("b", true).await.unwrap();
    put_version(store, "k", "four").await.unwrap();
    assert_eq!(shown(store).await, ["k 4*", "k 6 null", "k 3"]);
    store.buckets().set_versioning("b", false).await.unwrap();
    // The null version is not the current one, but is replaced nevertheless.
    put_version(store, "k", "null--3").await.unwrap();
    assert_eq!(shown(store).await, ["k 7* null", "k 4", "k 3"]);
    assert_eq!(get_version(store, "k", VersionId::Null).await.unwrap(), "null--3");
    let deleted = delete(store, "k").await;
    assert_eq!((deleted.version, deleted.is_marker), (Some(VersionId::Null), true));
    assert_eq!(shown(store).await, ["k -* null", "k 4", "k 3"]);
    store.versions().delete("b", "k", VersionId::Null).await.unwrap();
    assert_eq!(shown(store).await, ["k 4*", "k 3"]);
}

#[tokio::test]
async fn the_null_version_comes_back_to_the_front_in_its_place() {
    let harness = versioned().await;
    let store = &harness.store;
    let first = put_version(store, "k", "1").await.unwrap();
    store.buckets().set_versioning("b", false).await.unwrap();
    put_version(store, "k", "22").await.unwrap();
    store.buckets().set_versioning("b", true).await.unwrap();
    let third = put_version(store, "k", "333").await.unwrap();
    store.versions().delete("b", "k", third).await.unwrap();
    assert_eq!(shown(store).await, ["k 2* null", "k 1"]);
    let fourth = put_version(store, "k", "4444").await.unwrap();
    store.versions().delete("b", "k", first).await.unwrap();
    store.versions().delete("b", "k", fourth).await.unwrap();
    assert_eq!(shown(store).await, ["k 2* null"]);
    assert_eq!(get_version(store, "k", None).await.unwrap(), "22");
    store.versions().delete("b", "k", VersionId::Null).await.unwrap();
    assert!(shown(store).await.is_empty());
}

/// All extents of a replaced null version are garbage.
#[tokio::test]
async fn a_replaced_null_version_leaves_garbage() {
    let harness = Harness::new(3, 3);
    let store = &harness.store;
    create(store, "b").await;
    harness.put("k", pattern(20_000, 1)).await.unwrap();
    store.buckets().set_versioning("b", true).await.unwrap();
    put_version(store, "k", pattern(20_001, 2)).await.unwrap();
    settle().await;
    let garbage = async || harness.memory.garbage(DeviceId(1), u64::MAX, 10).await.unwrap().len();
    assert_eq!(garbage().await, 0, "both are there");
    store.buckets().set_versioning("b", false).await.unwrap();
    put_version(store, "k", pattern(20_002, 3)).await.unwrap();
    settle().await;
    assert_eq!(shown(store).await, ["k 20002* null", "k 20001"]);
    assert_eq!(garbage().await, 1);
}

#[tokio::test]
async fn m2_versions_are_kept_only_once_every_device_is_fenced() {
    let harness = Harness::new(3, 5);
    create(&harness.store, "b").await;
    for op in [CallKind::Fence, CallKind::ListHints] {
        let store = faulty(&harness.memory, 3, 5, move |call| {
            let out = call.op == op && call.device == DeviceId(4);
            if out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
        });
        let refused = store.buckets().set_versioning("b", true).await;
        assert!(matches!(refused, Err(Error::Backend(_))), "{op:?}: {refused:?}");
        assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Preparing);
        // Writes have no ids yet, and use ballots.
        assert_eq!(put_version(&store, "k", "x").await.unwrap(), VersionId::Null);
        assert_eq!(shown(&store).await, ["k 1* null"]);
    }
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    put_version(&harness.store, "k", "yy").await.unwrap();
    assert_eq!(shown(&harness.store).await, ["k 2*", "k 1 null"]);
}
