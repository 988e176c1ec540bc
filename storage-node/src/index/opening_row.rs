//! The opening of a device that an index belongs to.
//!
//! An index that was restored from a copy is older than the extents beside it. Its rows then hide newer
//! extents, whose space would be used again. So each opening writes a number into the index, and then
//! into a file beside it. An index with another number is of another time.
//!
//! ```text
//! meta      'o'  → number in the file before (16) | number of the opening (16)
//! ```
//!
//! The index is written first. A crash before the file leaves the number of the opening before,
//! during which nothing else was written.

use martlet_protocol::opening::Uuid;
use martlet_protocol::{Error, Result};
use rocksdb::WriteBatch;

use super::database::Database;
use super::family::Family;
use super::unsettled;

/// Key of the numbers in `meta`.
const OPENING_KEY: &[u8] = b"o";
const NUMBER_BYTES: usize = 16;
/// Upper bound of the ids of extents.
const ABOVE_IDS: [u8; NUMBER_BYTES + 1] = [0xff; NUMBER_BYTES + 1];

/// Relation of an index to the file beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexAge {
    /// Both are of one opening.
    Same,
    /// The index has no number: it is new, or of an earlier release.
    Unknown,
    /// The index is of another time.
    Other,
}

/// Compares an index with the number `last` in the file beside it.
pub(super) fn age(database: &Database, last: Uuid) -> Result<IndexAge> {
    let Some(row) = database.get(Family::Meta, OPENING_KEY)? else { return Ok(IndexAge::Unknown) };
    let (numbers, rest) = row.as_chunks::<NUMBER_BYTES>();
    if numbers.len() != 2 || !rest.is_empty() {
        return Err(Error::corrupt("the numbers of the index's opening are malformed"));
    }
    Ok(if numbers.contains(&last.0) { IndexAge::Same } else { IndexAge::Other })
}

/// Forgets, durably, the rows of all extents, and that places are settled. Delete marks stay.
pub(super) fn forget_extents(database: &Database) -> Result<()> {
    let mut batch = WriteBatch::default();
    batch.delete_range_cf(database.family(Family::Extents), &[][..], &ABOVE_IDS[..]);
    unsettled::forget_all(database, &mut batch);
    database.write_unlogged(batch)?;
    database.flush_family(Family::Extents)?;
    database.flush_family(Family::Unsettled)
}

/// Stores the number of an opening, durably, with that in the file.
pub(super) fn note(database: &Database, last: Uuid, number: Uuid) -> Result<()> {
    let mut batch = WriteBatch::default();
    let family = database.family(Family::Meta);
    batch.put_cf(family, OPENING_KEY, [last.0, number.0].as_flattened());
    // Without the log: RocksDB would allocate log space on a device that holds only extents.
    database.write_unlogged(batch)?;
    database.flush_family(Family::Meta)
}

#[cfg(test)]
mod tests {
    use super::super::options::Caches;
    use super::*;

    #[test]
    fn an_index_is_of_its_last_opening_or_of_one_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path(), &Caches::default()).unwrap();
        let [none, one, two, three] = [0, 1, 2, 3].map(|number| Uuid([number; 16]));
        assert_eq!(age(&database, one).unwrap(), IndexAge::Unknown);
        note(&database, none, one).unwrap();
        // The file may not have the number yet.
        assert_eq!(
            [none, one, two].map(|file| age(&database, file).unwrap()),
            [IndexAge::Same, IndexAge::Same, IndexAge::Other]
        );
        note(&database, one, two).unwrap();
        drop(database);
        let database = Database::open(folder.path(), &Caches::default()).unwrap();
        assert_eq!(
            [none, one, two, three].map(|file| age(&database, file).unwrap()),
            [IndexAge::Other, IndexAge::Same, IndexAge::Same, IndexAge::Other]
        );
    }
}
