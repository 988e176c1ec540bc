//! Wraps the calls of RocksDB that the index needs, and converts its errors.
//!
//! RocksDB verifies every block that it reads, so corrupt data is never served: the caller receives
//! an error. The error is also recorded as damage of the index. The device is then opened again,
//! and decides there about its index (rule G1).

use std::path::Path;

use martlet_protocol::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, DBRawIterator, FlushOptions,
    ReadOptions, ReadTier, Snapshot, WriteBatch, WriteOptions,
};

use super::background::BackgroundThreads;
use super::family::Family;
use super::log_tail;
use super::options::{self, Caches};

/// Bytes that a walk over all rows reads at a time: a disk that turns then spends little time on
/// seeks.
const WALK_AHEAD_BYTES: usize = 2 * 1024 * 1024;

/// An open index.
pub(crate) struct Database {
    db: DB,
    synced: WriteOptions,
    unlogged: WriteOptions,
    cached: ReadOptions,
    anywhere: ReadOptions,
    fault: Mutex<Option<String>>,
    damage: Mutex<Option<String>>,
    /// Last read error of the disk.
    unreadable: Mutex<Option<String>>,
    // After the database: dropped once its background work has ended.
    _background: BackgroundThreads,
}

/// Result of a read that may not wait.
pub(crate) enum CachedRead<T> {
    /// The value, from memory.
    Known(T),
    /// The read needs the disk.
    OnDisk,
}

