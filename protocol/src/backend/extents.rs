//! What is said of extents, and of what superseded entries left behind.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::entry::Body;
use crate::extent::{ExtentLocation, ExtentRecord, Layout, Owner};
use crate::id::ExtentId;
use crate::key::RegisterKey;

/// An extent to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExtent {
    /// Its id, never used before.
    pub id: ExtentId,
    /// Its owner, for ever.
    pub owner: Owner,
    /// Its length, if it is known: a body that differs is an error.
    pub length: Option<u64>,
    /// When its first copy was written, in milliseconds since 1970, if this is another copy (rule
    /// X4).
    pub birth_ms: Option<u64>,
    /// How it is kept: the policy, and what it is a fragment of.
    pub layout: Layout,
}

/// What the node knows of an extent, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentStat {
    /// Id, length, hash, owner, birth.
    pub record: ExtentRecord,
    /// Where its bytes can be read in place.
    pub location: ExtentLocation,
}

/// The key of a garbage record on its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GarbageId(pub Bytes);

/// What a superseded entry left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    /// Its name on the device.
    pub id: GarbageId,
    /// The register that held it.
    pub key: RegisterKey,
    /// Its extents.
    pub body: Body,
}

/// What a device says of an extent that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// It has it.
    Here,
    /// It doesn't.
    Missing,
    /// It had it, and was told to delete it not long ago: whoever still has it missed that (rule
    /// X4).
    Deleted,
}

/// What came of verifying a stretch of what a device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited<T> {
    /// Things verified.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that were not what was written; they are in quarantine now, and served no more.
    pub corrupt: Vec<T>,
    /// Where to go on; none at the end.
    pub next: Option<T>,
}

impl<T> Default for Audited<T> {
    fn default() -> Self {
        Self { items: 0, bytes: 0, corrupt: Vec::new(), next: None }
    }
}
