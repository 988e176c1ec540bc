//! Number of the hints that an index keeps, and the last of them in the order of their arrival.
//!
//! ```text
//! opening ──▶ counts some rows ──▶ all of them: the number is known
//!                   └─ more ──▶ a thread counts all rows of one view; the committer adds its changes
//! ```
//!
//! Rules G1 and T1 depend on the answer that there is no hint. It is given only once all rows are counted.
//! Until then the number is at least one, and callers read the rows. The view is from before the first
//! change, so that number and changes add up. Nothing is stored: releases before this one write the same
//! index. A count that fails stays incomplete until the next opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use martlet_protocol::backend::RecentHints;
use martlet_protocol::{Error, Result};
use parking_lot::Mutex;

use super::counting::Counting;
use super::database::Database;
use super::family::Family;
use super::rows::LAST_KEY;
use super::voting::VotingState;

/// Rows that an opening counts, of at most some 10 KiB each.
pub(super) const AT_OPENING_MAX: usize = 1024;
/// Rows between two rests of the thread.
const SLICE_ROWS: u64 = 1024;

/// Keys of the last hints.
pub(super) type Arrivals = RecentHints<Vec<u8>>;

/// The hints of one index.
#[derive(Debug)]
pub(super) struct KeptHints {
    /// Rows counted in the view of the opening.
    counted: AtomicU64,
    /// True if all rows of that view are counted.
    is_complete: AtomicBool,
    /// Changes since the opening.
    change: AtomicI64,
    arrivals: Mutex<Arrivals>,
}

impl KeptHints {
    /// Counts some hints of an index that has no committer yet. Arrivals are numbered from `opened_ms` on.
    pub(super) fn load(database: &Database, opened_ms: u64) -> Result<Self> {
        let mut counted = 0;
        database.scan(Family::Hints, &[], &LAST_KEY, AT_OPENING_MAX + 1, |_, _| {
            counted += 1;
            Ok(())
        })?;
        Ok(Self {
            counted: AtomicU64::new(counted as u64),
            is_complete: AtomicBool::new(counted <= AT_OPENING_MAX),
            change: AtomicI64::new(0),
            arrivals: Mutex::new(RecentHints::opened(opened_ms)),
        })
    }

    /// Returns the number of hints; at least one until all of them are counted.
    pub(super) fn number(&self) -> u64 {
        let is_complete = self.is_complete.load(Ordering::Acquire);
        let counted = self.counted.load(Ordering::Acquire);
        let number = counted.saturating_add_signed(self.change.load(Ordering::Acquire));
        if is_complete { number } else { number.max(1) }
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Records the change of a group that is on disk, and the keys that it stored. Only the committer calls
    /// this.
    pub(super) fn changed(&self, more: i64, stored: impl Iterator<Item = Vec<u8>>) {
        self.change.fetch_add(more, Ordering::AcqRel);
        let mut stored = stored.peekable();
        if stored.peek().is_some() {
            let mut arrivals = self.arrivals.lock();
            for key in stored {
                arrivals.push(key);
            }
        }
    }

    /// Returns the last hints in the order of their arrival.
    pub(super) fn arrivals(&self) -> &Mutex<Arrivals> {
        &self.arrivals
    }
}

/// The thread that counts the hints of an index with many.
pub(super) struct HintCounter {
    pub(super) name: String,
    pub(super) database: Arc<Database>,
    pub(super) voting_state: Arc<VotingState>,
    /// Ends this thread too.
    pub(super) counting: Arc<Counting>,
}

impl HintCounter {
    /// Starts the thread, unless all hints are counted, and waits until it has its view of the rows. To be
    /// called before the committer starts.
    pub(super) fn spawn(self) -> Result<Option<JoinHandle<()>>> {
        if self.voting_state.kept_hints().is_complete() {
            return Ok(None);
        }
        let thread = std::thread::Builder::new().name(format!("hints {}", self.name));
        let failed = |error| {
            Error::internal("the thread that counts hints can't be started").with_source(error)
        };
        let (has_view, view) = mpsc::channel();
        let thread = thread.spawn(move || self.run(&has_view)).map_err(failed)?;
        let ended = |_| Error::internal("the thread that counts hints has ended");
        view.recv().map_err(ended)?;
        Ok(Some(thread))
    }

