//! Encoding of index rows.
//!
//! ```text
//! entries   register key  → format (1) | flags (1) | promise (16) | entry, or nothing
//! inline    register key  → write id (16) | bytes
//! garbage   time (8, big-endian) | write id (16)
//!                         → key length (2, little-endian) | register key | postcard of the body
//! meta      'f' | bucket id (16)
//!                         → generation (8, little-endian) | open (1)
//! ```
//!
//! The rows of hints are described in [`hints`](super::hints), the rows of sums in
//! [`tree`](super::tree), the rest of `meta` in [`voting`](super::voting).
//!
//! The flags show if a replaced entry has extents or inline bytes, so that most writes replace an
//! entry without decoding it. They also mark a tombstone that may be collected (rule T1). Every
//! write makes a new row, so this mark disappears with its entry.

use bytes::Bytes;
use martlet_protocol::backend::{BucketFence, Garbage, GarbageId};
use martlet_protocol::entry::{Body, Entry};
use martlet_protocol::key::PREFIX_BYTES;
use martlet_protocol::register::Register;
use martlet_protocol::{BucketId, Error, RegisterKey, Result, Stamp, WriteId};

const FORMAT: u8 = 1;
const PROMISE_AT: usize = 2;
const ENTRY_AT: usize = PROMISE_AT + Stamp::BYTES;
const HAS_EXTENTS: u8 = 1;
const HAS_INLINE: u8 = 2;
const COLLECTABLE: u8 = 4;
const KNOWN_FLAGS: u8 = HAS_EXTENTS | HAS_INLINE | COLLECTABLE;
const WRITE_ID_BYTES: usize = 16;
const FENCE: u8 = b'f';
/// Upper bound of all register keys: no kind is 255.
pub(super) const LAST_KEY: [u8; PREFIX_BYTES] = [0xff; PREFIX_BYTES];

/// A row of `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegisterRow(Vec<u8>);

impl RegisterRow {
    /// Encodes the row of an entry, without a promise.
    pub(super) fn of(entry: &Entry) -> Self {
        let body = entry.value.body();
        let mut flags = 0;
        if body.is_some_and(Body::has_extents) {
            flags |= HAS_EXTENTS;
        }
        if matches!(body, Some(Body::Inline { .. })) {
            flags |= HAS_INLINE;
        }
        let encoded = entry.encode();
        let mut row = Vec::with_capacity(ENTRY_AT + encoded.len());
        row.extend_from_slice(&[FORMAT, flags]);
        row.extend_from_slice(&Stamp::ZERO.to_bytes());
        row.extend_from_slice(&encoded);
        Self(row)
    }

    /// Encodes the row of an empty register.
    pub(super) fn empty() -> Self {
        let mut row = vec![0; ENTRY_AT];
        row[0] = FORMAT;
        Self(row)
    }

