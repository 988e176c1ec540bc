//! JSON messages about the list of buckets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the list of buckets, in pages of [`ListPage`](crate::accounts::ListPage).
pub const BUCKETS: &str = "/admin/v1/buckets";
/// Maximum number of buckets that one page examines.
pub const PAGE_MAX: usize = 1000;
/// Number of buckets that a page examines if the request names no limit.
pub const PAGE_DEFAULT: usize = 500;

/// Bucket in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BucketSummary {
    /// Name of the bucket.
    pub bucket: String,
    /// Id of the bucket in 32 hexadecimal digits.
    pub id: String,
    /// Name of the tenant that owns the bucket, or `root`. `None` if the tenant was deleted.
    pub tenant: Option<String>,
    /// Canonical id of the owner.
    pub canonical_id: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Name of the storage policy of new objects.
    pub storage_policy: String,
    /// Number of shards of the index that hold the keys.
    pub index_shards: u16,
    /// `available`, `strict` or `any`: consistency of requests that name none.
    pub consistency: String,
    /// `off`, `preparing`, `enabled` or `suspended`.
    pub versioning: String,
    /// Bytes of all versions and parts at the last count. `None` before the first count.
    pub bytes: Option<u64>,
    /// Object versions at the last count.
    pub objects: Option<u64>,
    /// Bytes of the index at the last count.
    pub index: Option<u64>,
    /// Start of the last count, in milliseconds since 1970.
    pub counted_ms: Option<u64>,
}
