//! Quotas: checked before a body is read, effective within a second, exceeded by no more than
//! concurrent writes.

mod forgotten;
mod index;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Attributes;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::testing::Fault;
use martlet_protocol::usage::{CountAt, Countable, Excess, Quota, UsageCounter};
use martlet_protocol::{ErrorKind, Settings, Shard};

use super::harness::{Harness, body, create, faulty, pattern, settle, unsized_body};
use super::objects::copy_of;
use crate::{
    Accounts, CompleteUpload, Error, Exceeded, NamedPart, NewBody, NewBucket, NewUpload,
    ObjectStore, PutObject, Result, Vault, Whose, WriteConditions, WrittenObject,
};

fn exceeded<T>(outcome: Result<T>) -> Option<Exceeded> {
    match outcome {
        Err(Error::QuotaExceeded(exceeded)) => Some(exceeded),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

fn over(whose: Whose, excess: Excess) -> Exceeded {
    Exceeded { whose, excess }
}

async fn limit(store: &ObjectStore, bucket: &str, bytes: Option<u64>, objects: Option<u64>) {
    let quota = Quota { bytes, objects, index: None };
    let set = store.buckets().change_quota(bucket, |it| *it = quota).await;
    assert_eq!(set.unwrap(), quota);
}

async fn put_in(
    store: &ObjectStore,
    bucket: &str,
    key: &str,
    body: NewBody,
) -> Result<WrittenObject> {
    let (attributes, conditions) = (Attributes::default(), WriteConditions::default());
    store.put(bucket, key, PutObject { attributes, body, conditions }).await
}

async fn put(store: &ObjectStore, key: &str, bytes: usize) -> Result<WrittenObject> {
    put_in(store, "b", key, body(pattern(bytes, 1))).await
}

/// Counts a bucket and publishes the count. Returns bytes and objects.
async fn count(store: &ObjectStore, bucket: &str) -> (u64, u64) {
    // Writes in the millisecond in which the count begins are added to it.
    tokio::time::sleep(Duration::from_millis(3)).await;
    let count = store.count_bucket(bucket, &mut |_| ()).await.unwrap();
    store.report(&count).await.unwrap();
    (count.usage.bytes, count.usage.objects)
}

/// Returns the buckets of all shards of the list of buckets.
async fn all_countable(store: &ObjectStore) -> Vec<Countable> {
    let shards = (0..INDEX_SHARDS_DEFAULT).map(Shard).collect();
    store.countable(&shards).await.unwrap()
}

/// Sleeps until all proxies have read the count.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test]
async fn a_write_that_would_pass_the_quota_is_refused_before_its_body_is_touched() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    limit(&store, "b", Some(1000), None).await;
    put(&store, "a", 600).await.unwrap();
    let is_touched = Arc::new(AtomicBool::new(false));
    let touched = is_touched.clone();
    let bytes = futures::stream::once(async move {
        touched.store(true, Ordering::Relaxed);
        Ok(pattern(401, 1))
    });
    let new_body = NewBody { bytes: bytes.boxed(), ..body(pattern(401, 1)) };
    let refused = exceeded(put_in(&store, "b", "c", new_body).await);
    assert_eq!(refused, Some(over(Whose::Bucket, Excess::Bytes(1000))));
    assert!(!is_touched.load(Ordering::Relaxed));
    put(&store, "c", 400).await.unwrap();
    let copied = store.copy("b", "d", copy_of("a")).await;
    assert_eq!(exceeded(copied), Some(over(Whose::Bucket, Excess::Bytes(1000))));
    assert!(exceeded(put(&store, "a", 1).await).is_some(), "it replaces more, and is refused");
    limit(&store, "b", None, None).await;
    put(&store, "d", 5000).await.unwrap();
}

#[tokio::test]
async fn a_body_of_unknown_length_is_refused_after_its_last_byte() {
    let Harness { store, memory } = Harness::with_bucket(1).await;
    limit(&store, "b", Some(100_000), None).await;
    let refused = put_in(&store, "b", "a", unsized_body(pattern(100_001, 1))).await;
    assert!(exceeded(refused).is_some());
    settle().await;
    assert!(memory.extents_in_use().is_empty(), "and leaves nothing behind");
    put_in(&store, "b", "a", unsized_body(pattern(100_000, 1))).await.unwrap();
    assert!(exceeded(put_in(&store, "b", "e", unsized_body(Bytes::new())).await).is_some());
}

#[tokio::test]
async fn failed_writes_return_their_quota() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    limit(&store, "b", Some(1000), Some(1)).await;
    for _ in 0..3 {
        let wrong = NewBody { md5: Some([0; 16]), ..body(pattern(1000, 1)) };
        assert!(matches!(put_in(&store, "b", "a", wrong).await, Err(Error::BadDigest { .. })));
    }
    put(&store, "a", 1000).await.unwrap();
    assert_eq!(exceeded(put(&store, "e", 0).await), Some(over(Whose::Bucket, Excess::Objects(1))));
}

