//! Interleavings of holders, a delete, and an extent that is written again.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;
use std::sync::Arc;

use martlet_protocol::ExtentId;
use shuttle::thread;

use super::FileLeases;
use crate::device::pool::Pool;
use crate::device::pulse::STALL_AFTER;
use crate::disk::{Caching, Disk, DiskFile, FaultyDisk};
use crate::sync::{Mutex, explore};

const ID: ExtentId = ExtentId([7; 16]);
const BYTES: u64 = 4096;

/// A store with one file extent.
struct Store {
    leases: FileLeases,
    threads: Arc<Pool>,
    disk: FaultyDisk,
    /// File of the extent, while the extent has a row.
    row: Mutex<Option<Arc<dyn DiskFile>>>,
}

impl Store {
    fn new() -> Arc<Self> {
        let disk = FaultyDisk::new(1);
        disk.create_dir(Path::new("/device")).unwrap();
        let threads = Arc::new(Pool::new("d1".to_owned(), STALL_AFTER));
        let store =
            Self { leases: FileLeases::new(threads.clone()), threads, disk, row: Mutex::new(None) };
        store.write();
        Arc::new(store)
    }

    /// Writes the extent.
    fn write(&self) {
        let file = self.disk.create(Path::new("/device/file"), Caching::Cached).unwrap();
        file.allocate(0, BYTES).unwrap();
        *self.row.lock() = Some(file);
    }

    /// Reads the extent by a descriptor, as a process with a lease does. Returns the file.
    fn read(&self) -> Option<Arc<dyn DiskFile>> {
        let lease = self.leases.hold(ID, BYTES);
        let file = self.row.lock().clone().filter(|_| lease.is_current());
        if let Some(file) = &file {
            assert_eq!(file.length().unwrap(), BYTES);
            thread::yield_now();
            assert_eq!(file.length().unwrap(), BYTES, "bytes under a lease were freed");
        }
        drop(lease);
        file
    }

    fn delete(&self) {
        let file = self.row.lock().take().expect("one caller deletes the extent");
        self.disk.unlink(Path::new("/device/file")).unwrap();
        self.leases.delete(ID, BYTES, file);
    }
}

#[test]
fn a_leased_file_keeps_its_bytes_until_its_last_lease_ends() {
    explore(|| {
        let store = Store::new();
        let first = store.row.lock().clone().expect("the extent was written");
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || (0..2).for_each(|_| drop(store.read())))
            })
            .collect();
        let deleting = store.clone();
        let deleter = thread::spawn(move || {
            deleting.delete();
            // The extent is repaired under the same id, and deleted once more.
            deleting.write();
            let second = deleting.row.lock().clone().expect("the extent was written again");
            deleting.delete();
            second
        });
        for reader in readers {
            reader.join().unwrap();
        }
        let second = deleter.join().unwrap();
        assert!(store.read().is_none());
        assert_eq!(store.leases.withheld_bytes(), 0);
        assert!(store.leases.0.live.lock().is_empty());
        let threads = store.threads.clone();
        drop(store);
        // The pool truncates the files. Its threads end with it.
        drop(threads);
        for file in [first, second] {
            while file.length().unwrap() != 0 {
                thread::yield_now();
            }
        }
    });
}
