//! Objects that a client overwrote short of a quorum (rule A1), and devices that may keep such a write.

use std::time::Duration;

use futures::future::join3;
use martlet_protocol::key::shard_of;
use martlet_protocol::{AchievedLevel, BucketId, Level};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::super::hint_checks::{CountedCluster, NODES};
use super::super::nodes::Nodes;
use super::*;

/// Due objects of a shard: less than a page.
const DUE: usize = 200;

/// The newer write is on one primary and on a handoff. A rule about the older one must not overtake it.
#[tokio::test(start_paused = true)]
async fn a1_a_write_that_is_kept_for_others_is_not_expired() {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let nodes = Nodes::timed(6, 1, clock.clone());
    let (_, primaries, handoffs) = nodes.with_bucket("key").await;
    let cut_off = Arc::new(Mutex::new(Vec::new()));
    let silent = cut_off.clone();
    let proxy = nodes.proxy_with(60_000, move |call| {
        let is_of_root = call.key.is_some_and(|key| key.bucket == BucketId::ROOT);
        if silent.lock().contains(&call.device) && !is_of_root {
            return Fault::Delay(Duration::from_secs(1_000_000));
        }
        Fault::None
    });
    let cut = |devices: &[_]| *cut_off.lock() = devices.to_vec();
    let register = proxy.register("key").await;
    let stretch = Stretch { bucket: "b".into(), shard: register.shard, after: None, day: DAY };
    proxy.put(Level::Strict, "key", "old").await.unwrap();
    let document = rules([expiring("", 1)]).document();
    proxy.store.buckets().put_setting("b", Setting::Lifecycle, document).await.unwrap();
    clock.advance_ms(2 * DAY.ms());
    cut(&primaries[..2]);
    let (given, _) = proxy.put(Level::Available, "key", "new").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    // Seen from the other side, the quorum has the older object, and the hint can be read or not.
    for unseen in [&primaries[2..], &[&primaries[2..], &handoffs].concat()] {
        cut(unseen);
        let carried = proxy.store.carry_out(&stretch).await.unwrap();
        assert_eq!((carried.seen, carried.done, carried.kept), (1, 0, 1), "without {unseen:?}");
    }
    cut(&[]);
    nodes.deliver().await;
    assert_eq!(proxy.get(Level::Strict, "key").await.unwrap().1, "new");
    assert_eq!(proxy.store.carry_out(&stretch).await.unwrap().done, 0, "it is not due");
    clock.advance_ms(3 * DAY.ms());
    assert_eq!(proxy.store.carry_out(&stretch).await.unwrap().done, 1);
}

/// Writes so many objects to a shard of a bucket.
async fn put_some(store: &ObjectStore, bucket: &str, shard: Shard, count: usize) {
    let keys = (0..).map(|at: u32| format!("key {at}"));
    for key in keys.filter(|key| shard_of(key.as_bytes(), SHARDS) == shard).take(count) {
        let (attributes, conditions) = (Attributes::default(), WriteConditions::default());
        let put = PutObject { attributes, body: body(Bytes::from_static(b"abc")), conditions };
        store.put(bucket, &key, put).await.unwrap();
    }
}

/// Makes a cluster with due objects: [`DUE`] in shard 0 of `b` and one in its shard 1, and one in shard 0 of `v`, which keeps
/// versions.
async fn with_due_objects() -> CountedCluster {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let cluster = CountedCluster::at(clock.clone()).await;
    let store = &cluster.store;
    create(store, "v").await;
    store.buckets().set_versioning("v", true).await.unwrap();
    clock.advance_ms(10 * DAY.ms());
    for bucket in ["b", "v"] {
        let document = rules([expiring("", 1)]).document();
        store.buckets().put_setting(bucket, Setting::Lifecycle, document).await.unwrap();
    }
    put_some(store, "b", Shard(0), DUE).await;
    put_some(store, "b", Shard(1), 1).await;
    put_some(store, "v", Shard(0), 1).await;
    clock.advance_ms(2 * DAY.ms());
    cluster
}

async fn carry_out_in(
    cluster: &CountedCluster,
    bucket: &str,
    shard: Shard,
) -> martlet_protocol::Result<ExpiryOutcome> {
    let stretch = Stretch { bucket: bucket.into(), shard, after: None, day: DAY };
    cluster.store.carry_out(&stretch).await
}

/// One look shows that nothing of a page may expire. It serves the pages of the next second too, and versions need none.
#[tokio::test(start_paused = true)]
async fn a1_a_silent_node_costs_pages_of_buckets_without_versions_one_look_a_second() {
    let cluster = with_due_objects().await;
    let silent = &cluster.nodes[NODES - 1];
    silent.set_silent(true);
    cluster.take_counts();
    for shard in [0, 1, 0].map(Shard) {
        let left = carry_out_in(&cluster, "b", shard).await;
        assert!(left.is_err_and(|error| error.kind() == ErrorKind::Unavailable), "{shard:?}");
    }
    let carried = carry_out_in(&cluster, "v", Shard(0)).await.unwrap();
    assert_eq!((carried.seen, carried.done, carried.kept), (1, 1, 0));
    assert_eq!(cluster.take_counts(), (NODES, 0));
    silent.set_silent(false);
    sleep(Duration::from_secs(1)).await;
    let carried = carry_out_in(&cluster, "b", Shard(0)).await.unwrap();
    assert_eq!((carried.done, carried.kept), (DUE as u64, 0));
}

/// A Complete of a wrong part asks nodes by itself, while an expiration waits for a silent one.
#[tokio::test(start_paused = true)]
async fn a_refused_complete_does_not_wait_for_expirations() {
    let cluster = with_due_objects().await;
    let (upload, part) = cluster.upload().await;
    cluster.nodes[0].set_silent(true);
    cluster.take_counts();
    let expires = carry_out_in(&cluster, "b", Shard(0));
    let completes = async {
        sleep(Duration::from_millis(10)).await;
        cluster.complete_with(upload, &part).await
    };
    let looks = async {
        sleep(Duration::from_secs(2)).await;
        cluster.take_counts().0
    };
    let (left, completed, looks) = join3(expires, completes, looks).await;
    assert_eq!(looks, 2 * NODES, "both wait for replies of their own");
    assert!(left.is_err() && completed.is_err(), "the silent node may keep hints");
}
