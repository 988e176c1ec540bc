//! Places of extents: the blocks of volumes and the files that rows of the device use. An opening
//! after a crash reads these short rows, and not the rows of all extents.
//!
//! ```text
//! extents   0xff (17) | 1 | volume (4, big-endian) | first block (4, big-endian) → blocks (2, little-endian)
//! extents   0xff (17) | 2 | extent id (16)                                       → length (4, little-endian)
//! meta      'l'  → number of the opening up to which the places are complete (16)
//! ```
//!
//! A place changes in the batch that changes the extent's row. Both lie in one family, whose rows are
//! flushed together: a crash loses both or neither. Rows are put without the log and removed with it,
//! so an opening may repeat a removal whose row was lost: the removal finds nothing, and removes
//! nothing else.
//!
//! Places are complete if the row in `meta` names the last opening of the index. A release that keeps no
//! places stores the number of its opening alone, and then the rows are read once. Releases from before
//! these numbers must not open the index any more.

use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, ExtentId, Result};
use rocksdb::WriteBatch;

use super::database::Database;
use super::family::Family;
use super::opening_row;
use super::unsettled::RecordPlace;

/// Begins the keys of places: behind all ids, which have 16 bytes.
const PREFIX: [u8; 17] = [0xff; 17];
const RECORD: u8 = 1;
const FILE: u8 = 2;
const FILE_KEY_BYTES: usize = PREFIX.len() + 1 + 16;
const COMPLETE_KEY: &[u8] = b"l";

/// Location of an extent on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskPlace {
    /// In a volume: location of the record's header.
    Record(RecordPlace),
    /// In a file of its own.
    File(ExtentId),
}

/// Disk space that one extent uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedPlace {
    /// Location of the extent.
    pub at: DiskPlace,
    /// Length in bytes: of a record with its header, whole blocks, fewer than 2^16; or of the extent in a
    /// file.
    pub bytes: u64,
}

impl DiskPlace {
    /// Returns the location of the header of a packed extent.
    pub fn header(&self) -> Option<RecordPlace> {
        match self {
            Self::Record(at) => Some(*at),
            Self::File(_) => None,
        }
    }

    fn key(&self) -> Result<Vec<u8>> {
        let mut key = Vec::with_capacity(FILE_KEY_BYTES);
        key.extend_from_slice(&PREFIX);
        match self {
            Self::Record(at) => {
                key.push(RECORD);
                key.extend_from_slice(&at.volume.to_be_bytes());
                key.extend_from_slice(&small::<u32>(at.offset / ALIGN_BYTES)?.to_be_bytes());
            }
            Self::File(id) => {
                key.push(FILE);
                key.extend_from_slice(&id.0);
            }
        }
        Ok(key)
    }
}

impl UsedPlace {
    /// Decodes the part of a key behind the prefix, and its value.
    fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        match key.split_first() {
            Some((&RECORD, rest)) => {
                let (volume, block) = rest.split_first_chunk().ok_or_else(malformed)?;
                let block = block.try_into().map_err(|_| malformed())?;
                let offset = u64::from(u32::from_be_bytes(block)) * ALIGN_BYTES;
                let blocks = u16::from_le_bytes(value.try_into().map_err(|_| malformed())?);
                let at = RecordPlace { volume: u32::from_be_bytes(*volume), offset };
                Ok(Self { at: DiskPlace::Record(at), bytes: u64::from(blocks) * ALIGN_BYTES })
            }
            Some((&FILE, id)) => {
                let id = ExtentId(id.try_into().map_err(|_| malformed())?);
                let bytes = u32::from_le_bytes(value.try_into().map_err(|_| malformed())?);
                Ok(Self { at: DiskPlace::File(id), bytes: u64::from(bytes) })
            }
            _ => Err(malformed()),
        }
    }
}

fn small<T: TryFrom<u64>>(number: u64) -> Result<T> {
    T::try_from(number).map_err(|_| Error::internal("a record lies beyond the longest volume"))
}

