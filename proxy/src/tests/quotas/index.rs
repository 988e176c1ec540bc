//! Quotas on index bytes: every request that fills the index is refused in the end, if repeated.

use bytes::Bytes;
use martlet_protocol::entry::Attributes;
use martlet_protocol::usage::{Count, CountAt, Excess, Quota, UsageCounter};
use martlet_protocol::{Setting, Settings};

use super::{a_while, all_countable, exceeded, over, put, put_in, tenant_with_buckets};
use crate::tests::harness::{Harness, body, create, pattern};
use crate::{Exceeded, NewBucket, NewUpload, ObjectStore, Result, Whose, WriteConditions};

/// Index quota of a bucket in bytes.
const ALLOWED: u64 = 20_000;

async fn allow(store: &ObjectStore, bucket: &str, index: u64) {
    let quota = Quota { index: Some(index), ..Quota::default() };
    store.buckets().change_quota(bucket, |it| *it = quota).await.unwrap();
}

/// A store with a bucket that keeps versions and has an index quota.
async fn limited() -> ObjectStore {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    store.buckets().set_versioning("b", true).await.unwrap();
    allow(&store, "b", ALLOWED).await;
    store
}

/// Repeats a request. Returns the number of successes and the first refusal.
async fn until_refused<T>(mut request: impl AsyncFnMut(u32) -> Result<T>) -> (u32, Exceeded) {
    for number in 1..200 {
        if let Some(refused) = exceeded(request(number).await) {
            return (number - 1, refused);
        }
    }
    panic!("nothing bounds it");
}

async fn begin(
    store: &ObjectStore,
    key: &str,
    attributes: Attributes,
) -> Result<crate::UploadInfo> {
    store.uploads().create("b", key, NewUpload { attributes, checksum: None }).await
}

fn metadata(bytes: usize) -> Attributes {
    let user_metadata = vec![("m".into(), "v".repeat(bytes))];
    Attributes { user_metadata, ..Attributes::default() }
}

const REFUSED: Exceeded = Exceeded { whose: Whose::Bucket, excess: Excess::Index(ALLOWED) };

#[tokio::test]
async fn delete_markers_are_bounded_and_what_makes_room_is_not_refused() {
    let store = limited().await;
    let written = put(&store, "a", 10).await.unwrap();
    let version = written.object.version.unwrap().name();
    let unconditional = WriteConditions::default();
    let (taken, refused) =
        until_refused(async |_| store.delete("b", "a", &unconditional).await).await;
    assert_eq!(refused, REFUSED);
    assert!((30..40).contains(&taken), "{taken} of 512 bytes and a key");
    store.versions().delete("b", "a", version).await.unwrap();
}

#[tokio::test]
async fn uploads_that_are_begun_are_bounded() {
    let store = limited().await;
    let (taken, refused) =
        until_refused(async |_| begin(&store, "a", Attributes::default()).await).await;
    assert_eq!(refused, REFUSED);
    assert!((30..40).contains(&taken), "{taken}");
}

#[tokio::test]
async fn parts_without_bytes_are_bounded_also_those_of_one_number() {
    let store = limited().await;
    let upload = begin(&store, "a", Attributes::default()).await.unwrap().id;
    let part = async |_| store.uploads().put_part("b", "a", upload, 1, body(Bytes::new())).await;
    let (taken, refused) = until_refused(part).await;
    assert_eq!(refused, REFUSED);
    assert!((25..40).contains(&taken), "{taken}");
    let counted = store.count_bucket("b", &mut |_| ()).await.unwrap();
    assert!(counted.usage.index < 10 * 512, "those that were replaced are freed");
    store.uploads().abort("b", "a", upload).await.unwrap();
}

#[tokio::test]
async fn empty_objects_count_with_their_metadata_against_quotas() {
    let empty = async |store: &ObjectStore, attributes: Attributes| {
        until_refused(async |number| {
            let (body, conditions) = (body(Bytes::new()), WriteConditions::default());
            let put = crate::PutObject { attributes: attributes.clone(), body, conditions };
            store.put("b", &format!("k{number}"), put).await
        })
        .await
    };
    let (plain, refused) = empty(&limited().await, Attributes::default()).await;
    assert_eq!(refused, REFUSED);
    let (described, refused) = empty(&limited().await, metadata(1500)).await;
    assert_eq!(refused, REFUSED);
    assert!((25..40).contains(&plain) && described < plain / 2, "{plain}, {described}");
}

