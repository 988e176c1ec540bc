//! Detection of buckets that were deleted and created again while this proxy cached the old one.
//!
//! A deleted bucket is empty, and writes to it are refused as fenced. So only replies that an
//! object is absent can be wrong. Before such a reply, the bucket is looked up again, unless a
//! lookup began after the request did. If another bucket has the name, the operation fails with
//! [`Error::BucketReplaced`] and runs once more.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::{AchievedLevel, Level};
use tokio::time::Instant;

use super::catalog::BucketCatalog;
use super::record::{check_same, is_absence};
use crate::context::RequestContext;
use crate::error::{Error, Result};

impl BucketCatalog {
    /// A bucket from a lookup that began after `since`, at a level. Concurrent callers share one
    /// lookup.
    pub(super) async fn bucket_after(
        &self,
        context: &RequestContext,
        name: &str,
        since: Instant,
        level: Level,
    ) -> Result<Arc<Bucket>> {
        // A caller that waits too long looks the bucket up itself: the other lookup may hang.
        let deadline = Instant::now() + self.registers.replicas.patience();
        let _turn = self.cache.turn(name, deadline).await;
        let cached = self.cache.get_after(name, since);
        let cached =
            cached.filter(|(_, given)| level != Level::Strict || *given == AchievedLevel::Quorum);
        let (bucket, given) = match cached {
            Some(cached) => cached,
            None => self.look_up(context, name, level).await?,
        };
        context.note(given);
        Ok(bucket)
    }

    /// Refuses to report an absence if another bucket has the name now.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`], [`Error::NoSuchBucket`]; at level strict also any failed lookup.
    pub(crate) async fn check_not_replaced(
        &self,
        context: &RequestContext,
        name: &str,
        before: &Bucket,
        since: Instant,
    ) -> Result<()> {
        let level = context.level(before);
        if level == Level::Any {
            return Ok(());
        }
        match self.bucket_after(context, name, since, level).await {
            Ok(bucket) => check_same(before, &bucket),
            Err(Error::Backend(error)) if level != Level::Strict => {
                tracing::debug!(%error, "could not refresh a bucket, using the cached one");
                context.note(AchievedLevel::Degraded);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces an error that reports an absence by that of [`BucketCatalog::check_not_replaced`],
    /// if it fails. Returns other errors unchanged.
    pub(crate) async fn check_absence(
        &self,
        context: &RequestContext,
        error: Error,
        name: &str,
        before: &Bucket,
        since: Instant,
    ) -> Error {
        if !is_absence(&error) {
            return error;
        }
        let replaced = Box::pin(self.check_not_replaced(context, name, before, since)).await;
        replaced.err().unwrap_or(error)
    }
}
