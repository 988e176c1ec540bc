//! As many nodes die as the code has parity: all objects are readable, and with d+1 nodes left
//! writes succeed. With one more dead node, reads are refused but never wrong (rule X5).

use martlet_tests::checkers::{Response, Value};
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::Probe;

use super::{LENGTHS, LOAD, assert_few_errors, assert_whole, read, write};

const KEPT: usize = 2 * LENGTHS.len();

/// Reads with more dead nodes than parity: a reply must be right. Returns the number of reads
/// without a reply.
async fn unanswered(probe: &Probe, written: &[(String, Value)]) -> usize {
    let (mut client, mut unanswered) = (probe.client(0), 0);
    client.is_loyal = true;
    for (key, value) in written {
        match client.get(key).await {
            Response::Read(read) => assert_eq!(read, Some(*value), "{key}"),
            _ => unanswered += 1,
        }
    }
    unanswered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x5_as_many_nodes_die_as_there_is_parity_then_one_more() {
    let plan = ClusterPlan { nodes: 7, ..ClusterPlan::coded(4, 2) };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = write(&probe, KEPT).await;
    probe.load(LOAD);
    assert_few_errors(&probe.watch("quiet", 1.0).await, 10);
    for node in [1, 4] {
        probe.cluster.nodes[node].kill();
    }
    assert_few_errors(&probe.watch("two nodes are dead", 3.0).await, 15);
    let errors = read(&probe, &kept).await;
    assert!(errors * 10 <= kept.len(), "{errors} reads were not answered");
    probe.assert_there(&kept).await;
    probe.rest().await;

    probe.cluster.nodes[2].kill();
    // Six of the seven nodes have fragments of an extent, so four in seven extents lack three
    // fragments.
    let unanswered = unanswered(&probe, &kept).await;
    println!("{unanswered} of {} objects can't be read with three nodes dead", kept.len());
    assert!(unanswered > 0, "too few were dead");

    probe.cluster.start_all().await;
    probe.load(LOAD);
    probe.watch("they are back", 1.0).await;
    assert_whole(&mut probe, &kept).await;
    probe.finish().await;
}
