//! Ballots that wait for silent devices, beside ballots that need no silent device.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::conditional::create_only;
use super::harness::{body, put, settle};
use super::nodes::{Fortune, Nodes};

/// Number of waiting ballots: many more than there are latches that keys share.
const WAITING: usize = 1000;
const HEALTHY: usize = 50;

#[tokio::test(start_paused = true)]
async fn ballots_on_silent_devices_keep_no_other_key_waiting() {
    let nodes = Nodes::new(30);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let silent = &primaries[..2];
    proxy.fares(silent, Fortune::Silent);
    let (mut dead, mut healthy) = (Vec::new(), Vec::new());
    for number in 0..20_000 {
        let key = format!("key {number}");
        let partition = nodes.ring.partition(proxy.register(&key).await.placement());
        match nodes.ring.primaries(partition).filter(|id| silent.contains(id)).count() {
            0 if healthy.len() < HEALTHY => healthy.push(key),
            2 if dead.len() < WAITING => dead.push(key),
            _ => {}
        }
    }
    assert_eq!((dead.len(), healthy.len()), (WAITING, HEALTHY));
    let begun = Instant::now();
    let create = |key: String| {
        let store = proxy.store.clone();
        tokio::spawn(async move { put(&store, &key, body("x".into()), create_only()).await })
    };
    let dead: Vec<_> = dead.into_iter().map(create).collect();
    settle().await;
    for written in join_all(healthy.into_iter().map(create)).await {
        written.unwrap().unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for written in join_all(dead).await {
        written.unwrap().unwrap_err();
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
