//! Settings of a bucket: documents of its sub-resources, changed by compare-and-set on the bucket's
//! register (rule M2).
//!
//! Requests apply settings from [`ObjectStore::bucket`](crate::ObjectStore::bucket), which caches
//! for [`bucket_cache_ms`](crate::StoreOptions::bucket_cache_ms). So a change is in force
//! everywhere after that time. Requests that read a setting read the register.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::lock::BucketLock;
use martlet_protocol::settings::TooLong;
use martlet_protocol::usage::Usage;
use martlet_protocol::{AchievedLevel, Level, Setting, Settings, Versioning, VersioningSetting};
use tokio::time::Instant;

use super::admin::Buckets;
use super::lock::lock_of;
use super::record::busy;
use crate::error::{Error, Result};
use crate::quota::RequestedUsage;

impl From<TooLong> for Error {
    fn from(TooLong { bytes, bytes_max }: TooLong) -> Self {
        Self::EntityTooLarge { size: bytes as u64, maximum: bytes_max as u64 }
    }
}

impl Buckets<'_> {
    /// All settings of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn settings(self, name: &str) -> Result<Settings> {
        Ok(self.read(name).await?.settings.clone())
    }

    /// One setting of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn setting(self, name: &str, setting: Setting) -> Result<Option<Vec<u8>>> {
        Ok(self.read(name).await?.settings.get(setting).map(<[u8]>::to_vec))
    }

    /// Writes or replaces a setting.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::EntityTooLarge`]; too few nodes replied.
    pub async fn put_setting(self, name: &str, setting: Setting, document: Vec<u8>) -> Result<()> {
        let set = |settings: &mut Settings| Ok(settings.set(setting, document.clone())?);
        self.change_settings(name, set).await
    }

    /// Removes a setting; succeeds if it doesn't exist.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied.
    pub async fn delete_setting(self, name: &str, setting: Setting) -> Result<()> {
        let remove = |settings: &mut Settings| {
            settings.remove(setting);
            Ok(())
        };
        self.change_settings(name, remove).await
    }

    /// Changes the settings of a bucket by compare-and-set. `change` runs again after each
    /// concurrent write, so no change is lost.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; errors of `change`; [`Error::QuotaExceeded`], unless the quota
    /// itself changes; too few nodes replied.
    pub async fn change_settings(
        self,
        name: &str,
        mut change: impl FnMut(&mut Settings) -> Result<()> + Send,
    ) -> Result<()> {
        let since = Instant::now();
        let cached = self.catalog.bucket(&self.contexts.context(), name).await?;
        let mut charge = Box::pin(self.quotas.charge(&cached, RequestedUsage::change())).await?;
        let change = |bucket: &mut Bucket| {
            let before = bucket.clone();
            change(&mut bucket.settings)?;
            if bucket.settings == before.settings {
                return Ok(());
            }
            bucket.generation += 1;
            if bucket.settings.get(Setting::Quota) == before.settings.get(Setting::Quota) {
                let grown = Usage::of_bucket(name, bucket).less(Usage::of_bucket(name, &before));
                charge.came_to(grown)?;
            }
            Ok(())
        };
        match self.catalog.change(name, change).await {
            // Cached before the reply is sent. A lookup that began earlier doesn't overwrite it.
            Ok((bucket, true)) => {
                self.catalog.cache.put(name, since, bucket, AchievedLevel::Quorum);
                charge.written(self.registers.stamps.now_ms());
                Ok(())
            }
            kept => {
                self.catalog.forget(name);
                kept.map(drop)
            }
        }
    }

    /// Enables Object Lock on a bucket and sets the default retention of new objects. In force once
    /// this returns: writes of proxies that cache the old settings are refused by every device.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] unless versioning is enabled; a device
    /// of the index didn't reply.
    pub async fn set_object_lock(self, name: &str, lock: BucketLock) -> Result<()> {
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
        self.change_settings(name, set).await?;
        let context = self.contexts.context();
        let (bucket, _) = self.catalog.look_up(&context, name, Level::Strict).await?;
        let is_everywhere = self.catalog.fences.fence(&bucket, true).await?;
        if is_everywhere { Ok(()) } else { Err(busy()) }
    }

    /// Object Lock settings from the bucket's register, not from the cache; none if Object Lock is
    /// disabled.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn object_lock(self, name: &str) -> Result<Option<BucketLock>> {
        lock_of(&*self.read(name).await?)
    }

    /// Reads a bucket from its register.
    pub(super) async fn read(self, name: &str) -> Result<Arc<Bucket>> {
        let context = self.contexts.context();
        let level = context.bucket_level();
        let (bucket, given) = self.catalog.look_up(&context, name, level).await?;
        context.note(given);
        Ok(bucket)
    }
}
