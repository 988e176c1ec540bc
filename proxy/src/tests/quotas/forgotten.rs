//! Counts of deleted buckets, and the shards of the list of buckets.

use std::collections::BTreeSet;

use super::*;

/// A count that couldn't be deleted stops no look, and is deleted by any later one, of another process
/// too. Until then it counts for the tenant.
#[tokio::test]
async fn counts_of_deleted_buckets_are_forgotten_after_a_failure_too() {
    let harness = Harness::new(3, 3);
    let is_out = Arc::new(AtomicBool::new(false));
    let out = is_out.clone();
    let store = faulty(&harness.memory, 3, 3, move |call| {
        let is_count = call.key.is_some_and(|key| key.name.starts_with(b"usage"));
        let changes = matches!(call.op, CallKind::Write | CallKind::Promise);
        if is_count && changes && out.load(Ordering::Relaxed) {
            Fault::Refuse(ErrorKind::Unavailable)
        } else {
            Fault::None
        }
    });
    tenant_with_buckets(&store, &["b", "c", "d"]).await;
    let mut deleted = Vec::new();
    for name in ["b", "c", "d"] {
        count(&store, name).await;
        if name != "b" {
            deleted.push(store.bucket(name).await.unwrap());
            store.buckets().delete(name).await.unwrap();
        }
    }
    let names = |all: Vec<Countable>| all.into_iter().map(|it| it.name).collect::<Vec<_>>();
    let owner = deleted[0].owner.clone();
    is_out.store(true, Ordering::Relaxed);
    assert_eq!(names(all_countable(&store).await), ["b"], "the look goes on");
    let before = store.directory().tenant_usage(&owner).await.unwrap().0;
    is_out.store(false, Ordering::Relaxed);
    let restarted = faulty(&harness.memory, 3, 3, |_| Fault::None);
    let all = all_countable(&restarted).await;
    assert!(all[0].counted.is_some());
    let after = restarted.directory().tenant_usage(&owner).await.unwrap().0;
    assert!(after.index < before.index, "{after:?} {before:?}");
    for bucket in &deleted {
        assert_eq!(restarted.directory().bucket_usage(bucket).await.unwrap(), None);
    }
    assert_eq!(names(all), ["b"]);
}

/// Shards divide the buckets, and the counts of deleted ones.
#[tokio::test]
async fn each_bucket_and_each_forgotten_count_falls_to_one_shard() {
    let Harness { store, .. } = Harness::new(3, 3);
    let buckets: Vec<String> = (0..24).map(|number| format!("bucket-{number}")).collect();
    let mut gone = Vec::new();
    for (at, name) in buckets.iter().enumerate() {
        create(&store, name).await;
        count(&store, name).await;
        if at % 3 == 0 {
            gone.push(store.bucket(name).await.unwrap());
            store.buckets().delete(name).await.unwrap();
        }
    }
    let mut found = Vec::new();
    for shard in (0..INDEX_SHARDS_DEFAULT).map(Shard) {
        let some = store.countable(&BTreeSet::from([shard])).await.unwrap();
        assert!(some.iter().all(|bucket| bucket.counted.is_some()));
        found.extend(some.into_iter().map(|bucket| bucket.name));
    }
    found.sort();
    let mut expected: Vec<String> =
        buckets.iter().enumerate().filter(|(at, _)| at % 3 > 0).map(|(_, it)| it.clone()).collect();
    expected.sort();
    assert_eq!(found, expected);
    for bucket in &gone {
        assert_eq!(store.directory().bucket_usage(bucket).await.unwrap(), None);
    }
    assert!(store.countable(&BTreeSet::new()).await.unwrap().is_empty());
}
