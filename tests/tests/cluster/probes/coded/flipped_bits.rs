//! Bits flip in data and parity fragments, in as many fragments of each extent as the code has
//! parity. Wrong bytes are never served, and the fragments are rebuilt from the other ones without
//! an operator.

use std::collections::BTreeMap;

use futures::future::join_all;
use martlet_protocol::ExtentId;
use martlet_tests::cluster::{ClusterPlan, StoredPiece};
use martlet_tests::probe::{PATIENCE, Probe, until};
use rand::seq::SliceRandom;

use super::{LENGTHS, assert_whole, read, write};

const KEPT: usize = 2 * LENGTHS.len();

/// Flips bits in `each` fragments of each extent. Returns the numbers of data and parity fragments.
async fn flip(probe: &mut Probe, each: usize, k: u8) -> [usize; 2] {
    let mut extents: BTreeMap<ExtentId, Vec<StoredPiece>> = BTreeMap::new();
    for piece in probe.cluster.pieces("kept/").await {
        extents.entry(piece.extent.id).or_default().push(piece);
    }
    let mut flipped = [0, 0];
    for pieces in extents.values_mut() {
        pieces.shuffle(&mut probe.chance);
        for piece in &pieces[..each] {
            piece.flip(&mut probe.chance);
            flipped[usize::from(piece.number() >= k)] += 1;
        }
    }
    println!("bits are flipped in fragments of data and of parity: {flipped:?}");
    flipped
}

/// Sum of a metric over all nodes.
async fn metric(probe: &Probe, name: &str) -> u64 {
    join_all(probe.cluster.nodes.iter().map(|node| node.metric(name))).await.iter().flatten().sum()
}

async fn assert_mended(probe: &Probe) {
    until("the nodes can give back all that they have", PATIENCE, async || {
        let mut unreadable = 0;
        for node in 0..probe.cluster.nodes.len() {
            unreadable += probe.cluster.unreadable(node).await.len();
        }
        unreadable == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x5_flipped_bits_in_any_fragments_are_never_served_and_mended() {
    let mut probe = Probe::over(ClusterPlan::coded(4, 2).start().await).await;
    let kept = write(&probe, KEPT).await;
    let flipped = flip(&mut probe, 2, 4).await;
    assert!(flipped.iter().all(|fragments| *fragments > 3), "{flipped:?}");
    let errors = read(&probe, &kept).await + read(&probe, &kept).await;
    assert!(errors * 5 <= 4 * kept.len(), "{errors} reads were not answered");
    // Only the auditor reads parity fragments and fragments that were rebuilt before a read.
    let all = u64::try_from(flipped.iter().sum::<usize>()).unwrap();
    let corrupt = "martlet_device_corrupt_reads_total";
    until("all are found", PATIENCE, async || metric(&probe, corrupt).await >= all).await;
    assert_mended(&probe).await;
    assert!(metric(&probe, "martlet_device_quarantined").await >= all, "what was found is kept");
    assert_whole(&mut probe, &kept).await;
    probe.finish().await;
}
