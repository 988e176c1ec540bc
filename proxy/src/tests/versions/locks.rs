//! Locked versions: none is removed while its lock holds, by any request and after any other change
//! of its key (rules R4, R8, M2).

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::entry::{Attributes, Mark, Marks, Object};
use martlet_protocol::lock::{
    BucketLock, Bypass, DefaultRetention, Lock, LockViolation, Period, Retention, RetentionMode,
};
use martlet_protocol::{ManualClock, Settings, VersionId, Versioning};

use super::super::harness::{Harness, body, create, faulty, pattern, remembering};
use super::super::multipart::naming;
use super::super::objects::copy_of;
use super::{delete, get_version, put_version, shown};
use crate::{
    CopyObject, DeleteConditions, Error, NewBucket, NewUpload, ObjectName, ObjectStore, PutObject,
    ReadConditions, Result, Selection, WriteConditions, WrittenObject, lock_from_the_beginning,
};

mod races;

const NOW_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 86_400_000;

/// Makes a bucket `b` with object lock.
async fn create_locked(store: &ObjectStore) {
    let mut settings = Settings::default();
    lock_from_the_beginning(&mut settings).unwrap();
    let new = NewBucket { owner: "me".into(), index_shards: 8, policy: None, settings };
    store.buckets().create("b", new).await.unwrap();
}

/// Three replicas with a locked bucket, and the clock of all of them.
async fn locked() -> (Harness, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let harness = Harness::at(3, 3, clock.clone());
    create_locked(&harness.store).await;
    (harness, clock)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "retentions are asked for as they are kept: some or none"
)]
fn until(mode: RetentionMode, until_ms: u64) -> Option<Retention> {
    Some(Retention { mode, until_ms })
}

fn governed(until_ms: u64) -> Option<Retention> {
    until(RetentionMode::Governance, until_ms)
}

fn marks(retention: Option<Retention>, legal_hold: Option<bool>) -> Marks {
    let mut marks = Marks::default();
    Lock { retention, legal_hold }.write(&mut marks);
    marks
}

async fn put_marked(store: &ObjectStore, marks: Marks) -> Result<WrittenObject> {
    let attributes = Attributes { marks, ..Attributes::default() };
    let (body, conditions) = (body(Bytes::from_static(b"locked")), WriteConditions::default());
    store.put("b", "k", PutObject { attributes, body, conditions }).await
}

async fn lock_of(store: &ObjectStore, version: impl Into<Option<VersionId>>) -> Lock {
    let name = ObjectName { key: "k", version: version.into() };
    let read = store.head("b", name, Selection::Whole, &ReadConditions::default()).await;
    Lock::of(&read.unwrap().object.attributes.marks).unwrap()
}

fn id_of(object: &Object) -> VersionId {
    object.version.expect("the bucket keeps versions").name()
}

fn is_locked<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Locked(_)))
}

fn named(version: VersionId) -> ObjectName<'static> {
    ObjectName { key: "k", version: Some(version) }
}

#[tokio::test]
async fn a_locked_version_stays_wherever_it_is_and_its_time_comes() {
    let (harness, clock) = locked().await;
    let store = &harness.store;
    let marks = marks(governed(NOW_MS + DAY_MS), None);
    let first = id_of(&put_marked(store, marks).await.unwrap().object);
    assert!(is_locked(&store.versions().delete("b", "k", first).await), "as the current one");
    let second = put_version(store, "k", "second").await.unwrap();
    assert!(is_locked(&store.versions().delete("b", "k", first).await), "beside it");
    assert!(delete(store, "k").await.is_marker, "a marker goes in front");
    assert!(is_locked(&store.versions().delete("b", "k", first).await), "behind a marker");
    store.versions().delete("b", "k", second).await.unwrap();
    assert_eq!(get_version(store, "k", first).await.unwrap(), "locked");
    assert!(matches!(store.buckets().delete("b").await, Err(Error::BucketNotEmpty)));
    clock.set_ms(NOW_MS + DAY_MS);
    store.versions().delete("b", "k", first).await.unwrap();
    assert_eq!(shown(store).await, ["k -*"]);
}

#[tokio::test]
async fn governance_is_passed_over_and_a_hold_or_compliance_is_not() {
    let (harness, _clock) = locked().await;
    let store = &harness.store;
    let nothing = DeleteConditions::default();
    let past = |id| store.versions().delete_past("b", "k", id, Bypass::Governance, &nothing);
    for (retention, hold, goes) in [
        (governed(NOW_MS + 9), None, true),
        (governed(NOW_MS + 9), Some(true), false),
        (until(RetentionMode::Compliance, NOW_MS + 9), None, false),
        (None, Some(false), true),
    ] {
        let id = id_of(&put_marked(store, marks(retention, hold)).await.unwrap().object);
        assert_eq!(past(id).await.is_ok(), goes, "{retention:?} {hold:?}");
        assert_eq!(get_version(store, "k", id).await.is_ok(), !goes);
    }
}

