//! Hosts without a connection: a proxy without one node, without two, without all, in one direction
//! only, and over cables that lose packets.

use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::recorded::load::Load;

use super::{recorder, seconds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a1_a_proxy_is_cut_off_from_one_node_and_from_two() {
    let test = "r5_a1_a_proxy_is_cut_off_from_one_node_and_from_two";
    let Some(cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let (mut chance, network) = (chance(), cluster.network());
    let recorder = recorder(&cluster).await;
    let load = Load { clients: 6, ..Load::default() };
    let load = load.start(&recorder, &cluster, &mut chance);
    seconds(1.0).await;
    network.cut("p1", "n1");
    let mut cut_off = recorder.client(&cluster, 0);
    cut_off.is_loyal = true;
    seconds(1.5).await;
    for number in 0..5 {
        let (value, outcome) = cut_off.put(&format!("cut/{number}")).await;
        assert_eq!(outcome, Response::Done, "without one node: {:?}", cut_off.reply);
        assert_eq!(cut_off.get(&format!("cut/{number}")).await, Response::Read(Some(value)));
    }
    network.cut("p1", "n2");
    seconds(1.5).await;
    for number in 0..5 {
        let outcome = cut_off.put(&format!("cut/{number}")).await.1;
        assert_eq!(outcome, Response::Done, "without two nodes: {:?}", cut_off.reply);
    }
    network.heal();
    seconds(1.5).await;
    load.stop().await;
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a_proxy_cut_off_from_all_nodes_invents_nothing() {
    let test = "r5_a_proxy_cut_off_from_all_nodes_invents_nothing";
    let plan = ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() };
    let Some(cluster) = plan.start_on_hosts(test).await else { return };
    let network = cluster.network();
    let recorder = recorder(&cluster).await;
    let (mut cut_off, mut other) = (recorder.client(&cluster, 0), recorder.client(&cluster, 1));
    cut_off.is_loyal = true;
    assert_eq!(cut_off.put("k").await.1, Response::Done);
    for node in ["n1", "n2", "n3"] {
        network.cut("p1", node);
    }
    assert_eq!(cut_off.get("k").await, Response::Unknown);
    assert_eq!(cut_off.get("absent").await, Response::Unknown, "404 is nobody's word here");
    assert_eq!(cut_off.put("k").await.1, Response::Unknown);
    assert_eq!(cut_off.list("", "", 10).await, Response::Unknown);
    assert_eq!(other.put("k").await.1, Response::Done);
    network.heal();
    cut_off.get_surely("k").await;
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_one_direction_is_cut_and_packets_are_lost() {
    let test = "r5_one_direction_is_cut_and_packets_are_lost";
    let Some(cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let (mut chance, network) = (chance(), cluster.network());
    let recorder = recorder(&cluster).await;
    let load = Load { clients: 6, ..Load::default() };
    let load = load.start(&recorder, &cluster, &mut chance);
    seconds(0.5).await;
    // Requests arrive and take effect; no reply returns.
    network.cut_one_way("n2", "p1");
    network.cut_one_way("n2", "p2");
    seconds(2.5).await;
    network.heal();
    network.cut_one_way("p3", "n1");
    seconds(2.0).await;
    network.heal();
    for node in ["n1", "n2", "n3", "n4"] {
        network.lose("p2", node, 10);
    }
    seconds(2.0).await;
    network.heal();
    seconds(1.0).await;
    load.stop().await;
    recorder.finish(&cluster).await;
}
