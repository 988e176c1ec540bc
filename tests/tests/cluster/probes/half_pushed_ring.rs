//! A newer ring reaches one node while another node and a proxy are away and return with the old
//! ring. No write is lost between the two rings, and soon all processes have the new one (rules P1,
//! P3).

use martlet_ring::Ring;
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::{PATIENCE, Probe, keys, seconds, until};

const KEYS: usize = 30;

fn keeps(cluster: &TestCluster, member: &str, name: &str, ring: &Ring) -> bool {
    let path = cluster.folder().join(member).join(format!("data/{name}.ring"));
    Ring::load(&path).is_ok_and(|kept| kept.hash() == ring.hash())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p3_some_members_miss_a_newer_ring_and_one_proxy_is_down() {
    let mut probe = Probe::over(ClusterPlan::default().start().await).await;
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    for name in [INDEX, DATA] {
        probe.cluster.proxies[1].kill();
        probe.cluster.nodes[3].pause();
        let ring = probe.cluster.rings.next_epoch(name);
        assert!(probe.cluster.push(0, name, &ring).await, "{name} is refused");
        probe.watch("one node and one proxy miss it", 2.0).await.assert_errors(20);
        let missed = !keeps(&probe.cluster, "n4", name, &ring);
        assert!(missed && !keeps(&probe.cluster, "p2", name, &ring), "they were away");
        probe.cluster.nodes[3].resume();
        probe.cluster.start_all().await;
        let cluster = &probe.cluster;
        until("everybody has the ring", PATIENCE, async || {
            cluster.members().all(|member| keeps(cluster, &member.name, name, &ring))
        })
        .await;
        seconds(0.5).await;
        probe.watch("all have it", 1.0).await.assert_errors(5);
    }
    probe.finish().await;
}

/// A ring change that moves data stops while too many of the processes that it concerns are away,
/// and continues when they return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_p3_a_change_of_rings_begins_while_a_node_and_a_proxy_are_away() {
    let plan = ClusterPlan { nodes: 3, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 20_000).await;
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    probe.cluster.nodes[2].kill();
    probe.cluster.proxies[1].kill();
    probe.cluster.add_nodes(&[4]);
    probe.push_rings().await;
    // A new node is ready once all other nodes have recorded it, so it waits for the absent node.
    probe.cluster.nodes[3].spawn();
    probe.cluster.replicators[3].spawn();
    probe.watch("a change has begun, and not all are there", 3.0).await.assert_errors(20);
    probe.cluster.start_all().await;
    seconds(0.5).await;
    probe.watch("all are there", 2.0).await.assert_errors(10);
    probe.settled().await;
    assert!(!probe.cluster.held(3, "kept/").await.is_empty(), "it has no share");
    probe.assert_there(&kept).await;
    probe.finish().await;
}
