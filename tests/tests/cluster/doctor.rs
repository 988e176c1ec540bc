//! `martlet doctor` beside a cluster: clocks, peers, rings and devices of a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::doctor::DoctorReport;
use martlet_tests::server::martlet;

const CLOCK: &str = "MARTLET_TEST_CLOCK_OFFSET_MS";

/// Returns the command for a node, by a settings file.
fn doctor_of(settings: &Path) -> Command {
    let mut command = martlet(&["doctor", "--json", "--no-probe", "--role", "storage-node"]);
    command.arg("--config").arg(settings);
    command
}

fn doctor(node: &ClusterMember) -> Command {
    doctor_of(&node.settings_path())
}

/// Copies the settings of a node with other words in place of some.
fn changed(cluster: &TestCluster, node: usize, from: &str, to: &str) -> PathBuf {
    let text = fs::read_to_string(cluster.nodes[node].settings_path()).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    let path = cluster.folder().join("changed.toml");
    fs::write(&path, text.replace(from, to)).unwrap();
    path
}

fn a_healthy_cluster(cluster: &TestCluster) {
    let node = &cluster.nodes[0];
    let peer = cluster.nodes[1].admin_address.to_string();
    let report = DoctorReport::of(doctor(node).args(["--peer", &peer]));
    report.assert_one("settings", "process", "ok: ");
    report.assert_one("peers", "all", "ok: 2 of 2 other nodes answer");
    report.assert_one("clock", "all", "ok: ");
    report.assert_one("ring", "index", "ok: epoch 1");
    report.assert_one("ring devices", "n1", "ok: ");
    report.assert_one("version", "martlet", "ok: ");
    report.assert_one("reachable", &peer, "ok: storage node n2 reaches n1");
    report.assert_one("certificate", "tls_certificate", "ok: ");
    report.assert_one("port", "internal_address", "ok: held by martlet");
    assert!(report.of_check("device id", "").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_cluster_are_found_one_by_one() {
    let plan =
        ClusterPlan { nodes: 3, devices: 2, proxies: 1, tls: true, ..ClusterPlan::in_a_hurry() };
    let mut cluster = plan.start().await;
    a_healthy_cluster(&cluster);

    // Devices with each other's folders, and a device that no ring has.
    let swapped = changed(&cluster, 0, "d1 = ", "d9 = ");
    let report = DoctorReport::of(&mut doctor_of(&swapped));
    report.assert_one("ring devices", "d1", "fail: the rings place data on n1/d1");
    report.assert_one("ring devices", "d9", "warn: no ring has the device n1/d9");
    let text = fs::read_to_string(cluster.nodes[0].settings_path()).unwrap();
    let exchanged =
        text.replace("d1 = ", "dx = ").replace("d2 = ", "d1 = ").replace("dx = ", "d2 = ");
    fs::write(&swapped, exchanged).unwrap();
    let report = DoctorReport::of(&mut doctor_of(&swapped));
    let ids = report.of_check("device id", "");
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids[0].contains("mount each disk where it was"), "{ids:?}");

    // A newer ring in the files of one machine.
    let newer = cluster.rings.next_epoch("index");
    newer.save(&cluster.rings.path("index")).unwrap();
    let report = DoctorReport::of(&mut doctor(&cluster.nodes[0]));
    let rings = report.of_check("ring", "index n");
    assert_eq!(rings.len(), 2, "{rings:?}");
    assert!(rings[0].starts_with("warn: epoch 2"), "{rings:?}");

    // A clock that is wrong, and a node that is down.
    cluster.nodes[1].kill();
    cluster.nodes[1].set(CLOCK, "90000");
    cluster.nodes[1].start().await;
    let report = DoctorReport::of(&mut doctor(&cluster.nodes[0]));
    report.assert_one("clock", "n2", "fail: ");
    assert_eq!((report.code, report.of_check("clock", "").len()), (2, 1));
    cluster.nodes[2].kill();
    let report = DoctorReport::of(&mut doctor(&cluster.nodes[0]));
    report.assert_one("peers", "all", "ok: 1 of 2 other nodes answer");
    report.assert_one("peers", "n3", "warn: ");
    cluster.assert_no_panic();
}
