//! Runs without registers beside heads: changes of their usage read nothing.

use std::collections::HashSet;

use martlet_protocol::{RegisterKind, Result};
use parking_lot::Mutex;

use super::database::Database;
use super::family::Family;
use super::rows;
use super::usage::RUN_BYTES;

/// Runs in memory that have registers beside heads, and those that have none.
const RUNS_MAX: usize = 65_536;
/// Writes to unknown runs for each search.
const SEARCH_EVERY: u64 = 8;

/// Runs that have no registers beside heads, as far as known. Unknown runs may have some.
///
/// A register beside a head is noted before its batch is staged and after the batch is on disk. A
/// search that began before the later note leaves no trace.
#[derive(Default)]
pub(super) struct PlainRuns(Mutex<KnownRuns>);

#[derive(Default)]
struct KnownRuns {
    plain: HashSet<[u8; RUN_BYTES]>,
    /// Runs that needn't be searched again: some had registers beside heads.
    searched: HashSet<[u8; RUN_BYTES]>,
    /// Number of notes.
    noted: u64,
    /// Writes to unknown runs.
    unknown: u64,
}

fn run_of(key: &[u8]) -> Option<[u8; RUN_BYTES]> {
    key.first_chunk().copied()
}

impl PlainRuns {
    /// Returns true if the run of an encoded key is known to be plain.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        run_of(key).is_some_and(|run| self.0.lock().plain.contains(&run))
    }

    /// Returns true if a search for the run of an encoded key is due. With few runs all of them are
    /// soon known; with millions a search for each write would cost more than it saves.
    pub(super) fn needs_search(&self, key: &[u8]) -> bool {
        let Some(run) = run_of(key) else { return false };
        let mut known = self.0.lock();
        if known.plain.contains(&run) || known.searched.contains(&run) {
            return false;
        }
        known.unknown += 1;
        known.unknown.is_multiple_of(SEARCH_EVERY)
    }

    /// Notes that the run of an encoded key has a register beside a head.
    pub(super) fn note_beside(&self, key: &[u8]) {
        let Some(run) = run_of(key) else { return };
        let mut known = self.0.lock();
        known.plain.remove(&run);
        known.noted += 1;
    }

    /// Searches for registers beside heads in the run of an encoded key. Blocks.
    pub(super) fn search(&self, database: &Database, key: &[u8]) -> Result<()> {
        let Some(run) = run_of(key) else { return Ok(()) };
        let noted = self.0.lock().noted;
        let prefix = [&run[..], &[RegisterKind::Version as u8]].concat();
        let mut rows = database.iterate_run(Family::Entries, &rows::successor(&prefix), 0);
        rows.seek(&prefix);
        let is_plain = !rows.valid();
        database.ended_well(&rows)?;
        let mut known = self.0.lock();
        if is_plain && known.noted != noted {
            return Ok(());
        }
        let answer = if is_plain { &mut known.plain } else { &mut known.searched };
        if answer.len() >= RUNS_MAX {
            answer.clear();
        }
        answer.insert(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{BucketId, RegisterKey, Shard};
    use rocksdb::WriteBatch;

    use super::super::options::Caches;
    use super::*;

    fn key() -> RegisterKey {
        RegisterKey::object(BucketId([7; 16]), 16, "a/b")
    }

    #[test]
    fn a_run_is_plain_until_a_register_beside_a_head_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path(), &Caches::default()).unwrap();
        let (runs, at) = (PlainRuns::default(), key().encode());
        assert!(!runs.has(&at), "it is unknown");
        let searches = (0..64).filter(|_| runs.needs_search(&at)).count();
        assert_eq!(searches, 8, "some of the writes");
        runs.search(&database, &at).unwrap();
        assert!(runs.has(&at) && !(0..64).any(|_| runs.needs_search(&at)));
        runs.note_beside(&at);
        assert!(!runs.has(&at));
        let beside = RegisterKey { kind: RegisterKind::Version, ..key() };
        let mut batch = WriteBatch::default();
        batch.put_cf(database.family(Family::Entries), beside.encode(), b"row");
        database.write_synced(batch).unwrap();
        runs.search(&database, &at).unwrap();
        assert!(!runs.has(&at), "one is on disk");
        let other = RegisterKey { shard: Shard(key().shard.0 + 1), ..key() }.encode();
        runs.search(&database, &other).unwrap();
        assert!(runs.has(&other));
    }
}