/// Adds a place to a batch that puts its row.
pub(super) fn put(database: &Database, batch: &mut WriteBatch, place: &UsedPlace) -> Result<()> {
    let (family, key) = (database.family(Family::Extents), place.at.key()?);
    match place.at {
        DiskPlace::Record(_) => {
            let blocks = small::<u16>(place.bytes / ALIGN_BYTES)?;
            batch.put_cf(family, key, blocks.to_le_bytes());
        }
        DiskPlace::File(_) => batch.put_cf(family, key, small::<u32>(place.bytes)?.to_le_bytes()),
    }
    Ok(())
}

/// Adds the removal of a place to a batch that removes its row.
pub(super) fn remove(database: &Database, batch: &mut WriteBatch, left: &DiskPlace) -> Result<()> {
    batch.delete_cf(database.family(Family::Extents), left.key()?);
    Ok(())
}

/// Calls `visit` with each place: records in the order of volumes and offsets, then files in the order
/// of ids. `Corrupt` if a place is malformed.
pub(super) fn each(database: &Database, visit: impl FnMut(UsedPlace) -> Result<()>) -> Result<()> {
    between(database, &[RECORD], &[FILE + 1], visit)
}

/// Calls `visit` with each file extent whose id begins with the byte `first`, in the order of ids.
pub(super) fn each_file(
    database: &Database,
    first: u8,
    mut visit: impl FnMut(ExtentId) -> Result<()>,
) -> Result<()> {
    let upper = first.checked_add(1).map_or([FILE + 1, 0], |next| [FILE, next]);
    between(database, &[FILE, first], &upper, |place| match place.at {
        DiskPlace::File(id) => visit(id),
        DiskPlace::Record(_) => Err(malformed()),
    })
}

/// Visits the places whose keys lie between two keys behind the prefix.
fn between(
    database: &Database,
    lower: &[u8],
    upper: &[u8],
    mut visit: impl FnMut(UsedPlace) -> Result<()>,
) -> Result<()> {
    let mut rows = database.iterate_all(Family::Extents, &[&PREFIX, upper].concat());
    rows.seek([&PREFIX, lower].concat());
    while let Some((key, value)) = rows.item() {
        visit(UsedPlace::decode(&key[PREFIX.len()..], value)?)?;
        rows.next();
    }
    database.ended_well(&rows)
}

/// Returns true if each row has its place, and no other place is stored.
pub(super) fn are_complete(database: &Database) -> Result<bool> {
    let complete = database.get(Family::Meta, COMPLETE_KEY)?;
    Ok(complete.is_some() && complete == opening_row::number(database)?.map(|id| id.0.to_vec()))
}

/// Adds to the batch of an opening that the places stay complete.
pub(super) fn stay_complete(database: &Database, batch: &mut WriteBatch, opening: [u8; 16]) {
    batch.put_cf(database.family(Family::Meta), COMPLETE_KEY, opening);
}

/// Records, durably, that each row has its place. An index whose opening has no number records
/// nothing.
pub(super) fn complete(database: &Database) -> Result<()> {
    let Some(opening) = opening_row::number(database)? else { return Ok(()) };
    database.flush_family(Family::Extents)?;
    let mut batch = WriteBatch::default();
    stay_complete(database, &mut batch, opening.0);
    database.write_unlogged(batch)?;
    database.flush_family(Family::Meta)
}

/// Records, durably, that the rows are to be read.
pub(super) fn distrust(database: &Database) -> Result<()> {
    let mut batch = WriteBatch::default();
    batch.delete_cf(database.family(Family::Meta), COMPLETE_KEY);
    database.write_unlogged(batch)?;
    database.flush_family(Family::Meta)
}

/// Removes all places, durably.
pub(super) fn forget_all(database: &Database) -> Result<()> {
    distrust(database)?;
    let mut batch = WriteBatch::default();
    let upper = [&PREFIX[..], &[FILE + 1]].concat();
    batch.delete_range_cf(database.family(Family::Extents), &PREFIX[..], &upper[..]);
    database.write_unlogged(batch)?;
    database.flush_family(Family::Extents)
}

fn malformed() -> Error {
    Error::corrupt("the place of an extent is malformed")
}

