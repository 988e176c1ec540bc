//! A cluster grows from six nodes to eight under load. A share of the fragments moves to the new
//! nodes, each to the primary of its number. No fragment is rebuilt or lost on the way (rules P2,
//! P3, X5).

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::cluster::rings::DATA;
use martlet_tests::probe::Probe;

use super::{LENGTHS, LOAD, assert_few_errors, assert_whole, read, write};

const KEPT: usize = 2 * LENGTHS.len();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_x5_six_nodes_become_eight_under_load() {
    let mut probe = Probe::over(ClusterPlan::coded(4, 2).start().await).await;
    let kept = write(&probe, KEPT).await;
    probe.load(LOAD);
    assert_few_errors(&probe.watch("quiet", 1.0).await, 10);
    probe.cluster.add_nodes(&[7, 8]);
    let moving = probe.cluster.rings.ring(DATA).moves().len();
    assert!(moving > 10, "hardly anything moves: {moving}");
    probe.push_rings().await;
    probe.cluster.start_all().await;
    assert_few_errors(&probe.watch("things move", 2.0).await, 15);
    let errors = read(&probe, &kept).await;
    assert!(errors <= 3, "{errors}: what moves is found where it was or where it goes");
    assert_whole(&mut probe, &kept).await;
    let pieces = probe.cluster.pieces("kept/").await;
    for node in [6, 7] {
        let held = pieces.iter().filter(|it| probe.cluster.node_of(it.device) == node).count();
        assert!(held > 0, "node {node} has no share of the fragments");
    }
    probe.forget_moves().await;
    assert_few_errors(&probe.watch("all has moved", 1.0).await, 10);
    probe.finish().await;
}
