//! Buckets, and their settings.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::lock::BucketLock;
use martlet_protocol::{Level, Setting, Settings, Versioning, VersioningSetting};

use super::ObjectStore;
use crate::api::{NamedBucket, NewBucket};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl ObjectStore {
    /// Creates a bucket.
    ///
    /// # Errors
    /// [`Error::BucketExists`] with its owner if the name is taken; [`Error::InvalidArgument`] for
    /// an unknown storage policy; [`Error::InvalidRequest`] for a number of shards that is no power
    /// of two or too large; [`Error::QuotaExceeded`].
    pub async fn create_bucket(&self, name: &str, new: NewBucket) -> Result<Bucket> {
        self.services.bucket_admin.create(&self.context(), name, new).await
    }

    /// A bucket by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        self.services.buckets.bucket(&self.context(), name).await
    }

    /// A bucket from the cache, of any age, without a lookup.
    pub fn remembered_bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.services.buckets.remembered(name)
    }

    /// Deletes a bucket that holds no objects. Open uploads are deleted with it.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::BucketNotEmpty`].
    pub async fn delete_bucket(&self, name: &str) -> Result<()> {
        self.services.bucket_admin.delete(&self.context(), name).await
    }

    /// Sets the default consistency level of a bucket's requests. Level strict is in force once
    /// this returns: writes of proxies that cache the old level are refused.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], or too few nodes replied.
    pub async fn set_bucket_consistency(&self, name: &str, level: Level) -> Result<Bucket> {
        self.services.bucket_admin.set_consistency(name, level).await
    }

    /// Buckets in order of name, above `after`; and true if more follow.
    ///
    /// # Errors
    /// Fails if too few nodes reply for the level.
    pub async fn list_buckets(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<NamedBucket>, bool)> {
        self.services.bucket_admin.list(&self.context(), prefix, after, limit).await
    }

    /// Sets the storage policy of new objects and uploads by name. Other proxies use it after their
    /// next lookup of the bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidArgument`] for an unknown policy, which names the
    /// known ones; too few nodes replied.
    pub async fn set_bucket_policy(&self, name: &str, policy: &str) -> Result<Bucket> {
        self.services.bucket_admin.set_policy(&self.context(), name, policy).await
    }

    /// All settings of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket_settings(&self, name: &str) -> Result<Settings> {
        self.services.bucket_admin.settings(&self.context(), name).await
    }

    /// One setting of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket_setting(&self, name: &str, setting: Setting) -> Result<Option<Vec<u8>>> {
        let settings = self.bucket_settings(name).await?;
        Ok(settings.get(setting).map(<[u8]>::to_vec))
    }

    /// Writes or replaces a setting.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::EntityTooLarge`]; too few nodes replied.
    pub async fn put_bucket_setting(
        &self,
        name: &str,
        setting: Setting,
        document: Vec<u8>,
    ) -> Result<()> {
        let set = |settings: &mut Settings| Ok(settings.set(setting, document.clone())?);
        self.change_bucket_settings(name, set).await
    }

    /// Removes a setting; succeeds if it doesn't exist.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied.
    pub async fn delete_bucket_setting(&self, name: &str, setting: Setting) -> Result<()> {
        let remove = |settings: &mut Settings| {
            settings.remove(setting);
            Ok(())
        };
        self.change_bucket_settings(name, remove).await
    }

    /// Changes the settings of a bucket by compare-and-set. `change` runs again after each
    /// concurrent write, so no change is lost.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; errors of `change`; [`Error::QuotaExceeded`], unless the quota
    /// itself changes; too few nodes replied.
    pub async fn change_bucket_settings(
        &self,
        name: &str,
        change: impl FnMut(&mut Settings) -> Result<()> + Send,
    ) -> Result<()> {
        self.services.bucket_admin.change_settings(&self.context(), name, change).await
    }

    /// Enables Object Lock on a bucket and sets the default retention of new objects. In force once
    /// this returns: writes of proxies that cache the old settings are refused.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] unless versioning is enabled; too few
    /// nodes replied.
    pub async fn set_object_lock(&self, name: &str, lock: BucketLock) -> Result<()> {
        self.services.bucket_admin.set_object_lock(&self.context(), name, lock).await
    }

    /// Object Lock settings from the bucket's register, not from the cache; none if Object Lock is
    /// disabled.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn object_lock(&self, name: &str) -> Result<Option<BucketLock>> {
        self.services.bucket_admin.object_lock(&self.context(), name).await
    }

    /// Refuses buckets without Object Lock.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidRequest`].
    pub async fn check_lockable(&self, name: &str) -> Result<()> {
        self.services.buckets.check_lockable(&self.context(), name).await
    }

    /// Enables or suspends versioning of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidBucketState`] for a suspension with Object Lock.
    /// The first call needs every device to reply and to keep no hints for the bucket; later ones
    /// need a quorum.
    pub async fn set_versioning(&self, name: &str, is_on: bool) -> Result<()> {
        self.services.bucket_admin.set_versioning(name, is_on).await
    }

    /// Versioning state of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn versioning(&self, name: &str) -> Result<Versioning> {
        let document = self.bucket_setting(name, Setting::Versioning).await?;
        Ok(VersioningSetting::of(document.as_deref()).state)
    }
}
