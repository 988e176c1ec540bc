//! A sector of an index table that the disk can't read, met by compactions.
//!
//! The table's footer stays readable: the index opens each time, and each compaction fails. The
//! test runs itself once more with `bad_sector.c` preloaded, because RocksDB reads files by itself.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{EntryWrite, WriteReply};
use martlet_protocol::entry::{Attributes, Body, ETag, Entry, Object, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{BucketId, RegisterKey, Stamp, Term, WriteId};

use super::*;

const NAME: &str = "device::tests::bad_sector::a_table_that_no_compaction_can_read_is_damage_where_there_are_peers";
/// Folder of the inode numbers of damaged files.
const BAD_SECTORS: &str = "MARTLET_BAD_SECTORS";
/// Tables that are damaged: one fewer than make RocksDB compact level 0.
const TABLES: usize = 3;
/// Objects in a table, and the bytes of each: below the size from which RocksDB uses blob files.
const OBJECTS: usize = 800;
const OBJECT_BYTES: usize = 1000;
/// Time on the device's clock: three failures a minute apart, and their back-off.
const WATCHED_SECONDS: usize = 200;
const STEP_SECONDS: usize = 20;
/// Size of the tables of inline bytes; those of the other families are far smaller.
const TABLE_BYTES_MIN: u64 = 600_000;

/// A write of random inline bytes, which no compression makes shorter.
fn inline(name: &str) -> EntryWrite {
    let words = || martlet_protocol::id::random_bytes::<16>();
    let bytes: Bytes = (0..OBJECT_BYTES / 16).flat_map(|_| words()).collect();
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    let object = Object {
        size: bytes.len() as u64,
        etag: ETag::Md5([7; 16]),
        modified_ms: START_MS,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Inline { crc32c: u32::try_from(crc).unwrap() },
        version: None,
    };
    let value = Value::Object(Box::new(object));
    EntryWrite {
        key: RegisterKey::object(BucketId([5; 16]), 4, name),
        entry: Entry { order: Stamp::at_ms(START_MS), write_id: WriteId::random(), value },
        inline: Some(bytes),
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

/// Writes the objects of one table, which closing or recovery makes a file of level 0.
async fn write(device: &Device, table: usize) {
    device.open();
    let opened = device.online().unwrap();
    opened.index.set_voting(true).await.unwrap();
    // The device has the fences of its peers.
    opened.index.set_joined(1).await.unwrap();
    let names = (0..OBJECTS).map(|at| format!("{table}/{at}"));
    let writes = names.map(|name| opened.index.write(inline(&name))).collect::<Vec<_>>();
    for reply in join_all(writes).await {
        assert_eq!(reply.unwrap(), WriteReply::Stored);
    }
}

/// Makes the first sector of every large table unreadable; returns their number.
fn damage(index: &Path, bad: &Path) -> usize {
    let files = fs::read_dir(index).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|it| it == "sst"));
    let inodes = tables.map(|path| fs::metadata(path).unwrap());
    let large = inodes.filter(|table| table.len() > TABLE_BYTES_MIN);
    large.map(|table| fs::write(bad.join(table.ino().to_string()), "").unwrap()).count()
}

async fn meets_a_bad_sector(bad: &Path, peers: bool) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START_MS));
    let device = device_of(
        folder.path(),
        clock.clone(),
        InitialState { peers, introduced: false, levels: [2, 2] },
    );
    for table in 0..TABLES {
        write(&device, table).await;
        device.close().unwrap();
    }
    assert_eq!(damage(&folder.path().join("index"), bad), TABLES);
    write(&device, TABLES).await;
    device.leave();
    device.open();
    let before = device.status().identity;
    assert_eq!(device.offline(), None, "the footers are readable");
    let mut renewed_after = None;
    for seconds in (0..WATCHED_SECONDS).step_by(STEP_SECONDS) {
        device.tend();
        if device.status().identity != before {
            renewed_after = Some(seconds);
            break;
        }
        clock.advance_ms(1000 * STEP_SECONDS as u64);
        // Time for a compaction to fail.
        thread::park_timeout(MOMENT / 5);
    }
    let aside = fs::read_dir(folder.path().join("quarantine")).map_or(0, Iterator::count);
    println!("peers {peers}: begun anew after {renewed_after:?} s, {aside} in quarantine");
    assert!(device.metrics().reopened >= 3, "no compaction met the sector");
    if peers {
        assert!(
            (120..WATCHED_SECONDS).contains(&renewed_after.unwrap()),
            "after three failures, minutes apart"
        );
        assert_eq!(aside, 1, "the damaged index is kept");
        assert_eq!(device.failure(&device.online().unwrap()), None, "the new index compacts");
    } else {
        assert_eq!((renewed_after, aside), (None, 0), "the only copy is left alone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_no_compaction_can_read_is_damage_where_there_are_peers() {
    if let Some(bad) = env::var_os(BAD_SECTORS) {
        for peers in [true, false] {
            let bad = Path::new(&bad);
            meets_a_bad_sector(bad, peers).await;
            // Later files may get the inode numbers of these.
            for mark in fs::read_dir(bad).unwrap() {
                fs::remove_file(mark.unwrap().path()).unwrap();
            }
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/device/tests/bad_sector.c");
    let library = folder.path().join("bad_sector.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .args([source, "-ldl"])
        .status();
    assert!(compiled.unwrap().success(), "cc does not compile {source}");
    let ran = Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env(BAD_SECTORS, folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && printed.contains("1 passed"), "see above");
}
