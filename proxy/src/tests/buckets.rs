//! Buckets: made once, found, listed, deleted only when empty.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use martlet_protocol::backend::{BucketFence, CallKind};
use martlet_protocol::entry::{Attributes, Value};
use martlet_protocol::testing::Fault;
use martlet_protocol::{BackendExt, BucketId, DeviceId, ErrorKind, Level, Setting};

use super::harness::{Harness, body, create, faulty, put};
use crate::{Error, NewBucket, NewUpload, Selection, WriteConditions};

fn new(owner: &str) -> NewBucket {
    NewBucket {
        owner: owner.into(),
        index_shards: 4,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    }
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let harness = Harness::new(1, 3);
    let racers = (0..20).map(|racer| {
        let store = harness.store.clone();
        async move { store.buckets().create("b", new(&format!("{racer}"))).await }
    });
    let outcomes = join_all(racers).await;
    let made: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(made.len(), 1);
    for outcome in &outcomes {
        if let Err(error) = outcome {
            assert!(matches!(error, Error::BucketExists { owner } if *owner == made[0].owner));
        }
    }
    assert_eq!(*harness.store.bucket("b").await.unwrap(), *made[0]);
    let odd = NewBucket {
        owner: "me".into(),
        index_shards: 3,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    };
    let refused = harness.store.buckets().create("odd", odd).await;
    assert!(matches!(refused, Err(Error::InvalidRequest(_))));
}

#[tokio::test]
async fn buckets_are_listed_by_name() {
    let harness = Harness::new(1, 3);
    for name in ["delta", "alpha", "charlie", "bravo", "alps"] {
        create(&harness.store, name).await;
    }
    harness.store.buckets().delete("charlie").await.unwrap();
    let names = |prefix: &'static str, after: Option<&'static str>, limit| {
        let store = harness.store.clone();
        async move {
            let (buckets, more) = store.buckets().list(prefix, after, limit).await.unwrap();
            (buckets.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>(), more)
        }
    };
    let all = ["alpha", "alps", "bravo", "delta"];
    assert_eq!(names("", None, 10).await, (all.map(String::from).to_vec(), false));
    assert_eq!(names("", Some("alpha"), 2).await, (vec!["alps".into(), "bravo".into()], true));
    assert_eq!(names("al", None, 2).await, (vec!["alpha".into(), "alps".into()], false));
}

