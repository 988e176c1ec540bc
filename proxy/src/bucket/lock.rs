//! Object Lock of a bucket. Once set, Object Lock and versioning stay enabled.

use martlet_protocol::entry::{Bucket, Marks};
use martlet_protocol::lock::{BucketLock, Lock, Retention};
use martlet_protocol::{Setting, Settings, Versioning, VersioningSetting};

use super::admin::Buckets;
use super::catalog::BucketCatalog;
use crate::context::RequestContext;
use crate::error::{Error, Result};

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

impl Buckets<'_> {
    /// Refuses buckets without Object Lock.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidRequest`].
    pub async fn check_lockable(self, name: &str) -> Result<()> {
        self.catalog.check_lockable(&self.contexts.context(), name).await
    }
}

impl BucketCatalog {
    /// Refuses buckets without Object Lock. Reads the bucket again first, since the cache may be
    /// older than the setting.
    pub(crate) async fn check_lockable(&self, context: &RequestContext, name: &str) -> Result<()> {
        if lock_of(&*self.bucket(context, name).await?)?.is_some() {
            return Ok(());
        }
        self.cache.forget(name);
        if lock_of(&*self.bucket(context, name).await?)?.is_some() {
            return Ok(());
        }
        Err(Error::InvalidRequest("Bucket is missing Object Lock Configuration".into()))
    }

    /// Refuses a lock that a new object of the bucket can't have.
    pub(crate) async fn check_new_lock(
        &self,
        context: &RequestContext,
        bucket: &str,
        marks: &Marks,
    ) -> Result<()> {
        let lock = Lock::of(marks)?;
        if lock.is_empty() {
            return Ok(());
        }
        self.check_end(lock.retention)?;
        self.check_lockable(context, bucket).await
    }

    pub(crate) fn check_end(&self, retention: Option<Retention>) -> Result<()> {
        if retention.is_some_and(|it| it.until_ms <= self.registers.stamps.now_ms()) {
            let message = "The retain until date must be in the future!";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(())
    }
}