#[tokio::test]
async fn a_count_corrects_usage_and_frees_deleted_bytes() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    limit(&store, "b", Some(1000), None).await;
    put(&store, "a", 600).await.unwrap();
    put(&store, "c", 400).await.unwrap();
    store.delete("b", "a", &WriteConditions::default()).await.unwrap();
    assert!(exceeded(put(&store, "d", 500).await).is_some(), "until it is counted");
    assert_eq!(count(&store, "b").await, (400, 1));
    a_while().await;
    put(&store, "d", 500).await.unwrap();
}

#[tokio::test]
async fn versions_count_and_so_do_parts_once() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    store.buckets().set_versioning("b", true).await.unwrap();
    limit(&store, "b", Some(1000), None).await;
    put(&store, "a", 100).await.unwrap();
    put(&store, "a", 100).await.unwrap();
    store.delete("b", "a", &WriteConditions::default()).await.unwrap();
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = store.uploads().create("b", "u", new).await.unwrap().id;
    let part = store.uploads().put_part("b", "u", upload, 1, body(pattern(700, 1))).await.unwrap();
    let more = store.uploads().put_part("b", "u", upload, 2, body(pattern(101, 1))).await;
    assert_eq!(exceeded(more), Some(over(Whose::Bucket, Excess::Bytes(1000))));
    assert_eq!(count(&store, "b").await, (900, 2));
    let named = NamedPart { number: 1, etag: part.etag.to_string(), checksums: Vec::new() };
    let complete = CompleteUpload { parts: vec![named], ..CompleteUpload::default() };
    limit(&store, "b", Some(100), Some(2)).await;
    let full = store.uploads().complete("b", "u", upload, complete.clone()).await;
    assert_eq!(exceeded(full), Some(over(Whose::Bucket, Excess::Objects(2))));
    limit(&store, "b", Some(100), Some(3)).await;
    store.uploads().complete("b", "u", upload, complete).await.unwrap();
    assert_eq!(count(&store, "b").await, (900, 3));
}

#[tokio::test]
async fn a_count_goes_through_all_shards_and_pages() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    for number in 0..60 {
        put(&store, &format!("k{number}"), 10).await.unwrap();
    }
    let mut counts = store.count_bucket("b", &mut |_| ()).await.unwrap();
    assert_eq!((counts.usage.bytes, counts.usage.objects), (600, 60));
    assert_eq!(counts.at, CountAt::Done);
    store.count(&mut counts).await.unwrap();
    assert_eq!(counts.usage.objects, 60, "it stays done");
}

/// Names of the buckets under a quota.
async fn limited(store: &ObjectStore) -> Vec<String> {
    let all = all_countable(store).await;
    all.into_iter().filter(|bucket| bucket.limited).map(|bucket| bucket.name).collect()
}

async fn tenant_with_buckets(store: &ObjectStore, names: &[&str]) -> Accounts {
    let accounts = Accounts::new(store.clone(), Vault::default());
    let tenant = accounts.tenants().create("t", None, Vec::new()).await.unwrap();
    for name in names {
        let owner = tenant.canonical_id.clone();
        let settings = Settings::default();
        let new = NewBucket { owner, index_shards: 4, policy: None, settings };
        store.buckets().create(name, new).await.unwrap();
    }
    accounts
}

