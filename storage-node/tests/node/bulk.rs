//! Devices that the bulk path loaded: they are whole devices, and their memory grows as stated.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart, Want, WriteReply};
use martlet_protocol::entry::{Body, Entry, Manifest};
use martlet_protocol::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{
    BackendExt, ExtentId, PolicyId, RegisterKey, RegisterKind, Shard, Stamp, Term, WriteId,
};
use martlet_storage_node::{BulkLoad, BulkObject, DeviceConfig, NodeOptions, Reserve, StorageNode};

use crate::support::*;

/// Length of most extents: 160 KB, as on a device of 16 TB with 10⁸ objects.
const LENGTH: u32 = 160_000;
/// One of so many places is free.
const FREE_EVERY: u64 = 4;
/// Objects of the devices whose memory is compared: the larger has a hundredth of 10⁸.
const OBJECTS: [u64; 2] = [100_000, 1_000_000];
/// Bytes a device takes at 10⁸ objects, as `docs/SCALE.md` states them, without caches.
const STATED_BYTES: u64 = 250 << 20;
/// Variation of one measurement.
const NOISE_BYTES: u64 = 2 << 20;
/// Name of the variable that asks for the memory of a device, in a process of its own.
const CHILD: &str = "MARTLET_TEST_DEVICE";

fn numbered(number: u64) -> RegisterKey {
    RegisterKey {
        bucket: BUCKET,
        shard: Shard(u16::try_from(number % 4).unwrap()),
        kind: RegisterKind::Object,
        name: format!("{number:09}").into(),
    }
}

fn bulk(number: u64) -> BulkObject {
    let write_id = WriteId((u128::from(number) << 64).to_be_bytes());
    // Ids are random: blocks of their rows are read in no order.
    let id = ExtentId(*scrambled(number).first_chunk().unwrap());
    let extent = ExtentRef { id, length: LENGTH, blake3: [7; 32] };
    let owner = Owner {
        bucket: BUCKET,
        key: format!("{number:09}"),
        write_id,
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    let record = ExtentRecord { extent, owner, birth_ms: 1, layout: Layout::default() };
    let manifest = Manifest {
        policy: PolicyId(0),
        extents: vec![extent],
        parts: Vec::new(),
        part_checksums: Vec::new(),
    };
    let value = object(LENGTH as usize, Body::Extents(manifest));
    let entry = Entry { order: Stamp::at_ms(1_700_000_000_000), write_id, value };
    BulkObject { key: numbered(number), entry, extents: vec![record] }
}

/// Returns bytes that look random.
fn scrambled(number: u64) -> [u8; 16] {
    let mut state = u128::from(number) + 1;
    for _ in 0..3 {
        state = state.wrapping_mul(0xda94_2042_e4dd_58b5_2360_ed05_1fc6_5da5) ^ (state >> 61);
    }
    state.to_be_bytes()
}

/// Formats and loads a device.
async fn load(path: &Path, objects: u64) {
    open(path, 0).unwrap().shutdown().await.unwrap();
    let mut load = BulkLoad::begin(path, TreeKey::default()).unwrap();
    for number in 0..objects {
        load.add(&bulk(number)).unwrap();
        if number.is_multiple_of(FREE_EVERY) {
            load.leave_free(u64::from(LENGTH)).unwrap();
        }
    }
    load.finish().unwrap();
}

async fn names(node: &StorageNode, limit: usize) -> usize {
    let request = ListRequest {
        bucket: BUCKET,
        shards: (0..4).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit,
        fold: None,
        term: Term::ANY,
    };
    node.list(DEVICE, &request).await.unwrap().entries.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loaded_device_is_a_whole_device() {
    const COUNT: u64 = 3000;
    let folder = tempfile::tempdir().unwrap();
    load(folder.path(), COUNT).await;
    let error = BulkLoad::begin(folder.path(), TreeKey::default()).unwrap_err();
    assert!(error.to_string().contains("holds extents already"), "{error}");
    // By places, by the saved map, and as after a crash.
    for opening in 0..3 {
        let node = open(folder.path(), 0).unwrap();
        let status = node.metrics().devices.remove(0).status;
        assert_eq!(status.extents, COUNT + opening);
        assert_eq!(names(&node, 10_000).await as u64, COUNT + opening);
        let key = numbered(COUNT / 2);
        let view = node.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap();
        assert_eq!(view.entry, Some(bulk(COUNT / 2).entry));
        let records = node.list_extents(DEVICE, None, 10_000).await.unwrap();
        assert_eq!(records.len() as u64, COUNT + opening);
        let name = format!("new {opening}");
        assert_eq!(put_object(&node, &name, 70_000).await.unwrap(), WriteReply::Stored);
        assert_eq!(get(&node, &name).await.unwrap().unwrap(), pattern(&name, 70_000));
        if opening == 0 {
            node.shutdown().await.unwrap();
        }
    }
}

/// Returns the anonymous resident bytes of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn prints_the_memory_of_a_device() {
    let path = std::env::var(CHILD).unwrap();
    let config = DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, path) };
    let options = NodeOptions { block_cache_bytes: 1 << 20, ..NodeOptions::default() };
    let node = StorageNode::open(vec![config], options).unwrap();
    // Blocks pass through the cache, and readers touch every table.
    for number in (0..OBJECTS[0]).step_by(997) {
        node.read(DEVICE, &numbered(number), Want::Entry, Term::ANY).await.unwrap();
    }
    assert_eq!(names(&node, 1000).await, 1000);
    // The closing saves a map only if all extents are counted.
    while node.metrics().devices[0].extents.is_counting {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("resident {}", resident_bytes());
    node.shutdown().await.unwrap();
}

/// Returns the memory of a process that opens the device and reads.
fn memory_of(device: &Path) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "bulk::prints_the_memory_of_a_device"])
        .env(CHILD, device)
        // The allocator returns freed buffers at once: what is resident is in use.
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .env("MALLOC_TRIM_THRESHOLD_", "131072")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("resident "));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[tokio::test]
async fn memory_of_a_hundredth_of_the_objects_extrapolates_to_the_stated_bound() {
    let mut measured = Vec::new();
    for objects in OBJECTS {
        let folder = tempfile::tempdir().unwrap();
        load(folder.path(), objects).await;
        // The first opening counts the extents; the others take the saved map. RocksDB may work in
        // the background of any of them.
        memory_of(folder.path());
        measured.push((0..3).map(|_| memory_of(folder.path())).min().unwrap());
    }
    let growth = measured[1].saturating_sub(measured[0]);
    eprintln!("{measured:?} bytes resident for {OBJECTS:?} objects, {growth} more");
    let more = OBJECTS[1] - OBJECTS[0];
    let stated = STATED_BYTES * more / 100_000_000;
    assert!(
        growth <= stated + NOISE_BYTES,
        "{growth} bytes for {more} objects, of {stated} stated: 10⁸ would take {} MiB",
        (growth * 100_000_000 / more) >> 20
    );
}
