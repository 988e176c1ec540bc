//! How a bucket comes to keep versions, and to write without ids again (rule M2).
//!
//! A plain write knows of nothing that it takes the place of, so none may be left when the first
//! version is kept:
//!
//! ```text
//! Off ──▶ Preparing ──▶ Enabled ◀──▶ Suspended
//!            │ every device refuses what does not know of Preparing,
//!            │ and keeps nothing of the bucket for others
//! ```
//!
//! From `Preparing` on all writes are ballots. Ballots of versions are above a time that lies a while
//! after the last plain write, in case some replica has one that no quorum knows of.

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::{RegisterKind, Setting, Versioning, VersioningSetting, WriteId};

use crate::bucket::{bucket_of, busy, root};
use crate::error::{Error, Result};
use crate::index::{Landed, Proposal, Step};
use crate::store::{Inner, ObjectStore};
use crate::walk::Paths;

/// How far clocks of proxies may differ for the order of a plain write to lie below every version
/// that is written after it: the time of a cluster is the same for all to some milliseconds (C1).
const SKEW_MS_MAX: u64 = 2000;

impl ObjectStore {
    /// Lets a bucket keep the versions of its objects, or write without ids from now on.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`], where its objects can be locked and it
    /// is to write without ids; a device that does not answer, or that keeps writes of the bucket
    /// for others, when versions are to be kept for the first time; too few that answer later.
    pub async fn set_versioning(&self, name: &str, is_on: bool) -> Result<()> {
        let inner = self.inner();
        let wanted = if is_on { Versioning::Enabled } else { Versioning::Suspended };
        let mut bucket = inner
            .change_versioning(name, |now| match now.state {
                Versioning::Off => VersioningSetting { state: Versioning::Preparing, ..now },
                Versioning::Preparing => now,
                Versioning::Enabled | Versioning::Suspended => {
                    VersioningSetting { state: wanted, ..now }
                }
            })
            .await?;
        if bucket.versioning().state == Versioning::Preparing {
            inner.check_no_plain_write_left(&bucket).await?;
            let above_ms = inner.stamps.now_ms() + SKEW_MS_MAX;
            bucket = inner
                .change_versioning(name, |now| match now.state {
                    Versioning::Preparing => VersioningSetting { state: wanted, above_ms },
                    _ => VersioningSetting { state: wanted, ..now },
                })
                .await?;
        }
        inner.fence(&bucket, true).await?;
        Ok(())
    }

    /// Whether a bucket keeps the versions of its objects, as its register has it now.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn versioning(&self, name: &str) -> Result<Versioning> {
        let document = self.bucket_setting(name, Setting::Versioning).await?;
        Ok(VersioningSetting::of(document.as_deref()).state)
    }
}

impl Inner {
    /// Refuses unless every device of the index knows that the bucket takes no more plain writes,
    /// and none has one on its way.
    async fn check_no_plain_write_left(&self, bucket: &Bucket) -> Result<()> {
        let before = self.term();
        if !self.fence(bucket, true).await? {
            return Err(busy());
        }
        self.check_nothing_kept(Paths::all(bucket, RegisterKind::Object)).await?;
        // Others decide by now about some of it, and may not have been told.
        if self.term() > before { Err(busy()) } else { Ok(()) }
    }

    /// Compares and sets; the bucket as it is then, of which no proxy that has not heard may write.
    async fn change_versioning(
        &self,
        name: &str,
        change: impl Fn(VersioningSetting) -> VersioningSetting + Send + Sync,
    ) -> Result<Bucket> {
        let key = root(name);
        let mut changed = None;
        let mut evaluate = |view: &RegisterView| {
            let before = bucket_of(view).ok_or(Error::NoSuchBucket)?;
            if before.state == BucketState::Closing {
                return Err(busy());
            }
            let mut bucket: Bucket = before.clone();
            let setting = change(before.versioning());
            let is_locked = before.settings.get(Setting::ObjectLock).is_some();
            if is_locked && setting.state != Versioning::Enabled {
                return Err(Error::InvalidBucketState(
                    "An Object Lock configuration is present on this bucket, so the versioning \
                     state cannot be changed."
                        .into(),
                ));
            }
            if setting == before.versioning() {
                changed = Some(bucket);
                return Ok(Step::Keep);
            }
            bucket.settings.set(Setting::Versioning, setting.document())?;
            bucket.generation += 1;
            changed = Some(bucket.clone());
            Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket)))))
        };
        let landed = self.decide(self.root_intent(&key, WriteId::random()), &mut evaluate).await;
        self.buckets.forget(name);
        match landed? {
            Landed::At(_) | Landed::Kept(_) => changed.ok_or_else(busy),
            Landed::Fenced => Err(busy()),
        }
    }
}