#[tokio::test]
async fn a_tenants_quota_is_over_its_buckets_and_in_force_within_a_second() {
    let Harness { store, .. } = Harness::new(3, 3);
    let accounts = tenant_with_buckets(&store, &["b", "c"]).await;
    create(&store, "others").await;
    put(&store, "a", 600).await.unwrap();
    accounts.tenants().change_quota("t", |quota| quota.bytes = Some(1000)).await.unwrap();
    assert_eq!(limited(&store).await, ["b", "c"]);
    for bucket in ["b", "c"] {
        count(&store, bucket).await;
    }
    a_while().await;
    put_in(&store, "c", "a", body(pattern(400, 1))).await.unwrap();
    let refused = exceeded(put_in(&store, "c", "d", body(pattern(1, 1))).await);
    assert_eq!(refused, Some(over(Whose::Tenant, Excess::Bytes(1000))));
    put_in(&store, "others", "a", body(pattern(9000, 1))).await.unwrap();
    accounts.tenants().change_quota("t", |quota| *quota = Quota::default()).await.unwrap();
    a_while().await;
    put(&store, "d", 2000).await.unwrap();
    assert!(limited(&store).await.is_empty());
    let of = store.bucket("c").await.unwrap();
    assert!(store.directory().bucket_usage(&of).await.unwrap().is_some(), "it is kept up");
    for key in ["a", "d"] {
        let _ = store.delete("c", key, &WriteConditions::default()).await;
    }
    store.buckets().delete("c").await.unwrap();
    all_countable(&store).await;
    assert_eq!(store.directory().bucket_usage(&of).await.unwrap(), None, "its bucket is gone");
}

#[tokio::test]
async fn without_a_quorum_of_accounts_the_last_quota_stays() {
    let harness = Harness::new(3, 3);
    let is_out = Arc::new(AtomicBool::new(false));
    let out = is_out.clone();
    let store = faulty(&harness.memory, 3, 3, move |call| {
        let is_account = call.key.is_some_and(|key| key.name.starts_with(b"tenant"));
        if is_account && out.load(Ordering::Relaxed) {
            Fault::Refuse(ErrorKind::Unavailable)
        } else {
            Fault::None
        }
    });
    let accounts = tenant_with_buckets(&store, &["b"]).await;
    accounts.tenants().change_quota("t", |quota| quota.objects = Some(1)).await.unwrap();
    a_while().await;
    put(&store, "a", 1).await.unwrap();
    is_out.store(true, Ordering::Relaxed);
    a_while().await;
    assert_eq!(exceeded(put(&store, "c", 1).await), Some(over(Whose::Tenant, Excess::Objects(1))));
}

#[tokio::test]
async fn owners_without_a_quota_need_no_read() {
    let harness = Harness::new(1, 1);
    let listed = Arc::new(AtomicUsize::new(0));
    let seen = listed.clone();
    let store = faulty(&harness.memory, 1, 1, move |call| {
        if call.op == CallKind::ListRows {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    });
    create(&store, "b").await;
    let _desk = tenant_with_buckets(&store, &["of-tenant"]).await;
    for bucket in ["b", "of-tenant"] {
        put_in(&store, bucket, "a", body(pattern(10, 1))).await.unwrap();
    }
    assert_eq!(listed.load(Ordering::Relaxed), 0, "there are no counts to read");
    assert!(limited(&store).await.is_empty());
}

#[tokio::test]
async fn proxies_pass_a_quota_by_no_more_than_the_other_wrote_since_the_count() {
    let harness = Harness::with_bucket(1).await;
    let other = faulty(&harness.memory, 1, 1, |_| Fault::None);
    limit(&harness.store, "b", Some(1000), None).await;
    put(&harness.store, "a", 900).await.unwrap();
    put(&other, "c", 900).await.unwrap();
    assert!(exceeded(put(&other, "d", 101).await).is_some());
    assert_eq!(count(&harness.store, "b").await, (1800, 2));
    a_while().await;
    for store in [&harness.store, &other] {
        assert!(exceeded(put(store, "e", 1).await).is_some());
    }
}
