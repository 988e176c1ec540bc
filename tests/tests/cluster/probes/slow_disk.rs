//! The disk of one node is slow: it accepts few writes per second, and other nodes carry the load.

use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::{Probe, seconds};
use martlet_tests::recorded::load::Load;
use martlet_tests::throttle::Throttle;

const DISK_MIB: u64 = 256;
/// Less than two clients need, and far less than nine.
const WRITES_PER_SECOND: u32 = 10;

/// Extents that were written to the slow node, and to a fast one.
async fn extent_writes(cluster: &TestCluster) -> [u64; 2] {
    let count = async |node: usize| {
        cluster.nodes[node].metric("martlet_device_extent_writes_total").await.unwrap()
    };
    [count(0).await, count(1).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_delays_clients_only_briefly() {
    let test = "a_slow_disk_delays_clients_only_briefly";
    let Some(cluster) = ClusterPlan::default().start_on_disks(test, &[DISK_MIB]).await else {
        return;
    };
    let mut probe = Probe::over(cluster).await;
    probe.load(Load { apart: true, ..Load::default() });
    probe.watch("quiet", 2.0).await;
    let node = &probe.cluster.nodes[0];
    let Some(slow) = Throttle::new(test, node.disk(), node.pid(), WRITES_PER_SECOND) else {
        return;
    };
    let before = extent_writes(&probe.cluster).await;
    probe.watch("a disk is slow", 6.0).await.assert_errors(2);
    let after = extent_writes(&probe.cluster).await;
    // Clients that waited for the slow disk would write as many extents to the fast one.
    let (slow_writes, fast_writes) = (after[0] - before[0], after[1] - before[1]);
    println!("{slow_writes} extents on the slow disk, {fast_writes} on a fast one");
    assert!(slow_writes * 2 < fast_writes, "the clients wait for the slow disk");
    drop(slow);
    seconds(1.0).await;
    probe.watch("it is fast again", 1.0).await.assert_errors(2);
    probe.finish().await;
}
