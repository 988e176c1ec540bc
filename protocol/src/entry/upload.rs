//! Multipart uploads, and their parts.

use serde::{Deserialize, Serialize};

use super::{
    Attributes, Body, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ETagKind, Mark, Object,
};
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
    /// Key of the object that the upload will create.
    pub key: String,
    /// Upload id.
    pub id: UploadId,
    /// Start of the upload, in milliseconds since 1970.
    pub initiated_ms: u64,
    /// Attributes of the future object.
    pub attributes: Attributes,
    /// Checksum algorithm and kind requested at creation.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Storage policy of new parts.
    pub policy: PolicyId,
    /// State of the upload.
    pub state: UploadState,
}

impl Upload {
    /// Returns the kind of the ETags of the parts and of the future object.
    pub fn etags(&self) -> ETagKind {
        match self.attributes.marks.get(Mark::OpaqueETags) {
            Some(_) => ETagKind::Opaque,
            None => ETagKind::Md5,
        }
    }
}

/// State of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadState {
    /// Accepts parts.
    Open,
    /// A Complete was decided; any reader of this state drives it to its end.
    Completing {
        /// The write that creates the object.
        write_id: WriteId,
        /// The order of its first stamp.
        order: Stamp,
        /// The object to write.
        object: Box<Object>,
        /// Condition on the key at the time of the write.
        condition: KeyCondition,
        /// Write of the key's entry at the time of the decision, when the object was not written yet. None if the key had no
        /// entry, or if the release that decided recorded none.
        #[serde(skip)]
        follows: Option<WriteId>,
    },
    /// The object was written; a retried Complete gets the same reply.
    Completed {
        /// The write that created the object.
        write_id: WriteId,
        /// The object's ETag.
        etag: ETag,
    },
    /// Aborted; its parts are being deleted.
    Aborted,
}

/// Condition on a key when an upload creates its object: ETags without quotes, `*` for any ETag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCondition {
    /// True if an object with one of these ETags exists.
    pub if_match: Option<Vec<String>>,
    /// True if no object with one of these ETags exists.
    pub if_none_match: Option<Vec<String>>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Length in bytes.
    pub size: u64,
    /// MD5 of the bytes; for opaque ETags the id of the write.
    pub tag: [u8; 16],
    /// Write time, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Checksums of the part.
    pub checksums: Vec<Checksum>,
    /// Location of the bytes; never inline.
    pub body: Body,
}
