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
use super::{places, unsettled};

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

/// Returns the numbers that an index has: of the file before its last opening, and of that opening.
fn numbers(database: &Database) -> Result<Option<[Uuid; 2]>> {
    let Some(row) = database.get(Family::Meta, OPENING_KEY)? else { return Ok(None) };
    match row.as_chunks::<NUMBER_BYTES>() {
        ([before, last], []) => Ok(Some([Uuid(*before), Uuid(*last)])),
        _ => Err(Error::corrupt("the numbers of the index's opening are malformed")),
    }
}

/// Returns the number of the last opening that the index has stored.
pub(super) fn number(database: &Database) -> Result<Option<Uuid>> {
    Ok(numbers(database)?.map(|[_, last]| last))
}

/// Compares an index with the number `last` in the file beside it.
pub(super) fn age(database: &Database, last: Uuid) -> Result<IndexAge> {
    Ok(match numbers(database)? {
        None => IndexAge::Unknown,
        Some(numbers) if numbers.contains(&last) => IndexAge::Same,
        Some(_) => IndexAge::Other,
    })
}

/// Forgets, durably, the rows and places of all extents, and that places are settled. Delete marks
/// stay.
pub(super) fn forget_extents(database: &Database) -> Result<()> {
    places::forget_all(database)?;
    let mut batch = WriteBatch::default();
    batch.delete_range_cf(database.family(Family::Extents), &[][..], &ABOVE_IDS[..]);
    unsettled::forget_all(database, &mut batch);
    database.write_unlogged(batch)?;
    database.flush_family(Family::Extents)?;
    database.flush_family(Family::Unsettled)
}

/// Stores the number of an opening, durably, with that in the file; and that its places of extents are
/// complete, if they are.
pub(super) fn note(
    database: &Database,
    last: Uuid,
    number: Uuid,
    keeps_places: bool,
) -> Result<()> {
    let mut batch = WriteBatch::default();
    let family = database.family(Family::Meta);
    batch.put_cf(family, OPENING_KEY, [last.0, number.0].as_flattened());
    if keeps_places {
        places::stay_complete(database, &mut batch, number.0);
    }
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
        note(&database, none, one, false).unwrap();
        // The file may not have the number yet.
        assert_eq!(
            [none, one, two].map(|file| age(&database, file).unwrap()),
            [IndexAge::Same, IndexAge::Same, IndexAge::Other]
        );
        note(&database, one, two, false).unwrap();
        drop(database);
        let database = Database::open(folder.path(), &Caches::default()).unwrap();
        assert_eq!(
            [none, one, two, three].map(|file| age(&database, file).unwrap()),
            [IndexAge::Other, IndexAge::Same, IndexAge::Same, IndexAge::Other]
        );
    }
}
