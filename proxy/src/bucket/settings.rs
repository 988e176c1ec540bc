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
use martlet_protocol::{Given, Level, Setting, Settings, Versioning, VersioningSetting};
use tokio::time::Instant;

use super::admin::BucketAdmin;
use super::lock::lock_of;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::quota::RequestedUsage;

impl From<TooLong> for Error {
    fn from(TooLong { bytes, bytes_max }: TooLong) -> Self {
        Self::EntityTooLarge { size: bytes as u64, maximum: bytes_max as u64 }
    }
}

impl BucketAdmin {
    /// All settings of a bucket, read from its register.
    pub(crate) async fn settings(&self, context: &RequestContext, name: &str) -> Result<Settings> {
        let level = context.level_or_default();
        let (bucket, given) = self.catalog.look_up(context, name, level).await?;
        context.note(given);
        Ok(bucket.settings.clone())
    }

    /// Changes the settings of a bucket by compare-and-set. `change` runs again after each
    /// concurrent write, so no change is lost.
    pub(crate) async fn change_settings(
        &self,
        context: &RequestContext,
        name: &str,
        mut change: impl FnMut(&mut Settings) -> Result<()> + Send,
    ) -> Result<()> {
        let since = Instant::now();
        let cached = self.catalog.bucket(context, name).await?;
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
                self.catalog.cache.put(name, since, bucket, Given::Quorum);
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
    /// this returns: writes of proxies that cache the old settings are refused.
    pub(crate) async fn set_object_lock(
        &self,
        context: &RequestContext,
        name: &str,
        lock: BucketLock,
    ) -> Result<()> {
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
        self.change_settings(context, name, set).await?;
        let (bucket, _) = self.catalog.look_up(context, name, Level::Strict).await?;
        self.catalog.fences.fence(&bucket, true).await?;
        Ok(())
    }

    /// Object Lock settings from the bucket's register, not from the cache; none if Object Lock is
    /// disabled.
    pub(crate) async fn object_lock(
        &self,
        context: &RequestContext,
        name: &str,
    ) -> Result<Option<BucketLock>> {
        let (bucket, given) =
            self.catalog.look_up(context, name, context.level_or_default()).await?;
        context.note(given);
        lock_of(&bucket)
    }
}
