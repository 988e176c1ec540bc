//! Fences of buckets over several nodes (rule M2).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Attributes;
use martlet_protocol::testing::Fault;
use martlet_protocol::{AchievedLevel, BackendExt, DeviceId, ErrorKind, Level};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::harness::{put, unsized_body};
use super::nodes::{Fortune, Nodes, Proxy};
use crate::{Error, NewBody, NewUpload, Result, WriteConditions, WrittenObject};

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

#[tokio::test(start_paused = true)]
async fn m2_a_stricter_level_is_in_force_for_proxies_with_a_stale_bucket() {
    let nodes = Nodes::new(5);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let old = nodes.proxy();
    let generation = old.store.bucket("b").await.unwrap().generation;
    // One node is out; a quorum of every shard receives the fence.
    proxy.fares(&[DeviceId(1)], Fortune::Refused);
    let bucket = proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(bucket.generation, generation + 1);
    assert_eq!(old.store.bucket("b").await.unwrap().consistency, Level::Available);
    // A node without the fence may accept the write; then the client's first refusal comes later.
    let refused = old.put(Level::Strict, "other", "it hears of it by being refused").await;
    assert!(refused.is_ok() || is_unavailable(&refused), "{refused:?}");
    old.put(Level::Strict, "other", "it has heard of it").await.unwrap();
    old.fares(&primaries[..2], Fortune::Refused);
    let session = old.store.session(crate::ConsistencyOptions::default());
    let body = super::harness::body("x".into());
    let refused = put(&session, "key", body, WriteConditions::default()).await;
    assert!(is_unavailable(&refused));
    proxy.heal();
    let again = proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(again.generation, bucket.generation, "nothing changed");
    let lower = proxy.store.buckets().set_consistency("b", Level::Any).await.unwrap();
    assert_eq!((lower.consistency, lower.generation), (Level::Any, bucket.generation));
    let none = proxy.store.buckets().set_consistency("none", Level::Any).await;
    assert!(matches!(none, Err(Error::NoSuchBucket)));
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_with_a_write_on_its_way_is_not_deleted() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let other = nodes.proxy();
    other.store.bucket("b").await.unwrap();
    other.fares(&primaries, Fortune::Refused);
    assert_eq!(other.put(Level::Available, "key", "x").await.unwrap().0, AchievedLevel::Degraded);
    // No primary holds the entry.
    assert!(is_unavailable(&proxy.store.buckets().delete("b").await));
    proxy.put(Level::Strict, "another", "it is open again").await.unwrap();
    proxy.delete(Level::Strict, "another").await.unwrap();
    nodes.deliver().await;
    assert!(matches!(proxy.store.buckets().delete("b").await, Err(Error::BucketNotEmpty)));
    proxy.delete(Level::Strict, "key").await.unwrap();
    proxy.store.buckets().delete("b").await.unwrap();
    assert!(matches!(proxy.store.bucket("b").await, Err(Error::NoSuchBucket)));
}

#[tokio::test(start_paused = true)]
async fn m2_silence_keeps_a_bucket() {
    let nodes = Nodes::new(5);
    for fortune in [Fortune::Refused, Fortune::Silent] {
        let (proxy, ..) = nodes.with_bucket("key").await;
        for device in (1..=5).map(DeviceId) {
            proxy.heal();
            proxy.fares(&[device], fortune);
            assert!(
                is_unavailable(&proxy.store.buckets().delete("b").await),
                "{device} {fortune:?}"
            );
        }
        proxy.heal();
        proxy.put(Level::Strict, "key", "it is open").await.unwrap();
        proxy.delete(Level::Strict, "key").await.unwrap();
        let bucket = proxy.store.bucket("b").await.unwrap().id;
        proxy.store.buckets().delete("b").await.unwrap();
        for device in (1..=5).map(DeviceId) {
            let left = nodes.memory(device).registers(device);
            let left = left.iter().filter(|(key, _)| key.bucket == bucket);
            assert_eq!(left.count(), 0, "{device} was purged");
        }
    }
}

