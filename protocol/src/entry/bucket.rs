//! Buckets.

use serde::{Deserialize, Serialize};

use super::ETagKind;
use crate::consistency::Level;
use crate::id::{BucketId, PolicyId};
use crate::lock::{BucketLock, LockViolation};
use crate::settings::{Setting, Settings};
use crate::version::VersioningSetting;

/// A bucket, as stored in the root bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Bucket id, new at each creation.
    pub id: BucketId,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Number that rises with each change of the bucket's configuration (rule M2).
    pub generation: u64,
    /// State of the bucket: open or closing.
    pub state: BucketState,
    /// Number of shards of its index, fixed at creation.
    pub index_shards: u16,
    /// Storage policy of new objects.
    pub policy: PolicyId,
    /// Canonical id of the owning tenant.
    pub owner: String,
    /// Default consistency of requests.
    pub consistency: Level,
    /// Configuration documents, one for each sub-resource.
    pub settings: Settings,
}

impl Bucket {
    /// Returns the versioning state and the time of its change.
    pub fn versioning(&self) -> VersioningSetting {
        VersioningSetting::of(self.settings.get(Setting::Versioning))
    }

    /// Returns the kind of the ETags of new objects.
    pub fn etags(&self) -> ETagKind {
        let document = self.settings.get(Setting::ETags);
        let name = document.and_then(|document| std::str::from_utf8(document).ok());
        name.and_then(|name| name.parse().ok()).unwrap_or_default()
    }

    /// Returns the object lock configuration; none if the bucket has no object lock.
    ///
    /// # Errors
    /// [`LockViolation::Unreadable`] when the stored document can't be decoded.
    pub fn lock(&self) -> Result<Option<BucketLock>, LockViolation> {
        BucketLock::of(self.settings.get(Setting::ObjectLock))
    }
}

/// State of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketState {
    /// Accepts writes.
    Open,
    /// Being deleted: accepts no writes, and returns to open if the bucket turns out not to be
    /// empty.
    Closing,
}