    fn run(&self, has_view: &mpsc::Sender<()>) {
        if let Err(error) = self.count(has_view) {
            self.database.note_damage(&error);
            tracing::debug!(device = %self.name, %error, "the count of hints ended early");
        }
    }

    fn count(&self, has_view: &mpsc::Sender<()>) -> Result<()> {
        let hints = self.voting_state.kept_hints();
        // An iterator shows the rows of the moment of its creation.
        let mut rows = self.database.iterate_all(Family::Hints, &LAST_KEY);
        // The opening goes on, or has ended.
        let _ = has_view.send(());
        rows.seek([]);
        let (mut counted, mut began) = (0u64, Instant::now());
        while rows.valid() {
            counted += 1;
            if counted.is_multiple_of(SLICE_ROWS) {
                hints.counted.fetch_max(counted, Ordering::AcqRel);
                self.counting.rest(began.elapsed());
                if self.counting.is_stopped() {
                    return Ok(());
                }
                began = Instant::now();
            }
            rows.next();
        }
        self.database.ended_well(&rows)?;
        hints.counted.store(counted, Ordering::Release);
        hints.is_complete.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::iter::empty;
    use std::path::Path;

    use rocksdb::WriteBatch;

    use super::*;
    use crate::index::options::Caches;

    const ROWS: usize = 3 * AT_OPENING_MAX + 5;

    fn key(number: usize) -> [u8; 40] {
        let mut key = [5; 40];
        key[..8].copy_from_slice(&(number as u64).to_be_bytes());
        key
    }

    /// Opens an index with many rows of hints, and loads its state.
    fn counter(folder: &Path) -> HintCounter {
        let database = Arc::new(Database::open(folder, &Caches::default()).unwrap());
        let mut batch = WriteBatch::default();
        for number in 0..ROWS {
            batch.put_cf(database.family(Family::Hints), key(number), b"row");
        }
        database.write_unlogged(batch).unwrap();
        let voting_state = Arc::new(VotingState::load(&database, true, true, 7).unwrap());
        HintCounter { name: "test".into(), database, voting_state, counting: Arc::default() }
    }

    #[test]
    fn a_device_may_have_hints_until_all_of_them_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let counter = counter(folder.path());
        let state = counter.voting_state.clone();
        let number = || state.kept_hints().number();
        assert_eq!(number(), AT_OPENING_MAX as u64 + 1);
        let rows = i64::try_from(ROWS).unwrap();
        state.kept_hints().changed(1 - rows, empty());
        assert_eq!((number(), state.has_hints("test").unwrap()), (1, true));
        counter.spawn().unwrap().unwrap().join().unwrap();
        assert_eq!((number(), state.has_hints("test").unwrap()), (1, true));
        state.kept_hints().changed(-1, empty());
        assert_eq!((number(), state.has_hints("test").unwrap()), (0, false));
    }

    #[test]
    fn changes_after_the_opening_are_not_counted_twice() {
        let folder = tempfile::tempdir().unwrap();
        let counter = counter(folder.path());
        let (state, database) = (counter.voting_state.clone(), counter.database.clone());
        let thread = counter.spawn().unwrap().unwrap();
        let mut batch = WriteBatch::default();
        for number in 0..ROWS {
            batch.delete_cf(database.family(Family::Hints), key(number));
        }
        for number in ROWS..ROWS + 3 {
            batch.put_cf(database.family(Family::Hints), key(number), b"row");
        }
        database.write_unlogged(batch).unwrap();
        state.kept_hints().changed(3 - i64::try_from(ROWS).unwrap(), empty());
        assert!(state.has_hints("test").unwrap());
        thread.join().unwrap();
        assert_eq!(state.kept_hints().number(), 3);
    }

    #[test]
    fn a_count_that_is_stopped_stays_incomplete() {
        let folder = tempfile::tempdir().unwrap();
        let counter = counter(folder.path());
        let state = counter.voting_state.clone();
        counter.counting.stop();
        counter.spawn().unwrap().unwrap().join().unwrap();
        state.kept_hints().changed(i64::MIN / 2, empty());
        assert_eq!((state.kept_hints().number(), state.has_hints("test").unwrap()), (1, true));
    }
}