#[cfg(test)]
mod tests {
    use martlet_protocol::opening::Uuid;

    use super::super::options::Caches;
    use super::*;

    fn open(folder: &std::path::Path) -> Database {
        Database::open(folder, &Caches::default()).unwrap()
    }

    fn record(volume: u32, block: u64, blocks: u64) -> UsedPlace {
        let at = DiskPlace::Record(RecordPlace { volume, offset: block * ALIGN_BYTES });
        UsedPlace { at, bytes: blocks * ALIGN_BYTES }
    }

    fn file(id: ExtentId) -> UsedPlace {
        UsedPlace { at: DiskPlace::File(id), bytes: 1 << 26 }
    }

    fn write(database: &Database, places: &[UsedPlace], removed: &[DiskPlace]) {
        let mut batch = WriteBatch::default();
        for place in places {
            put(database, &mut batch, place).unwrap();
        }
        for place in removed {
            remove(database, &mut batch, place).unwrap();
        }
        database.write_unlogged(batch).unwrap();
    }

    fn all(database: &Database) -> Vec<UsedPlace> {
        let mut found = Vec::new();
        let collect = |place| {
            found.push(place);
            Ok(())
        };
        each(database, collect).unwrap();
        found
    }

    fn files(database: &Database, first: u8) -> Vec<ExtentId> {
        let mut found = Vec::new();
        let collect = |id| {
            found.push(id);
            Ok(())
        };
        each_file(database, first, collect).unwrap();
        found
    }

    #[test]
    fn places_are_visited_in_order_and_beside_no_row_of_an_extent() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path());
        let ids = [0_u8, 1, 0xfe, 0xff].map(|first| ExtentId([first; 16]));
        let mut rows = WriteBatch::default();
        for id in ids {
            rows.put_cf(database.family(Family::Extents), id.0, b"row");
        }
        database.write_unlogged(rows).unwrap();
        let placed =
            [record(0, 1, 2), record(0, 3, 257), record(1, 1, 1), record(3725, 1 << 20, 9)];
        let mut shuffled = placed;
        shuffled.reverse();
        write(&database, &shuffled, &[]);
        write(&database, &ids.map(file), &[]);
        assert_eq!(all(&database), [&placed[..], &ids.map(file)].concat());
        for id in ids {
            assert_eq!(files(&database, id.0[0]), [id]);
        }
        assert!(files(&database, 7).is_empty());
        write(&database, &[], &[placed[1].at, DiskPlace::File(ids[3]), record(9, 9, 9).at]);
        let left = [placed[0], placed[2], placed[3], file(ids[0]), file(ids[1]), file(ids[2])];
        assert_eq!(all(&database), left);
        assert!(files(&database, 0xff).is_empty());
        forget_all(&database).unwrap();
        assert_eq!(all(&database), []);
        let rows = ids.map(|id| database.get(Family::Extents, &id.0).unwrap());
        assert!(rows.iter().all(Option::is_some), "rows stay");
        let mut batch = WriteBatch::default();
        assert!(
            put(&database, &mut batch, &record(0, 1, 1 << 16)).is_err(),
            "no record is as long"
        );
    }

    #[test]
    fn places_are_complete_up_to_the_last_opening_that_kept_them() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path());
        let [none, one, two, three] = [0, 1, 2, 3].map(|number| Uuid([number; 16]));
        complete(&database).unwrap();
        assert!(!are_complete(&database).unwrap(), "an index without an opening");
        opening_row::note(&database, none, one, false).unwrap();
        assert!(!are_complete(&database).unwrap());
        complete(&database).unwrap();
        assert!(are_complete(&database).unwrap());
        opening_row::note(&database, one, two, true).unwrap();
        drop(database);
        let database = open(folder.path());
        assert!(are_complete(&database).unwrap(), "durable without a log");
        // A release that keeps no places.
        opening_row::note(&database, two, three, false).unwrap();
        assert!(!are_complete(&database).unwrap());
        complete(&database).unwrap();
        distrust(&database).unwrap();
        drop(database);
        assert!(!are_complete(&open(folder.path())).unwrap());
    }
}
