//! Multipart uploads, and their parts.

use serde::{Deserialize, Serialize};

use super::{Attributes, Body, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, Object};
use crate::id::{PolicyId, UploadId, WriteId};
use crate::stamp::Stamp;

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
}
