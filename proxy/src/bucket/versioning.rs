//! Start and suspension of versioning in a bucket (rule M2).
//!
//! A plain write doesn't know the version that it replaces. So no plain write may be pending when
//! the first version is kept:
//!
//! ```text
//! Off ──▶ Preparing ──▶ Enabled ◀──▶ Suspended
//!            │ every device refuses writes of proxies that don't know of Preparing,
//!            │ and keeps no hints for the bucket
//! ```
//!
//! From `Preparing` on, all writes are ballots. Ballots on versions are above a time after the last
//! plain write, in case a replica holds one that no quorum knows of.

use martlet_protocol::entry::Bucket;
use martlet_protocol::{RegisterKind, Setting, Versioning, VersioningSetting};

use super::admin::Buckets;
use super::record::busy;
use crate::error::{Error, Result};
use crate::walk::Paths;

/// Bound on the skew of proxies' clocks, so that every plain write is ordered below every later
/// version, in milliseconds. The cluster's time differs between processes by a few milliseconds
/// (C1).
pub(super) const SKEW_MS_MAX: u64 = 2000;

impl Buckets<'_> {
    /// Versioning state of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn versioning(self, name: &str) -> Result<Versioning> {
        Ok(self.read(name).await?.versioning().state)
    }

    /// Enables or suspends versioning of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] for a suspension with Object Lock.
    /// Each call that enables versioning needs every device to reply, and the first one that none keeps
    /// hints for the bucket. A suspension needs a quorum.
    pub async fn set_versioning(self, name: &str, is_on: bool) -> Result<()> {
        let wanted = if is_on { Versioning::Enabled } else { Versioning::Suspended };
        let mut bucket = self
            .change_versioning(name, |now| match now.state {
                Versioning::Off => VersioningSetting { state: Versioning::Preparing, ..now },
                Versioning::Preparing => now,
                Versioning::Enabled | Versioning::Suspended => {
                    VersioningSetting { state: wanted, ..now }
                }
            })
            .await?;
        if bucket.versioning().state == Versioning::Preparing {
            self.check_no_plain_write_left(&bucket).await?;
            let above_ms = self.registers.stamps.now_ms() + SKEW_MS_MAX;
            bucket = self
                .change_versioning(name, |now| match now.state {
                    Versioning::Preparing => VersioningSetting { state: wanted, above_ms },
                    _ => VersioningSetting { state: wanted, ..now },
                })
                .await?;
        }
        // A device without the fence could store an earlier null version that replaces another one.
        let is_everywhere = self.catalog.fences.fence(&bucket, true).await?;
        if is_on && !is_everywhere { Err(busy()) } else { Ok(()) }
    }

    /// Refuses unless every device of the index is fenced against plain writes of the bucket and
    /// keeps no hints for it.
    async fn check_no_plain_write_left(self, bucket: &Bucket) -> Result<()> {
        let before = self.registers.replicas.topology.term();
        if !self.catalog.fences.fence(bucket, true).await? {
            return Err(busy());
        }
        self.catalog.fences.check_nothing_kept(Paths::all(bucket, RegisterKind::Object)).await?;
        // A ring change moved some registers to devices that may lack the fence.
        if self.registers.replicas.topology.term() > before { Err(busy()) } else { Ok(()) }
    }

    /// Changes the versioning state by compare-and-set, and returns the bucket. Its new generation
    /// lets a fence refuse proxies with the old state.
    async fn change_versioning(
        self,
        name: &str,
        change: impl Fn(VersioningSetting) -> VersioningSetting + Send + Sync,
    ) -> Result<Bucket> {
        let change = |bucket: &mut Bucket| {
            let setting = change(bucket.versioning());
            let is_locked = bucket.settings.get(Setting::ObjectLock).is_some();
            let has_rules = bucket.settings.get(Setting::Checkpoints).is_some();
            if has_rules && setting.state == Versioning::Suspended {
                return Err(Error::InvalidBucketState(
                    "The bucket has checkpoint rules, so its versioning can't be suspended.".into(),
                ));
            }
            if is_locked && setting.state != Versioning::Enabled {
                return Err(Error::InvalidBucketState(
                    "An Object Lock configuration is present on this bucket, so the versioning \
                     state cannot be changed."
                        .into(),
                ));
            }
            if setting != bucket.versioning() {
                bucket.settings.set(Setting::Versioning, setting.document())?;
                bucket.generation += 1;
            }
            Ok(())
        };
        self.change(name, change).await
    }
}
