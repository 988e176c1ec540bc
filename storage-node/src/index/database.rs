//! RocksDB behind the few calls that the index makes, with its errors told as ours.
//!
//! What RocksDB finds corrupt is never served: it checks every block that it reads, and whoever asked
//! hears of it. It is remembered too, as the damage of the index, so that the device is opened again,
//! and what becomes of it is decided there (rule G1).

use std::path::Path;

use martlet_protocol::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, DBRawIterator, FlushOptions,
    ReadOptions, ReadTier, Snapshot, WriteBatch, WriteOptions,
};

use super::background::BackgroundThreads;
use super::log_tail;
use super::options::{self, Caches};

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Register key → promise and entry.
    Entries,
    /// Register key → write id and inline bytes, apart so that listing never touches them.
    Inline,
    /// Extent id → where it lies.
    Extents,
    /// Deleted extents.
    Marks,
    /// Bodies of superseded entries, by time.
    Garbage,
    /// Register key → a write that is kept for others.
    Hints,
    /// Fences, votes, floor.
    Meta,
    /// Bin → the sum of its registers.
    Tree,
}

impl Family {
    const ALL: [Self; 8] = [
        Self::Entries,
        Self::Inline,
        Self::Extents,
        Self::Marks,
        Self::Garbage,
        Self::Hints,
        Self::Meta,
        Self::Tree,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Inline => "inline",
            Self::Extents => "extents",
            Self::Marks => "marks",
            Self::Garbage => "garbage",
            Self::Hints => "hints",
            Self::Meta => "meta",
            Self::Tree => "tree",
        }
    }
}

/// An open index.
pub(crate) struct Database {
    db: DB,
    synced: WriteOptions,
    unlogged: WriteOptions,
    cached: ReadOptions,
    anywhere: ReadOptions,
    fault: Mutex<Option<String>>,
    damage: Mutex<Option<String>>,
    /// The last read that the disk failed.
    unreadable: Mutex<Option<String>>,
    // After the database, whose work ends before it is gone.
    _background: BackgroundThreads,
}

/// What a read that may not wait found.
pub(crate) enum Cached<T> {
    /// What there is.
    Known(T),
    /// The disk must be asked.
    OnDisk,
}

