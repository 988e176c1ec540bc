//! JSON messages about storage policies, buckets and the extents of objects.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of an object's extents.
pub const EXTENTS: &str = "/admin/v1/extents";
/// Path of a bucket's settings; PUT changes them.
pub const BUCKET: &str = "/admin/v1/bucket";

/// Path of the storage policies.
pub const POLICIES: &str = "/admin/v1/policies";

/// Storage policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyLine {
    /// Number of the policy.
    pub id: u16,
    /// Name of the policy.
    pub name: String,
    /// `replicated`, or a code such as `4+2`.
    pub redundancy: String,
    /// Number of copies or fragments of each extent.
    pub replicas: f64,
    /// Number of devices in the policy's ring.
    pub devices: u64,
    /// Epoch of the policy's ring.
    pub epoch: u64,
    /// True if new buckets get this policy by default.
    pub default: bool,
}

/// Object, with its extents on disk.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ObjectExtents {
    /// Name of the bucket.
    pub bucket: String,
    /// Key of the object.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// ETag of the object.
    pub etag: String,
    /// `empty`, `inline` (its bytes are within the index) or `extents`.
    pub stored: String,
    /// Extents in the order of their bytes.
    pub extents: Vec<ExtentLine>,
}

/// Extent of an object, with its place on disk.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExtentLine {
    /// Id of the extent.
    pub id: String,
    /// Offset of the extent in the object, in bytes.
    pub object_offset: u64,
    /// Id of the device that holds the extent.
    pub device: u32,
    /// Path of the file on its node.
    pub path: PathBuf,
    /// Offset of the extent in the file, in bytes: a multiple of 4 KiB.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// BLAKE3 of the bytes, in hexadecimal digits.
    pub blake3: String,
}

/// Settings of a bucket beyond those of S3.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct BucketLine {
    /// Name of the bucket.
    pub bucket: String,
    /// Id of the bucket in 32 hexadecimal digits, by which the index ring places its keys.
    pub id: String,
    /// Number of shards of the index that hold the keys.
    pub index_shards: u16,
    /// `available`, `strict` or `any`: consistency of requests that name none.
    pub consistency: String,
    /// Name of the storage policy of new objects.
    pub storage_policy: String,
    /// `md5` or `opaque`: kind of the ETags of new objects.
    pub etags: String,
}

/// Error reply, with its reason.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReply {
    /// Reason, as a sentence.
    pub error: String,
}
