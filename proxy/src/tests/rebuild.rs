//! Objects whose registers are lost come back from their extents, and never over an entry (rule X8).

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::entry::ETag;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::lost::{LostExtent, LostKey};
use martlet_protocol::{Backend, BackendExt, BucketId, DeviceId, ExtentId, Settings};

use super::harness::{Harness, create, pattern, settle};
use super::multipart::{begin, naming, send};
use crate::{
    Error, KeyOutcome, NewBucket, NotRebuilt, REBUILT, Rebuild, RebuildConsent, Selection,
    adopt_bucket,
};

const DEVICES: u32 = 3;
const ALL: RebuildConsent = RebuildConsent { without_facts: true, uploads: true };

/// A store with a bucket `b`.
async fn filled() -> (Harness, BucketId) {
    let harness = Harness::new(3, DEVICES);
    create(&harness.store, "b").await;
    let bucket = harness.store.bucket("b").await.unwrap().id;
    (harness, bucket)
}

/// Returns a store with the extents of another one, and none of its registers but the bucket's.
async fn without_registers(before: &Harness, bucket: BucketId) -> Harness {
    settle().await;
    let harness = Harness::new(3, DEVICES);
    let new = NewBucket {
        owner: "me".into(),
        index_shards: 8,
        policy: None,
        settings: Settings::default(),
    };
    adopt_bucket(harness.store.buckets(), "b", new, bucket).await.unwrap();
    copy_extents(before, &harness).await;
    harness
}

async fn copy_extents(before: &Harness, harness: &Harness) {
    for device in (1..=DEVICES).map(DeviceId) {
        let held = harness.memory.list_extents(device, None, usize::MAX).await.unwrap();
        for record in before.memory.list_extents(device, None, usize::MAX).await.unwrap() {
            if held.iter().any(|it| it.extent.id == record.extent.id) {
                continue;
            }
            let bytes = bytes_of(before, device, &record).await;
            let new = NewExtent {
                id: record.extent.id,
                owner: record.owner,
                length: None,
                birth_ms: Some(record.birth_ms),
                layout: record.layout,
                hashes: None,
            };
            let stored = futures::stream::iter([Ok(bytes)]).boxed();
            harness.memory.write_extent(device, new, stored).await.unwrap();
        }
    }
}

async fn bytes_of(harness: &Harness, device: DeviceId, record: &ExtentRecord) -> Bytes {
    let range = 0..u64::from(record.extent.length);
    let mut stream = harness.memory.read_extent(device, record.extent.id, range).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    bytes.into()
}

/// Returns all extents of a key.
async fn lost(harness: &Harness, bucket: BucketId, key: &str) -> LostKey {
    let mut extents: BTreeMap<ExtentId, LostExtent> = BTreeMap::new();
    for device in (1..=DEVICES).map(DeviceId) {
        for record in harness.memory.list_extents(device, None, usize::MAX).await.unwrap() {
            if record.owner.key == key && record.owner.bucket == bucket {
                extents.insert(record.extent.id, LostExtent { record, is_readable: true });
            }
        }
    }
    LostKey { bucket, key: key.into(), extents: extents.into_values().collect() }
}

async fn rebuild(harness: &Harness, lost: &LostKey, consent: RebuildConsent) -> KeyOutcome {
    Rebuild::new(harness.store.clone(), consent, true).key("b", lost).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_comes_back_with_its_bytes_and_its_etag_and_once() {
    let (before, bucket) = filled().await;
    let bytes = pattern(300_000, 1);
    let put = before.put("key", bytes.clone()).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let lost = lost(&harness, bucket, "key").await;
    let dry = Rebuild::new(harness.store.clone(), RebuildConsent::default(), false)
        .key("b", &lost)
        .await
        .unwrap();
    assert_eq!((dry.objects, dry.bytes), (1, 300_000));
    let absent = harness.head("key", Selection::Whole).await;
    assert!(matches!(absent, Err(Error::NoSuchKey)), "a dry run writes nothing");
    let outcome = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!(outcome, dry);
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
    let object = harness.head("key", Selection::Whole).await.unwrap().object;
    assert_eq!((object.etag, object.checksums.len()), (put.object.etag, 1));
    assert_eq!(object.attributes.user_metadata, [(REBUILT.to_owned(), "true".to_owned())]);
    let again = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!(again, KeyOutcome { is_taken: true, ..KeyOutcome::default() });
}

#[tokio::test(start_paused = true)]
async fn an_entry_and_a_tombstone_stay() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let lost = lost(&harness, bucket, "key").await;
    harness.put("key", "newer").await.unwrap();
    assert!(rebuild(&harness, &lost, ALL).await.is_taken);
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), "newer");
    harness.delete("key").await;
    assert!(rebuild(&harness, &lost, ALL).await.is_taken, "a tombstone is known");
    assert!(harness.get("key", Selection::Whole).await.is_err());
}

