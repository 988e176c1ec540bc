//! Settings of a bucket: documents of its sub-resources, changed by compare-and-set on the bucket's
//! register (rule M2).
//!
//! Requests apply settings from [`ObjectStore::bucket`], which caches for
//! [`bucket_cache_ms`](crate::StoreOptions::bucket_cache_ms). So a change is in force everywhere
//! after that time. Requests that read a setting read the register.

use std::sync::Arc;

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::settings::TooLong;
use martlet_protocol::usage::Usage;
use martlet_protocol::{Given, Setting, Settings, WriteId};
use tokio::time::Instant;

use super::{bucket_of, busy, root};
use crate::error::{Error, Result};
use crate::index::{Landed, Proposal, Step};
use crate::quota::Asked;
use crate::store::ObjectStore;

impl From<TooLong> for Error {
    fn from(TooLong { bytes, bytes_max }: TooLong) -> Self {
        Self::EntityTooLarge { size: bytes as u64, maximum: bytes_max as u64 }
    }
}

impl ObjectStore {
    /// All settings of a bucket, read from its register.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket_settings(&self, name: &str) -> Result<Settings> {
        let inner = self.inner();
        let level = inner.ask.level.unwrap_or_default();
        let (bucket, given) = inner.look_up(name, level).await?;
        inner.note(given);
        Ok(bucket.settings.clone())
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
        mut change: impl FnMut(&mut Settings) -> Result<()> + Send,
    ) -> Result<()> {
        let inner = self.inner();
        let key = root(name);
        let since = Instant::now();
        let known = inner.bucket(name).await?;
        let mut charge = Box::pin(inner.charge(&known, Asked::change())).await?;
        let mut changed = None;
        let mut evaluate = |view: &RegisterView| {
            changed = None;
            let before = bucket_of(view).ok_or(Error::NoSuchBucket)?;
            if before.state == BucketState::Closing {
                return Err(busy());
            }
            let mut bucket: Bucket = before.clone();
            change(&mut bucket.settings)?;
            if bucket.settings == before.settings {
                return Ok(Step::Keep);
            }
            bucket.generation += 1;
            if bucket.settings.get(Setting::Quota) == before.settings.get(Setting::Quota) {
                let grown = Usage::of_bucket(name, &bucket).less(Usage::of_bucket(name, before));
                charge.came_to(grown)?;
            }
            changed = Some(bucket.clone());
            Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket)))))
        };
        let landed = inner.decide(inner.root_intent(&key, WriteId::random()), &mut evaluate).await;
        match (landed, changed) {
            // Cached before the reply is sent. A lookup that began earlier doesn't overwrite it.
            (Ok(Landed::At(_)), Some(bucket)) => {
                inner.buckets.put(name, since, Arc::new(bucket), Given::Quorum);
                charge.written(inner.stamps.now_ms());
                Ok(())
            }
            (landed, _) => {
                inner.buckets.forget(name);
                landed?;
                Ok(())
            }
        }
    }
}
