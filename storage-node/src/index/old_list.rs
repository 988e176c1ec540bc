//! Lists of tombstones and of promises by time, so that a collector visits old ones alone.
//!
//! ```text
//! old       kind (1): 1 tombstone, 2 promise | order or promise (16, big-endian) | register key
//!                         → nothing
//! ```
//!
//! A register with a tombstone is in the first list, a register without an entry in the second. The
//! rows change in the batch of their register, with one exception: a purged bucket leaves its rows.
//! So a reader compares each row with its register, and rows without one are removed.

use martlet_protocol::backend::{OldKind, OldList, OldPage, OldPlace, OldRegister};
use martlet_protocol::entry::Entry;
use martlet_protocol::{Error, RegisterKey, Result, Stamp};

use super::Index;
use super::database::Database;
use super::family::Family;
use super::queue::IndexOp;
use super::rows::RegisterRow;

const KIND_BYTES: usize = 1;
const KEY_AT: usize = KIND_BYTES + Stamp::BYTES;
/// Most rows that one call visits.
const VISITED_MAX: usize = 8192;

fn number(kind: OldKind) -> u8 {
    match kind {
        OldKind::Tombstones => 1,
        OldKind::Promises => 2,
    }
}

/// Returns the start of the keys of a list at a stamp.
fn start(kind: OldKind, at: Stamp) -> Vec<u8> {
    [&[number(kind)][..], &at.to_bytes()].concat()
}

/// Returns the row of a register, if it belongs into a list. `key` is encoded.
pub(super) fn row_of(key: &[u8], row: &RegisterRow) -> Result<Option<Vec<u8>>> {
    let entry = row.entry_bytes();
    let start = if entry.is_empty() {
        let promise = row.register()?.promise;
        if promise == Stamp::ZERO {
            return Ok(None);
        }
        start(OldKind::Promises, promise)
    } else if Entry::is_tombstone(entry)? {
        start(OldKind::Tombstones, Entry::peek(entry)?.0)
    } else {
        return Ok(None);
    };
    Ok(Some([&start[..], key].concat()))
}

/// Returns the encoded key of a row's register.
pub(super) fn register_in(row: &[u8]) -> Result<&[u8]> {
    row.get(KEY_AT..).ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::corrupt("a row of old registers is malformed")
}

fn stamp_in(row: &[u8]) -> Result<Stamp> {
    let stamp = row.get(KIND_BYTES..).and_then(|rest| rest.first_chunk()).ok_or_else(malformed)?;
    Ok(Stamp::from_bytes(*stamp))
}

/// Page of a list, and rows without a register.
struct FoundPage {
    page: OldPage,
    stale: Vec<Vec<u8>>,
}

fn page(
    database: &Database,
    list: OldList,
    after: Option<&OldPlace>,
    limit: usize,
) -> Result<FoundPage> {
    let mut found = FoundPage { page: OldPage::default(), stale: Vec::new() };
    let first = match after {
        None => start(list.kind, Stamp::ZERO),
        Some(OldPlace { at, key }) => [&start(list.kind, *at)[..], &key.encode(), &[0]].concat(),
    };
    let mut rows = database.iterate(Family::Old, &start(list.kind, list.before));
    rows.seek(first);
    for visited in 1..=VISITED_MAX {
        let Some(listed) = rows.key() else { break };
        let (at, key) = (stamp_in(listed)?, register_in(listed)?);
        let row = match database.get_pinned(Family::Entries, key)? {
            Some(row) => RegisterRow::parse(&row)?,
            None => RegisterRow::empty(),
        };
        let place = OldPlace { at, key: RegisterKey::decode(key)? };
        if row_of(key, &row)?.as_deref() == Some(listed) {
            let collectable = row.is_collectable();
            found.page.registers.push(OldRegister { place: place.clone(), collectable });
        } else {
            found.stale.push(listed.to_vec());
        }
        if found.page.registers.len() >= limit || visited == VISITED_MAX {
            found.page.next = Some(place);
            break;
        }
        rows.next();
    }
    database.ended_well(&rows)?;
    Ok(found)
}

impl Index {
    /// Returns a page of a list above `after`, and removes rows without a register.
    pub(crate) async fn old_registers(
        &self,
        list: OldList,
        after: Option<&OldPlace>,
        limit: usize,
    ) -> Result<OldPage> {
        self.counting.check_complete(&self.name)?;
        let (database, after) = (self.reader.database.clone(), after.cloned());
        let found = self.run(move || page(&database, list, after.as_ref(), limit)).await?;
        if !found.stale.is_empty() {
            self.submit(|reply| IndexOp::ListOld(found.stale, reply)).await?;
        }
        Ok(found.page)
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::Value;
    use martlet_protocol::{BucketId, WriteId};

    use super::*;

    #[test]
    fn tombstones_and_promises_are_listed_and_nothing_else() {
        let key = RegisterKey::object(BucketId([7; 16]), 16, "a/b").encode();
        let entry =
            Entry { order: Stamp::at_ms(9), write_id: WriteId([3; 16]), value: Value::Tombstone };
        let mut tombstone = RegisterRow::of(&entry);
        tombstone.set_promise(Stamp::at_ms(70));
        let row = row_of(&key, &tombstone).unwrap().unwrap();
        assert_eq!((row[0], stamp_in(&row).unwrap()), (1, Stamp::at_ms(9)));
        assert_eq!(register_in(&row).unwrap(), key);
        tombstone.set_collectable();
        assert_eq!(row_of(&key, &tombstone).unwrap(), Some(row), "marked or not");
        let mut empty = RegisterRow::empty();
        assert_eq!(row_of(&key, &empty).unwrap(), None);
        empty.set_promise(Stamp::at_ms(70));
        let row = row_of(&key, &empty).unwrap().unwrap();
        assert_eq!((row[0], stamp_in(&row).unwrap()), (2, Stamp::at_ms(70)));
        assert!(register_in(&[1; 9]).is_err() && stamp_in(&[1; 9]).is_err());
    }
}