    /// Parses a stored row.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        check(bytes)?;
        Ok(Self(bytes.to_vec()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn set_promise(&mut self, promise: Stamp) {
        self.0[PROMISE_AT..ENTRY_AT].copy_from_slice(&promise.to_bytes());
    }

    pub(super) fn register(&self) -> Result<Register> {
        let held = match entry_of(&self.0) {
            [] => None,
            entry => Some(Entry::peek(entry)?),
        };
        Ok(Register { promise: promise_of(&self.0), held })
    }

    /// Returns the encoded entry; empty without an entry.
    pub(super) fn entry_bytes(&self) -> &[u8] {
        entry_of(&self.0)
    }

    pub(super) fn entry(&self) -> Result<Option<Entry>> {
        match entry_of(&self.0) {
            [] => Ok(None),
            entry => Entry::decode(entry).map(Some),
        }
    }

    /// Returns true if the row holds a tombstone that may be collected.
    pub(super) fn is_collectable(&self) -> bool {
        self.0[1] & COLLECTABLE != 0
    }

    pub(super) fn set_collectable(&mut self) {
        self.0[1] |= COLLECTABLE;
    }

    /// Returns order and write id of an entry that counts in the sums.
    pub(super) fn counted(&self) -> Result<Option<(Stamp, WriteId)>> {
        counted(&self.0)
    }

    pub(super) fn has_extents(&self) -> bool {
        self.0[1] & HAS_EXTENTS != 0
    }

    pub(super) fn has_inline(&self) -> bool {
        self.0[1] & HAS_INLINE != 0
    }
}

/// Returns promise and entry of a row, without copying the row.
pub(super) fn decode_register(row: &[u8]) -> Result<(Stamp, Option<Entry>)> {
    check(row)?;
    let entry = match entry_of(row) {
        [] => None,
        entry => Some(Entry::decode(entry)?),
    };
    Ok((promise_of(row), entry))
}

/// Returns the encoded entry of a row, without copying the row; empty without an entry.
pub(super) fn entry_bytes(row: &[u8]) -> Result<&[u8]> {
    check(row)?;
    Ok(entry_of(row))
}

/// Returns order and write id of the row's entry, if it counts in the sums. Collectable tombstones
/// don't (rule T1).
pub(super) fn counted(row: &[u8]) -> Result<Option<(Stamp, WriteId)>> {
    check(row)?;
    match entry_of(row) {
        [] => Ok(None),
        _ if row[1] & COLLECTABLE != 0 => Ok(None),
        entry => Entry::peek(entry).map(Some),
    }
}

fn check(row: &[u8]) -> Result<()> {
    if row.len() < ENTRY_AT {
        return Err(Error::corrupt("an index row is too short"));
    }
    if row[0] != FORMAT || row[1] & !KNOWN_FLAGS != 0 {
        return Err(Error::corrupt(format!("an index row has format {}, {:#x}", row[0], row[1])));
    }
    Ok(())
}

fn promise_of(row: &[u8]) -> Stamp {
    let mut promise = [0; Stamp::BYTES];
    promise.copy_from_slice(&row[PROMISE_AT..ENTRY_AT]);
    Stamp::from_bytes(promise)
}

fn entry_of(row: &[u8]) -> &[u8] {
    &row[ENTRY_AT..]
}

/// Encodes a row of `inline`.
pub(super) fn inline_row(write_id: WriteId, bytes: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(WRITE_ID_BYTES + bytes.len());
    row.extend_from_slice(&write_id.0);
    row.extend_from_slice(bytes);
    row
}

/// Returns the write id of inline bytes, and the bytes.
pub(super) fn split_inline(row: &[u8]) -> Result<(WriteId, &[u8])> {
    let (id, bytes) = row
        .split_first_chunk::<WRITE_ID_BYTES>()
        .ok_or_else(|| Error::corrupt("a row of inline bytes is too short"))?;
    Ok((WriteId(*id), bytes))
}

/// Computes the CRC32C that guards inline bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes))
        .expect("a CRC of 32 bits fits 32 bits")
}

/// Encodes the key of a garbage row: the time, then the write id that makes it unique.
pub(super) fn garbage_key(at_ms: u64, write_id: WriteId) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + WRITE_ID_BYTES);
    key.extend_from_slice(&at_ms.to_be_bytes());
    key.extend_from_slice(&write_id.0);
    key
}

/// Encodes a garbage row.
pub(super) fn garbage_row(key: &[u8], body: &Body) -> Vec<u8> {
    let length = u16::try_from(key.len()).expect("a register key is shorter than 64 KiB");
    let mut row = Vec::with_capacity(2 + key.len() + 64);
    row.extend_from_slice(&length.to_le_bytes());
    row.extend_from_slice(key);
    postcard::to_extend(body, row).expect("a body in memory can be encoded")
}

/// Decodes the result of [`garbage_row`].
pub(super) fn decode_garbage(id: &[u8], row: &[u8]) -> Result<Garbage> {
    let malformed = || Error::corrupt("a garbage row is malformed");
    let (length, rest) = row.split_first_chunk::<2>().ok_or_else(malformed)?;
    let (key, body) =
        rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or_else(malformed)?;
    Ok(Garbage {
        id: GarbageId(Bytes::copy_from_slice(id)),
        key: RegisterKey::decode(key)?,
        body: postcard::from_bytes(body).map_err(|error| malformed().with_source(error))?,
    })
}

/// Encodes the key of a fence.
pub(super) fn fence_key(bucket: BucketId) -> [u8; 17] {
    let mut key = [FENCE; 17];
    key[1..].copy_from_slice(&bucket.0);
    key
}

/// Range of all keys of fences.
pub(super) const FENCE_KEYS: [&[u8]; 2] = [&[FENCE], &[FENCE + 1]];

/// Encodes a fence row.
pub(super) fn fence_row(fence: &BucketFence) -> [u8; 9] {
    let mut row = [u8::from(fence.open); 9];
    row[..8].copy_from_slice(&fence.generation.to_le_bytes());
    row
}

