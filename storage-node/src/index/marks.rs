//! Dated marks of deleted extents (rule X4), by period, so that all marks of a period are forgotten
//! at once.
//!
//! ```text
//! deleted   period (4, big-endian) | id (16)   → format (1) | time of the delete in ms (8, big-endian)
//! marks     0 | id (16)                        → time of the delete in ms (8, big-endian)
//! marks     1 | time (8, big-endian) | id (16) → nothing
//! ```
//!
//! A period lasts ten days. With marks of 30 days, at most five periods have marks, so a look-up
//! costs at most five point reads, which filters answer for ids that were never deleted. A period
//! that is over costs one range tombstone; whole files of its marks are removed.
//!
//! `marks` has the marks of older versions. It is read as long as one of them is young enough, and
//! then dropped as a whole. Older versions know no `deleted` and don't open such an index: they
//! would accept extents that were deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::{Error, ExtentId, Result};
use parking_lot::RwLock;
use rocksdb::WriteBatch;

use super::database::{CachedRead, Database};
use super::family::Family;

/// Length of a period in milliseconds.
const PERIOD_MS: u64 = 10 * 24 * 60 * 60 * 1000;
const FORMAT: u8 = 1;
const KEY_BYTES: usize = 4 + 16;

/// First bytes of the keys in `marks`: by id, by time.
const OLD_BY_ID: u8 = 0;
const OLD_BY_TIME: u8 = 1;

/// The marks of one index.
pub(super) struct Marks {
    database: Arc<Database>,
    /// Periods that may have marks.
    periods: RwLock<BTreeSet<u32>>,
    /// True if marks of an older version may exist.
    has_old: AtomicBool,
}

impl Marks {
    /// Finds the periods that have marks: one seek each.
    pub(super) fn open(database: Arc<Database>) -> Result<Self> {
        let has_old = AtomicBool::new(!database.is_empty(Family::Marks)?);
        let mut periods = BTreeSet::new();
        let mut rows = database.iterate(Family::Deleted, &[0xff; KEY_BYTES + 1]);
        rows.seek([]);
        while let Some(key) = rows.key() {
            let period = period_of_key(key)?;
            periods.insert(period);
            let Some(next) = period.checked_add(1) else { break };
            rows.seek(next.to_be_bytes());
        }
        database.ended_well(&rows)?;
        drop(rows);
        Ok(Self { database, periods: RwLock::new(periods), has_old })
    }

    /// Adds marks to a batch. Readers find them once the batch is written.
    pub(super) fn mark(&self, batch: &mut WriteBatch, ids: &[ExtentId], at_ms: u64) {
        let period = period_at(at_ms);
        if !self.periods.read().contains(&period) {
            self.periods.write().insert(period);
        }
        let mut row = [FORMAT; 9];
        row[1..].copy_from_slice(&at_ms.to_be_bytes());
        for id in ids {
            batch.put_cf(self.database.family(Family::Deleted), key(period, id), row);
        }
    }

    /// Returns true if an extent is marked as deleted.
    pub(super) fn is_marked(&self, id: &ExtentId) -> Result<bool> {
        // No lock is held while the disk is read. New periods come first.
        let periods: Vec<u32> = self.periods.read().iter().rev().copied().collect();
        for period in periods {
            if self.database.get_pinned(Family::Deleted, &key(period, id))?.is_some() {
                return Ok(true);
            }
        }
        let has_old = self.has_old.load(Ordering::Acquire);
        Ok(has_old && self.database.get_pinned(Family::Marks, &old_key(id))?.is_some())
    }

    /// Returns true if a look-up of the extent's mark needs no disk.
    pub(super) fn is_cached(&self, id: &ExtentId) -> Result<bool> {
        let known = |family, key: &[u8]| {
            Ok(matches!(self.database.get_cached(family, key)?, CachedRead::Known(_)))
        };
        let periods: Vec<u32> = self.periods.read().iter().copied().collect();
        for period in periods {
            if !known(Family::Deleted, &key(period, id))? {
                return Ok(false);
            }
        }
        Ok(!self.has_old.load(Ordering::Acquire) || known(Family::Marks, &old_key(id))?)
    }

