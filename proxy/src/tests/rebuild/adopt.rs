//! Buckets that are adopted under the id of a lost one.

use martlet_protocol::{Setting, Versioning, VersioningSetting};

use super::*;
use crate::{LostVersioning, settings_of_adopted};

fn tombstone_of(key: RegisterKey) -> EntryWrite {
    let order = Stamp::at_ms(SystemClock.now_ms());
    EntryWrite {
        key,
        entry: Entry { order, write_id: WriteId::random(), value: Value::Tombstone },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 0,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

#[tokio::test(start_paused = true)]
async fn one_name_claims_an_id_and_the_shards_are_those_of_its_registers() {
    let harness = Harness::new(3, DEVICES);
    let new = new_bucket;
    let (id, buckets) = (BucketId([5; 16]), harness.store.buckets());
    let malformed = [new(3), NewBucket { policy: Some("none".into()), ..new(8) }];
    for malformed in malformed {
        adopt_bucket(buckets, "c", malformed, id).await.unwrap_err();
    }
    let adopted = tokio::join!(
        adopt_bucket(buckets, "a", new(8), id),
        adopt_bucket(buckets, "b", new(8), id)
    );
    let adopted = [adopted.0, adopted.1];
    println!("{adopted:?}");
    assert_eq!(adopted.iter().filter(|adopted| adopted.is_ok()).count(), 1);
    let failed = adopted.iter().find_map(|adopted| adopted.as_ref().err()).unwrap().to_string();
    assert!(failed.contains("claims this id") || failed.contains("has this id"), "{failed}");

    // A device that was not lost has registers of another bucket.
    let is_apart = |name: &String| shard_of(name.as_bytes(), 32).0 & 0b11000 == 0b11000;
    let name = (0..10_000).map(|number| format!("key-{number}")).find(is_apart).unwrap();
    let written = RegisterKey::object(BucketId([6; 16]), 16, &name);
    harness.memory.write(DeviceId(1), tombstone_of(written.clone())).await.unwrap();
    for wrong in [4, 8, 32] {
        let refused = adopt_bucket(buckets, "c", new(wrong), written.bucket).await.unwrap_err();
        assert!(refused.to_string().contains("name another --index-shards"), "{wrong}: {refused}");
    }
    adopt_bucket(buckets, "c", new(16), written.bucket).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_bucket_whose_deletion_was_given_up_is_adopted_and_takes_writes() {
    let (before, bucket) = filled().await;
    before.put("key", pattern(20_000, 1)).await.unwrap();
    let harness = Harness::new(3, DEVICES);
    for device in (1..=DEVICES).map(DeviceId) {
        let closed = BucketFence { bucket, generation: 4, open: false };
        harness.memory.fence(device, closed).await.unwrap();
    }
    let new = || new_bucket(8);
    let buckets = harness.store.buckets();
    let adopted = adopt_bucket(buckets, "b", new(), bucket).await.unwrap();
    assert_eq!(adopted.generation, 5);
    copy_extents(&before, &harness).await;
    let lost = lost(&harness, bucket, "key").await;
    assert_eq!(rebuild(&harness, &lost, RebuildConsent::default()).await.objects, 1);
    harness.put("another", "bytes").await.unwrap();
    let again = adopt_bucket(buckets, "b", new(), bucket).await.unwrap();
    assert_eq!(again.id, adopted.id, "an adoption that was interrupted goes on");
    let others =
        [NewBucket { owner: "another".into(), ..new() }, NewBucket { index_shards: 16, ..new() }];
    for other in others {
        let refused = adopt_bucket(buckets, "b", other, bucket).await.unwrap_err().to_string();
        assert!(refused.contains("another owner or --index-shards"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_bucket_keeps_versions_from_the_first_write() {
    let harness = Harness::new(3, DEVICES);
    let (id, buckets) = (BucketId([7; 16]), harness.store.buckets());
    let left = RegisterKey::version(&RegisterKey::object(id, 8, "key"), VersionId::Null);
    harness.memory.write(DeviceId(2), tombstone_of(left)).await.unwrap();
    let refused = adopt_bucket(buckets, "b", new_bucket(8), id).await.unwrap_err().to_string();
    assert!(refused.contains("name another --versioning"), "{refused}");

    let now_ms = SystemClock.now_ms();
    let settings = settings_of_adopted(LostVersioning::Locked, now_ms).unwrap();
    let versioning = VersioningSetting::of(settings.get(Setting::Versioning));
    assert!(versioning.above_ms > now_ms, "plain writes of the lost bucket lie below");
    let new = NewBucket { settings, ..new_bucket(8) };
    let adopted = adopt_bucket(buckets, "b", new, id).await.unwrap();
    assert_eq!(adopted.versioning().state, Versioning::Enabled);
    assert!(adopted.lock().unwrap().is_some());
    for (lost, expected) in [
        (LostVersioning::Off, Versioning::Off),
        (LostVersioning::Suspended, Versioning::Suspended),
        (LostVersioning::Enabled, Versioning::Enabled),
    ] {
        let settings = settings_of_adopted(lost, now_ms).unwrap();
        let state = VersioningSetting::of(settings.get(Setting::Versioning)).state;
        assert_eq!((state, settings.get(Setting::ObjectLock)), (expected, None));
    }
}
