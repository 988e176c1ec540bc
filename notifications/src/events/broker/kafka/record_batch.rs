//! Batches of records, in the form that brokers store (magic 2), and the partition of a key.
//!
//! Source: "Record Batch" in <https://kafka.apache.org/documentation/#recordbatch>.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};

/// Record: the message as value, and the key that chooses its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Bytes,
}

/// Returns a batch of these records, without compression.
pub(super) fn record_batch(records: &[&Record], now_ms: u64) -> Vec<u8> {
    const MAGIC: i8 = 2;
    let count = i32::try_from(records.len()).expect("a batch has at most 256 KiB");
    let time = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let mut checked = Vec::new();
    checked.extend_from_slice(&0i16.to_be_bytes()); // attributes
    checked.extend_from_slice(&(count - 1).to_be_bytes());
    checked.extend_from_slice(&time.to_be_bytes()); // first timestamp
    checked.extend_from_slice(&time.to_be_bytes()); // last timestamp
    checked.extend_from_slice(&(-1i64).to_be_bytes()); // producer
    checked.extend_from_slice(&(-1i16).to_be_bytes()); // epoch of the producer
    checked.extend_from_slice(&(-1i32).to_be_bytes()); // sequence
    checked.extend_from_slice(&count.to_be_bytes());
    for (record, offset) in records.iter().zip(0i64..) {
        put_record(&mut checked, record, offset);
    }
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &checked);
    let sum = u32::try_from(sum).expect("CRC32C has 32 bits");
    // Behind the length: epoch of the leader (4), magic (1), checksum (4).
    let length = i32::try_from(checked.len() + 9).expect("a batch has at most 256 KiB");
    let mut batch = Vec::with_capacity(checked.len() + 21);
    batch.extend_from_slice(&0i64.to_be_bytes()); // first offset, which the broker sets
    batch.extend_from_slice(&length.to_be_bytes());
    batch.extend_from_slice(&(-1i32).to_be_bytes()); // epoch of the leader
    batch.extend_from_slice(&MAGIC.to_be_bytes());
    batch.extend_from_slice(&sum.to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

fn put_record(bytes: &mut Vec<u8>, record: &Record, offset: i64) {
    let mut body = vec![0]; // attributes
    put_varint(&mut body, 0); // time behind the first timestamp
    put_varint(&mut body, offset);
    match &record.key {
        Some(key) => put_bytes(&mut body, key),
        None => put_varint(&mut body, -1),
    }
    put_bytes(&mut body, &record.value);
    put_varint(&mut body, 0); // headers
    put_bytes(bytes, &body);
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, i64::try_from(value.len()).expect("a slice has at most i64::MAX bytes"));
    bytes.extend_from_slice(value);
}

/// Adds a number with the sign in its lowest bit, seven bits in a byte.
fn put_varint(bytes: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        bytes.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    bytes.push(rest.to_le_bytes()[0]);
}

/// Returns the partition of a key among `count` partitions, as the default partitioner of Kafka's
/// own producers does. Messages without a key share the first one.
pub(super) fn partition(key: Option<&[u8]>, count: usize) -> usize {
    let Some(key) = key else { return 0 };
    (murmur2(key) & 0x7fff_ffff) as usize % count
}

/// Hash of a key, with the seed of Kafka. Source: `Utils.murmur2` of Kafka's clients, after
/// Austin Appleby's `MurmurHash2`, which is in the public domain.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(key.len()).expect("keys are shorter than 4 GiB");
    let mut hash = SEED ^ length;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(M) ^ mixed.wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u32::from_le_bytes(word)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the tests of Kafka's own clients.
    #[test]
    fn keys_hash_as_those_of_other_producers() {
        let values: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, hash) in values {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert_eq!(partition(None, 7), 0);
        assert!((0..100u32).all(|it| partition(Some(&it.to_be_bytes()), 7) < 7));
    }

    #[test]
    fn numbers_are_short_if_they_are_small() {
        let of = |value: i64| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes
        };
        assert_eq!((of(0), of(-1), of(1)), (vec![0], vec![1], vec![2]));
        assert_eq!((of(63), of(64), of(300)), (vec![126], vec![0x80, 1], vec![0xd8, 4]));
        assert_eq!(of(i64::MIN).len(), 10);
    }

    #[test]
    fn a_batch_has_its_length_and_checksum() {
        let record = |key: Option<&str>, value: &'static str| Record {
            key: key.map(|it| it.as_bytes().to_vec()),
            value: Bytes::from_static(value.as_bytes()),
        };
        let (first, second) = (record(Some("k"), "v"), record(None, "w"));
        let batch = record_batch(&[&first, &second], 7);
        let length = i32::from_be_bytes(batch[8..12].try_into().unwrap());
        assert_eq!(usize::try_from(length).unwrap(), batch.len() - 12);
        assert_eq!(batch[16], 2, "magic");
        let sum = u32::from_be_bytes(batch[17..21].try_into().unwrap());
        assert_eq!(u64::from(sum), checksum(CrcAlgorithm::Crc32Iscsi, &batch[21..]));
        let records: &[u8] = &[16, 0, 0, 0, 2, b'k', 2, b'v', 0, 14, 0, 0, 2, 1, 2, b'w', 0];
        assert_eq!(&batch[61..], records);
    }
}
