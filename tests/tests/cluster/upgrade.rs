//! A cluster of another release's binary under load, upgraded process by process, and back:
//! `make test-upgrade`.
//!
//! `MARTLET_PREVIOUS` names the binary of the other release. Each replacement is tested in both
//! directions: by an orderly stop in the order of docs/UPGRADES.md, and by kills in a random order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::probe::{Probe, keys};
use martlet_tests::recorded::load::Load;
use martlet_tests::server::binary;
use rand::seq::SliceRandom;

use super::seconds;

/// Time for which a cluster of mixed releases works after each replacement.
const MIXED_S: f64 = 0.7;

/// Binary of the other release.
fn previous() -> PathBuf {
    let path = std::env::var_os("MARTLET_PREVIOUS");
    let path = PathBuf::from(path.expect("MARTLET_PREVIOUS names the binary of another release"));
    assert!(path.is_file(), "there is no {}", path.display());
    path
}

fn load() -> Load {
    let pause = Duration::from_millis(25);
    Load { clients: 6, keys: 30, pause, ..Load::default() }
}

/// Kind of a member in [`TestCluster`], and its place.
#[derive(Clone, Copy, Debug)]
enum Place {
    Node(usize),
    Replicator(usize),
    Proxy(usize),
}

/// Members in the order of an upgrade: nodes, replicators, proxies.
fn order(cluster: &TestCluster) -> Vec<Place> {
    let nodes = (0..cluster.nodes.len()).map(Place::Node);
    let replicators = (0..cluster.replicators.len()).map(Place::Replicator);
    nodes.chain(replicators).chain((0..cluster.proxies.len()).map(Place::Proxy)).collect()
}

fn member(cluster: &mut TestCluster, place: Place) -> &mut ClusterMember {
    match place {
        Place::Node(at) => &mut cluster.nodes[at],
        Place::Replicator(at) => &mut cluster.replicators[at],
        Place::Proxy(at) => &mut cluster.proxies[at],
    }
}

/// Replaces the processes one after another.
async fn replace(probe: &mut Probe, places: &[Place], binary: &Path, is_killed: bool) {
    for place in places {
        let member = member(&mut probe.cluster, *place);
        if is_killed {
            member.kill();
        } else {
            member.stop().await;
        }
        member.use_binary(binary);
        member.start().await;
        seconds(MIXED_S).await;
    }
}

/// Upgrades a cluster, returns to the other release, and upgrades it again.
async fn upgrade_and_return(plan: ClusterPlan) {
    let (previous, present) = (previous(), binary());
    let cluster = ClusterPlan { binary: Some(previous.clone()), ..plan }.start().await;
    let mut probe = Probe::over(cluster).await;
    let kept = probe.put_all(&keys("before", 8), 30_000).await;
    let up = order(&probe.cluster);
    let down: Vec<Place> = up.iter().rev().copied().collect();
    let mut random = up.clone();
    random.shuffle(&mut probe.chance);
    println!("random order: {random:?}");
    for (places, binary, is_killed) in [
        (&up, &present, false),
        (&down, &previous, false),
        (&random, &present, true),
        (&random, &previous, true),
        (&up, &present, false),
    ] {
        probe.load(load());
        replace(&mut probe, places, binary, is_killed).await;
        probe.rest().await;
        probe.assert_there(&kept).await;
    }
    let census = probe.cluster.until_clean(Duration::from_mins(2)).await;
    println!("{census:?}");
    for member in probe.cluster.members() {
        let status = member.admin("/readyz").await.unwrap();
        assert_eq!(status.status, 200, "{}: {}", member.name, status.text());
        let log = member.logged();
        assert!(!log.contains("speaks version"), "{} refused a release", member.name);
    }
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it needs MARTLET_PREVIOUS, the binary of another release"]
async fn a_cluster_is_upgraded_process_by_process_and_returns() {
    upgrade_and_return(ClusterPlan { nodes: 3, proxies: 2, ..ClusterPlan::in_a_hurry() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it needs MARTLET_PREVIOUS, the binary of another release"]
async fn a_cluster_with_a_code_is_upgraded_process_by_process_and_returns() {
    upgrade_and_return(ClusterPlan::coded(2, 1)).await;
}
