//! The extents of a device by id.
//!
//! ```text
//! extents   id (16)   → row, as the extent store encodes it
//! ```
//!
//! Behind the rows lie their [`places`](super::places).
//!
//! Rows are a cache of the extents' own descriptions. They are written without WAL, and rebuilt
//! after a crash. The marks of deleted extents ([`marks`](super::marks)) exist only in the index:
//! they are synced, in one batch with the removal. Every call except [`ExtentTable::get_now`] may
//! touch the disk, so none may run on a thread that serves connections.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::opening::Uuid;
use martlet_protocol::{Error, ExtentId, Result};
use rocksdb::WriteBatch;

use super::database::{CachedRead, Database};
use super::family::Family;
use super::marks::Marks;
use super::opening_row::{self, IndexAge};
use super::options::Caches;
use super::places::{self, DiskPlace, UsedPlace};
use super::unsettled::{self, RecordPlace, UnsettledPlaces};

/// A handle on the table; clones share its state.
#[derive(Clone)]
pub struct ExtentTable {
    database: Arc<Database>,
    marks: Arc<Marks>,
    /// True if places change with their rows.
    keeps_places: Arc<AtomicBool>,
}

/// Row of an extent, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRow {
    /// Id of the extent.
    pub id: ExtentId,
    /// The row.
    pub row: Vec<u8>,
    /// Disk space that the extent uses; none in quarantine.
    pub place: Option<UsedPlace>,
}

impl std::fmt::Debug for ExtentTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExtentTable")
    }
}

impl ExtentTable {
    pub(crate) fn new(database: Arc<Database>) -> Result<Self> {
        let marks = Arc::new(Marks::open(database.clone())?);
        let are_complete = places::are_complete(&database);
        let are_complete = are_complete.inspect_err(|error| database.note_damage(error))?;
        let keeps_places = Arc::new(AtomicBool::new(are_complete));
        Ok(Self { database, marks, keeps_places })
    }

