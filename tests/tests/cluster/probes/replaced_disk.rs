//! A disk is lost for good and replaced by an empty one: entries and extents return to it under
//! load, until a census finds three copies of everything (rules G1, G2).
//!
//! Also disks whose identity differs from the peers' records: the old disk, a copy, or the disk of
//! another device. None has a vote before it has synced (rule G1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use martlet_tests::checkers::{Response, Value};
use martlet_tests::cluster::{ClusterMember, ClusterPlan};
use martlet_tests::probe::{PATIENCE, Probe, keys, seconds, until};

use super::collected::{self, until_collected};

const KEYS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_g2_entries_and_extents_come_back_to_an_empty_disk() {
    let plan = ClusterPlan { nodes: 4, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 100_000).await;
    // A write that a quorum took may reach the node's disk later.
    probe.settled().await;
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

/// Starts three nodes, each with a copy of everything.
async fn three() -> Probe {
    let plan = ClusterPlan { nodes: 3, proxies: 2, devices: 1, ..ClusterPlan::in_a_hurry() };
    Probe::over(plan.start().await).await
}

/// Path of another folder beside that of a node's first device.
fn beside(node: &ClusterMember, name: &str) -> PathBuf {
    node.device(1).with_file_name(name)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} can't be copied", from.display());
}

fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).unwrap();
    fs::rename(other, one).unwrap();
    fs::rename(&aside, other).unwrap();
}