#[tokio::test]
async fn locks_change_by_version_and_stay_with_it() {
    let (harness, _clock) = locked().await;
    let store = &harness.store;
    let (one, two) = (put_version(store, "k", "1").await, put_version(store, "k", "2").await);
    let (one, two) = (one.unwrap(), two.unwrap());
    let compliance = until(RetentionMode::Compliance, NOW_MS + 5);
    store.versions().set_retention("b", named(one), compliance, Bypass::Nothing).await.unwrap();
    store.versions().set_legal_hold("b", "k", true).await.unwrap();
    assert_eq!(lock_of(store, one).await, Lock { retention: compliance, legal_hold: None });
    assert_eq!(lock_of(store, None).await, Lock { retention: None, legal_hold: Some(true) });
    let shorter = until(RetentionMode::Compliance, NOW_MS + 4);
    let loosened =
        store.versions().set_retention("b", named(one), shorter, Bypass::Governance).await;
    assert!(matches!(loosened, Err(Error::Locked(LockViolation::Retention))));
    // Other changes keep the lock.
    let tags = vec![("a".to_owned(), "b".to_owned())];
    store.versions().set_tags("b", named(one), tags).await.unwrap();
    assert_eq!(lock_of(store, one).await.retention, compliance);
    store.versions().set_legal_hold("b", named(two), false).await.unwrap();
    store.versions().delete("b", "k", two).await.unwrap();
    assert_eq!(lock_of(store, None).await.retention, compliance, "it is the current one again");
    assert!(is_locked(&store.versions().delete("b", "k", one).await));
    let gone = store.versions().set_retention("b", named(two), compliance, Bypass::Nothing).await;
    assert!(matches!(gone, Err(Error::NoSuchVersion)));
    let marker = delete(store, "k").await.version.unwrap();
    let on_marker = store.versions().set_legal_hold("b", named(marker), true).await;
    assert!(matches!(on_marker, Err(Error::DeleteMarker { was_named: true, .. })));
}

#[tokio::test]
async fn versions_with_unreadable_locks_are_not_removed() {
    let (harness, clock) = locked().await;
    let store = &harness.store;
    let id = put_version(store, "k", "x").await.unwrap();
    let mut change = |_: &martlet_protocol::Entry, object: &Object| {
        let mut object = object.clone();
        object.attributes.marks.set(Mark::Retention, b"of a later version".to_vec());
        Ok(Some(object))
    };
    let context = store.context();
    store.services.reviser.revise_object(&context, "b", named(id), &mut change).await.unwrap();
    clock.set_ms(NOW_MS * 2);
    let removed = store
        .versions()
        .delete_past("b", "k", id, Bypass::Governance, &DeleteConditions::default())
        .await;
    assert!(matches!(removed, Err(Error::Locked(LockViolation::Unreadable))));
    let loosened = store.versions().set_retention("b", named(id), None, Bypass::Governance).await;
    assert!(matches!(loosened, Err(Error::Locked(LockViolation::Unreadable))));
    assert_eq!(get_version(store, "k", id).await.unwrap(), "x");
}

#[tokio::test]
async fn a_bucket_with_locks_keeps_versions_for_good() {
    let harness = Harness::new(3, 3);
    let store = &harness.store;
    create(store, "b").await;
    harness.put("k", "null").await.unwrap();
    let refused = |outcome| matches!(outcome, Err(Error::InvalidBucketState(_)));
    assert!(refused(store.buckets().set_object_lock("b", BucketLock::default()).await));
    let held = store.versions().set_legal_hold("b", "k", true).await;
    assert!(matches!(held, Err(Error::InvalidRequest(_))));
    let written = put_marked(store, marks(None, Some(true))).await;
    assert!(matches!(written, Err(Error::InvalidRequest(_))));
    store.buckets().set_versioning("b", false).await.unwrap();
    assert!(refused(store.buckets().set_object_lock("b", BucketLock::default()).await));
    store.buckets().set_versioning("b", true).await.unwrap();
    assert_eq!(store.buckets().object_lock("b").await.unwrap(), None);
    store.buckets().set_object_lock("b", BucketLock::default()).await.unwrap();
    assert_eq!(store.buckets().object_lock("b").await.unwrap(), Some(BucketLock::default()));
    assert!(refused(store.buckets().set_versioning("b", false).await));
    store.buckets().set_versioning("b", true).await.unwrap();
    assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Enabled);
    // An object from before versioning can be locked as well.
    store.versions().set_legal_hold("b", "k", true).await.unwrap();
    put_version(store, "k", "new").await.unwrap();
    assert!(is_locked(&store.versions().delete("b", "k", VersionId::Null).await));
    assert_eq!(get_version(store, "k", VersionId::Null).await.unwrap(), "null");
}

