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

use martlet_protocol::backend::OldKind;
use martlet_protocol::entry::Entry;
use martlet_protocol::{Error, Result, Stamp};

use super::rows::RegisterRow;

const KIND_BYTES: usize = 1;
const KEY_AT: usize = KIND_BYTES + Stamp::BYTES;

fn number(kind: OldKind) -> u8 {
    match kind {
        OldKind::Tombstones => 1,
        OldKind::Promises => 2,
    }
}

/// Returns the start of the keys of a list at a stamp.
pub(super) fn start(kind: OldKind, at: Stamp) -> Vec<u8> {
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

/// Returns the order or the promise in a row.
pub(super) fn stamp_in(row: &[u8]) -> Result<Stamp> {
    let stamp = row.get(KIND_BYTES..).and_then(|rest| rest.first_chunk()).ok_or_else(malformed)?;
    Ok(Stamp::from_bytes(*stamp))
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::Value;
    use martlet_protocol::{BucketId, RegisterKey, WriteId};

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