    /// Forgets, durably, the marks of all periods that ended before `before_ms`.
    pub(super) fn forget(&self, before_ms: u64) -> Result<()> {
        let is_over =
            |period: &u32| (u64::from(*period) + 1).saturating_mul(PERIOD_MS) <= before_ms;
        let over: Vec<u32> = self.periods.read().iter().copied().filter(is_over).collect();
        for period in over {
            let end = period.saturating_add(1);
            self.drop_range(Family::Deleted, &period.to_be_bytes(), &end.to_be_bytes())?;
            self.periods.write().remove(&period);
        }
        if self.has_old.load(Ordering::Acquire) && self.newest_old()? < before_ms {
            self.drop_range(Family::Marks, &[OLD_BY_ID], &[OLD_BY_TIME + 1])?;
            self.has_old.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn drop_range(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(self.database.family(family), lower, upper);
        self.database.write_synced(batch)?;
        self.database.drop_files(family, lower, upper)
    }

    /// Returns the time of the youngest mark of an older version, 0 without one.
    fn newest_old(&self) -> Result<u64> {
        let mut rows = self.database.iterate(Family::Marks, &[OLD_BY_TIME + 1]);
        rows.seek_to_last();
        let time =
            rows.key().filter(|key| key.first() == Some(&OLD_BY_TIME)).map(|key| key.get(1..9));
        self.database.ended_well(&rows)?;
        let Some(time) = time else { return Ok(0) };
        let time = time.and_then(|time| time.try_into().ok()).ok_or_else(malformed)?;
        Ok(u64::from_be_bytes(time))
    }
}

fn malformed() -> Error {
    Error::corrupt("the key of a delete mark is malformed")
}

fn period_at(ms: u64) -> u32 {
    u32::try_from(ms / PERIOD_MS).unwrap_or(u32::MAX)
}

fn period_of_key(key: &[u8]) -> Result<u32> {
    let period = key.first_chunk().filter(|_| key.len() == KEY_BYTES).ok_or_else(malformed)?;
    Ok(u32::from_be_bytes(*period))
}

fn key(period: u32, id: &ExtentId) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&period.to_be_bytes());
    key[4..].copy_from_slice(&id.0);
    key
}

