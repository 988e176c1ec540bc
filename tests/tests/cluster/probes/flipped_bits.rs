//! Bits flip on the disk of one node, in extents and in the tables of its index. Wrong bytes are
//! never served, and other nodes answer the reads.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::{PATIENCE, Probe, until};
use rand::Rng;
use rand::rngs::SmallRng;

/// Inline, packed, in a file, and in a file of several blocks.
const LENGTHS: [usize; 4] = [3_000, 60_000, 1_500_000, 5_000_000];
const KEYS: usize = 16;
const INLINE_KEYS: usize = 150;

/// All non-empty files below a folder whose paths satisfy `wanted`.
fn files(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, wanted));
        } else if wanted(&path) && entry.metadata().unwrap().len() > 0 {
            found.push(path);
        }
    }
    found
}

/// Flips a bit in each `every` bytes of the first `percent` percent of a file. Returns the number
/// of flips.
fn flip(path: &Path, percent: u64, every: u64, chance: &mut SmallRng) -> usize {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (length, mut flipped) = (file.metadata().unwrap().len() * percent / 100, 0);
    for begin in (0..length).step_by(usize::try_from(every).unwrap()) {
        let at = chance.random_range(begin..length.min(begin + every));
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << chance.random_range(0..8)], at).unwrap();
        flipped += 1;
    }
    file.sync_all().unwrap();
    flipped
}

/// Writes objects of all sizes; returns their keys.
async fn write(probe: &Probe) -> Vec<String> {
    let mut client = probe.client(0);
    let mut keys = Vec::new();
    for number in 0..KEYS {
        let key = format!("flip/{number:02}");
        client.length = LENGTHS[number % LENGTHS.len()];
        assert_eq!(client.put(&key).await.1, Response::Done);
        keys.push(key);
    }
    keys
}

/// Reads all objects through all proxies. Returns the number of reads without a reply.
async fn read(probe: &Probe, keys: &[String]) -> usize {
    let mut errors = 0;
    for proxy in 0..probe.cluster.proxies.len() {
        let mut client = probe.client(proxy);
        client.is_loyal = true;
        for key in keys {
            match client.get(key).await {
                Response::Read(value) => assert!(value.is_some(), "{key} is gone"),
                _ => errors += 1,
            }
        }
    }
    errors
}

/// Flips bits in all extents of the first node.
fn flip_extents(probe: &mut Probe) {
    let (folder, mut flipped) = (probe.cluster.nodes[0].device(1), 0);
    for below in ["extents", "volumes"] {
        for file in files(&folder.join(below), &|_| true) {
            flipped += flip(&file, 100, 32 << 10, &mut probe.chance);
        }
    }
    println!("{flipped} bits are flipped");
    assert!(flipped > KEYS, "too few: {flipped}");
}

async fn corrupt_reads(probe: &Probe) -> u64 {
    probe.cluster.nodes[0].metric("martlet_device_corrupt_reads_total").await.unwrap_or(0)
}

