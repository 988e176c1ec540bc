//! The clock of one node is five minutes off. Cluster time is the median of the nodes' clocks, so
//! no request is refused and no write is stamped ahead of time (rule C1).

use martlet_protocol::{Clock, SystemClock};
use martlet_tests::cluster::internal::Request;
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::probe::{Probe, seconds};

/// Test variable: offset of a process's clock in milliseconds.
const CLOCK: &str = "MARTLET_TEST_CLOCK_OFFSET_MS";
const MINUTES_5_MS: i64 = 5 * 60 * 1000;
/// Maximum difference between cluster time and machine time: the time of a request.
const NEAR_MS: i64 = 5_000;

/// Asserts that no entry of any device is stamped by the wrong clock.
async fn assert_dates_are_right(cluster: &TestCluster) {
    let now_ms = i64::try_from(SystemClock.now_ms()).unwrap();
    for node in 0..cluster.nodes.len() {
        let held = cluster.held(node, "k/").await;
        assert!(!held.is_empty(), "node {node} holds nothing");
        for (key, entry) in held {
            let age_ms = now_ms - i64::try_from(entry.order.time_ms()).unwrap();
            let is_right = -NEAR_MS < age_ms && age_ms < MINUTES_5_MS / 2;
            assert!(is_right, "{key} on node {node} is {age_ms} ms old");
        }
    }
}

/// Milliseconds that the clock in a node's replies is ahead of the test's clock.
async fn ahead_ms(node: &ClusterMember) -> i64 {
    let reply = Request::new("GET", "/v1/rings", "").send(node.address).await.unwrap();
    let shown: i64 = reply.header("x-martlet-now").parse().unwrap();
    shown - i64::try_from(SystemClock.now_ms()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_the_clock_of_one_node_is_five_minutes_off() {
    let mut probe = Probe::over(ClusterPlan::default().start().await).await;
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    for (name, offset_ms) in [("ahead", MINUTES_5_MS), ("behind", -MINUTES_5_MS), ("right", 0)] {
        let cluster = &mut probe.cluster;
        cluster.nodes[1].kill();
        cluster.nodes[1].set(CLOCK, &offset_ms.to_string());
        cluster.nodes[1].start().await;
        let ahead_ms = ahead_ms(&cluster.nodes[1]).await;
        assert!((ahead_ms - offset_ms).abs() < NEAR_MS, "{name}: {ahead_ms} ms ahead");
        // One proxy has followed the clock for some time, another reads all clocks for the first
        // time.
        cluster.proxies[2].kill();
        cluster.proxies[2].start().await;
        seconds(0.5).await;
        probe.watch(name, 2.0).await.assert_errors(5);
        assert_dates_are_right(&probe.cluster).await;
    }
    probe.finish().await;
}
