//! Objects whose registers are lost come back from their extents, and never over an entry (rule X8).

mod adopt;
mod coded;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use martlet_protocol::backend::{BucketFence, CallKind, EntryWrite, NewExtent};
use martlet_protocol::entry::{ETag, Entry, Value};
use martlet_protocol::extent::{BodyFacts, ExtentRecord};
use martlet_protocol::key::shard_of;
use martlet_protocol::lost::{LostExtent, LostKey};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::Fault;
use martlet_protocol::{
    Backend, BackendExt, BucketId, Clock, DeviceId, ErrorKind, ExtentId, RegisterKey, Settings,
    Stamp, SystemClock, Term, VersionId, WriteId,
};

use super::harness::{Harness, create, faulty, pattern, settle};
use super::multipart::{begin, naming, send};
use super::versions::all_versions;
use crate::{
    Error, HoldCheck, KeyOutcome, NewBucket, NotRebuilt, REBUILT, Rebuild, RebuildConsent,
    Selection, adopt_bucket,
};

const DEVICES: u32 = 3;
const ALL: RebuildConsent =
    RebuildConsent { without_facts: true, uploads: true, latest: true, over_older: false };

fn new_bucket(index_shards: u16) -> NewBucket {
    NewBucket { owner: "me".into(), index_shards, policy: None, settings: Settings::default() }
}

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
    adopt_bucket(harness.store.buckets(), "b", new_bucket(8), bucket).await.unwrap();
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
    applied(harness, consent).key("b", lost).await.unwrap()
}

fn applied(harness: &Harness, consent: RebuildConsent) -> Rebuild {
    Rebuild::applied(harness.store.clone(), consent, u64::MAX, held())
}

/// A hold that is on.
fn held() -> Arc<HoldCheck> {
    Arc::new(|| async { Ok::<(), martlet_protocol::Error>(()) }.boxed())
}

fn reasons(outcome: &KeyOutcome) -> Vec<NotRebuilt> {
    outcome.refused.iter().map(|body| body.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn an_object_comes_back_with_its_bytes_and_its_etag_and_once() {
    let (before, bucket) = filled().await;
    let bytes = pattern(300_000, 1);
    let put = before.put("key", bytes.clone()).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let lost = lost(&harness, bucket, "key").await;
    let dry = Rebuild::dry(harness.store.clone(), RebuildConsent::default(), u64::MAX)
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
        let rebuild = applied(&harness, RebuildConsent::default());
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
    assert_eq!((outcome.objects, reasons(&outcome)), (0, vec![NotRebuilt::Unreadable]));
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
    let undecided = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!((undecided.objects, undecided.older), (0, 0), "nothing tells which one was last");
    assert_eq!(reasons(&undecided), [NotRebuilt::Several; 2]);
    assert_eq!(undecided.refused.iter().map(|it| it.bytes).collect::<Vec<_>>(), [20_000, 30_000]);
    let latest = RebuildConsent { latest: true, ..RebuildConsent::default() };
    let outcome = rebuild(&harness, &lost, latest).await;
    assert_eq!((outcome.objects, outcome.older), (1, 1));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), later);
    let new = || new_bucket(8);
    let buckets = harness.store.buckets();
    let twice = adopt_bucket(buckets, "other", new(), bucket).await.unwrap_err();
    assert!(twice.to_string().contains("the bucket b has this id"), "{twice}");
    let root = adopt_bucket(buckets, "root", new(), BucketId::ROOT).await.unwrap_err();
    assert!(root.to_string().contains("the list of buckets"), "{root}");
    let deleted = {
        create(&harness.store, "gone").await;
        let id = harness.store.bucket("gone").await.unwrap().id;
        buckets.delete("gone").await.unwrap();
        adopt_bucket(buckets, "gone", new(), id).await.unwrap_err()
    };
    assert!(deleted.to_string().contains("was deleted"), "{deleted}");
}

/// A store that lost three versions of a key, and the key's extents, born in the order of their
/// lengths.
async fn three_versions() -> (Harness, LostKey) {
    let (before, bucket) = filled().await;
    before.store.buckets().set_versioning("b", true).await.unwrap();
    for length in [20_000, 21_000, 22_000] {
        before.put("key", pattern(length, 1)).await.unwrap();
    }
    let harness = without_registers(&before, bucket).await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    let mut lost = lost(&harness, bucket, "key").await;
    for extent in &mut lost.extents {
        extent.record.birth_ms = u64::from(extent.record.extent.length);
    }
    lost.extents.sort_by_key(|extent| extent.record.birth_ms);
    (harness, lost)
}