    /// Opens a table in an index of its own, for a standalone store.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::new(Arc::new(Database::open(folder, &Caches::default())?))
    }

    /// Compares the index with the number `last` in the file beside it. Blocks.
    pub(crate) fn age(&self, last: Uuid) -> Result<IndexAge> {
        opening_row::age(&self.database, last)
    }

    /// Forgets, durably, rows and places of all extents, and that places are settled. Delete marks
    /// stay. Blocks.
    pub(crate) fn forget_all(&self) -> Result<()> {
        self.keeps_places.store(false, Ordering::Release);
        opening_row::forget_extents(&self.database)
    }

    /// Stores the number of an opening, durably, with that in the file. Blocks.
    pub(crate) fn note_opening(&self, last: Uuid, number: Uuid) -> Result<()> {
        opening_row::note(&self.database, last, number, self.keeps_places())
    }

    /// Returns the row of an extent.
    pub fn get(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        self.database.get(Family::Extents, &id.0)
    }

    /// Returns the row of an extent, if it exists and is in memory.
    pub fn get_now(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        match self.database.get_cached(Family::Extents, &id.0)? {
            CachedRead::Known(row) => Ok(row.map(|row| row.to_vec())),
            CachedRead::OnDisk => Ok(None),
        }
    }

    /// Returns true if a look-up of the id, row and mark, needs no disk.
    pub fn is_cached(&self, id: &ExtentId) -> Result<bool> {
        let row = self.database.get_cached(Family::Extents, &id.0)?;
        Ok(matches!(row, CachedRead::Known(_)) && self.marks.is_cached(id)?)
    }

    /// Writes rows of extents that had none, or that replace extents in quarantine, in one batch.
    pub fn put(&self, rows: &[PlacedRow]) -> Result<()> {
        let family = self.database.family(Family::Extents);
        let mut batch = WriteBatch::default();
        for PlacedRow { id, row, place } in rows {
            batch.put_cf(family, id.0, row);
            if let Some(place) = place.as_ref().filter(|_| self.keeps_places()) {
                places::put(&self.database, &mut batch, place)?;
            }
        }
        self.database.write_unlogged(batch)
    }

    /// Replaces the row of an extent by that of an extent in quarantine, which has left its place. The
    /// change is durable if the place was a record's: else its blocks would have a row after a crash, and
    /// a name in quarantine.
    pub fn set_aside(&self, id: &ExtentId, row: &[u8], left: Option<DiskPlace>) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.put_cf(self.database.family(Family::Extents), id.0, row);
        self.leave(&mut batch, left.as_slice())?;
        match left {
            Some(DiskPlace::Record(_)) => self.database.write_synced(batch),
            Some(DiskPlace::File(_)) | None => self.database.write_unlogged(batch),
        }
    }

    /// Removes rows and marks their extents as deleted at `at_ms`, durably. After it the places
    /// `left` may be reused (rule X6): those of all rows that are removed. Names the headers among
    /// them.
    pub fn remove_marked(&self, ids: &[ExtentId], left: &[DiskPlace], at_ms: u64) -> Result<()> {
        let mut batch = self.removal(ids, left)?;
        self.marks.mark(&mut batch, ids, at_ms);
        self.database.write_synced(batch)
    }

    /// Removes rows as [`Self::remove_marked`], without marks.
    pub fn remove(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
        self.database.write_synced(self.removal(ids, left)?)
    }

    fn removal(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<WriteBatch> {
        let extents = self.database.family(Family::Extents);
        let mut batch = WriteBatch::default();
        for id in ids {
            batch.delete_cf(extents, id.0);
        }
        self.leave(&mut batch, left)?;
        let headers: Vec<RecordPlace> = left.iter().filter_map(DiskPlace::header).collect();
        unsettled::name_headers(&self.database, &mut batch, &headers);
        Ok(batch)
    }

    fn leave(&self, batch: &mut WriteBatch, left: &[DiskPlace]) -> Result<()> {
        if !self.keeps_places() {
            return Ok(());
        }
        left.iter().try_for_each(|place| places::remove(&self.database, batch, place))
    }

    /// Returns true if an extent is marked as deleted.
    pub fn is_marked(&self, id: &ExtentId) -> Result<bool> {
        self.marks.is_marked(id)
    }

    /// Forgets, durably, the marks of periods that ended before `before_ms`.
    pub fn forget_marks(&self, before_ms: u64) -> Result<()> {
        self.marks.forget(before_ms)
    }

    /// Returns up to `limit` rows of ids above `after`, in the order of ids.
    pub fn list(&self, after: Option<ExtentId>, limit: usize) -> Result<Vec<(ExtentId, Vec<u8>)>> {
        let mut lower = after.map_or_else(Vec::new, |id| id.0.to_vec());
        if after.is_some() {
            lower.push(0);
        }
        let mut rows = Vec::new();
        self.database.scan(Family::Extents, &lower, &[0xff; 17], limit, |key, row| {
            rows.push((extent_id(key)?, row.to_vec()));
            Ok(())
        })?;
        Ok(rows)
    }

    /// Calls `visit` with every row, or with every row whose id begins with the byte `first`, in the
    /// order of ids. One row is in memory at a time. The rows are those at the call of `begun`.
    pub fn each(
        &self,
        first: Option<u8>,
        begun: impl FnOnce(),
        mut visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let upper = first.and_then(|first| first.checked_add(1));
        let upper = upper.map_or_else(|| vec![0xff; 17], |upper| vec![upper]);
        let mut rows = self.database.iterate_all(Family::Extents, &upper);
        begun();
        rows.seek(first.as_slice());
        while let Some(row) = rows.value() {
            visit(row)?;
            rows.next();
        }
        self.database.ended_well(&rows)
    }

    /// Removes the rows of extents that the disk doesn't have, and the places `left`. Marks stay.
    pub fn forget(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
        let extents = self.database.family(Family::Extents);
        let mut batch = WriteBatch::default();
        for id in ids {
            batch.delete_cf(extents, id.0);
        }
        self.leave(&mut batch, left)?;
        self.database.write_unlogged(batch)
    }

    /// Returns true if each row has its place, and changes with its place.
    pub fn keeps_places(&self) -> bool {
        self.keeps_places.load(Ordering::Acquire)
    }

    /// Forgets all places, durably, and keeps those of rows that change from now on. Blocks.
    pub fn begin_places(&self) -> Result<()> {
        self.keeps_places.store(false, Ordering::Release);
        places::forget_all(&self.database)?;
        self.keeps_places.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps no places from now on: the next opening reads all rows.
    pub fn end_places(&self) {
        self.keeps_places.store(false, Ordering::Release);
    }

    /// Writes the places of rows that are there.
    pub fn put_places(&self, added: &[UsedPlace]) -> Result<()> {
        let mut batch = WriteBatch::default();
        added.iter().try_for_each(|place| places::put(&self.database, &mut batch, place))?;
        self.database.write_unlogged(batch)
    }

    /// Records, durably, that each row has its place. Blocks.
    pub fn complete_places(&self) -> Result<()> {
        places::complete(&self.database)
    }

    /// Records, durably, that the next opening must read all rows. Blocks.
    pub fn distrust_places(&self) -> Result<()> {
        places::distrust(&self.database)
    }

    /// Calls `visit` with each place: records in the order of volumes and offsets, then files. `Corrupt`
    /// if a place is malformed.
    pub fn each_place(&self, visit: impl FnMut(UsedPlace) -> Result<()>) -> Result<()> {
        places::each(&self.database, visit)
    }

    /// Calls `visit` with the id of each file extent that begins with the byte `first`, in the order
    /// of ids.
    pub fn each_file(&self, first: u8, visit: impl FnMut(ExtentId) -> Result<()>) -> Result<()> {
        places::each_file(&self.database, first, visit)
    }

    /// Returns the places that may hold records without a row; none if any place may.
    pub fn unsettled(&self) -> Result<Option<UnsettledPlaces>> {
        unsettled::load(&self.database).inspect_err(|error| self.database.note_damage(error))
    }

    /// Makes all rows durable, then records that no place is unsettled.
    pub fn settle_all(&self) -> Result<()> {
        self.flush_rows()?;
        unsettled::settle_all(&self.database)
    }

    /// Names a volume, durably, before a record is written into it.
    pub fn open_volume(&self, volume: u32) -> Result<()> {
        unsettled::open_volume(&self.database, volume)
    }

    /// Removes the names of volumes whose records all have a durable row.
    pub fn close_volumes(&self, volumes: &[u32]) -> Result<()> {
        unsettled::close_volumes(&self.database, volumes)
    }

    /// Removes the names of headers that are durably zero.
    pub fn forget_headers(&self, headers: &[RecordPlace]) -> Result<()> {
        unsettled::forget_headers(&self.database, headers)
    }

    /// Makes all rows durable.
    pub fn flush_rows(&self) -> Result<()> {
        self.database.flush_family(Family::Extents)
    }

    /// Begins a flush of rows that were written without a log, without waiting for its end.
    pub fn flush(&self) -> Result<()> {
        self.database.begin_flush(Family::Extents)
    }
}

fn extent_id(bytes: &[u8]) -> Result<ExtentId> {
    let id = bytes.try_into().map_err(|_| Error::corrupt("an extent's key is malformed"))?;
    Ok(ExtentId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> ExtentId {
        ExtentId([byte; 16])
    }

    fn row(id: ExtentId, row: &[u8]) -> PlacedRow {
        PlacedRow { id, row: row.to_vec(), place: None }
    }

    #[test]
    fn rows_are_listed_by_id_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let table = ExtentTable::open(folder.path()).unwrap();
        table.put(&[row(id(2), b"two")]).unwrap();
        table.put(&[row(id(1), b"one"), row(id(0xff), b"last")]).unwrap();
        assert_eq!(table.get(&id(2)).unwrap().unwrap(), b"two");
        let ids = |rows: Vec<(ExtentId, Vec<u8>)>| {
            rows.into_iter().map(|(id, _)| id.0[0]).collect::<Vec<_>>()
        };
        assert_eq!(ids(table.list(None, 10).unwrap()), [1, 2, 0xff]);
        assert_eq!(ids(table.list(Some(id(1)), 1).unwrap()), [2]);
        assert_eq!(ids(table.list(Some(id(0xff)), 1).unwrap()), [0; 0]);
        table.forget(&[id(1), id(0xff)], &[]).unwrap();
        assert_eq!(ids(table.list(None, 10).unwrap()), [2]);
        table.flush().unwrap();
        assert_eq!(ids(table.list(None, 10).unwrap()), [2]);
    }

    #[test]
    fn a_walk_visits_the_rows_of_each_first_byte_once_and_leaves_the_cache_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = || ExtentTable::open(folder.path()).unwrap();
        let firsts = [0, 1, 7, 0xfe, 0xff];
        let id = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            let first = firsts[usize::try_from(number).unwrap() % firsts.len()];
            ExtentId(std::array::from_fn(|at| [first, high, low, 0xff][at.min(3)]))
        };
        let mut rows: Vec<_> = (0..20_000).map(|it| row(id(it), &id(it).0.repeat(8))).collect();
        let table = open();
        table.put(&rows).unwrap();
        table.flush_rows().unwrap();
        drop(table);
        rows.sort_by_key(|row| row.id);
        let table = open();
        let cached = table.database.cached_bytes(Family::Extents);
        let visited = |first| {
            let mut visited = Vec::new();
            let collect = |row: &[u8]| {
                visited.push(row.to_vec());
                Ok(())
            };
            table.each(first, || {}, collect).unwrap();
            visited
        };
        let all: Vec<_> = rows.iter().map(|row| row.row.clone()).collect();
        assert_eq!(visited(None), all);
        let by_first: Vec<_> = (0..=u8::MAX).flat_map(|first| visited(Some(first))).collect();
        assert_eq!(by_first, all);
        let more = table.database.cached_bytes(Family::Extents) - cached;
        assert!(more < 200_000, "{more} bytes of {} rows stay cached", rows.len());
        let failed = table.each(None, || {}, |_| Err(Error::corrupt("a row"))).unwrap_err();
        assert_eq!(failed.kind(), martlet_protocol::ErrorKind::Corrupt);
    }

    #[test]
    fn a_delete_leaves_a_mark_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let table = ExtentTable::open(folder.path()).unwrap();
        table.put(&[row(id(1), b"one")]).unwrap();
        table.remove_marked(&[id(1), id(3)], &[], 100).unwrap();
        assert!(table.get(&id(1)).unwrap().is_none());
        table.put(&[row(id(7), b"seven")]).unwrap();
        table.remove(&[id(7), id(8)], &[]).unwrap();
        assert!(table.get(&id(7)).unwrap().is_none() && !table.is_marked(&id(7)).unwrap());
        assert!(table.is_marked(&id(3)).unwrap() && !table.is_marked(&id(4)).unwrap());
        table.forget_marks(100).unwrap();
        assert!(table.is_marked(&id(1)).unwrap());
        table.forget_marks(u64::MAX).unwrap();
        assert!(!table.is_marked(&id(1)).unwrap());
    }

    #[test]
    fn places_change_with_their_rows_and_are_kept_from_a_count_on() {
        let folder = tempfile::tempdir().unwrap();
        let open = || ExtentTable::open(folder.path()).unwrap();
        let record = |block: u64| {
            let at = RecordPlace { volume: 3, offset: block * 4096 };
            Some(UsedPlace { at: DiskPlace::Record(at), bytes: 8192 })
        };
        let file = |byte| Some(UsedPlace { at: DiskPlace::File(id(byte)), bytes: 1 << 22 });
        let left = |place: Option<UsedPlace>| [place.unwrap().at];
        let placed = |byte, place| PlacedRow { place, ..row(id(byte), b"row") };
        let places = |table: &ExtentTable| {
            let (mut blocks, mut files) = (Vec::new(), Vec::new());
            let add = |place: UsedPlace| {
                match place.at {
                    DiskPlace::Record(at) => {
                        blocks.push((at.volume, at.offset / 4096, place.bytes));
                    }
                    DiskPlace::File(id) => files.push((id.0[0], place.bytes)),
                }
                Ok(())
            };
            table.each_place(add).unwrap();
            let blocks: Vec<_> =
                blocks.iter().map(|it| (it.1, it.0 == 3 && it.2 == 8192)).collect();
            assert!(blocks.iter().all(|it| it.1) && files.iter().all(|it| it.1 == 1 << 22));
            let numbers: Vec<u64> = blocks.into_iter().map(|it| it.0).collect();
            (numbers, files.into_iter().map(|it| it.0).collect::<Vec<u8>>())
        };
        let table = open();
        assert!(!table.keeps_places());
        table.put(&[placed(1, record(1))]).unwrap();
        assert_eq!(places(&table), (vec![], vec![]), "an index that keeps no places");
        table.note_opening(Uuid([0; 16]), Uuid([1; 16])).unwrap();
        table.begin_places().unwrap();
        table.put_places(record(1).as_slice()).unwrap();
        table.put(&[placed(2, record(3)), placed(4, file(4)), placed(5, file(5))]).unwrap();
        table.complete_places().unwrap();
        drop(table);
        let table = open();
        assert!(table.keeps_places());
        assert_eq!(places(&table), (vec![1, 3], vec![4, 5]));
        table.set_aside(&id(2), b"aside", Some(left(record(3))[0])).unwrap();
        table.remove_marked(&[id(1)], &left(record(1)), 7).unwrap();
        table.remove(&[id(4)], &left(file(4))).unwrap();
        table.forget(&[id(5)], &left(file(5))).unwrap();
        assert_eq!(places(&table), (vec![], vec![]));
        let headers = |table: &ExtentTable| unsettled::load(&table.database).unwrap();
        assert_eq!(headers(&table), None, "an index that knows of no settled places");
        table.put(&[placed(6, record(9))]).unwrap();
        table.flush_rows().unwrap();
        // A crash repeats what was logged, and loses what was neither logged nor flushed.
        table.put(&[placed(7, record(20))]).unwrap();
        table.remove(&[id(6), id(7)], &[left(record(9)), left(record(20))].concat()).unwrap();
        table.put(&[placed(8, record(9))]).unwrap();
        drop(table);
        let table = open();
        assert_eq!(places(&table), (vec![], vec![]));
        assert!(table.get(&id(6)).unwrap().is_none() && table.get(&id(8)).unwrap().is_none());
        table.distrust_places().unwrap();
        drop(table);
        assert!(!open().keeps_places());
        open().forget_all().unwrap();
        assert_eq!(open().get(&id(2)).unwrap(), None);
    }
}