impl Database {
    /// Opens or creates the index in `folder`. Refuses a log that lost a synced write.
    pub(crate) fn open(folder: &Path, caches: &Caches) -> Result<Self> {
        log_tail::repair(folder)?;
        let background = BackgroundThreads::take()?;
        let families = Family::ALL.map(|family| {
            ColumnFamilyDescriptor::new(family.name(), options::family(family, caches))
        });
        let db = DB::open_cf_descriptors(&options::database(caches), folder, families).map_err(
            |error| {
                convert_error(&error, &format!("the index in {} does not open", folder.display()))
            },
        )?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        let mut cached = ReadOptions::default();
        cached.set_read_tier(ReadTier::BlockCache);
        let anywhere = ReadOptions::default();
        let (fault, damage, unreadable) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self {
            db,
            synced,
            unlogged,
            cached,
            anywhere,
            fault,
            damage,
            unreadable,
            _background: background,
        })
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("every family is opened with the index")
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(|value| value.to_vec()))
    }

    /// Returns a value without a copy.
    pub(crate) fn get_pinned(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>> {
        self.db
            .get_pinned_cf_opt(self.family(family), key, &self.anywhere)
            .map_err(|error| self.read_failed(&error))
    }

    /// Returns a value that is in memory: for threads that may not wait for a disk.
    pub(crate) fn get_cached(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<CachedRead<Option<DBPinnableSlice<'_>>>> {
        match self.db.get_pinned_cf_opt(self.family(family), key, &self.cached) {
            Ok(value) => Ok(CachedRead::Known(value)),
            Err(error) if error.kind() == rocksdb::ErrorKind::Incomplete => Ok(CachedRead::OnDisk),
            Err(error) => Err(self.read_failed(&error)),
        }
    }

    /// Returns two values from one snapshot.
    pub(crate) fn get_together(
        &self,
        families: [Family; 2],
        key: &[u8],
    ) -> Result<[Option<Vec<u8>>; 2]> {
        let snapshot = self.snapshot();
        let get = |family| Ok(self.get_at(&snapshot, family, key)?.map(|row| row.to_vec()));
        Ok([get(families[0])?, get(families[1])?])
    }

    /// Visits at most `limit` rows of `[lower, upper)`.
    pub(crate) fn scan(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rows = self.iterate(family, upper);
        rows.seek(lower);
        for _ in 0..limit {
            let Some((key, value)) = rows.item() else { break };
            visit(key, value)?;
            rows.next();
        }
        self.ended_well(&rows)
    }

    /// Visits at most `limit` rows of `[lower, upper)` of one family, each with the row of its key
    /// in another family, all from one snapshot.
    pub(crate) fn scan_together(
        &self,
        families: [Family; 2],
        lower: &[u8],
        upper: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.snapshot();
        let mut rows = self.iterate_at(&snapshot, families[0], upper);
        rows.seek(lower);
        for _ in 0..limit {
            let Some((key, row)) = rows.item() else { break };
            let beside = self.get_at(&snapshot, families[1], key)?;
            visit(key, row, beside.as_deref())?;
            rows.next();
        }
        self.ended_well(&rows)
    }

    /// Returns an iterator that stops below `upper`.
    pub(crate) fn iterate(&self, family: Family, upper: &[u8]) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        options.set_total_order_seek(true);
        self.db.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Returns an iterator over registers of one run, which stops below `upper`. All keys that it
    /// seeks have the prefix of that run. A block that isn't cached is read together with the
    /// `ahead` bytes behind it; 0 reads blocks one by one.
    pub(crate) fn iterate_run(
        &self,
        family: Family,
        upper: &[u8],
        ahead: usize,
    ) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        options.set_prefix_same_as_start(true);
        options.set_readahead_size(ahead);
        self.db.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Returns an iterator over many rows, which stops below `upper`. Large parts of tables are read
    /// at a time, and don't fill the cache.
    pub(crate) fn iterate_all(&self, family: Family, upper: &[u8]) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        options.set_total_order_seek(true);
        options.fill_cache(false);
        options.set_readahead_size(WALK_AHEAD_BYTES);
        self.db.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Returns true if a family has no row.
    pub(crate) fn is_empty(&self, family: Family) -> Result<bool> {
        let mut empty = true;
        self.scan(family, &[], &[0xff; 64], 1, |_, _| {
            empty = false;
            Ok(())
        })?;
        Ok(empty)
    }

    /// Returns a snapshot of all families.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        self.db.snapshot()
    }

    /// Returns a value from a snapshot.
    pub(crate) fn get_at<'a>(
        &self,
        snapshot: &'a Snapshot<'_>,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'a>>> {
        snapshot.get_pinned_cf(self.family(family), key).map_err(|error| self.read_failed(&error))
    }

    /// Returns an iterator over a snapshot that stops below `upper`. Its reads don't fill the
    /// cache.
    pub(crate) fn iterate_at<'a>(
        &self,
        snapshot: &'a Snapshot<'_>,
        family: Family,
        upper: &[u8],
    ) -> DBRawIterator<'a> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        options.set_total_order_seek(true);
        options.fill_cache(false);
        snapshot.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Returns an error if an iterator stopped because of an error.
    pub(crate) fn ended_well(&self, rows: &DBRawIterator<'_>) -> Result<()> {
        rows.status().map_err(|error| self.read_failed(&error))
    }

    /// Writes a batch; it is on disk when this returns.
    pub(crate) fn write_synced(&self, mut batch: WriteBatch) -> Result<()> {
        // Only the log keeps the trailer: it shows the end of a complete record.
        batch.put_log_data(log_tail::TRAILER);
        self.write(batch, &self.synced)
    }

    /// Writes a batch that a crash may lose.
    pub(crate) fn write_unlogged(&self, batch: WriteBatch) -> Result<()> {
        self.write(batch, &self.unlogged)
    }

    fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.healthy()?;
        self.db.write_opt(batch, options).map_err(|error| {
            let error = convert_error(&error, "the index write failed");
            self.note_damage(&error);
            self.fault.lock().get_or_insert_with(|| error.to_string());
            error
        })
    }

    /// Checks that RocksDB still accepts writes. It reports background errors only to the next
    /// write, and no write may come.
    pub(crate) fn probe(&self) {
        // `write` records the fault.
        let _ = self.write(WriteBatch::default(), &self.unlogged);
    }

    /// Records an error that reports corrupt bytes. Writes are refused after it.
    pub(crate) fn note_damage(&self, error: &Error) {
        if error.kind() == ErrorKind::Corrupt {
            tracing::error!(%error, "the index is damaged");
            self.damage.lock().get_or_insert_with(|| error.to_string());
            self.fault.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// Returns the corruption that was found, if any.
    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.lock().clone()
    }

    fn read_failed(&self, error: &rocksdb::Error) -> Error {
        let failed = error.kind() == rocksdb::ErrorKind::IOError;
        let error = convert_error(error, "the index read failed");
        self.note_damage(&error);
        if failed && error.kind() == ErrorKind::Internal {
            *self.unreadable.lock() = Some(error.to_string());
        }
        error
    }

    /// Takes the last read error of the disk.
    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.unreadable.lock().take()
    }

    /// Returns an error once a write has failed. RocksDB's memory may then differ from its disk, so
    /// writes are refused until the index is opened again.
    pub(crate) fn healthy(&self) -> Result<()> {
        match &*self.fault.lock() {
            None => Ok(()),
            Some(fault) => Err(Error::unavailable(format!("the index is being reopened: {fault}"))),
        }
    }

    /// Records the reason for which writes are refused until the index is opened again.
    pub(crate) fn note_fault(&self, why: &str) {
        tracing::error!(why, "the index refuses all writes");
        self.fault.lock().get_or_insert_with(|| why.to_owned());
    }

    /// Returns the reason if writes are refused.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Flushes all data that was written without a log.
    pub(crate) fn flush(&self) -> Result<()> {
        let families = Family::ALL.map(|family| self.family(family));
        self.db
            .flush_cfs_opt(&families, &FlushOptions::default())
            .map_err(|error| convert_error(&error, "the index flush failed"))
    }

    /// Removes the files that hold nothing but rows of `[lower, upper)`, which a batch has deleted.
    pub(crate) fn drop_files(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.db
            .delete_file_in_range_cf(self.family(family), lower, upper)
            .map_err(|error| convert_error(&error, "files of the index can't be removed"))
    }

    /// Returns the number of entries in the active memtable of a family.
    #[cfg(test)]
    pub(crate) fn memtable_entries(&self, family: Family) -> u64 {
        let name = rocksdb::properties::NUM_ENTRIES_ACTIVE_MEM_TABLE;
        let entries = self.db.property_int_value_cf(self.family(family), name);
        entries.expect("RocksDB knows its property").unwrap_or_default()
    }

    /// Returns the bytes of the blocks in the cache.
    #[cfg(test)]
    pub(crate) fn cached_bytes(&self, family: Family) -> u64 {
        let name = rocksdb::properties::BLOCK_CACHE_USAGE;
        let bytes = self.db.property_int_value_cf(self.family(family), name);
        bytes.expect("RocksDB knows its property").unwrap_or_default()
    }

    /// Compacts all tables of a family.
    #[cfg(test)]
    pub(crate) fn compact(&self, family: Family) {
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        let (all, no) = (None::<&[u8]>, None::<&[u8]>);
        self.db.compact_range_cf_opt(self.family(family), all, no, &options);
    }

    /// Flushes one family, and waits for the end of the flush.
    pub(crate) fn flush_family(&self, family: Family) -> Result<()> {
        self.db
            .flush_cf_opt(self.family(family), &FlushOptions::default())
            .map_err(|error| convert_error(&error, "the index flush failed"))
    }

    /// Begins a flush of one family, without waiting for its end.
    pub(crate) fn begin_flush(&self, family: Family) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        self.db
            .flush_cf_opt(self.family(family), &options)
            .map_err(|error| convert_error(&error, "the index flush failed"))
    }
}

fn convert_error(error: &rocksdb::Error, what: &str) -> Error {
    let kind = match error.kind() {
        rocksdb::ErrorKind::Corruption => ErrorKind::Corrupt,
        rocksdb::ErrorKind::IOError if is_no_space(error.as_ref()) => ErrorKind::Full,
        // A missing file was lost: a new index misses none.
        rocksdb::ErrorKind::IOError if is_no_file(error.as_ref()) => ErrorKind::Corrupt,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, what).with_source(error.clone())
}

fn is_no_file(message: &str) -> bool {
    message.contains("No such file or directory")
}

/// RocksDB reports errno only as text.
fn is_no_space(message: &str) -> bool {
    message.contains("No space left on device") || message.contains("Disk quota exceeded")
}