#[tokio::test]
async fn an_end_that_has_passed_is_refused() {
    let (harness, _clock) = locked().await;
    let store = &harness.store;
    put_version(store, "k", "x").await.unwrap();
    let outcome = store.versions().set_retention("b", "k", governed(NOW_MS), Bypass::Nothing).await;
    assert!(matches!(outcome, Err(Error::InvalidArgument(_))));
    let outcome = put_marked(store, marks(governed(NOW_MS - 1), None)).await;
    assert!(matches!(outcome, Err(Error::InvalidArgument(_))));
    assert_eq!(shown(store).await, ["k 1*"]);
}

fn default_of(days: u32) -> BucketLock {
    let mode = RetentionMode::Governance;
    BucketLock { default: Some(DefaultRetention { mode, period: Period::Days(days) }) }
}

#[tokio::test]
async fn objects_without_retention_get_the_buckets_default() {
    let (harness, _clock) = locked().await;
    let store = &harness.store;
    store.buckets().set_object_lock("b", default_of(1)).await.unwrap();
    let kept = governed(NOW_MS + DAY_MS);
    let first = put_version(store, "k", pattern(20_000, 1)).await.unwrap();
    assert_eq!(lock_of(store, first).await.retention, kept);
    assert!(is_locked(&store.versions().delete("b", "k", first).await));
    let own = until(RetentionMode::Compliance, NOW_MS + 3);
    put_marked(store, marks(own, Some(true))).await.unwrap();
    assert_eq!(lock_of(store, None).await, Lock { retention: own, legal_hold: Some(true) });
    // A copy takes neither its source's lock nor its storage class.
    let copy = CopyObject { source: ("b".into(), "k".into()), ..copy_of("k") };
    let tags = Some(Vec::new());
    store.copy("b", "k", CopyObject { tags, ..copy }).await.unwrap();
    assert_eq!(lock_of(store, None).await, Lock { retention: kept, legal_hold: None });
    // An upload gets the default lock at its completion, unless it names one itself.
    for said in [None, own] {
        let attributes = Attributes { marks: marks(said, None), ..Attributes::default() };
        let new = NewUpload { attributes, checksum: None };
        let upload = store.uploads().create("b", "k", new).await.unwrap().id;
        let part =
            store.uploads().put_part("b", "k", upload, 1, body(pattern(30, 1))).await.unwrap();
        let complete = naming(&[(1, &part)]);
        let written = store.uploads().complete("b", "k", upload, complete).await.unwrap();
        let id = id_of(&written.object);
        assert_eq!(lock_of(store, id).await.retention, said.or(kept));
        assert!(is_locked(&store.versions().delete("b", "k", id).await));
    }
}

/// A proxy with a stale bucket in its cache writes no version without the new default lock.
#[tokio::test]
async fn m2_a_proxy_with_a_stale_bucket_locks_new_objects() {
    let harness = Harness::with_bucket(1).await;
    let (store, remembers) = (&harness.store, remembering(&harness.memory));
    store.buckets().set_versioning("b", true).await.unwrap();
    put_version(&remembers, "k", "known").await.unwrap();
    store.buckets().set_object_lock("b", default_of(1)).await.unwrap();
    let id = put_version(&remembers, "k", "later").await.unwrap();
    assert!(lock_of(store, id).await.retention.is_some());
    store.buckets().set_object_lock("b", BucketLock::default()).await.unwrap();
    let id = put_version(&remembers, "k", "last").await.unwrap();
    assert_eq!(lock_of(store, id).await.retention, None);
    // Nor does the proxy report that its cached bucket has no object lock.
    let bare = Harness::with_bucket(1).await;
    let remembers = remembering(&bare.memory);
    bare.store.buckets().set_versioning("b", true).await.unwrap();
    put_version(&remembers, "k", "known").await.unwrap();
    bare.store.buckets().set_object_lock("b", BucketLock::default()).await.unwrap();
    remembers.versions().set_legal_hold("b", "k", true).await.unwrap();
    assert!(is_locked(&remembers.versions().delete("b", "k", id_of_only(&bare.store).await).await));
}

async fn id_of_only(store: &ObjectStore) -> VersionId {
    super::all_versions(store).await[0].id
}

#[tokio::test]
async fn a_bucket_with_an_unreadable_lock_accepts_no_objects() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    store.buckets().set_versioning("b", true).await.unwrap();
    let document = b"of a later version".to_vec();
    store
        .buckets()
        .put_setting("b", martlet_protocol::Setting::ObjectLock, document)
        .await
        .unwrap();
    let outcome = put_version(store, "k", "x").await;
    assert!(matches!(&outcome, Err(Error::Backend(error))
        if error.kind() == martlet_protocol::ErrorKind::Corrupt));
    assert!(
        store.buckets().set_versioning("b", false).await.is_err(),
        "it has locks, whatever they are"
    );
    assert!(shown(store).await.is_empty());
}
