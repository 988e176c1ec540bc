//! What a register holds: an object, a delete marker, a bucket, an upload or a part, who may come in,
//! or a tombstone.
//!
//! ```text
//! version (4) | order (16) | write id (16) | postcard of the value | tail, or nothing
//! ```
//!
//! The head has a fixed layout, so that a replica compares orders without decoding the rest.
//! Formats 1 and 2 differ in their buckets, and have no [`tail`]; in format 3 a tail has no marks. They
//! are read.

mod account;
mod bucket;
mod marks;
mod tail;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::account::AccountDocument;
pub use self::bucket::{Bucket, BucketState};
pub use self::marks::{Mark, Marks};
use self::tail::{Tail, TailBeforeMarks};
use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::id::{PolicyId, UploadId, WriteId};
use crate::stamp::Stamp;
use crate::version::Version;

const VERSION: u8 = 4;
/// In which objects and parts had no marks.
const VERSION_BEFORE_MARKS: u8 = 3;
/// In which buckets had no settings.
const VERSION_BEFORE_SETTINGS: u8 = 2;
/// In which buckets had no level of their own either.
const VERSION_BEFORE_LEVELS: u8 = 1;
const HEAD_BYTES: usize = 1 + Stamp::BYTES + 16;

/// The content of one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the total order of writes. May only rise.
    pub order: Stamp,
    /// The client's write, for life.
    pub write_id: WriteId,
    /// What was written.
    pub value: Value,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// It was deleted.
    Tombstone,
    /// An object.
    Object(Box<Object>),
    /// A bucket, in the root bucket.
    Bucket(Box<Bucket>),
    /// A multipart upload.
    Upload(Box<Upload>),
    /// A part of an upload.
    Part(Box<Part>),
    /// A version that says that there is no object, in the bucket of which versions are kept.
    DeleteMarker(Box<DeleteMarker>),
    /// A document about who may come in, in the root bucket.
    Account(AccountDocument),
}

/// An object: what it says of itself, and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes.
    pub size: u64,
    /// As S3 computes it.
    pub etag: ETag,
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Headers, metadata and tags.
    pub attributes: Attributes,
    /// Checksums that the client gave or asked for.
    pub checksums: Vec<Checksum>,
    /// The upload that it was completed from.
    pub upload: Option<UploadId>,
    /// Where its bytes are.
    pub body: Body,
    /// Which version of its key it is; none of what was written before its bucket kept versions.
    #[serde(skip)]
    pub version: Option<Version>,
}

/// A version of a key that says that there is no object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteMarker {
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// As in [`Object::version`].
    #[serde(skip)]
    pub version: Option<Version>,
}

/// What a client says about an object beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Content-Type.
    pub content_type: Option<String>,
    /// Content-Encoding, without aws-chunked.
    pub content_encoding: Option<String>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Content-Language.
    pub content_language: Option<String>,
    /// Cache-Control.
    pub cache_control: Option<String>,
    /// Expires, as it was sent.
    pub expires: Option<String>,
    /// `x-amz-website-redirect-location`.
    pub website_redirect: Option<String>,
    /// `x-amz-storage-class`, as it was sent.
    pub storage_class: Option<String>,
    /// `x-amz-meta-*`: names in lower case without the prefix, in the order they came.
    pub user_metadata: Vec<(String, String)>,
    /// Object tags.
    pub tags: Vec<(String, String)>,
    /// What is set about it beside.
    #[serde(skip)]
    pub marks: Marks,
}

/// Where the bytes of an object or part are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// There are none.
    Empty,
    /// In the index, beside the entry.
    Inline {
        /// CRC32C of the bytes.
        crc32c: u32,
    },
    /// In extents.
    Extents(Manifest),
    /// In extents that a manifest names which was too long for the entry.
    Spilled {
        /// The policy that both kinds of extents live under.
        policy: PolicyId,
        /// The extents that hold the encoded [`Manifest`], in order.
        manifest: Vec<ExtentRef>,
    },
}

/// The extents of an object, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The policy they live under.
    pub policy: PolicyId,
    /// The extents, in the order of the object's bytes.
    pub extents: Vec<ExtentRef>,
    /// The length in bytes of each part that a multipart object was completed from; else empty.
    pub parts: Vec<u64>,
    /// The raw checksum of each of those parts, by the algorithm of the object's; else empty.
    #[serde(skip)]
    pub part_checksums: Vec<Vec<u8>>,
}

/// An entity tag as S3 computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ETag {
    /// MD5 of the bytes.
    Md5([u8; 16]),
    /// MD5 of the parts' MD5s, and how many parts.
    Multipart {
        /// MD5 of the concatenated MD5s of the parts.
        md5: [u8; 16],
        /// How many parts.
        parts: u16,
    },
}

/// A checksum of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Which.
    pub algorithm: ChecksumAlgorithm,
    /// Over what.
    pub kind: ChecksumKind,
    /// The raw value: 4, 8, 20 or 32 bytes.
    pub value: Vec<u8>,
}

/// The five algorithms of `x-amz-checksum-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumAlgorithm {
    /// CRC-32 (ISO HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// What a checksum of a multipart object covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// The bytes of the object.
    FullObject,
    /// The checksums of its parts.
    Composite,
}

