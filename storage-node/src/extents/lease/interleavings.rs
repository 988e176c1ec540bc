//! Interleavings of readers, a delete and an allocation.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use martlet_protocol::ExtentId;
use shuttle::thread;

use super::super::record::BlockRun;
use super::super::space::{Needs, SpaceMap};
use super::Leases;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, explore};

const ID: ExtentId = ExtentId([7; 16]);
const RUN: BlockRun = BlockRun { volume: 1, offset: 8192, bytes: 8192 };
const OLD: u64 = 1;
const NEW: u64 = 2;

/// A volume with one record.
struct Store {
    leases: Leases,
    space: Arc<Mutex<SpaceMap>>,
    /// True while the record has a row.
    has_row: Mutex<bool>,
    /// Bytes of the record's place.
    bytes: AtomicU64,
}

impl Store {
    fn new() -> Arc<Self> {
        let space = Arc::new(Mutex::new(SpaceMap::default()));
        let leases = Leases::new(space.clone());
        let (has_row, bytes) = (Mutex::new(true), AtomicU64::new(OLD));
        Arc::new(Self { leases, space, has_row, bytes })
    }

    /// Reads the record in two pieces.
    fn read(&self) {
        let lease = self.leases.hold(ID, RUN);
        if *self.has_row.lock() {
            assert_eq!(self.bytes.load(Ordering::SeqCst), OLD);
            assert_eq!(self.bytes.load(Ordering::SeqCst), OLD, "another record's bytes were read");
        }
        drop(lease);
    }

    fn delete(&self) {
        *self.has_row.lock() = false;
        self.leases.condemn(ID, RUN);
    }

    /// Writes another record, if its space is free. Returns the bytes that it takes.
    fn write(&self) -> u64 {
        let run = self.space.lock().allocate(RUN.bytes, Needs::Any);
        run.map_or(0, |run| {
            assert_eq!(run, RUN);
            self.bytes.store(NEW, Ordering::SeqCst);
            run.bytes
        })
    }
}

#[test]
fn a_reader_never_reads_another_record() {
    explore(|| {
        let store = Store::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || (0..2).for_each(|_| store.read()))
            })
            .collect();
        let (deleted, written) = (store.clone(), store.clone());
        let deleter = thread::spawn(move || deleted.delete());
        let writer = thread::spawn(move || (0..3).map(|_| written.write()).sum::<u64>());
        for reader in readers {
            reader.join().unwrap();
        }
        deleter.join().unwrap();
        let taken = writer.join().unwrap();
        assert_eq!(store.space.lock().free_bytes() + taken, RUN.bytes, "freed once");
        assert!(store.leases.live.lock().is_empty());
    });
}

#[test]
fn a_closed_store_frees_what_its_readers_keep_once() {
    explore(|| {
        let store = Store::new();
        let reading = store.clone();
        let reader = thread::spawn(move || reading.read());
        store.delete();
        // A reader that is just ending is waited for, as a second close does.
        while store.leases.settle().is_err() {
            thread::yield_now();
        }
        assert_eq!(store.space.lock().free_bytes(), RUN.bytes);
        reader.join().unwrap();
        assert_eq!(store.space.lock().free_bytes(), RUN.bytes);
    });
}
