//! Buckets over several nodes (rule M2).

use martlet_protocol::testing::{Fault, Op};
use martlet_protocol::{Backend, DeviceId, ErrorKind, Given, Level};

use super::nodes::{Fortune, Nodes};
use crate::{Error, Result};

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

#[tokio::test(start_paused = true)]
async fn m2_a_stricter_level_is_in_force_for_proxies_that_have_not_heard_of_it() {
    let nodes = Nodes::new(5);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let old = nodes.proxy();
    let generation = old.store.bucket("b").await.unwrap().generation;
    // One node is out; a quorum of every shard is told.
    proxy.fares(&[DeviceId(1)], Fortune::Refused);
    let bucket = proxy.store.set_bucket_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(bucket.generation, generation + 1);
    assert_eq!(old.store.bucket("b").await.unwrap().consistency, Level::Available);
    // The node that was not told may take it: then the first to be refused is the client's.
    let refused = old.put(Level::Strict, "other", "it hears of it by being refused").await;
    assert!(refused.is_ok() || is_unavailable(&refused), "{refused:?}");
    old.put(Level::Strict, "other", "it has heard of it").await.unwrap();
    old.fares(&primaries[..2], Fortune::Refused);
    let session = old.store.session(crate::Ask::default());
    let body = super::harness::body("x".into());
    let refused =
        super::harness::put(&session, "key", body, crate::WriteConditions::default()).await;
    assert!(is_unavailable(&refused));
    proxy.heal();
    let again = proxy.store.set_bucket_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(again.generation, bucket.generation, "nothing changed");
    let lower = proxy.store.set_bucket_consistency("b", Level::Any).await.unwrap();
    assert_eq!((lower.consistency, lower.generation), (Level::Any, bucket.generation));
    let none = proxy.store.set_bucket_consistency("none", Level::Any).await;
    assert!(matches!(none, Err(Error::NoSuchBucket)));
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_with_a_write_on_its_way_is_not_deleted() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let other = nodes.proxy();
    other.store.bucket("b").await.unwrap();
    other.fares(&primaries, Fortune::Refused);
    assert_eq!(other.put(Level::Available, "key", "x").await.unwrap().0, Given::Degraded);
    // No primary knows of it.
    assert!(is_unavailable(&proxy.store.delete_bucket("b").await));
    proxy.put(Level::Strict, "another", "it is open again").await.unwrap();
    proxy.delete(Level::Strict, "another").await.unwrap();
    nodes.deliver().await;
    assert!(matches!(proxy.store.delete_bucket("b").await, Err(Error::BucketNotEmpty)));
    proxy.delete(Level::Strict, "key").await.unwrap();
    proxy.store.delete_bucket("b").await.unwrap();
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
            assert!(is_unavailable(&proxy.store.delete_bucket("b").await), "{device} {fortune:?}");
        }
        proxy.heal();
        proxy.put(Level::Strict, "key", "it is open").await.unwrap();
        proxy.delete(Level::Strict, "key").await.unwrap();
        let bucket = proxy.store.bucket("b").await.unwrap().id;
        proxy.store.delete_bucket("b").await.unwrap();
        for device in (1..=5).map(DeviceId) {
            let left = nodes.memory(device).registers(device);
            let left = left.iter().filter(|(key, _)| key.bucket == bucket);
            assert_eq!(left.count(), 0, "{device} was purged");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_whose_opener_died_before_it_told_enough_is_opened_by_the_next_write() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Strict, "key", "x").await.unwrap();
    let bucket = proxy.store.bucket("b").await.unwrap();
    // As if it had been closed and opened again, and only the closing had been told.
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
        Op::PurgeBucket if call.device == DeviceId(2) => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    proxy.store.delete_bucket("b").await.unwrap();
    assert!(matches!(proxy.store.bucket("b").await, Err(Error::NoSuchBucket)));
}