/// A multipart upload: a register with compare-and-set (rule M1).
///
/// ```text
/// Open ──▶ Completing ──▶ Completed
///  │ ▲         │
///  │ └─────────┘ a key condition failed
///  ▼
/// Aborted
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The key it will make.
    pub key: String,
    /// Its id.
    pub id: UploadId,
    /// When it began, in milliseconds since 1970.
    pub initiated_ms: u64,
    /// What the object will say of itself.
    pub attributes: Attributes,
    /// The checksum asked for at its creation.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Where new parts go.
    pub policy: PolicyId,
    /// How far it is.
    pub state: UploadState,
}

/// How far an upload is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadState {
    /// It takes parts.
    Open,
    /// A Complete has been decided; whoever finds this drives it to its end.
    Completing {
        /// The write that makes the object.
        write_id: WriteId,
        /// The order it was first stamped with.
        order: Stamp,
        /// The object to write.
        object: Box<Object>,
        /// What must hold of the key when it is written.
        condition: KeyCondition,
    },
    /// The object was written; a retried Complete gets the same answer.
    Completed {
        /// The write that made the object.
        write_id: WriteId,
        /// The object's ETag.
        etag: ETag,
    },
    /// It was aborted; its parts are being freed.
    Aborted,
}

/// What must hold of a key when an upload becomes its object: tags without quotes, `*` for any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCondition {
    /// An object with one of these tags exists.
    pub if_match: Option<Vec<String>>,
    /// No object with one of these tags exists.
    pub if_none_match: Option<Vec<String>>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Bytes.
    pub size: u64,
    /// MD5 of the bytes.
    pub md5: [u8; 16],
    /// When it was written, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<Checksum>,
    /// Where its bytes are; never inline.
    pub body: Body,
    /// What is set about it beside.
    #[serde(skip)]
    pub marks: Marks,
}

impl Value {
    /// Where its bytes are, if it has any of its own.
    pub fn body(&self) -> Option<&Body> {
        match self {
            Self::Object(object) => Some(&object.body),
            Self::Part(part) => Some(&part.body),
            Self::Tombstone
            | Self::Bucket(_)
            | Self::Upload(_)
            | Self::DeleteMarker(_)
            | Self::Account(_) => None,
        }
    }

    /// Which version of its key it is, if it is any.
    pub fn version(&self) -> Option<Version> {
        let version = match self {
            Self::Object(object) => object.version,
            Self::DeleteMarker(marker) => marker.version,
            Self::Tombstone
            | Self::Bucket(_)
            | Self::Upload(_)
            | Self::Part(_)
            | Self::Account(_) => return None,
        };
        Some(version.unwrap_or(Version::UNVERSIONED))
    }

    /// Whether it says that nothing is there.
    pub fn is_tombstone(&self) -> bool {
        matches!(self, Self::Tombstone)
    }
}

impl Body {
    /// Whether any of it lies in extents.
    pub fn has_extents(&self) -> bool {
        matches!(self, Self::Extents(_) | Self::Spilled { .. })
    }
}

impl Manifest {
    /// The bytes of the whole.
    pub fn length(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    /// The manifest as a spilled body stores it.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("a manifest in memory can be encoded");
        if self.part_checksums.is_empty() {
            return bytes;
        }
        postcard::to_extend(&self.part_checksums, bytes).expect("checksums can be encoded")
    }

    /// The inverse of [`Manifest::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are no manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt =
            |error| Error::corrupt("a stored manifest does not decode").with_source(error);
        let (mut manifest, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(corrupt)?;
        if !rest.is_empty() {
            manifest.part_checksums = postcard::from_bytes(rest).map_err(corrupt)?;
        }
        Ok(manifest)
    }
}

impl std::fmt::Display for ETag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Md5(md5) => f.write_str(&hex::encode(md5)),
            Self::Multipart { md5, parts } => write!(f, "{}-{parts}", hex::encode(md5)),
        }
    }
}

impl Entry {
    /// The entry as the index stores it.
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

    /// The inverse of [`Entry::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are no entry, or one of a
    /// later format.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (order, write_id) = Self::peek(bytes)?;
        let rest = &bytes[HEAD_BYTES..];
        let value = match bytes[0] {
            VERSION_BEFORE_LEVELS => bucket::decode_before_levels(rest),
            VERSION_BEFORE_SETTINGS => bucket::decode_before_settings(rest),
            VERSION_BEFORE_MARKS => decode_with::<TailBeforeMarks>(rest),
            _ => decode_with::<Tail>(rest),
        };
        let value = value
            .map_err(|error| Error::corrupt("an index entry does not decode").with_source(error))?;
        Ok(Self { order, write_id, value })
    }

    /// Order and write id of an encoded entry, without decoding the rest.
    ///
    /// # Errors
    /// As [`Entry::decode`].
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

/// A value, and what stands behind it.
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
    fn what_is_no_bucket_reads_alike_in_every_format() {
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

    #[test]
    fn etags_print_as_s3_prints_them() {
        assert_eq!(ETag::Md5([0xab; 16]).to_string(), "ab".repeat(16));
        let multipart = ETag::Multipart { md5: [0; 16], parts: 12 };
        assert_eq!(multipart.to_string(), format!("{}-12", "0".repeat(32)));
    }
}