#[tokio::test]
async fn growing_tags_and_settings_count_against_quotas() {
    let store = limited().await;
    put(&store, "a", 10).await.unwrap();
    allow(&store, "b", 2000).await;
    let tags = |length| vec![("k".to_owned(), "v".repeat(length))];
    store.versions().set_tags("b", "a", tags(10)).await.unwrap();
    let refused = exceeded(store.versions().set_tags("b", "a", tags(2000)).await);
    assert_eq!(refused, Some(over(Whose::Bucket, Excess::Index(2000))));
    store.versions().set_tags("b", "a", Vec::new()).await.unwrap();
    let policy = vec![b'{'; 4000];
    let refused = exceeded(store.buckets().put_setting("b", Setting::Policy, policy).await);
    assert_eq!(refused, Some(over(Whose::Bucket, Excess::Index(2000))));
    allow(&store, "b", 1).await;
    allow(&store, "b", ALLOWED).await;
}

#[tokio::test]
async fn buckets_are_bounded_by_the_quota_of_their_owner() {
    let Harness { store, .. } = Harness::new(1, 1);
    let accounts = tenant_with_buckets(&store, &[]).await;
    let tenant =
        accounts.tenants().change_quota("t", |quota| quota.index = Some(ALLOWED)).await.unwrap();
    a_while().await;
    let (taken, refused) = until_refused(async |number| {
        let (owner, settings) = (tenant.canonical_id.clone(), Settings::default());
        let new = NewBucket { owner, index_shards: 1, policy: None, settings };
        store.buckets().create(&format!("bucket-{number}"), new).await
    })
    .await;
    assert_eq!(refused, over(Whose::Tenant, Excess::Index(ALLOWED)));
    assert!((20..40).contains(&taken), "{taken}");
}

/// Makes one entry of each kind that fills the index.
async fn one_of_each(store: &ObjectStore, bucket: &str) -> Result<()> {
    put_in(store, bucket, "a", body(pattern(100_000, 1))).await?;
    put_in(store, bucket, "e", body(Bytes::new())).await?;
    store.delete(bucket, "a", &WriteConditions::default()).await?;
    let new = NewUpload { attributes: metadata(100), checksum: None };
    let upload = store.uploads().create(bucket, "u", new).await?.id;
    store.uploads().put_part(bucket, "u", upload, 1, body(pattern(100_000, 2))).await?;
    Ok(())
}

/// Counts the index of a bucket by listings. Rows of devices also count what names a version or a
/// part in its register.
async fn listed(store: &ObjectStore, bucket: &str) -> u64 {
    let all = all_countable(store).await;
    let mut count = Count::begin(all.into_iter().find(|it| it.name == bucket).unwrap(), 0);
    while count.at != CountAt::Done {
        store.count(&mut count).await.unwrap();
    }
    count.usage.index
}

#[tokio::test]
async fn a_count_comes_to_what_was_requested() {
    let Harness { store, .. } = Harness::with_bucket(1).await;
    let held = async |bucket: &str| listed(&store, bucket).await;
    for bucket in ["b", "c", "d"] {
        if bucket != "b" {
            create(&store, bucket).await;
        }
        store.buckets().set_versioning(bucket, true).await.unwrap();
    }
    let empty = held("b").await;
    assert!(empty > 512, "a bucket is an entry, too");
    one_of_each(&store, "b").await.unwrap();
    let requested = held("b").await - empty;
    allow(&store, "c", requested).await;
    one_of_each(&store, "c").await.unwrap();
    allow(&store, "d", requested - 1).await;
    let refused = exceeded(one_of_each(&store, "d").await);
    assert_eq!(refused, Some(over(Whose::Bucket, Excess::Index(requested - 1))));
}
