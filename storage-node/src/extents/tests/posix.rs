//! The store on real files: extents can be read in place.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::*;
use crate::disk::PosixDisk;
use crate::index::ExtentTable;

pub(super) fn open_real(folder: &Path) -> (ExtentStore, RecoveryReport) {
    let table = ExtentTable::open(&folder.join("index")).unwrap();
    let clock = Arc::new(SystemClock);
    ExtentStore::open(folder, Arc::new(PosixDisk), table, clock, &ExtentOptions::default()).unwrap()
}

/// Reads a location with direct I/O, as a reader on the host would.
fn read_direct(location: &ExtentLocation) -> Vec<u8> {
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&location.path).unwrap();
    let length = usize::try_from(location.length).unwrap();
    let padded = length.next_multiple_of(4096);
    let mut memory = vec![0; padded + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + padded];
    file.read_exact_at(buffer, location.offset).unwrap();
    assert!(buffer[length..].iter().all(|byte| *byte == 0), "zeros up to 4 KiB");
    buffer[..length].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extents_are_raw_and_aligned_at_their_stated_location() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    for length in [1, 4095, 4096, 4097, 65_537, 1 << 20, (1 << 20) + 1, 5_000_000, 64 << 20] {
        let id = ExtentId::random();
        put(&store, id, length).await.unwrap();
        let location = store.stat(id).await.unwrap().location;
        assert!(location.offset.is_multiple_of(4096));
        assert!(read_direct(&location) == pattern(id, length), "{length} bytes");
        if length > 1 << 20 {
            assert_eq!(location.offset, 0);
            let mut file = Vec::new();
            OpenOptions::new()
                .read(true)
                .open(&location.path)
                .unwrap()
                .read_to_end(&mut file)
                .unwrap();
            assert!(file.len() - length < 4096 + 4 * 4096, "{} bytes", file.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_its_table_finds_every_extent_again() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = [1, 4096, 70_000, 1 << 20, 3_000_000, 64 << 20];
    let mut ids = Vec::new();
    let (store, _) = open_real(folder.path());
    for length in lengths {
        let id = ExtentId::random();
        put(&store, id, length).await.unwrap();
        ids.push(id);
    }
    let usage = store.usage();
    store.close();
    drop(store);
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    let (store, report) = open_real(folder.path());
    assert_eq!((report.extents, report.rediscovered), (Some(6), 6), "{report:?}");
    for (id, length) in ids.iter().zip(lengths) {
        assert!(is_there(&store, *id, length).await, "{length} bytes");
    }
    assert_eq!(store.usage().volume_free_bytes, usage.volume_free_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    for declared in [None, Some(64 << 20)] {
        let pieces = [Ok(Bytes::from(vec![1; 3_000_000])), Err(Error::invalid("it broke off"))];
        let body = futures::stream::iter(pieces).boxed();
        let id = ExtentId::random();
        let error = store.write(new(id, declared), 1, body).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!is_there(&store, id, 1).await);
    }
    assert!(store.close(), "everything is in its place");
    let extents = folder.path().join("extents");
    for folder in std::fs::read_dir(extents).unwrap() {
        assert_eq!(std::fs::read_dir(folder.unwrap().path()).unwrap().count(), 0);
    }
}
