//! Extents, their presence on a device, and garbage.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::extent_hashes::SentHashes;
use crate::entry::Body;
use crate::extent::{ExtentLocation, ExtentRecord, Layout, Owner};
use crate::id::ExtentId;
use crate::key::RegisterKey;

/// An extent to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExtent {
    /// The extent's id, never used before.
    pub id: ExtentId,
    /// The permanent owner.
    pub owner: Owner,
    /// Length in bytes, if known: a body of another length is an error.
    pub length: Option<u64>,
    /// Write time of the first copy, in milliseconds since 1970; set for further copies (rule X4).
    pub birth_ms: Option<u64>,
    /// Storage policy and, for a fragment, its stripe.
    pub layout: Layout,
    /// Hashes that the sender computes; only for an extent of known length. Without them the node
    /// hashes the bytes.
    #[serde(skip)]
    pub hashes: Option<SentHashes>,
}

/// Record and location of an extent on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentStat {
    /// Id, length, hash, owner, birth.
    pub record: ExtentRecord,
    /// Location of the bytes for readers in place.
    pub location: ExtentLocation,
}

/// The key of a garbage record on its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GarbageId(pub Bytes);

/// Body left behind by a superseded entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    /// Key of the record on the device.
    pub id: GarbageId,
    /// Register that held the body.
    pub key: RegisterKey,
    /// The superseded body.
    pub body: Body,
}

/// Presence of an extent on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// The device holds the extent.
    Here,
    /// The device doesn't hold the extent.
    Missing,
    /// The device deleted the extent within the grace time: other devices that still hold a copy
    /// missed the delete (rule X4).
    Deleted,
}

/// Record of an extent on a device, or its absence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sought {
    /// The device doesn't hold the extent.
    Missing,
    /// As [`Presence::Deleted`].
    Deleted,
    /// The device holds the extent.
    Here(Box<ExtentRecord>),
}

/// Result of verifying part of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditResult<T> {
    /// Number of items verified.
    pub items: u64,
    /// Number of bytes verified.
    pub bytes: u64,
    /// Corrupt items; extents among them are in quarantine and no longer served.
    pub corrupt: Vec<T>,
    /// Cursor of the next call; none at the end.
    pub next: Option<T>,
}

impl<T> Default for AuditResult<T> {
    fn default() -> Self {
        Self { items: 0, bytes: 0, corrupt: Vec::new(), next: None }
    }
}