#[tokio::test]
async fn a_write_beside_the_rebuild_wins() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    for round in 0..20 {
        let harness = without_registers(&before, bucket).await;
        let lost = lost(&harness, bucket, "key").await;
        let rebuild = Rebuild::new(harness.store.clone(), RebuildConsent::default(), true);
        let late = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            harness.put("key", "newer").await
        };
        let (rebuilt, written) = tokio::join!(rebuild.key("b", &lost), late);
        written.unwrap();
        rebuilt.unwrap();
        let read = harness.get("key", Selection::Whole).await.unwrap();
        assert_eq!(read, "newer", "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_differ_from_their_hash_stay_away() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let mut lost = lost(&harness, bucket, "key").await;
    lost.extents[0].record.extent.blake3[0] ^= 1;
    let outcome = rebuild(&harness, &lost, ALL).await;
    assert_eq!((outcome.objects, outcome.refused), (0, vec![NotRebuilt::Unreadable]));
    assert!(harness.get("key", Selection::Whole).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_manifest_in_extents_brings_an_object_of_many_parts_back() {
    let (before, bucket) = filled().await;
    let upload = begin(&before, "key").await;
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    for number in 1..=130 {
        let bytes = pattern(20, number);
        whole.extend_from_slice(&bytes);
        parts.push((number, send(&before, upload, number, &bytes).await.unwrap()));
    }
    let named: Vec<_> = parts.iter().map(|(number, part)| (*number, part)).collect();
    let uploads = before.store.uploads();
    let done = uploads.complete("b", "key", upload, naming(&named)).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let lost = lost(&harness, bucket, "key").await;
    let outcome = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!((outcome.objects, outcome.bytes), (1, 130 * 20), "{outcome:?}");
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), whole);
    let object = harness.head("key", Selection::Whole).await.unwrap().object;
    assert_eq!(object.etag, done.object.etag);
    assert!(matches!(object.etag, ETag::Multipart { parts: 130, .. }));
    let part = harness.get("key", Selection::Part { number: 130 }).await.unwrap();
    assert_eq!(part, pattern(20, 130));
}

#[tokio::test(start_paused = true)]
async fn of_two_bodies_the_later_comes_back_and_an_id_is_adopted_once() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let later = pattern(30_000, 2);
    before.put("key", later.clone()).await.unwrap();
    settle().await;
    copy_extents(&before, &harness).await;
    let mut lost = lost(&harness, bucket, "key").await;
    assert_eq!(lost.extents.len(), 2);
    for extent in &mut lost.extents {
        extent.record.birth_ms = u64::from(extent.record.extent.length);
    }
    let outcome = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!((outcome.objects, outcome.older), (1, 1));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), later);
    let new = || NewBucket {
        owner: "me".into(),
        index_shards: 8,
        policy: None,
        settings: Settings::default(),
    };
    let buckets = harness.store.buckets();
    let twice = adopt_bucket(buckets, "other", new(), bucket).await.unwrap_err();
    assert!(twice.to_string().contains("the bucket b has this id"), "{twice}");
    let deleted = {
        create(&harness.store, "gone").await;
        let id = harness.store.bucket("gone").await.unwrap().id;
        buckets.delete("gone").await.unwrap();
        adopt_bucket(buckets, "gone", new(), id).await.unwrap_err()
    };
    assert!(deleted.to_string().contains("was deleted"), "{deleted}");
}