impl Database {
    /// Opens the index in `folder`, or makes it. A log that lost a synced write is refused.
    pub(crate) fn open(folder: &Path, caches: &Caches) -> Result<Self> {
        log_tail::mend(folder)?;
        let background = BackgroundThreads::take()?;
        let families = Family::ALL.map(|family| {
            ColumnFamilyDescriptor::new(family.name(), options::family(family, caches))
        });
        let db = DB::open_cf_descriptors(&options::database(caches), folder, families).map_err(
            |error| told(&error, &format!("the index in {} does not open", folder.display())),
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

    /// A value where it lies, without a copy.
    pub(crate) fn get_pinned(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>> {
        self.db
            .get_pinned_cf_opt(self.family(family), key, &self.anywhere)
            .map_err(|error| self.read_failed(&error))
    }

    /// A value, if memory has it: for threads that may not wait for a disk.
    pub(crate) fn get_cached(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Cached<Option<DBPinnableSlice<'_>>>> {
        match self.db.get_pinned_cf_opt(self.family(family), key, &self.cached) {
            Ok(value) => Ok(Cached::Known(value)),
            Err(error) if error.kind() == rocksdb::ErrorKind::Incomplete => Ok(Cached::OnDisk),
            Err(error) => Err(self.read_failed(&error)),
        }
    }

    /// Two values as they were at one moment.
    pub(crate) fn get_together(
        &self,
        families: [Family; 2],
        key: &[u8],
    ) -> Result<[Option<Vec<u8>>; 2]> {
        let snapshot = self.snapshot();
        let get = |family| Ok(self.get_at(&snapshot, family, key)?.map(|row| row.to_vec()));
        Ok([get(families[0])?, get(families[1])?])
    }

    /// Walks at most `limit` rows of `[lower, upper)`.
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

    /// Walks at most `limit` rows of `[lower, upper)` of one family, each with the row of the same
    /// key in another, all as they were at one moment.
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

    /// An iterator that stops below `upper`.
    pub(crate) fn iterate(&self, family: Family, upper: &[u8]) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        self.db.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Whether a family has no row.
    pub(crate) fn is_empty(&self, family: Family) -> Result<bool> {
        let mut empty = true;
        self.scan(family, &[], &[0xff; 64], 1, |_, _| {
            empty = false;
            Ok(())
        })?;
        Ok(empty)
    }

    /// Everything as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        self.db.snapshot()
    }

    /// A value as it was.
    pub(crate) fn get_at<'a>(
        &self,
        snapshot: &'a Snapshot<'_>,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'a>>> {
        snapshot.get_pinned_cf(self.family(family), key).map_err(|error| self.read_failed(&error))
    }

    /// An iterator over what was, that stops below `upper`. It leaves the cache to others.
    pub(crate) fn iterate_at<'a>(
        &self,
        snapshot: &'a Snapshot<'_>,
        family: Family,
        upper: &[u8],
    ) -> DBRawIterator<'a> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(upper);
        options.fill_cache(false);
        snapshot.raw_iterator_cf_opt(self.family(family), options)
    }

    /// Whether an iterator stopped at its end and not at an error.
    pub(crate) fn ended_well(&self, rows: &DBRawIterator<'_>) -> Result<()> {
        rows.status().map_err(|error| self.read_failed(&error))
    }

    /// Writes a batch; when this returns it is on disk.
    pub(crate) fn write_synced(&self, mut batch: WriteBatch) -> Result<()> {
        // The log alone keeps it: it shows where a record that was written ends.
        batch.put_log_data(log_tail::TRAILER);
        self.write(batch, &self.synced)
    }

    /// Writes a batch that a crash may take back.
    pub(crate) fn write_unlogged(&self, batch: WriteBatch) -> Result<()> {
        self.write(batch, &self.unlogged)
    }

    fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.healthy()?;
        self.db.write_opt(batch, options).map_err(|error| {
            let error = told(&error, "the index takes no write");
            self.note_damage(&error);
            self.fault.lock().get_or_insert_with(|| error.to_string());
            error
        })
    }

    /// Asks whether RocksDB still takes writes: what it finds in the background it tells to the next
    /// that writes, and there may be none.
    pub(crate) fn probe(&self) {
        // A fault is remembered where it is told.
        let _ = self.write(WriteBatch::default(), &self.unlogged);
    }

    /// Remembers an error that tells of corrupt bytes. Nothing is written after it.
    pub(crate) fn note_damage(&self, error: &Error) {
        if error.kind() == ErrorKind::Corrupt {
            tracing::error!(%error, "the index is damaged");
            self.damage.lock().get_or_insert_with(|| error.to_string());
            self.fault.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// What of it is corrupt, if anything was found to be.
    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.lock().clone()
    }

    fn read_failed(&self, error: &rocksdb::Error) -> Error {
        let failed = error.kind() == rocksdb::ErrorKind::IOError;
        let error = told(error, "the index does not read");
        self.note_damage(&error);
        if failed && error.kind() == ErrorKind::Internal {
            *self.unreadable.lock() = Some(error.to_string());
        }
        error
    }

    /// The last read that the disk failed, once.
    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.unreadable.lock().take()
    }

    /// Refuses once a write has failed: what RocksDB then holds in memory may not be what is on
    /// disk, so it takes no more until it was opened again.
    pub(crate) fn healthy(&self) -> Result<()> {
        match &*self.fault.lock() {
            None => Ok(()),
            Some(fault) => Err(Error::unavailable(format!("the index is being reopened: {fault}"))),
        }
    }

    /// Remembers why nothing more is written until the index was opened again.
    pub(crate) fn note_fault(&self, why: &str) {
        tracing::error!(why, "the index takes no more writes");
        self.fault.lock().get_or_insert_with(|| why.to_owned());
    }

    /// Why no more is written, if something failed.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Puts everything that was written without a log on disk.
    pub(crate) fn flush(&self) -> Result<()> {
        let families = Family::ALL.map(|family| self.family(family));
        self.db
            .flush_cfs_opt(&families, &FlushOptions::default())
            .map_err(|error| told(&error, "the index does not flush"))
    }

    /// Merges all tables of a family, as RocksDB does in the background when it likes.
    #[cfg(test)]
    pub(crate) fn compact(&self, family: Family) {
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        let (all, no) = (None::<&[u8]>, None::<&[u8]>);
        self.db.compact_range_cf_opt(self.family(family), all, no, &options);
    }

    /// Begins to put on disk what one family has in memory.
    pub(crate) fn begin_flush(&self, family: Family) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        self.db
            .flush_cf_opt(self.family(family), &options)
            .map_err(|error| told(&error, "the index does not flush"))
    }
}

fn told(error: &rocksdb::Error, what: &str) -> Error {
    let kind = match error.kind() {
        rocksdb::ErrorKind::Corruption => ErrorKind::Corrupt,
        rocksdb::ErrorKind::IOError if is_no_space(error.as_ref()) => ErrorKind::Full,
        // A file that is not there was lost: an index that is made anew misses none.
        rocksdb::ErrorKind::IOError if is_no_file(error.as_ref()) => ErrorKind::Corrupt,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, what).with_source(error.clone())
}

fn is_no_file(message: &str) -> bool {
    message.contains("No such file or directory")
}

/// RocksDB tells errno only in words.
fn is_no_space(message: &str) -> bool {
    message.contains("No space left on device") || message.contains("Disk quota exceeded")
}
