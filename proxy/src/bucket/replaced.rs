//! Detection of buckets that were deleted and created again while this proxy cached the old one.
//!
//! A deleted bucket is empty, and writes to it are refused as fenced. So only replies that an
//! object is absent can be wrong. Before such a reply, the bucket is looked up again, unless a
//! lookup began after the request did. If another bucket has the name, the operation fails with
//! [`Error::BucketReplaced`] and runs once more.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::{Given, Level};
use tokio::time::{Instant, timeout};

use super::busy;
use crate::error::{Error, Result};
use crate::store::Inner;

/// Returns true for errors that report an absent object, version or upload.
fn is_absence(error: &Error) -> bool {
    matches!(error, Error::NoSuchKey | Error::NoSuchVersion | Error::NoSuchUpload)
}

/// Runs an operation; runs it again if its bucket was replaced.
pub(crate) async fn again_if_replaced<T, F: Future<Output = Result<T>>>(
    mut operation: impl FnMut() -> F,
) -> Result<T> {
    match operation().await {
        Err(Error::BucketReplaced) => operation().await,
        outcome => outcome,
    }
}

impl Inner {
    /// A bucket from a lookup that began after `since`, at a level. Concurrent callers share one
    /// lookup.
    pub(super) async fn bucket_after(
        &self,
        name: &str,
        since: Instant,
        level: Level,
    ) -> Result<Arc<Bucket>> {
        // A caller that waits too long looks the bucket up itself: the other lookup may hang.
        let _turn = timeout(self.patience(), self.buckets.turn(name)).await;
        let known = self.buckets.get_after(name, since);
        let known = known.filter(|(_, given)| level != Level::Strict || *given == Given::Quorum);
        let (bucket, given) = match known {
            Some(known) => known,
            None => self.look_up(name, level).await?,
        };
        self.note(given);
        Ok(bucket)
    }

    /// Refuses to report an absence if another bucket has the name now.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`], [`Error::NoSuchBucket`]; at level strict also any failed lookup.
    pub(crate) async fn check_not_replaced(
        &self,
        name: &str,
        before: &Bucket,
        since: Instant,
    ) -> Result<()> {
        let level = self.level(before);
        if level == Level::Any {
            return Ok(());
        }
        match self.bucket_after(name, since, level).await {
            Ok(bucket) => check_same(before, &bucket),
            Err(Error::Backend(error)) if level != Level::Strict => {
                tracing::debug!(%error, "could not refresh a bucket, using the cached one");
                self.note(Given::Degraded);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces an error that reports an absence by that of [`Inner::check_not_replaced`], if it
    /// fails. Returns other errors unchanged.
    pub(crate) async fn check_absence(
        &self,
        error: Error,
        (name, before): (&str, &Bucket),
        since: Instant,
    ) -> Error {
        if !is_absence(&error) {
            return error;
        }
        self.check_not_replaced(name, before, since).await.err().unwrap_or(error)
    }
}

/// Refuses a bucket that replaced `before`. Permissions were checked against `before`. So an
/// automatic retry needs an equal owner and equal settings.
pub(super) fn check_same(before: &Bucket, now: &Bucket) -> Result<()> {
    if before.id == now.id {
        return Ok(());
    }
    let is_alike = before.owner == now.owner && before.settings == now.settings;
    Err(if is_alike { Error::BucketReplaced } else { busy() })
}
