//! The rules of a bucket's lifecycle, carried out on its objects.
//!
//! ```text
//! a page of versions ──judge──▶ what is due ──▶ a ballot on the key each: judged again, and gone
//! ```
//!
//! A page is what a quorum holds, and still it is old once it was read. So nothing goes by it: each
//! ballot (rule R7) judges what it finds by the same rules and the same moment, and what is another
//! write, has other tags or is the current version by then stays as it is.
//!
//! * [`judge`]: what of a page is due.
//! * [`deed`]: one version goes.
//! * [`Witness`]: whoever hears of it.

mod deed;
mod judge;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use martlet_protocol::entry::Bucket;
use martlet_protocol::lifecycle::{Carried, Lifecycle, ObjectExpiry, Stretch};
use martlet_protocol::{Level, Setting, Stamp, UploadId, VersionId};

#[cfg(test)]
pub(crate) use self::deed::Doomed;
pub(crate) use self::deed::{Outcome, Terms, Trace};
use self::judge::{Judged, judge};
use crate::api::ListVersions;
use crate::error::{Error, Result};
use crate::session::Ask;
use crate::store::{Inner, ObjectStore};

/// Versions that one stretch looks at; more than one of them, so that one is never cut off from all
/// others of its key.
const PAGE: usize = 250;
/// Versions that go at a time.
const AT_ONCE: usize = 8;
/// Nobody is judged by an older state than this.
const STRICT: Ask = Ask { level: Some(Level::Strict), read_after: None };

/// Hears of what rules did.
pub trait Witness: fmt::Debug + Send + Sync {
    /// An object of `bucket`, which is called `name`, went by a rule. It returns at once.
    fn expired(&self, name: &str, bucket: &Bucket, expired: &Expired<'_>);
}

/// What a rule did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// The delete marker that was put in front, or the version that was removed; none where versions are
    /// not kept.
    pub version: Option<VersionId>,
    /// Whether a delete marker was put in front; otherwise something went for good.
    pub is_new_marker: bool,
}

/// A store that tells somebody what rules did to its objects.
#[derive(Debug)]
pub struct WitnessedExpiry {
    store: ObjectStore,
    witness: Arc<dyn Witness>,
}

impl WitnessedExpiry {
    /// What carries rules out in `store`, and tells `witness`.
    pub fn new(store: ObjectStore, witness: Arc<dyn Witness>) -> Self {
        Self { store, witness }
    }
}

#[async_trait]
impl ObjectExpiry for WitnessedExpiry {
    async fn carry_out(&self, stretch: &Stretch) -> martlet_protocol::Result<Carried> {
        self.store.carry_out_before(stretch, Some(&*self.witness)).await
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
    async fn carry_out(&self, stretch: &Stretch) -> martlet_protocol::Result<Carried> {
        self.carry_out_before(stretch, None).await
    }

    async fn finish_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
    ) -> martlet_protocol::Result<bool> {
        let session = self.session(STRICT);
        let finished = Box::pin(session.inner().finish_upload(bucket, key, upload)).await;
        finished.map_err(of_backend)
    }
}

impl ObjectStore {
    async fn carry_out_before(
        &self,
        stretch: &Stretch,
        witness: Option<&dyn Witness>,
    ) -> martlet_protocol::Result<Carried> {
        let session = self.session(STRICT);
        let carried = Box::pin(session.inner().carry_out(stretch, witness)).await;
        carried.map_err(of_backend)
    }
}

fn of_backend(error: Error) -> martlet_protocol::Error {
    match error {
        Error::Backend(error) => error,
        error => martlet_protocol::Error::unavailable(error.to_string()),
    }
}

impl Inner {
    async fn carry_out(&self, stretch: &Stretch, witness: Option<&dyn Witness>) -> Result<Carried> {
        let bucket = match self.bucket_with_versions(&stretch.bucket).await {
            Ok(bucket) => bucket,
            Err(Error::NoSuchBucket) => return Ok(Carried::default()),
            Err(error) => return Err(error),
        };
        let Some(rules) = rules_of(&bucket)? else { return Ok(Carried::default()) };
        if stretch.shard.0 >= bucket.index_shards {
            return Ok(Carried::default());
        }
        let list = ListVersions {
            prefix: rules.common_prefix().to_owned(),
            after_key: stretch.after.as_ref().map(|place| place.key.clone()),
            after_version: stretch.after.as_ref().and_then(|place| Some(place.within?.version)),
            limit: PAGE,
            delimiter: None,
        };
        let page = self.list_versions(&bucket, &list, Some(stretch.shard)).await?;
        let terms = Terms { rules: &rules, day: stretch.day, now_ms: self.stamps.now_ms() };
        let Judged { seen, doomed, next } = judge(page, stretch.after.as_ref(), &terms);
        let deeds = doomed.iter().map(|doomed| async move {
            (doomed, self.carry(&stretch.bucket, doomed, &terms).await)
        });
        let mut deeds = stream::iter(deeds.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut carried = Carried { seen, next, ..Carried::default() };
        while let Some((doomed, outcome)) = deeds.next().await {
            match outcome {
                Outcome::Done(Trace { stamp, version, is_new_marker }) => {
                    carried.done += 1;
                    let expired = Expired { key: &doomed.key, stamp, version, is_new_marker };
                    if let Some(witness) = witness {
                        witness.expired(&stretch.bucket, &bucket, &expired);
                    }
                }
                Outcome::Moot => {}
                Outcome::Kept => carried.kept += 1,
            }
        }
        Ok(carried)
    }
}

/// The rules of a bucket, if any of them speaks of objects.
fn rules_of(bucket: &Bucket) -> Result<Option<Lifecycle>> {
    let Some(document) = bucket.settings.get(Setting::Lifecycle) else { return Ok(None) };
    let rules = Lifecycle::of(document)?;
    Ok(rules.speaks_of_objects().then_some(rules))
}
