//! Usage by the rows of devices: equal to a listing, and robust against devices that differ.

use martlet_protocol::usage::{Count, CountAt, Usage, UsageCounter};
use martlet_protocol::{BackendExt, DeviceId};

use super::*;
use crate::CountProgress;

/// Counts by a listing, whatever rows there are.
async fn listed(store: &ObjectStore, bucket: &str) -> Usage {
    let mut all = all_countable(store).await.into_iter();
    let mut count = Count::begin(all.find(|it| it.name == bucket).unwrap(), 7);
    while count.at != CountAt::Done {
        store.count(&mut count).await.unwrap();
    }
    count.usage
}

/// Adds up rows; none if too few devices have some.
async fn kept(store: &ObjectStore, bucket: &str) -> Option<Usage> {
    let all = all_countable(store).await;
    let of: Vec<_> = all.into_iter().filter(|it| it.name == bucket).collect();
    store.add_up(&of).await.unwrap().pop().unwrap()
}

fn without_index(usage: Usage) -> Usage {
    Usage { index: 0, ..usage }
}

#[tokio::test]
async fn rows_add_up_to_what_a_listing_counts() {
    let Harness { store, .. } = Harness::new(3, 5);
    create(&store, "b").await;
    let unconditional = WriteConditions::default();
    let same = async |step: &str| {
        settle().await;
        let (kept, listed) = (kept(&store, "b").await.unwrap(), listed(&store, "b").await);
        assert_eq!(without_index(kept), without_index(listed), "{step}");
        let entries = listed.objects + 8;
        assert!(kept.index.abs_diff(listed.index) <= 48 * entries, "{step}: {kept:?}, {listed:?}");
        kept
    };
    same("empty").await;
    for number in 0..30 {
        put(&store, &format!("k{number}"), 10 * number).await.unwrap();
    }
    store.delete("b", "k1", &unconditional).await.unwrap();
    put(&store, "k2", 5000).await.unwrap();
    put(&store, "large", 100_000).await.unwrap();
    assert_eq!(same("unversioned").await.objects, 30);
    store.buckets().set_versioning("b", true).await.unwrap();
    let mut versions = Vec::new();
    for bytes in [100, 200, 300] {
        versions.push(put(&store, "k3", bytes).await.unwrap().object.version.unwrap().name());
    }
    same("versions").await;
    let marker = store.delete("b", "k3", &unconditional).await.unwrap().version.unwrap();
    same("a delete marker").await;
    // The version below becomes current, and its copy beside the head stays.
    for version in [versions[1], marker, versions[2]] {
        store.versions().delete("b", "k3", version).await.unwrap();
        same("a version is removed").await;
    }
    store.buckets().set_versioning("b", false).await.unwrap();
    put(&store, "k3", 7).await.unwrap();
    put(&store, "k3", 8).await.unwrap();
    same("a version without an id").await;
    let new = || NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = store.uploads().create("b", "u", new()).await.unwrap().id;
    let part = store.uploads().put_part("b", "u", upload, 1, body(pattern(700, 1))).await.unwrap();
    store.uploads().put_part("b", "u", upload, 2, body(pattern(50, 1))).await.unwrap();
    same("an open upload").await;
    let named = NamedPart { number: 1, etag: part.etag.to_string(), checksums: Vec::new() };
    let complete = CompleteUpload { parts: vec![named], ..CompleteUpload::default() };
    store.uploads().complete("b", "u", upload, complete).await.unwrap();
    same("a completed upload").await;
    let upload = store.uploads().create("b", "v", new()).await.unwrap().id;
    store.uploads().put_part("b", "v", upload, 1, body(pattern(50, 1))).await.unwrap();
    store.uploads().abort("b", "v", upload).await.unwrap();
    same("an aborted upload").await;
}