fn old_key(id: &ExtentId) -> [u8; 17] {
    let mut key = [OLD_BY_ID; 17];
    key[1..].copy_from_slice(&id.0);
    key
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::options::Caches;
    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    /// Start of a period.
    const START_MS: u64 = 2000 * PERIOD_MS;

    fn id(byte: u8) -> ExtentId {
        ExtentId([byte; 16])
    }

    fn open(folder: &Path) -> Marks {
        Marks::open(Arc::new(Database::open(folder, &Caches::default()).unwrap())).unwrap()
    }

    fn mark(marks: &Marks, byte: u8, at_ms: u64) {
        let mut batch = WriteBatch::default();
        marks.mark(&mut batch, &[id(byte)], at_ms);
        marks.database.write_synced(batch).unwrap();
    }

    fn marked(marks: &Marks) -> Vec<u8> {
        (0..20).filter(|byte| marks.is_marked(&id(*byte)).unwrap()).collect()
    }

    fn rows(marks: &Marks, family: Family) -> usize {
        let mut count = 0;
        let visit = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(())
        };
        marks.database.scan(family, &[], &[0xff; 30], usize::MAX, visit).unwrap();
        count
    }

    #[test]
    fn marks_are_forgotten_by_the_period() {
        let folder = tempfile::tempdir().unwrap();
        let marks = open(folder.path());
        for (byte, day) in [(1, 0), (2, 9), (3, 10), (4, 25)] {
            mark(&marks, byte, START_MS + day * DAY_MS);
        }
        // Marked again: the younger mark counts.
        mark(&marks, 2, START_MS + 12 * DAY_MS);
        marks.forget(START_MS + 10 * DAY_MS - 1).unwrap();
        assert_eq!(marked(&marks), [1, 2, 3, 4], "the first period is not over");
        marks.forget(START_MS + 10 * DAY_MS).unwrap();
        assert_eq!(marked(&marks), [2, 3, 4]);
        assert_eq!(rows(&marks, Family::Deleted), 3);
        drop(marks);
        let marks = open(folder.path());
        assert_eq!(marked(&marks), [2, 3, 4]);
        assert_eq!(marks.periods.read().len(), 2);
        marks.forget(u64::MAX).unwrap();
        assert_eq!((marked(&marks), rows(&marks, Family::Deleted)), (vec![], 0));
        assert!(open_again(marks, folder.path()).periods.read().is_empty());
    }

    fn open_again(marks: Marks, folder: &Path) -> Marks {
        drop(marks);
        open(folder)
    }

    #[test]
    fn a_forgotten_period_leaves_no_tombstone_of_each_mark() {
        let folder = tempfile::tempdir().unwrap();
        let marks = open(folder.path());
        let ids: Vec<_> = (0..5000_u128).map(|it| ExtentId(it.to_be_bytes())).collect();
        let mut batch = WriteBatch::default();
        marks.mark(&mut batch, &ids, START_MS);
        marks.database.write_synced(batch).unwrap();
        mark(&marks, 9, START_MS + PERIOD_MS);
        marks.database.flush().unwrap();
        assert_eq!(marks.database.memtable_entries(Family::Deleted), 0);
        marks.forget(START_MS + PERIOD_MS).unwrap();
        assert_eq!(marks.database.memtable_entries(Family::Deleted), 1, "for 5000 marks");
        assert!(ids.iter().all(|id| !marks.is_marked(id).unwrap()));
        assert_eq!(marked(&marks), [9]);
    }

    /// Writes a mark as versions without periods did.
    fn old_mark(database: &Database, byte: u8, at_ms: u64) {
        let marks = database.family(Family::Marks);
        let mut batch = WriteBatch::default();
        batch.put_cf(marks, old_key(&id(byte)), at_ms.to_be_bytes());
        let by_time = [&[OLD_BY_TIME][..], &at_ms.to_be_bytes(), &id(byte).0].concat();
        batch.put_cf(marks, by_time, []);
        database.write_synced(batch).unwrap();
    }

    #[test]
    fn marks_of_older_versions_count_until_the_last_of_them_is_over() {
        let folder = tempfile::tempdir().unwrap();
        {
            let database = Database::open(folder.path(), &Caches::default()).unwrap();
            old_mark(&database, 1, START_MS);
            old_mark(&database, 2, START_MS + DAY_MS);
        }
        let marks = open(folder.path());
        mark(&marks, 3, START_MS + 2 * DAY_MS);
        assert_eq!(marked(&marks), [1, 2, 3]);
        marks.forget(START_MS + DAY_MS).unwrap();
        assert_eq!(marked(&marks), [1, 2, 3]);
        marks.forget(START_MS + DAY_MS + 1).unwrap();
        assert_eq!((marked(&marks), rows(&marks, Family::Marks)), (vec![3], 0));
        let marks = open_again(marks, folder.path());
        assert!(!marks.has_old.load(Ordering::Acquire));
        assert_eq!(marked(&marks), [3]);
    }

    #[test]
    fn a_look_up_reads_at_most_five_periods() {
        let folder = tempfile::tempdir().unwrap();
        let marks = open(folder.path());
        for day in 0..200 {
            let now_ms = START_MS + day * DAY_MS;
            mark(&marks, 7, now_ms);
            marks.forget(now_ms - 30 * DAY_MS).unwrap();
            let periods = marks.periods.read().len();
            assert!(periods <= 5, "{periods} periods on day {day}");
            assert!(marks.is_marked(&id(7)).unwrap());
        }
    }
}
