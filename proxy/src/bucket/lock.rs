//! That objects of a bucket can be locked: set for good, on a bucket that keeps versions for good.

use martlet_protocol::entry::Bucket;
use martlet_protocol::lock::BucketLock;
use martlet_protocol::{Level, Setting, Settings, Versioning, VersioningSetting};

use crate::error::{Error, Result};
use crate::store::{Inner, ObjectStore};

/// Makes the settings of a bucket to be made those of one whose objects can be locked: it keeps their
/// versions from its beginning, so no plain write ever comes before them.
///
/// # Errors
/// [`Error::EntityTooLarge`].
pub fn lock_from_the_beginning(settings: &mut Settings) -> Result<()> {
    let versioning = VersioningSetting { state: Versioning::Enabled, above_ms: 0 };
    settings.set(Setting::Versioning, versioning.document())?;
    Ok(settings.set(Setting::ObjectLock, BucketLock::default().document())?)
}

/// What a bucket says about locks.
pub(crate) fn lock_of(bucket: &Bucket) -> Result<Option<BucketLock>> {
    bucket.lock().map_err(|_| {
        let message = "what the bucket says about locks of its objects can't be read";
        martlet_protocol::Error::corrupt(message).into()
    })
}

impl ObjectStore {
    /// Lets objects of a bucket be locked from now on, and says how those are that don't say. In force
    /// once this returns: proxies that have not heard of it are refused as soon as they write.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] unless it keeps versions; too few nodes
    /// that answer.
    pub async fn set_object_lock(&self, name: &str, lock: BucketLock) -> Result<()> {
        let set = |settings: &mut Settings| {
            let versioning = VersioningSetting::of(settings.get(Setting::Versioning));
            if versioning.state != Versioning::Enabled {
                return Err(Error::InvalidBucketState(
                    "Versioning must be 'Enabled' on the bucket to apply a Object Lock \
                     configuration"
                        .into(),
                ));
            }
            Ok(settings.set(Setting::ObjectLock, lock.document())?)
        };
        self.change_bucket_settings(name, set).await?;
        let inner = self.inner();
        let (bucket, _) = inner.look_up(name, Level::Strict).await?;
        inner.fence(&bucket, true).await?;
        Ok(())
    }

    /// What a bucket says about locks of its objects, as its register has it now; none where they can
    /// have none.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn object_lock(&self, name: &str) -> Result<Option<BucketLock>> {
        let inner = self.inner();
        let (bucket, given) = inner.look_up(name, inner.ask.level.unwrap_or_default()).await?;
        inner.note(given);
        lock_of(&bucket)
    }

    /// Refuses unless objects of a bucket can be locked.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidRequest`].
    pub async fn check_lockable(&self, name: &str) -> Result<()> {
        self.inner().check_lockable(name).await
    }
}

impl Inner {
    /// Refuses unless objects of a bucket can be locked. Where they can't, what is remembered of it may
    /// be from before they could.
    pub(crate) async fn check_lockable(&self, name: &str) -> Result<()> {
        if lock_of(&*self.bucket(name).await?)?.is_some() {
            return Ok(());
        }
        self.buckets.forget(name);
        if lock_of(&*self.bucket(name).await?)?.is_some() {
            return Ok(());
        }
        Err(Error::InvalidRequest("Bucket is missing Object Lock Configuration".into()))
    }
}