/// Waits until the first node returns all its extents whole, and a census is clean.
async fn assert_mended(probe: &mut Probe) {
    probe.rest().await;
    until("the node can give back all that it has", PATIENCE, async || {
        probe.cluster.unreadable(0).await.is_empty()
    })
    .await;
    let census = probe.settled().await;
    assert!(census.extents > KEYS / 2, "{census}");
    assert_eq!(probe.cluster.unreadable(0).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_in_extents_are_never_served_and_mended() {
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let keys = write(&probe).await;
    flip_extents(&mut probe);
    probe.light_load();
    let errors = read(&probe, &keys).await + read(&probe, &keys).await;
    println!("{errors} of {} reads broke off", 6 * KEYS);
    // A read that began before its bytes were found wrong breaks off; the next read uses another
    // node.
    assert!(errors <= KEYS, "{errors} reads were not answered");
    assert!(corrupt_reads(&probe).await > 0, "nobody noticed");
    assert_mended(&mut probe).await;
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_in_unread_extents_are_found_and_repaired() {
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let keys = write(&probe).await;
    flip_extents(&mut probe);
    until("the auditor finds them", PATIENCE, async || corrupt_reads(&probe).await > 0).await;
    assert_mended(&mut probe).await;
    assert_eq!(read(&probe, &keys).await, 0);
    probe.finish().await;
}

/// Flips bits in the first `percent` percent of all index tables and blobs of the first node, which
/// is not running. Returns the number of flips.
fn flip_tables(probe: &mut Probe, percent: u64) -> usize {
    let is_table = |path: &Path| path.extension().is_some_and(|it| it == "sst" || it == "blob");
    let tables = files(&probe.cluster.nodes[0].device(1).join("index"), &is_table);
    let flipped = tables.iter().map(|path| flip(path, percent, 2 << 10, &mut probe.chance)).sum();
    println!("{flipped} bits are flipped in {} tables", tables.len());
    flipped
}

/// Reads at level `strict` while the second node is away, so that the damaged node's vote counts.
/// Returns the number of keys without a quorum.
async fn read_without_second(probe: &mut Probe, keys: &[String]) -> usize {
    probe.cluster.nodes[1].kill();
    let (mut strict, mut silent) = (probe.client(2).at_level("strict"), 0);
    for key in keys {
        match strict.get(key).await {
            Response::Read(value) => assert!(value.is_some(), "{key} is gone"),
            _ => silent += 1,
        }
    }
    probe.cluster.nodes[1].start().await;
    silent
}

/// Starts a cluster whose index has tables, and kills its first node. Returns the keys in it.
async fn with_tables() -> (Probe, Vec<String>) {
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::in_a_hurry() };
    let mut probe = Probe::over(plan.start().await).await;
    let keys = write_inline(&probe).await;
    // A start writes the log into tables.
    for _ in 0..2 {
        probe.cluster.nodes[0].kill();
        probe.cluster.nodes[0].start().await;
    }
    probe.cluster.nodes[0].kill();
    (probe, keys)
}

/// Starts a cluster whose first node has damaged index tables.
async fn with_damaged_tables(percent: u64) -> (Probe, Vec<String>) {
    let (mut probe, keys) = with_tables().await;
    assert!(flip_tables(&mut probe, percent) > INLINE_KEYS);
    probe.cluster.nodes[0].spawn();
    probe.light_load();
    let errors = read(&probe, &keys).await;
    println!("{errors} of {} reads were not answered", 3 * keys.len());
    assert_eq!(errors, 0, "the two others know everything");
    probe.watch("tables are damaged", 2.0).await.assert_errors(10);
    probe.rest().await;
    (probe, keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_flipped_bits_in_blocks_of_the_index_are_never_served_and_mended() {
    let (mut probe, keys) = with_damaged_tables(60).await;
    let silent = read_without_second(&mut probe, &keys).await;
    println!("{silent} of {} keys had no quorum without the second node", keys.len());
    probe.settled().await;
    until_it_votes(&probe).await;
    assert_eq!(read_without_second(&mut probe, &keys).await, 0, "its votes are back");
    probe.finish().await;
}

/// Waits until the first node has its votes. A complete device votes only after sync has confirmed
/// that.
async fn until_it_votes(probe: &Probe) {
    until("the first node votes", PATIENCE, async || {
        probe.cluster.nodes[0].metric("martlet_device_voting").await == Some(1)
    })
    .await;
}

/// An untrusted index goes to quarantine. The device copies entries from other devices, and has no
/// vote until sync is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_an_index_with_flipped_bits_all_over_begins_anew() {
    let (mut probe, keys) = with_damaged_tables(100).await;
    let quarantine = probe.cluster.nodes[0].device(1).join("quarantine");
    let is_index = |path: &Path| path.to_string_lossy().contains("/index-");
    assert!(!files(&quarantine, &is_index).is_empty(), "nobody noticed");
    let silent = read_without_second(&mut probe, &keys).await;
    println!("{silent} of {} keys had no quorum without the second node", keys.len());
    probe.settled().await;
    until_it_votes(&probe).await;
    assert_eq!(read_without_second(&mut probe, &keys).await, 0, "its votes are back");
    probe.finish().await;
}

/// Writes inline objects; returns their keys.
async fn write_inline(probe: &Probe) -> Vec<String> {
    let mut client = probe.client(0);
    client.length = 6_000;
    let keys: Vec<String> = (0..INLINE_KEYS).map(|number| format!("flip/{number:03}")).collect();
    for key in &keys {
        assert_eq!(client.put(key).await.1, Response::Done);
    }
    keys
}