/// A device that stored the fence may keep hints, and does not show them.
#[tokio::test(start_paused = true)]
async fn m2_a_device_that_lists_no_hints_keeps_a_bucket() {
    let nodes = Nodes::new(5);
    for device in (1..=5).map(DeviceId) {
        nodes.with_bucket("key").await;
        let proxy = nodes.proxy_with(0, move |call| match call.op {
            CallKind::ListHints if call.device == device => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        });
        assert!(is_unavailable(&proxy.store.buckets().delete("b").await), "{device}");
        let other = nodes.proxy();
        other.put(Level::Strict, "key", "the bucket is open").await.unwrap();
        other.delete(Level::Strict, "key").await.unwrap();
        other.store.buckets().delete("b").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_whose_opener_died_before_enough_fences_is_opened_by_the_next_write() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Strict, "key", "x").await.unwrap();
    let bucket = proxy.store.bucket("b").await.unwrap();
    // As if the bucket had been closed and reopened, and only the closing had reached the devices.
    let closed = martlet_protocol::backend::BucketFence {
        bucket: bucket.id,
        generation: bucket.generation,
        open: false,
    };
    for device in [1, 2, 3].map(DeviceId) {
        nodes.memory(device).fence(device, closed).await.unwrap();
    }
    proxy.put(Level::Strict, "key", "y").await.unwrap();
    assert_eq!(proxy.get(Level::Strict, "key").await.unwrap().1, "y");
}

#[tokio::test(start_paused = true)]
async fn m2_a_purge_that_fails_is_not_the_clients_affair() {
    let nodes = Nodes::new(3);
    nodes.with_bucket("key").await;
    let proxy = nodes.proxy_with(0, |call| match call.op {
        CallKind::PurgeBucket if call.device == DeviceId(2) => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    proxy.store.buckets().delete("b").await.unwrap();
    assert!(matches!(proxy.store.bucket("b").await, Err(Error::NoSuchBucket)));
}

/// Begins a PUT whose body ends when the sender is used.
fn begin_put(proxy: &Proxy) -> (JoinHandle<Result<WrittenObject>>, oneshot::Sender<()>) {
    let (release, released) = oneshot::channel();
    let store = proxy.store.clone();
    let last = async { released.await.map(|()| Bytes::from("late")) };
    let last = last.map(|last| last.map_err(|_| martlet_protocol::Error::internal("nobody said")));
    let body = NewBody { bytes: stream::once(last).boxed(), ..unsized_body(Bytes::new()) };
    let put = async move { put(&store, "key", body, WriteConditions::default()).await };
    (tokio::spawn(put), release)
}

fn left(nodes: &Nodes, bucket: martlet_protocol::BucketId) -> usize {
    let of = |device| nodes.memory(device).registers(device);
    let all = nodes.ring.devices().iter().flat_map(|device| of(device.id));
    all.filter(|(key, _)| key.bucket == bucket).count()
}

#[tokio::test(start_paused = true)]
async fn m2_a_write_that_ends_in_the_middle_of_a_purge_is_refused() {
    let nodes = Nodes::new(3);
    let (writer, ..) = nodes.with_bucket("key").await;
    let bucket = writer.store.bucket("b").await.unwrap().id;
    let deleter = nodes.proxy_with(0, |call| match call.op {
        CallKind::PurgeBucket if call.device == DeviceId(3) => {
            Fault::Delay(Duration::from_millis(200))
        }
        _ => Fault::None,
    });
    let (put, release) = begin_put(&writer);
    // The proxy has begun with the present bucket.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let delete = tokio::spawn(async move { deleter.store.buckets().delete("b").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!delete.is_finished(), "two of three are purged");
    release.send(()).unwrap();
    let refused = put.await.unwrap();
    assert!(matches!(refused, Err(Error::NoSuchBucket)), "{refused:?}");
    delete.await.unwrap().unwrap();
    assert_eq!(left(&nodes, bucket), 0);
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_stays_closed_when_its_deleter_dies_after_the_purge() {
    let nodes = Nodes::new(3);
    let (writer, ..) = nodes.with_bucket("key").await;
    let bucket = writer.store.bucket("b").await.unwrap().id;
    let is_purged = AtomicBool::new(false);
    let dying = nodes.proxy_with(0, move |call| {
        let is_dead = is_purged.load(Ordering::SeqCst) && call.op != CallKind::PurgeBucket;
        is_purged.fetch_or(call.op == CallKind::PurgeBucket, Ordering::SeqCst);
        if is_dead { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let (put, release) = begin_put(&writer);
    tokio::time::sleep(Duration::from_millis(10)).await;
    dying.store.buckets().delete("b").await.unwrap();
    release.send(()).unwrap();
    let refused = put.await.unwrap();
    assert!(matches!(refused, Err(Error::NoSuchBucket)), "{refused:?}");
    assert_eq!(left(&nodes, bucket), 0);
}

#[tokio::test(start_paused = true)]
async fn m2_an_upload_is_aborted_by_a_proxy_with_a_stale_bucket() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    let old = nodes.proxy();
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = old.store.uploads().create("b", "key", new).await.unwrap().id;
    let bytes = unsized_body(super::harness::pattern(50_000, 1));
    old.store.uploads().put_part("b", "key", upload, 1, bytes).await.unwrap();
    proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
    old.store.uploads().abort("b", "key", upload).await.unwrap();
}
