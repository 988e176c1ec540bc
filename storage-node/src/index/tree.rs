//! Sums of a device's registers (rule H1): their rows, and their updates.
//!
//! ```text
//! tree      placement (8, big-endian) | bucket (16) | shard (2, big-endian) | bin (2, big-endian)
//!                         → sum of the leaves' hashes (16, little-endian) | their number (8)
//! meta      'h'           → fingerprint of the secret that keys the leaves (32)
//! ```
//!
//! An update never reads a row. A batch contains one merge operand for each changed bin, and
//! RocksDB adds the operands when it reads or compacts. Numbers wrap, so a subtraction adds the
//! negative value.
//!
//! Invariants:
//! * a row changes in the batch that changes the entry, so a power cut undoes both or neither;
//! * a bin without a row, and a bin whose row is zero, are empty.

use martlet_protocol::id::{BucketId, Shard, WriteId};
use martlet_protocol::key::index_placement;
use martlet_protocol::tree::{Bin, BinKey, Span, Sum, TreeKey};
use martlet_protocol::{Error, RegisterKey, Result, Stamp};
use rocksdb::{ColumnFamily, MergeOperands, WriteBatch};

use super::rows;

const SUM_BYTES: usize = 16 + 8;
const ROW_KEY_BYTES: usize = 8 + 16 + 2 + 2;

/// Key of a row.
pub(super) type RowKey = [u8; ROW_KEY_BYTES];

/// Upper bound of all rows.
pub(super) const LAST_ROW: [u8; ROW_KEY_BYTES + 1] = [0xff; ROW_KEY_BYTES + 1];

/// Contribution of one entry to the sums, and the row that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) at: RowKey,
    pub(super) sum: Sum,
}

impl Leaf {
    pub(super) fn of(secret: &TreeKey, key: &RegisterKey, order: Stamp, id: WriteId) -> Self {
        Self { at: row_key(&BinKey::of(key)), sum: Sum::leaf(secret, key, order, id) }
    }
}

/// Encodes the key of a bin's row.
pub(super) fn row_key(bin: &BinKey) -> RowKey {
    let mut key = [0; ROW_KEY_BYTES];
    key[..8].copy_from_slice(&bin.placement().to_be_bytes());
    key[8..24].copy_from_slice(&bin.bucket.0);
    key[24..26].copy_from_slice(&bin.shard.0.to_be_bytes());
    key[26..].copy_from_slice(&bin.bin.0.to_be_bytes());
    key
}

/// Returns the first row of a run, and an upper bound of its rows.
pub(super) fn run_rows(bucket: BucketId, shard: Shard) -> [RowKey; 2] {
    [Bin(0), Bin(u16::MAX)].map(|bin| row_key(&BinKey { bucket, shard, bin }))
}

/// Returns the first row of a span, and an upper bound of its rows.
pub(super) fn span_rows(span: Span) -> [Vec<u8>; 2] {
    let above = span.last.checked_add(1).map(|above| above.to_be_bytes().to_vec());
    [span.first.to_be_bytes().to_vec(), above.unwrap_or_else(|| LAST_ROW.to_vec())]
}

/// Returns placement and bin of a row.
pub(super) fn decode_key(key: &[u8]) -> Result<(u64, BinKey)> {
    let key: &RowKey =
        key.try_into().map_err(|_| Error::corrupt("the key of a row of sums is malformed"))?;
    let [p0, p1, p2, p3, p4, p5, p6, p7, rest @ ..] = key;
    let placement = u64::from_be_bytes([*p0, *p1, *p2, *p3, *p4, *p5, *p6, *p7]);
    let mut bucket = [0; 16];
    bucket.copy_from_slice(&rest[..16]);
    let bin = BinKey {
        bucket: BucketId(bucket),
        shard: Shard(u16::from_be_bytes([rest[16], rest[17]])),
        bin: Bin(u16::from_be_bytes([rest[18], rest[19]])),
    };
    Ok((placement, bin))
}

pub(super) fn encode_sum(sum: Sum) -> [u8; SUM_BYTES] {
    let mut row = [0; SUM_BYTES];
    row[..16].copy_from_slice(&sum.hash.to_le_bytes());
    row[16..].copy_from_slice(&sum.count.to_le_bytes());
    row
}

pub(super) fn decode_sum(row: &[u8]) -> Result<Sum> {
    parse(row).ok_or_else(|| Error::corrupt("a row of sums is malformed"))
}

fn parse(row: &[u8]) -> Option<Sum> {
    let (hash, count) = row.split_first_chunk::<16>()?;
    let count = u64::from_le_bytes(count.try_into().ok()?);
    Some(Sum { hash: u128::from_le_bytes(*hash), count })
}

/// Merge operator for RocksDB: adds operands to a row.
pub(super) fn add_up(_: &[u8], held: Option<&[u8]>, more: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum = held.map_or(Some(Sum::default()), parse)?;
    for operand in more {
        sum += parse(operand)?;
    }
    Some(encode_sum(sum).to_vec())
}

/// Returns true if a row equals a missing row.
pub(super) fn is_nothing(row: &[u8]) -> bool {
    row == [0; SUM_BYTES]
}