/// Returns the key with some of its extents: the others have entries by now.
fn with(lost: &LostKey, numbers: &[usize]) -> LostKey {
    let extents = numbers.iter().map(|number| lost.extents[*number].clone()).collect();
    LostKey { extents, ..lost.clone() }
}

async fn sizes(harness: &Harness) -> Vec<u64> {
    let versions = all_versions(&harness.store).await;
    versions.into_iter().filter_map(|version| Some(version.object?.size)).collect()
}

#[tokio::test(start_paused = true)]
async fn versions_that_were_moved_come_back_in_the_order_of_births_by_consent_alone() {
    let (harness, mut lost) = three_versions().await;
    let facts = BodyFacts { is_last: true, is_moved: true, ..BodyFacts::default() };
    lost.extents[1].record.owner.offset = facts.at(0);
    let undecided = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!((undecided.objects, reasons(&undecided)), (0, vec![NotRebuilt::Several; 3]));
    let alone = rebuild(&harness, &with(&lost, &[1]), RebuildConsent::default()).await;
    assert_eq!((alone.objects, reasons(&alone)), (1, vec![]), "one version is in order");
    let second = rebuild(&harness, &with(&lost, &[0, 2]), RebuildConsent::default()).await;
    assert_eq!(reasons(&second), [NotRebuilt::Behind], "the later one was not moved");
    assert_eq!(sizes(&harness).await, [22_000, 21_000]);
}

#[tokio::test(start_paused = true)]
async fn a_body_replaces_an_older_entry_by_consent_alone() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    for keeps_versions in [false, true] {
        let harness = without_registers(&before, bucket).await;
        if keeps_versions {
            harness.store.buckets().set_versioning("b", true).await.unwrap();
        }
        let mut lost = lost(&harness, bucket, "key").await;
        harness.put("key", "stale").await.unwrap();
        let over_older = RebuildConsent { over_older: true, ..RebuildConsent::default() };
        let taken = KeyOutcome { is_taken: true, ..KeyOutcome::default() };
        assert_eq!(rebuild(&harness, &lost, over_older).await, taken, "the entry is newer");
        for extent in &mut lost.extents {
            extent.record.birth_ms = SystemClock.now_ms() + 60_000;
        }
        let stays = rebuild(&harness, &lost, RebuildConsent::default()).await;
        assert_eq!(stays, KeyOutcome { newer: 1, ..taken.clone() });
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), "stale");
        let under_hold = Rebuild::applied(harness.store.clone(), over_older, 1, held());
        let changed = under_hold.key("b", &lost).await.unwrap();
        assert_eq!(changed, taken, "a client has changed the entry since the hold");
        let outcome = rebuild(&harness, &lost, over_older).await;
        assert_eq!((outcome.objects, outcome.is_taken), (1, false), "{outcome:?}");
        let read = harness.get("key", Selection::Whole).await.unwrap();
        assert_eq!(read, pattern(20_000, 1));
        let versions = if keeps_versions { &[20_000, 5][..] } else { &[20_000] };
        assert_eq!(sizes(&harness).await, versions);
        harness.delete("key").await;
        assert!(rebuild(&harness, &lost, over_older).await.is_taken, "a delete stays");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_after_a_body_leaves_the_choice_to_the_operator() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    let upload = begin(&before, "key").await;
    send(&before, upload, 1, &pattern(30_000, 2)).await.unwrap();
    let harness = without_registers(&before, bucket).await;
    let mut lost = lost(&harness, bucket, "key").await;
    for extent in &mut lost.extents {
        extent.record.birth_ms = u64::from(extent.record.extent.length);
    }
    let undecided = rebuild(&harness, &lost, RebuildConsent::default()).await;
    assert_eq!(undecided.objects, 0, "the upload may have been completed");
    assert_eq!(reasons(&undecided), [NotRebuilt::Several, NotRebuilt::Upload]);
    let latest = RebuildConsent { latest: true, ..RebuildConsent::default() };
    assert_eq!(rebuild(&harness, &lost, latest).await.objects, 1);
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), pattern(20_000, 1));
}