#[tokio::test]
async fn one_device_that_missed_writes_changes_nothing_and_too_few_count_nothing() {
    let harness = Harness::new(3, 3);
    let (store, memory) = (&harness.store, &harness.memory);
    create(store, "b").await;
    for number in 0..20 {
        put(store, &format!("k{number}"), 10).await.unwrap();
    }
    settle().await;
    memory.set_offline(DeviceId(2), true);
    put(store, "missed", 500).await.unwrap();
    store.delete("b", "k0", &WriteConditions::default()).await.unwrap();
    settle().await;
    memory.set_offline(DeviceId(2), false);
    let whole = |usage: Option<Usage>| usage.map(|it| (it.bytes, it.objects));
    assert_eq!(whole(kept(store, "b").await), Some((690, 20)));
    // A device without votes has no say, and neither has one of an earlier version.
    memory.set_voting(DeviceId(2), false).await.unwrap();
    assert_eq!(whole(kept(store, "b").await), Some((690, 20)));
    memory.set_earlier(DeviceId(1), true);
    assert_eq!(kept(store, "b").await, None, "one of three is no quorum");
    memory.set_voting(DeviceId(2), true).await.unwrap();
    memory.set_earlier(DeviceId(2), true);
    assert_eq!(kept(store, "b").await, None);
    let count = store.count_bucket("b", &mut |_| ()).await.unwrap();
    assert_eq!((count.usage.bytes, count.usage.objects), (690, 20), "it was listed");
}

#[tokio::test]
async fn a_listing_reports_its_progress_by_shards() {
    let harness = Harness::new(3, 3);
    let (store, memory) = (&harness.store, &harness.memory);
    create(store, "b").await;
    for number in 0..20 {
        put(store, &format!("k{number}"), 10).await.unwrap();
    }
    settle().await;
    let mut seen: Vec<CountProgress> = Vec::new();
    store.count_bucket("b", &mut |progress| seen.push(*progress)).await.unwrap();
    assert_eq!(seen, [], "rows need no listing");
    for device in [1, 2] {
        memory.set_earlier(DeviceId(device), true);
    }
    let shards = store.bucket("b").await.unwrap().index_shards;
    for last_count in [None, Some(20)] {
        seen.clear();
        let counted = store.count_bucket("b", &mut |progress| seen.push(*progress)).await;
        let last = *seen.last().unwrap();
        let whole = CountProgress {
            seen: 20,
            seen_in_shards: 20,
            shards,
            all_shards: shards,
            last: last_count,
        };
        assert_eq!(last, whole);
        assert!(seen.is_sorted_by_key(|progress| (progress.shards, progress.seen)), "{seen:?}");
        assert!(seen.iter().all(|progress| progress.seen_in_shards <= progress.seen), "{seen:?}");
        store.report(&counted.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_bucket_that_was_made_again_begins_with_nothing() {
    let Harness { store, .. } = Harness::with_bucket(3).await;
    put(&store, "a", 600).await.unwrap();
    count(&store, "b").await;
    store.delete("b", "a", &WriteConditions::default()).await.unwrap();
    store.buckets().delete("b").await.unwrap();
    create(&store, "b").await;
    assert_eq!(kept(&store, "b").await.unwrap().objects, 0);
    put(&store, "a", 7).await.unwrap();
    assert_eq!(count(&store, "b").await, (7, 1));
}

/// Costs of buckets: requests follow devices, not objects or buckets.
#[tokio::test]
async fn many_buckets_take_one_request_for_each_device() {
    let harness = Harness::new(3, 5);
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let store = faulty(&harness.memory, 3, 5, move |call| {
        seen.fetch_add(usize::from(call.op == CallKind::Usage), Ordering::Relaxed);
        Fault::None
    });
    for number in 0..20 {
        create(&store, &format!("b{number}")).await;
    }
    put_in(&store, "b7", "a", body(pattern(10, 1))).await.unwrap();
    let all = all_countable(&store).await;
    let usages = store.add_up(&all).await.unwrap();
    assert_eq!(requests.load(Ordering::Relaxed), 5, "160 shards on 5 devices");
    let with_objects = all.iter().zip(usages).filter(|(_, usage)| usage.unwrap().objects > 0);
    assert_eq!(with_objects.map(|(bucket, _)| &*bucket.name).collect::<Vec<_>>(), ["b7"]);
    assert!(store.add_up(&[]).await.unwrap().is_empty());
}
