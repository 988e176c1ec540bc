//! Clusters of real processes and what happens to them: a file for each failure, named by it.
//!
//! Every probe starts a cluster of its own, records what clients did and were told, and lets the
//! checkers look at all of it in the end, after a census through every proxy. Seeds are printed;
//! `MARTLET_SEED` repeats one.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod cut_cables;
mod healthy;
mod internal_port;
mod killed_node;
mod killed_proxy;
mod levels;
mod newer_rings;
mod no_quorum;
mod paused_node;
mod racers;
mod soak;
mod wiped_device;

use std::sync::Arc;
use std::time::{Duration, Instant};

use martlet_tests::cluster::Cluster;
use martlet_tests::recorded::{Recorder, SOURCES};
use tokio::time::sleep;

/// The bucket of every probe.
const BUCKET: &str = "probe";

/// A recorder for a new bucket, beside one for what copies are made from.
async fn recorder(cluster: &Cluster) -> Arc<Recorder> {
    for bucket in [BUCKET, SOURCES] {
        make_bucket(cluster, bucket).await;
    }
    Recorder::new(BUCKET)
}

/// Makes a bucket. Replicas that have only just met may ask for a moment's patience.
async fn make_bucket(cluster: &Cluster, bucket: &str) {
    let mut client = cluster.client(0);
    until("a bucket is made", Duration::from_secs(30), async || {
        let reply = client.put(&format!("/{bucket}"), "".into()).await.unwrap();
        assert!([200, 409, 503].contains(&reply.status), "{}", reply.text());
        reply.status != 503
    })
    .await;
}

/// So many seconds.
async fn seconds(number: f64) {
    sleep(Duration::from_secs_f64(number)).await;
}

/// Asks again and again until the answer is yes.
async fn until(what: &str, patience: Duration, mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: after {:?}", begun.elapsed());
}
