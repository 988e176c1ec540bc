//! A cluster grows by two nodes, one of them in a new zone. The rings move a share of all data to
//! them under load, and a census finds all data where the new rings place it (rules P1 to P3).

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::probe::{Probe, keys, seconds};

const KEYS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p3_nodes_and_a_zone_are_added_under_load() {
    let plan = ClusterPlan { nodes: 3, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 30_000).await;
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    let parents = [INDEX, DATA].map(|name| probe.cluster.rings.ring(name));
    probe.cluster.add_nodes(&[4, 1]);
    let moving = [INDEX, DATA].map(|name| probe.cluster.rings.ring(name).moves().len());
    println!("replicas that move, of the index and of data: {moving:?}");
    assert!(moving.iter().all(|replicas| *replicas > 10), "hardly anything moves");
    probe.push_rings().await;
    probe.cluster.start_all().await;
    probe.watch("things move", 3.0).await.assert_errors(10);
    let census = probe.settled().await;
    assert!(census.extents >= KEYS, "{census}");
    for (parent, name) in parents.iter().zip([INDEX, DATA]) {
        assert!(probe.cluster.rings.ring(name).epoch() > parent.epoch());
    }
    for node in [3, 4] {
        let held = probe.cluster.held(node, "kept/").await;
        assert!(!held.is_empty(), "node {node} has no share of the entries");
    }
    probe.assert_there(&kept).await;
    probe.forget_moves().await;
    seconds(1.0).await;
    probe.watch("all has moved", 1.0).await.assert_errors(5);
    probe.finish().await;
}
