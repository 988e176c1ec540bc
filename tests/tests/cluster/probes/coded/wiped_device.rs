//! A disk is lost for good and replaced by an empty one. Its fragments are rebuilt from the other
//! fragments and are equally usable (rules G1, G2, X5).

use std::time::Instant;

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::Probe;

use super::{LENGTHS, LOAD, assert_few_errors, assert_whole, read, write};

const KEPT: usize = 3 * LENGTHS.len();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_x5_fragments_are_made_again_on_an_empty_disk() {
    let plan = ClusterPlan { nodes: 4, ..ClusterPlan::coded(2, 1) };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = write(&probe, KEPT).await;
    probe.load(LOAD);
    assert_few_errors(&probe.watch("quiet", 1.0).await, 10);
    probe.cluster.nodes[0].kill();
    probe.cluster.nodes[0].wipe(1);
    assert_few_errors(&probe.watch("a disk is lost", 1.0).await, 20);
    probe.cluster.nodes[0].start().await;
    let begun = Instant::now();
    assert_few_errors(&probe.watch("an empty disk is there", 2.0).await, 15);
    assert_whole(&mut probe, &kept).await;
    println!("repaired {:?} after the empty disk was there", begun.elapsed());
    // Fragments of the next dead node must be replaced by those on the device that was empty.
    probe.rest().await;
    probe.cluster.nodes[2].kill();
    let errors = read(&probe, &kept).await;
    assert!(errors * 5 <= kept.len(), "{errors} reads were not answered");
    probe.assert_there(&kept).await;
    probe.cluster.start_all().await;
    probe.finish().await;
}
