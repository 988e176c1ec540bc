//! Tests of the store as a whole, on a disk that fails on request.

mod audit;
mod crash;
mod faults;
mod heads;
mod in_place;
mod measure;
mod open_volumes;
mod places;
mod posix;
mod release;
mod saved_space;
mod space;
mod stalled;
mod unreadable;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::extent::{ExtentRole, Layout, Owner};
use martlet_protocol::extent_sums::{ExtentSums, PolicySums};
use martlet_protocol::id::{BucketId, WriteId};
use martlet_protocol::tree::Span;
use martlet_protocol::{ErrorKind, SystemClock};

use super::table::MemoryTable;
use super::*;
use crate::disk::{DiskFault, FaultyDisk};
use crate::index::UsedPlace;

const ROOT: &str = "/device";

/// Small sizes, so that a handful of extents fills a volume.
fn options() -> ExtentOptions {
    ExtentOptions {
        volume_bytes: 512 * 1024,
        volume_step_bytes: 128 * 1024,
        open_files_max: 4,
        punch_bytes_min: 32 * 1024,
        ..ExtentOptions::default()
    }
}

/// Opens a store on a faulty disk.
pub(super) fn open(
    disk: &FaultyDisk,
    table: &MemoryTable,
) -> Result<(ExtentStore, RecoveryReport)> {
    open_with(disk, table, &options())
}

fn open_with(
    disk: &FaultyDisk,
    table: &MemoryTable,
    options: &ExtentOptions,
) -> Result<(ExtentStore, RecoveryReport)> {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::new(SystemClock));
    ExtentStore::open(Path::new(ROOT), disk, table.clone(), clock, options)
}

/// Options of an opening after an orderly closing.
fn clean(saved_space: Option<[u8; 32]>) -> ExtentOptions {
    ExtentOptions { clean: true, saved_space, ..options() }
}

fn fresh(seed: u64) -> (FaultyDisk, MemoryTable) {
    let disk = FaultyDisk::new(seed);
    let table = MemoryTable::default().powered_by(&disk, false);
    (disk, table)
}

/// Returns a table without rows, which keeps places.
fn without_rows(disk: &FaultyDisk) -> MemoryTable {
    let nothing = MemoryTable::default().powered_by(disk, false);
    Table::from(nothing.clone()).begin_places().unwrap();
    nothing
}

fn pattern(id: ExtentId, length: usize) -> Bytes {
    (0..length).map(|at| id.0[at % 16].wrapping_add(u8::try_from(at / 16 % 251).unwrap())).collect()
}

pub(super) fn new(id: ExtentId, length: Option<u64>) -> NewExtent {
    let owner = Owner {
        bucket: BucketId([1; 16]),
        key: "key".to_owned(),
        write_id: WriteId([2; 16]),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    NewExtent { id, owner, length, birth_ms: None, layout: Layout::default(), hashes: None }
}

fn body(bytes: &Bytes) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(100_000).map(|piece| Ok(bytes.slice_ref(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

pub(super) async fn put(store: &ExtentStore, id: ExtentId, length: usize) -> Result<ExtentRef> {
    let bytes = pattern(id, length);
    store.write(new(id, Some(length as u64)), 1, body(&bytes)).await
}

pub(super) async fn get(store: &ExtentStore, id: ExtentId) -> Result<Bytes> {
    let length = store.stat(id).await?.record.extent.length;
    let stream = store.read(id, 0..u64::from(length)).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    Ok(pieces.concat().into())
}

/// Folder of the copies of volume heads.
fn heads() -> std::path::PathBuf {
    Path::new(ROOT).join("volume-heads")
}

/// Returns true if a reader gets the whole extent, false if it doesn't exist. Panics otherwise.
async fn is_there(store: &ExtentStore, id: ExtentId, length: usize) -> bool {
    match get(store, id).await {
        Ok(bytes) => {
            assert!(bytes == pattern(id, length), "{id} is not what was written");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            false
        }
    }
}

/// Checks that only extents use space: every file is an extent, and every byte of a volume is used
/// by an extent or free.
async fn no_leaks(store: &ExtentStore, disk: &FaultyDisk) {
    counted(store).await;
    let records = store.list(None, 10_000).await.unwrap();
    let (mut files, mut packed_bytes) = (Vec::new(), 0);
    for record in &records {
        let location = store.stat(record.extent.id).await.unwrap().location;
        match location.offset {
            0 => files.push(location.path),
            _ => packed_bytes += record::record_bytes(location.length),
        }
    }
    files.sort();
    let is_extents =
        |path: &Path| !path.starts_with(heads()) && path.parent() != Some(Path::new(ROOT));
    let names = disk.names().into_iter().filter(|(path, _)| is_extents(path));
    let (volumes, others): (Vec<_>, Vec<_>) =
        names.partition(|(path, _)| path.extension().is_some());
    let others: Vec<_> = others.into_iter().map(|(path, _)| path).collect();
    assert_eq!(others, files, "files that are no extents, or the other way round");
    let usage = store.usage();
    let usable: u64 = volumes.iter().map(|(_, bytes)| bytes - 4096).sum();
    assert_eq!(usable, packed_bytes + usage.volume_free_bytes, "space of volumes");
    let bytes = records.iter().map(|record| u64::from(record.extent.length)).sum::<u64>();
    assert_eq!((usage.extents, usage.bytes), (records.len() as u64, bytes));
    assert_eq!(usage.quarantined, 0);
    sums_are_right(store).await;
    places_are_right(store);
}

/// Checks that the kept places are those of the rows.
fn places_are_right(store: &ExtentStore) {
    let table = &store.0.table;
    if !table.keeps_places() {
        return;
    }
    let (mut kept, mut expected) = (BTreeMap::new(), BTreeMap::new());
    let add_place = |place: UsedPlace| {
        kept.insert(place.at, place.bytes);
        Ok(())
    };
    table.each_place(add_place).unwrap();
    let add_row = |row: &[u8]| {
        expected.extend(Row::decode(row)?.used_place().map(|place| (place.at, place.bytes)));
        Ok(())
    };
    table.each(None, || {}, add_row).unwrap();
    assert_eq!(kept, expected, "places of rows");
}

/// Returns the sums of a store, once its extents are counted.
async fn counted(store: &ExtentStore) -> Vec<PolicySums> {
    for _ in 0..1000 {
        match store.sums(None, &[Span::ALL]) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            sums => return sums.unwrap(),
        }
    }
    panic!("the extents were not counted within seconds");
}

/// Checks that the sums are those of a fresh count of the listed extents (rule X7).
async fn sums_are_right(store: &ExtentStore) {
    let mut fresh = ExtentSums::default();
    for record in store.list(None, 100_000).await.unwrap() {
        fresh.add(record.extent.id, record.layout);
    }
    let mut kept = counted(store).await;
    kept.retain(|of| !of.sums.is_empty());
    assert_eq!(kept, fresh.all());
}
