//! Facts of an encoded entry that its first bytes show, without a decoding.

use super::{Entry, HEAD_BYTES};
use crate::error::{Error, Result};

/// Kind of a value, by its number at the start of an encoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// [`Value::Tombstone`](super::Value::Tombstone).
    Tombstone,
    /// [`Value::Object`](super::Value::Object).
    Object,
    /// [`Value::Bucket`](super::Value::Bucket).
    Bucket,
    /// [`Value::Upload`](super::Value::Upload).
    Upload,
    /// [`Value::Part`](super::Value::Part).
    Part,
    /// [`Value::DeleteMarker`](super::Value::DeleteMarker).
    DeleteMarker,
    /// [`Value::Account`](super::Value::Account).
    Account,
}

/// Facts of an encoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    /// Kind of the value.
    pub kind: ValueKind,
    /// Length in bytes of an object or part; zero for other values.
    pub size: u64,
    /// Length in bytes of the encoded value with its tail.
    pub value_bytes: usize,
}

/// Kinds by their numbers, which are for good.
const KINDS: [ValueKind; 7] = [
    ValueKind::Tombstone,
    ValueKind::Object,
    ValueKind::Bucket,
    ValueKind::Upload,
    ValueKind::Part,
    ValueKind::DeleteMarker,
    ValueKind::Account,
];

impl Entry {
    /// Returns the facts of an encoded entry. Its head is not verified.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are too short, or the value
    /// is of an unknown kind.
    pub fn facts(bytes: &[u8]) -> Result<EntryFacts> {
        let value = bytes.get(HEAD_BYTES..).unwrap_or_default();
        let facts = || {
            let (number, rest) = value.split_first()?;
            let kind = *KINDS.get(usize::from(*number))?;
            let size = match kind {
                // The first field of an object and of a part.
                ValueKind::Object | ValueKind::Part => number_at(rest)?,
                _ => 0,
            };
            Some(EntryFacts { kind, size, value_bytes: value.len() })
        };
        facts().ok_or_else(|| Error::corrupt("an index entry can't be decoded"))
    }
}

/// Returns the number of postcard at the start of some bytes.
fn number_at(bytes: &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{
        AccountDocument, Attributes, Body, Bucket, BucketState, DeleteMarker, ETag, Object, Part,
        Upload, UploadState, Value,
    };
    use crate::id::{BucketId, PolicyId, UploadId, WriteId};
    use crate::settings::Settings;
    use crate::stamp::Stamp;

    fn object(size: u64) -> Value {
        Value::Object(Box::new(Object {
            size,
            etag: ETag::Md5([9; 16]),
            modified_ms: 5,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        }))
    }

    fn values() -> Vec<(Value, ValueKind, u64)> {
        let (tag, modified_ms, checksums) = ([1; 16], 2, Vec::new());
        let part = Part { size: 128, tag, modified_ms, checksums, body: Body::Empty };
        let upload = Upload {
            key: "k".into(),
            id: UploadId([2; 16]),
            initiated_ms: 1,
            policy: PolicyId(1),
            attributes: Attributes::default(),
            checksum: None,
            state: UploadState::Open,
        };
        let bucket = Bucket {
            id: BucketId([4; 16]),
            created_ms: 9,
            generation: 3,
            state: BucketState::Open,
            index_shards: 16,
            policy: PolicyId(1),
            owner: "me".into(),
            consistency: crate::Level::default(),
            settings: Settings::default(),
        };
        let marker = DeleteMarker { modified_ms: 4, version: None };
        vec![
            (Value::Tombstone, ValueKind::Tombstone, 0),
            (object(0), ValueKind::Object, 0),
            (object(u64::MAX), ValueKind::Object, u64::MAX),
            (Value::Bucket(Box::new(bucket)), ValueKind::Bucket, 0),
            (Value::Upload(Box::new(upload)), ValueKind::Upload, 0),
            (Value::Part(Box::new(part)), ValueKind::Part, 128),
            (Value::DeleteMarker(Box::new(marker)), ValueKind::DeleteMarker, 0),
            (Value::Account(AccountDocument::new(vec![7])), ValueKind::Account, 0),
        ]
    }

    #[test]
    fn facts_are_those_of_the_decoded_entry() {
        for (value, kind, size) in values() {
            let entry = Entry { order: Stamp::at_ms(7), write_id: WriteId([3; 16]), value };
            let bytes = entry.encode();
            let value_bytes = bytes.len() - HEAD_BYTES;
            assert_eq!(Entry::facts(&bytes).unwrap(), EntryFacts { kind, size, value_bytes });
            assert!(Entry::facts(&bytes[..HEAD_BYTES]).is_err());
        }
    }

    #[test]
    fn foreign_bytes_are_corrupt() {
        for wrong in
            [vec![], vec![9; 60], [vec![4; HEAD_BYTES], vec![1; 1], vec![0xff; 11]].concat()]
        {
            assert!(Entry::facts(&wrong).is_err(), "{wrong:?}");
        }
    }
}
