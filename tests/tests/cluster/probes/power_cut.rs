//! Power is cut: unsynced data is lost, but no acknowledged write (rules R2, X6).

use martlet_tests::checkers::Response;
use martlet_tests::cluster::{ClusterMember, ClusterPlan};
use martlet_tests::probe::{PATIENCE, Probe, until};
use martlet_tests::recorded::load::Load;

const DISK_MIB: u64 = 256;

/// The disks of other nodes lose nothing. A loss on one node shows when another node is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_x6_one_node_loses_power_under_load() {
    let test = "r2_x6_one_node_loses_power_under_load";
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::default() };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB]).await else { return };
    let mut probe = Probe::over(cluster).await;
    probe.light_load();
    for round in 0..3 {
        probe.watch("quiet", 1.0).await.assert_errors(5);
        ClusterMember::cut_power(&mut probe.cluster.nodes[..1]);
        probe.watch("a node has no power", 1.0).await.assert_errors(15);
        probe.cluster.nodes[0].start().await;
        wait_until_announced(&probe, 0).await;
        // Now the vote of the restarted node is needed.
        let other = 1 + round % 2;
        probe.cluster.nodes[other].kill();
        probe.watch("another node is away", 1.0).await.assert_errors(25);
        probe.cluster.start_all().await;
        wait_until_announced(&probe, other).await;
    }
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_x6_all_nodes_lose_power_at_once() {
    let test = "r2_x6_all_nodes_lose_power_at_once";
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::default() };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB; 3]).await else { return };
    let mut probe = Probe::over(cluster).await;
    probe.load(Load::default());
    for _ in 0..3 {
        let quiet = probe.watch("quiet", 1.2).await;
        quiet.assert_errors(5);
        assert!(quiet.degraded * 10 < quiet.operations, "too little is firm: {quiet:?}");
        ClusterMember::cut_power(&mut probe.cluster.nodes);
        let dark = probe.watch("no node has power", 0.5).await;
        assert_eq!(dark.written, 0, "who took these writes? {dark:?}");
        probe.cluster.start_all().await;
        serves_again(&probe).await;
    }
    probe.finish().await;
}

/// Waits until a restarted node has its votes and every proxy receives replies from it. Proxies
/// avoid a silent node for some time.
async fn wait_until_announced(probe: &Probe, node: usize) {
    let node = &probe.cluster.nodes[node];
    until("the node votes", PATIENCE, async || {
        node.metric("martlet_device_voting").await == Some(1)
    })
    .await;
    let label = format!("node=\"{}\"", node.name);
    for proxy in &probe.cluster.proxies {
        let replies = async || proxy.metric_of("martlet_node_replies_total", &label).await;
        let before = replies().await.unwrap_or(0);
        until("a proxy asks the node again", PATIENCE, async || {
            replies().await.is_some_and(|replies| replies > before)
        })
        .await;
    }
}

/// Waits until every proxy has a quorum. Proxies avoid nodes for some time after a timeout.
async fn serves_again(probe: &Probe) {
    for proxy in 0..probe.cluster.proxies.len() {
        let mut client = probe.client(proxy);
        client.is_loyal = true;
        until("a proxy has a quorum again", PATIENCE, async || {
            let written = client.put("again").await.1 == Response::Done;
            written && client.header("x-martlet-consistency") == "quorum"
        })
        .await;
    }
}
