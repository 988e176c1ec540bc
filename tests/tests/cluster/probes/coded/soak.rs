//! A long load on erasure-coded objects with random faults: `make soak-cluster`.

use std::time::{Duration, Instant};

use martlet_tests::cluster::{ClusterMember, ClusterPlan};
use martlet_tests::probe::{Probe, seconds};
use martlet_tests::recorded::load::Load;
use rand::Rng;

use super::{LENGTHS, LOAD, assert_whole, write};

const DISK_MIB: u64 = 1024;
const NODES: usize = 7;

/// Causes one random fault for 0.5 to 4 s. Kills and pauses affect at most as many nodes as the
/// code has parity; a power cut may affect all.
async fn misfortune(probe: &mut Probe) {
    let (first, what) = (probe.chance.random_range(0..NODES), probe.chance.random_range(0..5));
    let nodes = [first, (first + probe.chance.random_range(1..NODES)) % NODES];
    println!("misfortune {what} of nodes {nodes:?}");
    match what {
        0 => {
            for node in nodes {
                probe.cluster.nodes[node].kill();
            }
        }
        1 => {
            probe.cluster.nodes[first].kill();
            probe.cluster.nodes[first].wipe(1);
        }
        2 => ClusterMember::cut_power([&mut probe.cluster.nodes[first]]),
        3 => ClusterMember::cut_power(&mut probe.cluster.nodes),
        _ => {
            for node in nodes {
                probe.cluster.nodes[node].pause();
            }
        }
    }
    let lasting = probe.chance.random_range(0.5..4.0);
    seconds(lasting).await;
    if what == 4 {
        for node in nodes {
            probe.cluster.nodes[node].resume();
        }
    }
    probe.cluster.start_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes MARTLET_SOAK_SECONDS (300)"]
async fn everything_happens_to_fragments_under_load() {
    let time = std::env::var("MARTLET_SOAK_SECONDS").map_or(300, |text| text.parse().unwrap());
    let test = "everything_happens_to_fragments_under_load";
    let plan = ClusterPlan { nodes: NODES, ..ClusterPlan::coded(4, 2) };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB; NODES]).await else { return };
    let mut probe = Probe::over(cluster).await;
    let kept = write(&probe, LENGTHS.len()).await;
    probe.load(Load { clients: 6, ..LOAD });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(time) {
        for _ in 0..3 {
            misfortune(&mut probe).await;
            probe.watch("it is over", 1.0).await;
        }
        assert_whole(&mut probe, &kept).await;
    }
    probe.finish().await;
}
