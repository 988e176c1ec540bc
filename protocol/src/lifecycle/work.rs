//! Who carries rules out on objects: the seam between the worker that goes through buckets and the
//! object layer, which alone knows how a version goes without taking another one with it.

use async_trait::async_trait;

use super::Day;
use crate::error::Result;
use crate::id::{Shard, UploadId};
use crate::version::VersionId;

/// A stretch of the keys of one shard of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The bucket's name.
    pub bucket: String,
    /// The shard of its index.
    pub shard: Shard,
    /// Where the stretch begins; none: at the first key.
    pub after: Option<Place>,
    /// How long the days of rules are.
    pub day: Day,
}

/// Where a stretch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// All below this key is done.
    pub key: String,
    /// What is known in the middle of that key's versions; none: it is done too.
    pub within: Option<Within>,
}

/// In the middle of a key that has more versions than one stretch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// The version that was looked at last.
    pub version: VersionId,
    /// Noncurrent versions so far that stay.
    pub newer: u32,
    /// Since when the next one is not the current one, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What came of a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Versions that were looked at.
    pub seen: u64,
    /// Versions that went, and delete markers that were put in front of one.
    pub done: u64,
    /// Versions that were due and stay for now: too few answered, or others were writing.
    pub kept: u64,
    /// Where the next stretch begins; none: this was the last one of the shard.
    pub next: Option<Place>,
}

/// Carries rules out on objects. What has gone already is no error, so that any number may be at it.
#[async_trait]
pub trait ObjectExpiry: Send + Sync {
    /// Judges the versions of a stretch by the rules that its bucket has now, and does what is due.
    ///
    /// # Errors
    /// When the versions can't be listed, or the rules can't be read. Nothing went then.
    async fn carry_out(&self, stretch: &Stretch) -> Result<Carried>;

    /// Drives an upload on whose completion was decided and never came to its end (rule M1): whether it
    /// has come to its end by that. One that is not in the middle of it stays what it is.
    ///
    /// # Errors
    /// When too few nodes answer, or nobody can tell whether its object was written.
    async fn finish_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<bool>;
}
