//! Extents without an entry, by key: what a rebuild of the index starts from (rule X8).

use crate::extent::ExtentRecord;
use crate::id::BucketId;
use crate::key::RegisterKey;

/// Name of the register, among the account documents, that says if collection is held. It has no value,
/// or a tombstone, while nothing is held.
pub const HOLD_REGISTER: &str = "index-loss";

/// Register, among the account documents, by which a name claims the id of a bucket whose register was lost.
pub fn adoption_register(bucket: BucketId) -> RegisterKey {
    RegisterKey::account(&format!("adopted-{bucket}"))
}

/// Extents of a key that no entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostKey {
    /// Bucket of the key.
    pub bucket: BucketId,
    /// The key.
    pub key: String,
    /// Its extents, each once.
    pub extents: Vec<LostExtent>,
}

/// An extent that no entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostExtent {
    /// Record of a copy, or of a fragment.
    pub record: ExtentRecord,
    /// True if a copy was listed, or as many fragments as it takes to read the extent.
    pub is_readable: bool,
}
