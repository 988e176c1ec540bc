//! A disk is lost for good and replaced by an empty one: entries and extents come back to it while
//! clients go on, until a census finds everything three times again (rules G1, G2).

use std::time::Instant;

use martlet_tests::cluster::Plan;
use martlet_tests::probe::{Probe, keys};

const KEYS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_g2_entries_and_extents_come_back_to_an_empty_disk() {
    let plan = Plan { nodes: 4, ..Plan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 100_000).await;
    let before = probe.cluster.held(0, "kept/").await;
    assert!(before.len() > KEYS / 3, "{} of {KEYS}", before.len());
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    probe.cluster.nodes[0].kill();
    probe.cluster.nodes[0].wipe(1);
    probe.watch("a disk is lost", 1.0).await.assert_errors(15);
    probe.cluster.nodes[0].start().await;
    let begun = Instant::now();
    probe.watch("an empty disk is there", 2.0).await.assert_errors(10);
    let census = probe.settled().await;
    println!("repaired {:?} after the empty disk was there", begun.elapsed());
    assert!(census.extents >= KEYS, "{census}");
    assert_eq!(probe.cluster.held(0, "kept/").await, before, "it holds what it held");
    probe.assert_there(&kept).await;
    probe.finish().await;
}
