//! Object Lock of a bucket. Once set, Object Lock and versioning stay enabled.

use martlet_protocol::entry::Bucket;
use martlet_protocol::lock::BucketLock;
use martlet_protocol::{Level, Setting, Settings, Versioning, VersioningSetting};

use crate::error::{Error, Result};
use crate::store::{Inner, ObjectStore};

/// Enables Object Lock and versioning in the settings of a new bucket. No unversioned write can
/// come before.
///
/// # Errors
/// [`Error::EntityTooLarge`].
pub fn lock_from_the_beginning(settings: &mut Settings) -> Result<()> {
    let versioning = VersioningSetting { state: Versioning::Enabled, above_ms: 0 };
    settings.set(Setting::Versioning, versioning.document())?;
    Ok(settings.set(Setting::ObjectLock, BucketLock::default().document())?)
}

/// Object Lock settings of a bucket; none if Object Lock is disabled.
pub(crate) fn lock_of(bucket: &Bucket) -> Result<Option<BucketLock>> {
    bucket.lock().map_err(|_| {
        let message = "the bucket's Object Lock configuration can't be read";
        martlet_protocol::Error::corrupt(message).into()
    })
}

impl ObjectStore {
    /// Enables Object Lock on a bucket and sets the default retention of new objects. In force once
    /// this returns: writes of proxies that cache the old settings are refused.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] unless versioning is enabled; too few
    /// nodes replied.
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

    /// Object Lock settings from the bucket's register, not from the cache; none if Object Lock is
    /// disabled.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn object_lock(&self, name: &str) -> Result<Option<BucketLock>> {
        let inner = self.inner();
        let (bucket, given) = inner.look_up(name, inner.ask.level.unwrap_or_default()).await?;
        inner.note(given);
        lock_of(&bucket)
    }

    /// Refuses buckets without Object Lock.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidRequest`].
    pub async fn check_lockable(&self, name: &str) -> Result<()> {
        self.inner().check_lockable(name).await
    }
}

impl Inner {
    /// Refuses buckets without Object Lock. Reads the bucket again first, since the cache may be
    /// older than the setting.
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
