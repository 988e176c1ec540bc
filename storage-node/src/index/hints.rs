//! Hints: writes that are kept for the primaries of their registers (rule A2).
//!
//! ```text
//! hints     register key  → format (1) | keep body (1) | since, in milliseconds (8, little-endian)
//!                           | length of the entry (4, little-endian) | entry | inline bytes
//! ```
//!
//! A register has at most one hint, with the highest order. The extents of a replaced hint don't
//! become garbage, because this device can't know if a primary accepted that write. The sweep finds
//! extents without an owner.

use bytes::Bytes;
use martlet_protocol::backend::{Hint, RegisterView, Want};
use martlet_protocol::entry::{Body, Entry};
use martlet_protocol::{Error, RegisterKey, Result, Stamp, WriteId};

use super::database::{CachedRead, Database};
use super::family::Family;
use super::read::RegisterReader;
use super::rows;

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 1 + 1 + 8 + 4;

/// A parsed row of `hints`.
pub(super) struct HintRow<'a> {
    pub(super) keep_body: bool,
    pub(super) since_ms: u64,
    pub(super) entry: &'a [u8],
    pub(super) inline: &'a [u8],
}

impl<'a> HintRow<'a> {
    pub(super) fn parse(row: &'a [u8]) -> Result<Self> {
        let malformed = || Error::corrupt("a row of hints is malformed");
        let (head, rest) = row.split_first_chunk::<HEAD_BYTES>().ok_or_else(malformed)?;
        let [FORMAT, keep_body @ (0 | 1), rest_of_head @ ..] = head else {
            return Err(malformed());
        };
        let (since, length) = rest_of_head.split_first_chunk::<8>().ok_or_else(malformed)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| malformed())?);
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (entry, inline) = rest.split_at_checked(length).ok_or_else(malformed)?;
        let since_ms = u64::from_le_bytes(*since);
        Ok(Self { keep_body: *keep_body == 1, since_ms, entry, inline })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.entry.len()).expect("an entry is shorter than 4 GiB");
        let mut row = Vec::with_capacity(HEAD_BYTES + self.entry.len() + self.inline.len());
        row.extend_from_slice(&[FORMAT, u8::from(self.keep_body)]);
        row.extend_from_slice(&self.since_ms.to_le_bytes());
        row.extend_from_slice(&length.to_le_bytes());
        row.extend_from_slice(self.entry);
        row.extend_from_slice(self.inline);
        row
    }

    pub(super) fn held(&self) -> Result<(Stamp, WriteId)> {
        Entry::peek(self.entry)
    }

    pub(super) fn decode(&self, want: Want) -> Result<(Entry, Option<Bytes>)> {
        let entry = Entry::decode(self.entry)?;
        let inline = match entry.value.body() {
            Some(Body::Inline { crc32c }) if want == Want::EntryAndInline => {
                if rows::crc32c(self.inline) != *crc32c {
                    return Err(Error::corrupt("a hint's bytes are corrupt"));
                }
                Some(Bytes::copy_from_slice(self.inline))
            }
            _ => None,
        };
        Ok((entry, inline))
    }
}

/// Returns the encoded entry of a row, for listings.
pub(super) fn entry_bytes(row: &[u8]) -> Result<&[u8]> {
    Ok(HintRow::parse(row)?.entry)
}

/// Returns the order of a row's entry.
pub(super) fn order_of(row: &[u8]) -> Result<Stamp> {
    Ok(HintRow::parse(row)?.held()?.0)
}

/// Reads the hint of a register.
pub(super) async fn read(
    reader: &RegisterReader,
    key: &RegisterKey,
    want: Want,
) -> Result<RegisterView> {
    let key = key.encode();
    if let CachedRead::Known(row) = reader.database.get_cached(Family::Hints, &key)? {
        return view(row.as_deref(), want);
    }
    let database = reader.database.clone();
    let read = move || view(database.get_pinned(Family::Hints, &key)?.as_deref(), want);
    reader.threads.run(read).await
}

fn view(row: Option<&[u8]>, want: Want) -> Result<RegisterView> {
    let Some(row) = row else { return Ok(RegisterView::default()) };
    let (entry, inline) = HintRow::parse(row)?.decode(want)?;
    Ok(RegisterView { promise: Stamp::ZERO, entry: Some(entry), inline })
}

/// Returns a page of hints above `after`. Blocks.
pub(super) fn page(
    database: &Database,
    after: Option<&RegisterKey>,
    limit: usize,
) -> Result<Vec<Hint>> {
    let mut hints = Vec::new();
    let visit = |key: &[u8], row: &[u8]| {
        hints.push(hint(key, row)?);
        Ok(())
    };
    database.scan(Family::Hints, &rows::above(after), &rows::LAST_KEY, limit, visit)?;
    Ok(hints)
}

/// Returns the hints of some keys, without those that were forgotten meanwhile. Blocks.
pub(super) fn of_keys(database: &Database, keys: &[Vec<u8>]) -> Result<Vec<Hint>> {
    let mut hints = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(row) = database.get_pinned(Family::Hints, key)? {
            hints.push(hint(key, &row)?);
        }
    }
    Ok(hints)
}

fn hint(key: &[u8], row: &[u8]) -> Result<Hint> {
    let row = HintRow::parse(row)?;
    let (entry, inline) = row.decode(Want::EntryAndInline)?;
    let (keep_body, since_ms) = (row.keep_body, row.since_ms);
    Ok(Hint { key: RegisterKey::decode(key)?, entry, inline, keep_body, since_ms })
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::Value;
    use martlet_protocol::stamp::WriterId;

    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written_and_foreign_bytes_are_corrupt() {
        let order = Stamp { time: 7, writer: WriterId(9) };
        let entry = Entry { order, write_id: WriteId([3; 16]), value: Value::Tombstone };
        let encoded = entry.encode();
        let row = HintRow { keep_body: true, since_ms: 77, entry: &encoded, inline: b"xyz" };
        let bytes = row.encode();
        let read = HintRow::parse(&bytes).unwrap();
        assert_eq!((read.keep_body, read.since_ms, read.inline), (true, 77, &b"xyz"[..]));
        assert_eq!(read.held().unwrap(), (order, WriteId([3; 16])));
        assert_eq!(read.decode(Want::Entry).unwrap().0, entry);
        assert!(HintRow::parse(&bytes[..HEAD_BYTES + 5]).is_err());
        assert!(HintRow::parse(&[9; 60]).is_err());
    }
}
