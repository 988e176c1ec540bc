//! Places of a device that may hold records without a row. An opening after a crash inspects these
//! places alone.
//!
//! ```text
//! unsettled   0                                               → format (1)
//! unsettled   1 | volume (4, big-endian)                      → nothing
//! unsettled   2 | volume (4, big-endian) | offset (8, big-endian) → nothing
//! ```
//!
//! The first row states that all other places are settled. A new index lacks it, so an opening
//! inspects everything. The second kind names volumes into which records are written, the third
//! kind headers of deleted records. A name is durable before its place changes. Its removal isn't,
//! because a place that is inspected again does no harm.
//!
//! Older versions know no `unsettled` and don't open such an index: they would write records
//! without naming their volumes.

use std::collections::BTreeSet;

use martlet_protocol::{Error, Result};
use rocksdb::WriteBatch;

use super::database::Database;
use super::family::Family;

const SETTLED: u8 = 0;
const VOLUME: u8 = 1;
const HEADER: u8 = 2;
const FORMAT: u8 = 1;
const VOLUME_KEY_BYTES: usize = 1 + 4;
const HEADER_KEY_BYTES: usize = VOLUME_KEY_BYTES + 8;

/// Location of a packed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Number of the volume.
    pub volume: u32,
    /// Offset of the record's header in the volume.
    pub offset: u64,
}

/// Places that may hold records without a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsettledPlaces {
    /// Volumes into which records were written.
    pub volumes: BTreeSet<u32>,
    /// Headers of deleted records that may not be zero yet.
    pub headers: BTreeSet<RecordPlace>,
}

impl UnsettledPlaces {
    /// Returns true if no place is unsettled.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.headers.is_empty()
    }
}

/// Returns the unsettled places; none if any place may be unsettled.
pub(super) fn load(database: &Database) -> Result<Option<UnsettledPlaces>> {
    match database.get(Family::Unsettled, &[SETTLED])?.as_deref() {
        None => return Ok(None),
        Some([FORMAT]) => {}
        Some(_) => return Err(malformed()),
    }
    let mut places = UnsettledPlaces::default();
    database.scan(Family::Unsettled, &[VOLUME], &[HEADER + 1], usize::MAX, |key, _| {
        let volume = key.get(1..).and_then(<[u8]>::first_chunk).ok_or_else(malformed)?;
        let volume = u32::from_be_bytes(*volume);
        match key.len() {
            VOLUME_KEY_BYTES => {
                places.volumes.insert(volume);
            }
            HEADER_KEY_BYTES => {
                let offset = key.last_chunk().ok_or_else(malformed)?;
                let offset = u64::from_be_bytes(*offset);
                places.headers.insert(RecordPlace { volume, offset });
            }
            _ => return Err(malformed()),
        }
        Ok(())
    })?;
    Ok(Some(places))
}

/// Records, durably, that all places are settled. All rows must be durable.
pub(super) fn settle_all(database: &Database) -> Result<()> {
    let family = database.family(Family::Unsettled);
    let mut batch = WriteBatch::default();
    batch.delete_range_cf(family, &[VOLUME][..], &[HEADER + 1][..]);
    batch.put_cf(family, [SETTLED], [FORMAT]);
    write_durably(database, batch)
}

/// Adds to a batch that any place may be unsettled.
pub(super) fn forget_all(database: &Database, batch: &mut WriteBatch) {
    batch.delete_range_cf(database.family(Family::Unsettled), &[SETTLED][..], &[HEADER + 1][..]);
}

/// Writes without the log, for which RocksDB would allocate space on a device that holds only
/// extents, and flushes.
fn write_durably(database: &Database, batch: WriteBatch) -> Result<()> {
    database.write_unlogged(batch)?;
    database.flush_family(Family::Unsettled)
}

/// Names a volume, durably, before a record is written into it.
pub(super) fn open_volume(database: &Database, volume: u32) -> Result<()> {
    let mut batch = WriteBatch::default();
    batch.put_cf(database.family(Family::Unsettled), volume_key(volume), []);
    write_durably(database, batch)
}

/// Removes the names of volumes whose records all have a durable row.
pub(super) fn close_volumes(database: &Database, volumes: &[u32]) -> Result<()> {
    let mut batch = WriteBatch::default();
    for volume in volumes {
        batch.delete_cf(database.family(Family::Unsettled), volume_key(*volume));
    }
    database.write_unlogged(batch)
}

/// Adds the names of headers to a batch that removes the rows of their records.
pub(super) fn name_headers(database: &Database, batch: &mut WriteBatch, headers: &[RecordPlace]) {
    for place in headers {
        batch.put_cf(database.family(Family::Unsettled), header_key(*place), []);
    }
}

/// Removes the names of headers that are durably zero.
pub(super) fn forget_headers(database: &Database, headers: &[RecordPlace]) -> Result<()> {
    let mut batch = WriteBatch::default();
    for place in headers {
        batch.delete_cf(database.family(Family::Unsettled), header_key(*place));
    }
    database.write_unlogged(batch)
}

fn volume_key(volume: u32) -> [u8; VOLUME_KEY_BYTES] {
    let mut key = [VOLUME; VOLUME_KEY_BYTES];
    key[1..].copy_from_slice(&volume.to_be_bytes());
    key
}

fn header_key(place: RecordPlace) -> [u8; HEADER_KEY_BYTES] {
    let mut key = [HEADER; HEADER_KEY_BYTES];
    key[1..VOLUME_KEY_BYTES].copy_from_slice(&place.volume.to_be_bytes());
    key[VOLUME_KEY_BYTES..].copy_from_slice(&place.offset.to_be_bytes());
    key
}

fn malformed() -> Error {
    Error::corrupt("the name of an unsettled place is malformed")
}

#[cfg(test)]
mod tests {
    use super::super::options::Caches;
    use super::*;

    fn open(folder: &std::path::Path) -> Database {
        Database::open(folder, &Caches::default()).unwrap()
    }

    #[test]
    fn names_survive_a_crash_until_everything_is_settled() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path());
        assert_eq!(load(&database).unwrap(), None, "a new index knows of nothing");
        settle_all(&database).unwrap();
        drop(database);
        let database = open(folder.path());
        assert_eq!(load(&database).unwrap(), Some(UnsettledPlaces::default()));
        open_volume(&database, 7).unwrap();
        open_volume(&database, 0x0200_0000).unwrap();
        let places = [1, 300].map(|volume| RecordPlace { volume, offset: 4096 });
        let mut batch = WriteBatch::default();
        name_headers(&database, &mut batch, &places);
        database.write_synced(batch).unwrap();
        // Without an orderly closing, as after a crash.
        drop(database);
        let database = open(folder.path());
        let found = load(&database).unwrap().unwrap();
        assert_eq!(found.volumes, [7, 0x0200_0000].into());
        assert_eq!(found.headers, places.into());
        close_volumes(&database, &[7]).unwrap();
        forget_headers(&database, &places[1..]).unwrap();
        let found = load(&database).unwrap().unwrap();
        assert_eq!((found.volumes.len(), found.headers.len()), (1, 1));
        settle_all(&database).unwrap();
        drop(database);
        assert_eq!(load(&open(folder.path())).unwrap(), Some(UnsettledPlaces::default()));
    }
}
