//! Lifecycle rules of a bucket, applied to its objects.
//!
//! ```text
//! a page of versions ──judge──▶ due versions ──▶ a ballot for each: judged again, removed
//! ```
//!
//! A page is read from a quorum, but is outdated afterwards. So each ballot (rule R7) judges the
//! entry that it finds, by the page's rules and time, if these are still the bucket's rules. A
//! version that was rewritten, has other tags or has become current stays. So does a noncurrent one
//! whose head of the page is gone: it may have been current since. Newer noncurrent versions are
//! counted again, if a rule keeps some. An object of a bucket without versions stays while a device
//! keeps a hint of its key, or doesn't answer: the hint may be a newer write. While one doesn't answer, a page of such a
//! bucket fails as a whole, so that it costs one look at the devices, and its shard waits for the end of
//! the walk.
//!
//! * [`judge`]: selects the due versions of a page.
//! * [`expiration`]: expires or removes one version.
//! * [`Witness`]: observer of the expired objects.

mod expiration;
mod judge;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use martlet_protocol::entry::Bucket;
use martlet_protocol::lifecycle::{ExpiryOutcome, Lifecycle, ObjectExpiry, Stretch};
use martlet_protocol::{Setting, Stamp, UploadId, VersionId};

#[cfg(test)]
pub(crate) use self::expiration::ExpirationCandidate;
pub(crate) use self::expiration::{
    ExpirationEffect, ExpirationOutcome, ExpirationRun, Expirations,
};
use self::judge::{JudgedPage, judge};
use crate::api::ListVersions;
use crate::consistency::ConsistencyOptions;
use crate::error::{Error, Result};
use crate::multipart::UploadName;
use crate::store::ObjectStore;

/// Versions on one page; more than one, so that a version is never cut off from all others of its
/// key.
const PAGE: usize = 250;
/// Concurrent expirations.
const AT_ONCE: usize = 8;

/// Observer of objects that lifecycle rules expire.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Called after a rule expired an object of `bucket`, whose name is `name`. Must not block.
    fn expired(&self, name: &str, bucket: &Bucket, expired: &Expired<'_>);
}

/// Effect of a rule on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<'a> {
    /// Key of the object.
    pub key: &'a str,
    /// Stamp of the write.
    pub stamp: Stamp,
    /// The delete marker that was created, or the version that was removed; none without
    /// versioning.
    pub version: Option<VersionId>,
    /// True if a delete marker was created; false if a version was removed.
    pub is_new_marker: bool,
}

/// A store that reports expired objects to a witness.
#[derive(Debug)]
pub struct WitnessedExpiry {
    store: ObjectStore,
    witness: Arc<dyn Witness>,
}

impl WitnessedExpiry {
    /// Applies rules in `store`, and reports to `witness`.
    pub fn new(store: ObjectStore, witness: Arc<dyn Witness>) -> Self {
        Self { store, witness }
    }
}

#[async_trait]
impl ObjectExpiry for WitnessedExpiry {
    async fn carry_out(&self, stretch: &Stretch) -> martlet_protocol::Result<ExpiryOutcome> {
        carry_out(&self.store, stretch, Some(&*self.witness)).await
    }

    async fn finish_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
    ) -> martlet_protocol::Result<bool> {
        self.store.finish_upload(bucket, key, upload).await
    }
}

#[async_trait]
impl ObjectExpiry for ObjectStore {
    async fn carry_out(&self, stretch: &Stretch) -> martlet_protocol::Result<ExpiryOutcome> {
        carry_out(self, stretch, None).await
    }

    async fn finish_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
    ) -> martlet_protocol::Result<bool> {
        let (driver, context) =
            (&self.services.multipart.driver, self.session(ConsistencyOptions::STRICT).context());
        let name = UploadName { bucket, key, id: upload };
        let finished = Box::pin(driver.finish_upload(&context, name)).await;
        finished.map_err(Error::into_backend)
    }
}

async fn carry_out(
    store: &ObjectStore,
    stretch: &Stretch,
    witness: Option<&dyn Witness>,
) -> martlet_protocol::Result<ExpiryOutcome> {
    let context = store.session(ConsistencyOptions::STRICT).context();
    let expirations = Expirations { services: &store.services, context: &context };
    let outcome = Box::pin(expirations.carry_out(stretch, witness)).await;
    outcome.map_err(Error::into_backend)
}

impl Expirations<'_> {
    async fn carry_out(
        &self,
        stretch: &Stretch,
        witness: Option<&dyn Witness>,
    ) -> Result<ExpiryOutcome> {
        let bucket =
            match self.services.buckets.bucket_with_versions(self.context, &stretch.bucket).await {
                Ok(bucket) => bucket,
                Err(Error::NoSuchBucket) => return Ok(ExpiryOutcome::default()),
                Err(error) => return Err(error),
            };
        let Some(rules) = rules_of(&bucket)? else { return Ok(ExpiryOutcome::default()) };
        if stretch.shard.0 >= bucket.index_shards {
            return Ok(ExpiryOutcome::default());
        }
        let list = ListVersions {
            prefix: rules.common_prefix().to_owned(),
            after_key: stretch.after.as_ref().map(|cursor| cursor.key.clone()),
            after_version: stretch.after.as_ref().and_then(|cursor| Some(cursor.within?.version)),
            limit: PAGE,
            ..ListVersions::default()
        };
        let page = self
            .services
            .listings
            .version_page(self.context, &bucket, &list, Some(stretch.shard))
            .await?;
        let run = ExpirationRun {
            bucket: &bucket,
            rules: &rules,
            day: stretch.day,
            now_ms: self.services.registers.stamps.now_ms(),
        };
        let JudgedPage { seen, candidates, next } = judge(page, stretch.after.as_ref(), &run);
        self.check_decidable(&bucket, &candidates).await?;
        let expirations = candidates.iter().map(|candidate| async move {
            (candidate, self.expire(&stretch.bucket, candidate, &run).await)
        });
        let expirations = stream::iter(expirations.collect::<Vec<_>>());
        let mut expirations = expirations.buffer_unordered(AT_ONCE);
        let mut sums = ExpiryOutcome { seen, next, ..ExpiryOutcome::default() };
        while let Some((candidate, outcome)) = expirations.next().await {
            match outcome {
                ExpirationOutcome::Done(ExpirationEffect { stamp, version, is_new_marker }) => {
                    sums.done += 1;
                    let expired = Expired { key: &candidate.key, stamp, version, is_new_marker };
                    if let Some(witness) = witness {
                        witness.expired(&stretch.bucket, &bucket, &expired);
                    }
                }
                ExpirationOutcome::NotDue => {}
                ExpirationOutcome::Kept => sums.kept += 1,
            }
        }
        Ok(sums)
    }
}

/// Lifecycle rules of a bucket, if any applies to objects.
fn rules_of(bucket: &Bucket) -> Result<Option<Lifecycle>> {
    let Some(document) = bucket.settings.get(Setting::Lifecycle) else { return Ok(None) };
    let rules = Lifecycle::of(document)?;
    Ok(rules.needs_objects().then_some(rules))
}