#[tokio::test(start_paused = true)]
async fn versions_come_back_in_order_from_where_an_earlier_run_ended() {
    let (harness, lost) = three_versions().await;
    let first = rebuild(&harness, &with(&lost, &[0]), ALL).await;
    assert_eq!((first.objects, first.is_taken), (1, false));
    // The scan leaves out what has an entry.
    let rest = rebuild(&harness, &with(&lost, &[1, 2]), ALL).await;
    assert_eq!((rest.objects, rest.is_taken), (2, false), "{rest:?}");
    assert_eq!(sizes(&harness).await, [22_000, 21_000, 20_000]);
    let again = rebuild(&harness, &lost, ALL).await;
    assert_eq!(again, KeyOutcome::default(), "a run that began before finds all of them");
    harness.put("key", pattern(9_000, 2)).await.unwrap();
    assert!(rebuild(&harness, &lost, ALL).await.is_taken, "a client's version is on top");
}

#[tokio::test(start_paused = true)]
async fn no_older_version_comes_back_in_place_of_one_that_stays_away() {
    let (harness, mut lost) = three_versions().await;
    let plain = RebuildConsent::default();
    let facts = BodyFacts { is_last: true, is_encrypted: true, ..BodyFacts::default() };
    let original = std::mem::replace(&mut lost.extents[1].record.owner.offset, facts.at(0));
    let outcome = rebuild(&harness, &with(&lost, &[0, 1]), plain).await;
    assert_eq!(reasons(&outcome), [NotRebuilt::Several, NotRebuilt::Encrypted]);
    lost.extents[1].record.owner.offset = original;
    lost.extents[2].record.extent.blake3[0] ^= 1;
    let outcome = rebuild(&harness, &lost, plain).await;
    assert_eq!(outcome.objects, 0, "the unreadable one was current");
    assert_eq!(
        reasons(&outcome),
        [NotRebuilt::Unreadable, NotRebuilt::Several, NotRebuilt::Several]
    );
    harness.store.buckets().set_versioning("b", false).await.unwrap();
    let outcome = rebuild(&harness, &with(&lost, &[0]), ALL).await;
    assert_eq!(reasons(&outcome), [NotRebuilt::Suspended]);
    assert_eq!(sizes(&harness).await, [0; 0]);
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    assert_eq!(rebuild(&harness, &lost, ALL).await.objects, 2);
    assert_eq!(sizes(&harness).await, [21_000, 20_000]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_a_client_removed_stays_away() {
    let (harness, lost) = three_versions().await;
    assert_eq!(rebuild(&harness, &lost, ALL).await.objects, 3);
    let versions = all_versions(&harness.store).await;
    let ids: Vec<VersionId> = versions.iter().map(|version| version.id).collect();
    for (removed, left) in [(0, &[21_000, 20_000][..]), (2, &[21_000]), (1, &[])] {
        harness.store.versions().delete("b", "key", ids[removed]).await.unwrap();
        let again = rebuild(&harness, &lost, ALL).await;
        assert_eq!(again.objects, 0, "{again:?}");
        assert_eq!(sizes(&harness).await, left);
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_version_never_comes_back_above_a_later_one() {
    let (harness, lost) = three_versions().await;
    assert_eq!(rebuild(&harness, &with(&lost, &[0, 2]), ALL).await.objects, 2);
    let late = rebuild(&harness, &lost, ALL).await;
    assert_eq!((late.objects, reasons(&late)), (0, vec![NotRebuilt::Behind]));
    assert_eq!(sizes(&harness).await, [22_000, 20_000]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_read_for_now_stops_its_key() {
    let (harness, lost) = three_versions().await;
    let silent = faulty(&harness.memory, 3, DEVICES, |call| match call.op {
        CallKind::ReadExtent => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let failed = Rebuild::applied(silent, ALL, u64::MAX, held()).key("b", &lost).await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(sizes(&harness).await, [0; 0]);
    assert_eq!(rebuild(&harness, &lost, ALL).await.objects, 3);
    assert_eq!(sizes(&harness).await, [22_000, 21_000, 20_000]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_once_the_hold_ends() {
    let (harness, lost) = three_versions().await;
    // Three bodies are read, and two written.
    let left = AtomicUsize::new(5);
    let ending: Arc<HoldCheck> = Arc::new(move || {
        let is_held = left.load(Ordering::Relaxed) > 0;
        left.fetch_sub(usize::from(is_held), Ordering::Relaxed);
        let message = "collection is not held any more";
        let outcome =
            if is_held { Ok(()) } else { Err(martlet_protocol::Error::unavailable(message)) };
        async move { outcome }.boxed()
    });
    let failed =
        Rebuild::applied(harness.store.clone(), ALL, u64::MAX, ending).key("b", &lost).await;
    assert!(failed.unwrap_err().to_string().contains("not held any more"));
    assert_eq!(sizes(&harness).await, [21_000, 20_000]);
}
