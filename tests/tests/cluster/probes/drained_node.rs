//! A node is drained, and removed once a census finds it empty. No write is lost, and no request
//! needs the node afterwards.

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::{Probe, keys};

const KEYS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_p3_a_node_is_drained_and_removed_under_load() {
    let plan = ClusterPlan { nodes: 4, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 30_000).await;
    assert!(!probe.cluster.held(3, "kept/").await.is_empty());
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    probe.cluster.rings.drain_node("n4");
    probe.push_rings().await;
    probe.watch("it is drained", 3.0).await.assert_errors(10);
    probe.settled().await;
    let left = probe.cluster.held(3, "").await;
    assert!(left.is_empty(), "{} entries are left on it", left.len());
    probe.forget_moves().await;

    probe.cluster.rings.remove_node("n4");
    probe.push_rings().await;
    probe.cluster.replicators[3].stop().await;
    probe.cluster.nodes[3].stop().await;
    probe.watch("it is gone", 2.0).await.assert_errors(5);
    probe.settled().await;
    probe.assert_there(&kept).await;
    // The removed node is not started again.
    probe.rest().await;
    probe.recorder.finish(&probe.cluster).await;
}