/// Identifies a secret without revealing it.
pub(super) fn fingerprint(secret: &TreeKey) -> [u8; 32] {
    blake3::derive_key("martlet 2026 which secret sums are keyed with", &secret.0)
}

/// Changes of the sums by a group, in order.
#[derive(Default)]
pub(super) struct Deltas(Vec<(RowKey, Sum)>);

impl Deltas {
    pub(super) fn add(&mut self, at: RowKey, sum: Sum) {
        self.0.push((at, sum));
    }

    pub(super) fn take(&mut self, at: RowKey, sum: Sum) {
        let mut negative = Sum::default();
        negative -= sum;
        self.add(at, negative);
    }

    /// Drops the changes in a bucket that is being purged.
    pub(super) fn forget(&mut self, bucket: BucketId) {
        self.0.retain(|(at, _)| at[8..24] != bucket.0);
    }

    /// Stages one operand for each changed bin.
    pub(super) fn stage(mut self, family: &ColumnFamily, batch: &mut WriteBatch) {
        self.0.sort_unstable_by_key(|(at, _)| *at);
        for of_bin in self.0.chunk_by(|a, b| a.0 == b.0) {
            let mut sum = Sum::default();
            for (_, more) in of_bin {
                sum += *more;
            }
            if sum != Sum::default() {
                batch.merge_cf(family, of_bin[0].0, encode_sum(sum));
            }
        }
    }
}

/// Returns bucket and shard of an encoded register key.
pub(super) fn run_of(key: &[u8]) -> Result<(BucketId, Shard)> {
    let (bucket, rest) =
        key.split_first_chunk::<16>().ok_or_else(|| Error::corrupt("an index key is too short"))?;
    match rest {
        [high, low, ..] => Ok((BucketId(*bucket), Shard(u16::from_be_bytes([*high, *low])))),
        _ => Err(Error::corrupt("an index key is too short")),
    }
}

/// Returns the common prefix of a run's register keys.
pub(super) fn run_prefix(bucket: BucketId, shard: Shard) -> [u8; 18] {
    let mut prefix = [0; 18];
    prefix[..16].copy_from_slice(&bucket.0);
    prefix[16..].copy_from_slice(&shard.0.to_be_bytes());
    prefix
}

/// Returns an upper bound of a run's register keys.
pub(super) fn above_run(bucket: BucketId, shard: Shard) -> Vec<u8> {
    match rows::successor(&run_prefix(bucket, shard)) {
        above if above.is_empty() => rows::LAST_KEY.to_vec(),
        above => above,
    }
}

/// Returns true if a run lies in a span.
pub(super) fn is_within(span: Span, bucket: BucketId, shard: Shard) -> bool {
    span == Span::ALL || span.contains(index_placement(bucket, shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_decode_to_what_was_encoded_and_sort_by_placement() {
        let bin = BinKey { bucket: BucketId([7; 16]), shard: Shard(300), bin: Bin(1023) };
        let key = row_key(&bin);
        assert_eq!(decode_key(&key).unwrap(), (bin.placement(), bin));
        let [first, above] = run_rows(bin.bucket, bin.shard);
        assert!(first <= key && key < above);
        let sum = Sum { hash: u128::MAX - 5, count: 9 };
        assert_eq!(decode_sum(&encode_sum(sum)).unwrap(), sum);
        assert!(decode_sum(&[0; 23]).is_err() && decode_key(&[0; 27]).is_err());
        assert!(is_nothing(&encode_sum(Sum::default())) && !is_nothing(&encode_sum(sum)));
    }

    #[test]
    fn a_span_bounds_its_placements() {
        let bin = BinKey { bucket: BucketId([9; 16]), shard: Shard(1), bin: Bin(5) };
        let (at, key) = (bin.placement(), row_key(&bin).to_vec());
        let holds = |first, last| {
            let [lower, upper] = span_rows(Span { first, last });
            lower <= key && key < upper
        };
        assert!(holds(at, at) && holds(0, at) && holds(at, u64::MAX) && holds(0, u64::MAX));
        assert!(!holds(at + 1, u64::MAX) && !holds(0, at - 1));
    }

    #[test]
    fn addition_and_subtraction_cancel() {
        let key = RegisterKey::object(BucketId([3; 16]), 4, "k");
        let leaf = Leaf::of(&TreeKey::default(), &key, Stamp::at_ms(5), WriteId([1; 16]));
        let mut deltas = Deltas::default();
        deltas.add(leaf.at, leaf.sum);
        deltas.take(leaf.at, leaf.sum);
        let mut sum = Sum::default();
        deltas.0.iter().for_each(|(_, more)| sum += *more);
        assert_eq!(sum, Sum::default());
        deltas.add(row_key(&BinKey { bucket: BucketId([4; 16]), ..BinKey::of(&key) }), leaf.sum);
        deltas.forget(key.bucket);
        assert_eq!(deltas.0.len(), 1);
        assert_ne!(fingerprint(&TreeKey([0; 32])), fingerprint(&TreeKey([1; 32])));
    }
}