/// Decodes the results of [`fence_key`] and [`fence_row`].
pub(super) fn decode_fence(key: &[u8], row: &[u8]) -> Result<BucketFence> {
    let malformed = || Error::corrupt("a bucket's fence is malformed");
    let bucket = key.get(1..).and_then(|id| id.try_into().ok()).ok_or_else(malformed)?;
    let (generation, open) = row.split_first_chunk::<8>().ok_or_else(malformed)?;
    let open = match open {
        [0] => false,
        [1] => true,
        _ => return Err(malformed()),
    };
    Ok(BucketFence { bucket: BucketId(bucket), generation: u64::from_le_bytes(*generation), open })
}

/// Returns the key range of a bucket's registers: no kind is 255.
pub(super) fn bucket_keys(bucket: BucketId) -> [[u8; PREFIX_BYTES]; 2] {
    let mut keys = [[0; PREFIX_BYTES], [0xff; PREFIX_BYTES]];
    keys[0][..16].copy_from_slice(&bucket.0);
    keys[1][..16].copy_from_slice(&bucket.0);
    keys
}

/// Returns the first key above `after`; without `after`, the lowest key.
pub(super) fn above(after: Option<&RegisterKey>) -> Vec<u8> {
    let mut key = after.map(RegisterKey::encode).unwrap_or_default();
    if after.is_some() {
        key.push(0);
    }
    key
}

/// Returns the first key above all keys with `prefix`; empty if none exists.
pub(super) fn successor(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last + 1);
    let mut above = prefix[..kept].to_vec();
    if let Some(last) = above.last_mut() {
        *last += 1;
    }
    above
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::Value;
    use martlet_protocol::stamp::WriterId;
    use proptest::prelude::*;

    use super::*;

    fn stamp(time: u64) -> Stamp {
        Stamp { time, writer: WriterId(9) }
    }

    #[test]
    fn a_row_keeps_promise_and_entry() {
        let entry = Entry { order: stamp(4), write_id: WriteId([7; 16]), value: Value::Tombstone };
        let mut row = RegisterRow::of(&entry);
        row.set_promise(stamp(8));
        let row = RegisterRow::parse(row.bytes()).unwrap();
        let register = row.register().unwrap();
        assert_eq!(register.promise, stamp(8));
        assert_eq!(register.held, Some((stamp(4), WriteId([7; 16]))));
        assert_eq!(decode_register(row.bytes()).unwrap(), (stamp(8), Some(entry)));
    }

    #[test]
    fn an_empty_row_holds_nothing() {
        let row = RegisterRow::empty();
        assert_eq!(row.register().unwrap(), Register::default());
        assert_eq!(row.entry().unwrap(), None);
        assert!(!row.has_extents() && !row.has_inline());
        assert_eq!(row.counted().unwrap(), None);
    }

    #[test]
    fn a_tombstone_that_may_be_collected_counts_no_more() {
        let entry = Entry { order: stamp(4), write_id: WriteId([7; 16]), value: Value::Tombstone };
        let mut row = RegisterRow::of(&entry);
        assert_eq!(row.counted().unwrap(), Some((stamp(4), WriteId([7; 16]))));
        row.set_collectable();
        let row = RegisterRow::parse(row.bytes()).unwrap();
        assert!(row.is_collectable());
        assert_eq!(row.counted().unwrap(), None);
        assert_eq!(decode_register(row.bytes()).unwrap().1, Some(entry));
    }

    #[test]
    fn foreign_bytes_are_corrupt() {
        assert!(RegisterRow::parse(&[]).is_err());
        assert!(RegisterRow::parse(&[9; 40]).is_err());
        assert!(decode_garbage(b"x", &[200, 1, 0]).is_err());
        assert!(decode_fence(&fence_key(BucketId::ROOT), &[2; 9]).is_err());
        assert!(split_inline(&[1; 15]).is_err());
    }

    #[test]
    fn fences_decode_to_what_was_encoded() {
        for open in [false, true] {
            let fence = BucketFence { bucket: BucketId([3; 16]), generation: 77, open };
            let decoded = decode_fence(&fence_key(fence.bucket), &fence_row(&fence)).unwrap();
            assert_eq!(decoded, fence);
        }
    }

    #[test]
    fn crc32c_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn the_successor_bounds_a_prefix(prefix: Vec<u8>, rest: Vec<u8>, other: Vec<u8>) {
            let above = successor(&prefix);
            let inside = [prefix.as_slice(), &rest].concat();
            if above.is_empty() {
                prop_assert!(prefix.iter().all(|&byte| byte == 0xff));
            } else {
                prop_assert!(inside < above);
                let between = other > prefix && other < above;
                prop_assert!(!between || other.starts_with(&prefix));
            }
        }
    }
}