/// Overwrites and deletes keys. Returns the state of each key.
async fn change(probe: &Probe, all: &[String]) -> Vec<(String, Option<Value>)> {
    let (mut client, mut changed) = (probe.client(0), Vec::new());
    for (number, key) in all.iter().enumerate() {
        let begun = Instant::now();
        loop {
            let (value, outcome) = if number % 3 == 0 {
                (None, client.delete(key).await)
            } else {
                let (value, outcome) = client.put(key).await;
                (Some(value), outcome)
            };
            if outcome == Response::Done {
                changed.push((key.clone(), value));
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{key}: {outcome:?}");
        }
    }
    changed
}

/// Reads while too few devices have a vote: each read returns the present state or fails.
async fn assert_never_older(probe: &Probe, changed: &[(String, Option<Value>)]) {
    for proxy in 0..2 {
        let mut client = probe.client(proxy).at_level("strict");
        for (key, value) in changed.iter().take(10) {
            if let Response::Read(read) = client.get(key).await {
                assert_eq!(read, *value, "{key} is as it was long ago");
            }
        }
    }
}

async fn assert_now(probe: &Probe, changed: &[(String, Option<Value>)]) {
    for proxy in 0..2 {
        let mut client = probe.client(proxy);
        for (key, value) in changed {
            assert_eq!(client.get_surely(key).await, *value, "{key}");
        }
    }
}

/// Starts the first node, whose device is an older copy of itself, and the second. The third stays
/// down at first, so that none of them has a vote, and starts after 4 s: then the copy begins anew.
async fn assert_older_copy_has_no_vote(probe: &mut Probe, changed: &[(String, Option<Value>)]) {
    let nodes = &mut probe.cluster.nodes;
    nodes[2].kill();
    nodes[1].spawn();
    nodes[0].spawn();
    seconds(4.0).await;
    assert!(!probe.cluster.nodes[0].is_ready().await, "nobody else has its say");
    assert_never_older(probe, changed).await;
    probe.cluster.nodes[2].start().await;
    probe.cluster.nodes[0].wait_until_ready().await;
    assert_now(probe, changed).await;
}

/// Waits until a node has refused to start with these words, and ends its process.
async fn refused(probe: &mut Probe, node: usize, words: &str) {
    until("the node refuses", PATIENCE, async || {
        probe.cluster.nodes[node].logged().contains(words)
    })
    .await;
    probe.cluster.nodes[node].end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_an_old_disk_that_is_put_back_has_no_vote_until_it_has_begun_anew() {
    let mut probe = three().await;
    let all = keys("kept", KEYS);
    probe.put_all(&all, 1000).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].kill();
    let old = beside(&nodes[0], "old");
    fs::rename(nodes[0].device(1), &old).unwrap();
    fs::create_dir(nodes[0].device(1)).unwrap();
    nodes[0].start().await;
    nodes[1].kill();
    let changed = change(&probe, &all).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].kill();
    exchange(&nodes[0].device(1), &old);
    assert_older_copy_has_no_vote(&mut probe, &changed).await;
    let aside = fs::read_dir(probe.cluster.nodes[0].device(1).join("quarantine")).unwrap();
    assert!(aside.count() > 0, "its index is aside");
    // Now the disk that replaced it is the older one.
    probe.cluster.nodes[0].kill();
    exchange(&probe.cluster.nodes[0].device(1), &old);
    probe.cluster.nodes[0].start().await;
    assert_now(&probe, &changed).await;
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_an_old_disk_that_outlived_the_tombstones_brings_no_deleted_object_back() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, ..collected::plan() };
    let mut probe = Probe::over(plan.start().await).await;
    let all = keys("kept", KEYS);
    probe.put_all(&all, 1000).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].kill();
    let old = beside(&nodes[0], "old");
    fs::rename(nodes[0].device(1), &old).unwrap();
    fs::create_dir(nodes[0].device(1)).unwrap();
    nodes[0].start().await;
    let changed = change(&probe, &all).await;
    // Nothing is left that would contradict what the old disk remembers.
    until_collected(&probe, "kept/").await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].kill();
    exchange(&nodes[0].device(1), &old);
    nodes[0].start().await;
    assert_now(&probe, &changed).await;
    probe.settled().await;
    assert_now(&probe, &changed).await;
    let held = probe.cluster.held(0, "kept/").await;
    for (key, value) in &changed {
        let is_there = held.get(key).is_some_and(|entry| !entry.value.is_tombstone());
        assert_eq!(is_there, value.is_some(), "{key} on the old disk");
    }
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_machine_that_was_restored_from_a_copy_has_no_vote_until_it_has_begun_anew() {
    let mut probe = three().await;
    let all = keys("kept", KEYS);
    probe.put_all(&all, 1000).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].stop().await;
    let kept = ["d1", "data"];
    for name in kept {
        copy(&beside(&nodes[0], name), &beside(&nodes[0], &format!("{name}.copy")));
    }
    nodes[0].start().await;
    nodes[1].kill();
    let changed = change(&probe, &all).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].kill();
    for name in kept {
        fs::remove_dir_all(beside(&nodes[0], name)).unwrap();
        fs::rename(beside(&nodes[0], &format!("{name}.copy")), beside(&nodes[0], name)).unwrap();
    }
    assert_older_copy_has_no_vote(&mut probe, &changed).await;
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_exchanged_folders_of_one_node_and_of_two_are_refused() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, devices: 2, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let kept = probe.put_all(&keys("kept", KEYS), 1000).await;
    let folders = |probe: &Probe| {
        let nodes = &probe.cluster.nodes;
        [nodes[0].device(1), nodes[0].device(2), nodes[1].device(1), nodes[1].device(2)]
    };
    probe.cluster.nodes[0].kill();
    let [d1, d2, ..] = folders(&probe);
    exchange(&d1, &d2);
    probe.cluster.nodes[0].spawn();
    refused(&mut probe, 0, "(n1/d2) and was given as device").await;
    exchange(&d1, &d2);
    probe.cluster.nodes[0].start().await;
    probe.assert_there(&kept).await;

    for node in [0, 1] {
        probe.cluster.nodes[node].kill();
    }
    let [_, _, e1, e2] = folders(&probe);
    exchange(&d1, &e1);
    exchange(&d2, &e2);
    for node in [0, 1] {
        probe.cluster.nodes[node].spawn();
    }
    for node in [0, 1] {
        refused(&mut probe, node, &format!("(n{}/d1) and was given as device", 2 - node)).await;
    }
    exchange(&d1, &e1);
    exchange(&d2, &e2);
    probe.cluster.start_all().await;
    probe.assert_there(&kept).await;
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_cloned_disk_is_refused_in_another_place() {
    let mut probe = three().await;
    let kept = probe.put_all(&keys("kept", KEYS), 1000).await;
    let nodes = &mut probe.cluster.nodes;
    nodes[0].stop().await;
    let (clone, own) = (beside(&nodes[1], "clone"), beside(&nodes[1], "own"));
    copy(&nodes[0].device(1), &clone);
    nodes[0].start().await;
    nodes[1].kill();
    fs::rename(nodes[1].device(1), &own).unwrap();
    fs::rename(&clone, nodes[1].device(1)).unwrap();
    nodes[1].spawn();
    refused(&mut probe, 1, "(n1/d1) and was given as device").await;
    let nodes = &mut probe.cluster.nodes;
    fs::remove_dir_all(nodes[1].device(1)).unwrap();
    fs::rename(&own, nodes[1].device(1)).unwrap();
    nodes[1].start().await;
    probe.assert_there(&kept).await;
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_nodes_that_all_died_vote_again_without_sync_while_one_stays_away() {
    let mut probe = three().await;
    let kept = probe.put_all(&keys("kept", KEYS), 1000).await;
    let formats = |probe: &Probe| {
        let nodes = probe.cluster.nodes.iter();
        nodes.map(|node| device_of(&node.device(1))).collect::<Vec<_>>()
    };
    let before = formats(&probe);
    for replicator in &mut probe.cluster.replicators {
        replicator.kill();
    }
    for round in 0..3 {
        for node in probe.cluster.nodes.iter_mut().filter(|node| node.is_running()) {
            node.kill();
        }
        // Another node is away each time.
        let up: Vec<usize> = (0..3).filter(|node| *node != round).collect();
        for node in &up {
            probe.cluster.nodes[*node].spawn();
        }
        for node in up {
            probe.cluster.nodes[node].wait_until_ready().await;
        }
        probe.assert_there(&kept).await;
    }
    assert_eq!(formats(&probe), before, "none of them began anew");
    probe.finish().await;
}

fn device_of(folder: &Path) -> String {
    let format = fs::read(folder.join("format.json")).unwrap();
    let format: serde_json::Value = serde_json::from_slice(&format).unwrap();
    format["device"].as_str().unwrap().to_owned()
}
