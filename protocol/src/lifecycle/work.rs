//! Execution of lifecycle rules on objects: the trait between the worker that scans buckets and the
//! object layer, which removes versions safely.

use async_trait::async_trait;

use super::due::Day;
use crate::error::Result;
use crate::id::{Shard, UploadId};
use crate::version::VersionId;

/// A run of keys in one shard of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Name of the bucket.
    pub bucket: String,
    /// Shard of the bucket's index.
    pub shard: Shard,
    /// Cursor of the run; none for the first key.
    pub after: Option<ExpiryCursor>,
    /// Length of the rules' days.
    pub day: Day,
}

/// Cursor after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryCursor {
    /// Key of the cursor: all keys below are done.
    pub key: String,
    /// Position within that key's versions; none if the key is done too.
    pub within: Option<VersionCursor>,
}

/// Position within a key with more versions than one run handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionCursor {
    /// Last version handled.
    pub version: VersionId,
    /// Number of noncurrent versions kept so far.
    pub newer: u32,
    /// Time at which the next version became noncurrent, in milliseconds since 1970.
    pub since_ms: u64,
    /// First version of the key that was listed.
    pub head: ListedHead,
}

/// First version of a key that was listed: the current one, or the newest of those that a page began with. While this
/// version exists, no older one becomes current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedHead {
    /// Id of the version.
    pub version: VersionId,
    /// Time of its write, in milliseconds since 1970: null versions share an id.
    pub modified_ms: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryOutcome {
    /// Number of versions examined.
    pub seen: u64,
    /// Number of versions removed, and of delete markers created.
    pub done: u64,
    /// Number of versions that were due but stay for now: too few replicas answered, or another
    /// write conflicted.
    pub kept: u64,
    /// Cursor of the next run; none after the shard's last run.
    pub next: Option<ExpiryCursor>,
}

/// Executes lifecycle rules on objects. Versions already removed are no error, so that any number
/// of workers may run at once.
#[async_trait]
pub trait ObjectExpiry: Send + Sync {
    /// Evaluates the bucket's current rules for the versions of a run, and executes what is due.
    ///
    /// # Errors
    /// When the versions can't be listed or the rules can't be read, and in a bucket without versions while a device is
    /// silent. Then nothing was removed.
    async fn carry_out(&self, stretch: &Stretch) -> Result<ExpiryOutcome>;

    /// Continues a multipart upload whose completion was decided but not finished (rule M1).
    /// Returns true if the upload is now finished. An upload in another state stays unchanged.
    ///
    /// # Errors
    /// When too few nodes answer, or the outcome of the object's write is unknown.
    async fn finish_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<bool>;
}
