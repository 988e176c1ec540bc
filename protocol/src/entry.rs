//! Content of a register: an object, a delete marker, a bucket, an upload, a part, an account
//! document or a tombstone.
//!
//! ```text
//! version 4 (1) | order (16) | write id (16) | postcard of the value | tail, or nothing
//! ```
//!
//! The head has a fixed layout, so that a replica compares orders without decoding the value.
//! Formats 1 and 2 have other buckets and no [`tail`]; the tails of format 3 have no marks. All
//! older formats can be read.

mod account;
mod body;
mod bucket;
mod bucket_formats;
mod facts;
mod marks;
mod object;
mod summary;
mod tail;
mod upload;
mod value;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::account::AccountDocument;
pub use self::body::{Body, Manifest};
pub use self::bucket::{Bucket, BucketState};
pub use self::facts::{EntryFacts, ValueKind};
pub use self::marks::{Mark, Marks};
pub use self::object::{
    Attributes, Checksum, ChecksumAlgorithm, ChecksumKind, DeleteMarker, ETag, ETagKind, Object,
};
use self::tail::{Tail, TailFormat3};
pub use self::upload::{KeyCondition, Part, Upload, UploadState};
pub use self::value::Value;
use crate::error::{Error, Result};
use crate::id::WriteId;
use crate::stamp::Stamp;

const VERSION: u8 = 4;
/// Format without marks on objects and uploads.
const VERSION_BEFORE_MARKS: u8 = 3;
/// Format without bucket settings.
const VERSION_BEFORE_SETTINGS: u8 = 2;
/// Format without bucket settings and without bucket levels.
const VERSION_BEFORE_LEVELS: u8 = 1;
const HEAD_BYTES: usize = 1 + Stamp::BYTES + 16;

/// Content of one register: order, write id and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Stamp of the entry in the total order of writes. May only rise.
    pub order: Stamp,
    /// Id of the client's write; permanent.
    pub write_id: WriteId,
    /// The written value.
    pub value: Value,
}

impl Entry {
    /// Returns true for an upload that was completed or aborted: its state is final.
    pub fn is_ended_upload(&self) -> bool {
        let Value::Upload(upload) = &self.value else { return false };
        matches!(upload.state, UploadState::Completed { .. } | UploadState::Aborted)
    }

    /// Returns the entry in the index's format.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.order.to_bytes());
        bytes.extend_from_slice(&self.write_id.0);
        let bytes =
            postcard::to_extend(&self.value, bytes).expect("an entry in memory can be encoded");
        let tail = Tail::of(&self.value);
        if tail.is_empty() {
            return bytes;
        }
        postcard::to_extend(&tail, bytes).expect("a tail in memory can be encoded")
    }

    /// Decodes the bytes of [`Entry::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an entry, or have a
    /// later format.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (order, write_id) = Self::peek(bytes)?;
        let rest = &bytes[HEAD_BYTES..];
        // Partial decoders read the kind as one byte. A longer number of the same kind is refused.
        if rest.first().is_some_and(|kind| *kind >= 0x80) {
            return Err(Error::corrupt("the kind of an index entry has more than one byte"));
        }
        let value = match bytes[0] {
            VERSION_BEFORE_LEVELS => bucket_formats::decode_before_levels(rest),
            VERSION_BEFORE_SETTINGS => bucket_formats::decode_before_settings(rest),
            VERSION_BEFORE_MARKS => decode_with::<TailFormat3>(rest),
            _ => decode_with::<Tail>(rest),
        };
        let value = value.map_err(|error| {
            Error::corrupt("an index entry can't be decoded").with_source(error)
        })?;
        Ok(Self { order, write_id, value })
    }

    /// Returns order and write id of an encoded entry, without decoding the rest.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the head is too short or has an
    /// unknown format.
    pub fn peek(bytes: &[u8]) -> Result<(Stamp, WriteId)> {
        let head =
            bytes.get(..HEAD_BYTES).ok_or_else(|| Error::corrupt("an index entry is too short"))?;
        if !(VERSION_BEFORE_LEVELS..=VERSION).contains(&head[0]) {
            return Err(Error::corrupt(format!("an index entry has format {}", head[0])));
        }
        let mut order = [0; Stamp::BYTES];
        order.copy_from_slice(&head[1..=Stamp::BYTES]);
        let mut write_id = [0; 16];
        write_id.copy_from_slice(&head[1 + Stamp::BYTES..]);
        Ok((Stamp::from_bytes(order), WriteId(write_id)))
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.order, self.write_id, &self.value, Tail::of(&self.value)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (order, write_id, mut value, tail) =
            <(Stamp, WriteId, Value, Tail)>::deserialize(deserializer)?;
        tail.join(&mut value);
        Ok(Self { order, write_id, value })
    }
}

/// Decodes a value and joins it with the tail that follows, if any.
fn decode_with<T>(bytes: &[u8]) -> std::result::Result<Value, postcard::Error>
where
    T: DeserializeOwned + Into<Tail>,
{
    let (mut value, rest) = postcard::take_from_bytes::<Value>(bytes)?;
    if !rest.is_empty() {
        postcard::from_bytes::<T>(rest)?.into().join(&mut value);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::WriterId;

    fn entry(value: Value) -> Entry {
        Entry { order: Stamp { time: 77, writer: WriterId(5) }, write_id: WriteId([3; 16]), value }
    }

    #[test]
    fn the_kind_of_a_value_has_one_byte() {
        let bytes = entry(Value::Tombstone).encode();
        let (head, value) = bytes.split_at(HEAD_BYTES);
        assert_eq!(value, [0]);
        let longer = [head, &[0x80, 0]].concat();
        assert!(postcard::from_bytes::<Value>(&longer[HEAD_BYTES..]).is_ok());
        let refused = Entry::decode(&longer).unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::Corrupt);
        assert!(Entry::facts(&longer).is_err(), "facts agree");
    }

    #[test]
    fn entries_decode_to_what_was_encoded() {
        let object = Object {
            size: 10,
            etag: ETag::Multipart { md5: [9; 16], parts: 2 },
            modified_ms: 5,
            attributes: Attributes {
                content_type: Some("text/plain".into()),
                user_metadata: vec![("a".into(), "b".into())],
                ..Attributes::default()
            },
            checksums: vec![Checksum {
                algorithm: ChecksumAlgorithm::Crc32,
                kind: ChecksumKind::FullObject,
                value: vec![1, 2, 3, 4],
            }],
            upload: None,
            body: Body::Inline { crc32c: 4 },
            version: None,
        };
        for value in [Value::Tombstone, Value::Object(Box::new(object))] {
            let entry = entry(value);
            assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
            assert_eq!(Entry::peek(&entry.encode()).unwrap(), (entry.order, entry.write_id));
        }
    }

    #[test]
    fn entries_without_a_bucket_decode_alike_in_every_format() {
        for version in [VERSION_BEFORE_LEVELS, VERSION_BEFORE_SETTINGS] {
            let mut tombstone = entry(Value::Tombstone).encode();
            tombstone[0] = version;
            assert_eq!(Entry::decode(&tombstone).unwrap().value, Value::Tombstone);
        }
    }

    #[test]
    fn foreign_bytes_are_corrupt_and_do_not_panic() {
        assert!(Entry::decode(&[]).is_err());
        assert!(Entry::decode(&[9; 60]).is_err());
        let mut bytes = entry(Value::Tombstone).encode();
        bytes[HEAD_BYTES] = 0xff;
        assert!(Entry::decode(&bytes).is_err());
    }
}
