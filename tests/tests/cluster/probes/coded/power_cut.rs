//! Power is cut while fragments are written: every acknowledged object exists and is whole, and no
//! unacknowledged object exists in part (rules X5, X6).

use martlet_tests::checkers::Response;
use martlet_tests::cluster::{ClusterMember, ClusterPlan};
use martlet_tests::probe::{PATIENCE, Probe, until};
use martlet_tests::recorded::load::Load;

use super::{LENGTHS, LOAD, assert_few_errors, assert_whole, write};

const DISK_MIB: u64 = 384;
/// Files of few blocks and of many, so that a cut falls into the middle of some.
const LARGE: [usize; 4] = [70_000, 300_000, 1_200_000, 5_000_000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x5_x6_power_is_cut_while_fragments_are_written() {
    let test = "x5_x6_power_is_cut_while_fragments_are_written";
    let plan = ClusterPlan { nodes: 4, devices: 1, ..ClusterPlan::coded(2, 1) };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB; 4]).await else { return };
    let mut probe = Probe::over(cluster).await;
    let kept = write(&probe, LENGTHS.len()).await;
    probe.load(Load { lengths: &LARGE, ..LOAD });
    for round in 0..2 {
        assert_few_errors(&probe.watch("quiet", 1.5).await, 10);
        if round == 0 {
            ClusterMember::cut_power([&mut probe.cluster.nodes[1]]);
            assert_few_errors(&probe.watch("a node has no power", 1.0).await, 25);
        } else {
            ClusterMember::cut_power(&mut probe.cluster.nodes);
            let dark = probe.watch("no node has power", 0.5).await;
            assert_eq!(dark.written, 0, "who took these writes? {dark:?}");
        }
        probe.cluster.start_all().await;
        serves_again(&probe).await;
    }
    assert_whole(&mut probe, &kept).await;
    probe.finish().await;
}

/// Waits until every proxy can write all fragments. Proxies avoid nodes for some time after a
/// timeout, and 2+1 needs three of the four nodes.
async fn serves_again(probe: &Probe) {
    for proxy in 0..probe.cluster.proxies.len() {
        let mut client = probe.client(proxy);
        (client.is_loyal, client.length) = (true, 200_000);
        until("a proxy writes fragments again", PATIENCE, async || {
            let written = client.put("again").await.1 == Response::Done;
            written && client.header("x-martlet-consistency") == "quorum"
        })
        .await;
    }
}