#[tokio::test]
async fn only_an_empty_bucket_is_deleted_and_its_uploads_go_with_it() {
    let harness = Harness::with_bucket(3).await;
    harness.put("key", super::harness::pattern(50_000, 1)).await.unwrap();
    let refused = harness.store.buckets().delete("b").await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty)));
    harness.put("another", "a refused delete disturbs nobody").await.unwrap();
    harness.delete("key").await;
    harness.delete("another").await;
    let upload = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = harness.store.uploads().create("b", "key", upload).await.unwrap();
    let part = body(super::harness::pattern(50_000, 2));
    harness.store.uploads().put_part("b", "key", upload.id, 1, part).await.unwrap();
    harness.store.buckets().delete("b").await.unwrap();
    assert!(matches!(harness.store.bucket("b").await, Err(Error::NoSuchBucket)));
    assert!(matches!(harness.put("key", "x").await, Err(Error::NoSuchBucket)));
    assert!(matches!(harness.store.buckets().delete("b").await, Err(Error::NoSuchBucket)));
    assert!(harness.memory.extents_in_use().is_empty());
    create(&harness.store, "b").await;
    assert!(matches!(harness.get("key", Selection::Whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_proxy_that_remembers_a_deleted_bucket_is_fenced() {
    let harness = Harness::with_bucket(1).await;
    let remembering = super::harness::remembering(&harness.memory);
    let old = remembering.bucket("b").await.unwrap();
    let closing = harness.memory.clone();
    let fence = BucketFence { bucket: old.id, generation: old.generation + 1, open: true };
    closing.fence(DeviceId(1), fence).await.unwrap();
    let refused = put(&remembering, "key", body("x".into()), WriteConditions::default()).await;
    assert!(
        matches!(refused, Err(Error::Backend(error))
        if error.kind() == ErrorKind::Unavailable),
        "the bucket itself has not caught up"
    );
    harness.store.buckets().delete("b").await.unwrap();
    remembering.bucket("b").await.expect("it still remembers");
    let refused = put(&remembering, "key", body("x".into()), WriteConditions::default()).await;
    assert!(matches!(refused, Err(Error::NoSuchBucket)));
}

#[tokio::test]
async fn a_delete_that_can_not_fence_every_device_falls_back_to_open() {
    let harness = Harness::with_bucket(3).await;
    let store = faulty(&harness.memory, 1, 3, |call| match call.op {
        CallKind::PurgeBucket => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let first = std::sync::atomic::AtomicUsize::new(0);
    let unfenced = faulty(&harness.memory, 1, 3, move |call| {
        let fences = call.op == CallKind::Fence
            && call.device == DeviceId(2)
            && first.fetch_add(1, Ordering::SeqCst) == 0;
        if fences { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    assert!(unfenced.buckets().delete("b").await.is_err());
    harness.put("key", "the bucket is open again").await.unwrap();
    harness.delete("key").await;
    store.buckets().delete("b").await.unwrap();
    assert!(matches!(store.bucket("b").await, Err(Error::NoSuchBucket)), "a purge may come later");
}

/// The reply to a tombstone is lost on all devices. Its purge follows a new read.
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_outcome_was_unknown_is_purged() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    let bucket = harness.store.bucket("b").await.unwrap();
    let is_written = AtomicBool::new(false);
    let store = faulty(&harness.memory, 3, 3, move |call| match call.write {
        Some(write) if matches!(write.entry.value, Value::Tombstone) => {
            is_written.store(true, Ordering::Relaxed);
            Fault::LoseReply(ErrorKind::Unavailable)
        }
        // No further ballot finds the tombstone.
        None if call.op == CallKind::Promise && is_written.load(Ordering::Relaxed) => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    store.buckets().delete("b").await.unwrap();
    for device in (1..=3).map(DeviceId) {
        let fences = harness.memory.fences(device).await.unwrap();
        assert!(fences.contains(&BucketFence::of_deleted(bucket.id)), "{device}: {fences:?}");
    }
    // A deletion that reached no device has failed.
    create(&harness.store, "b").await;
    let store = faulty(&harness.memory, 3, 3, |call| match call.write {
        Some(write) if matches!(write.entry.value, Value::Tombstone) => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    assert!(store.buckets().delete("b").await.is_err());
    harness.store.bucket("b").await.unwrap();
}

#[tokio::test]
async fn no_change_of_a_bucket_succeeds_without_a_write() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    let before = store.bucket("b").await.unwrap();
    // A fence that refuses every ballot on a bucket's register.
    let fence = BucketFence { bucket: BucketId::ROOT, generation: 1, open: true };
    harness.memory.fence(DeviceId(1), fence).await.unwrap();
    let outcomes = [
        store.buckets().create("c", new("me")).await.map(drop),
        store.buckets().set_consistency("b", Level::Any).await.map(drop),
        store.buckets().put_setting("b", Setting::Cors, b"c".to_vec()).await,
        store.buckets().set_versioning("b", true).await,
        store.buckets().delete("b").await,
    ];
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let is_unavailable = matches!(
            &outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable
        );
        assert!(is_unavailable, "change {at}: {outcome:?}");
    }
    assert_eq!(store.bucket("b").await.unwrap(), before);
}

#[tokio::test]
async fn every_change_of_a_deleted_bucket_is_refused() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    let policy = store
        .topology()
        .cluster()
        .policy_name(store.topology().cluster().default_policy())
        .unwrap()
        .to_owned();
    store.buckets().delete("b").await.unwrap();
    let outcomes = [
        store.buckets().set_consistency("b", Level::Strict).await.map(drop),
        store.buckets().set_policy("b", &policy).await.map(drop),
        store.buckets().put_setting("b", Setting::Cors, b"c".to_vec()).await,
        store.buckets().set_versioning("b", true).await,
        store.buckets().delete("b").await,
    ];
    for (at, outcome) in outcomes.into_iter().enumerate() {
        assert!(matches!(outcome, Err(Error::NoSuchBucket)), "change {at}: {outcome:?}");
    }
}
