//! Buckets that others deleted and made again, behind what this proxy remembers of them.
//!
//! Nothing is in a bucket that was deleted: so only an answer that something is absent can rest on
//! one, and a write is refused as fenced. Before such an answer leaves, the bucket is looked up
//! again, unless that was done since the request began. Where another bucket has the name, the
//! operation fails with [`Error::BucketReplaced`] and is carried out once more.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::{Given, Level};
use tokio::time::{Instant, timeout};

use super::busy;
use crate::error::{Error, Result};
use crate::store::Inner;

/// Returns true when an error says that something is not there.
fn is_absence(error: &Error) -> bool {
    matches!(error, Error::NoSuchKey | Error::NoSuchVersion | Error::NoSuchUpload)
}

/// Carries out an operation; once more if the bucket that it went by was replaced.
pub(crate) async fn again_if_replaced<T, F: Future<Output = Result<T>>>(
    mut operation: impl FnMut() -> F,
) -> Result<T> {
    match operation().await {
        Err(Error::BucketReplaced) => operation().await,
        outcome => outcome,
    }
}

impl Inner {
    /// A bucket as its register had it after `since`, at a level. Those who ask at a time share a
    /// look-up.
    pub(super) async fn bucket_after(
        &self,
        name: &str,
        since: Instant,
        level: Level,
    ) -> Result<Arc<Bucket>> {
        // Whoever waits for too long looks for itself: the one before may hang.
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

    /// Refuses to say that something is absent from a bucket whose name another one has.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`], [`Error::NoSuchBucket`]; at level strict also a look-up that fails.
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
                tracing::debug!(%error, "a bucket is taken for what it was");
                self.note(Given::Degraded);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The same of an operation that found something absent; every other error stays what it is.
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

/// Refuses another bucket than the one before. Who may do what there was asked of the one before: so
/// only one of the same owner and the same settings is a reason to go on by itself.
pub(super) fn check_same(before: &Bucket, now: &Bucket) -> Result<()> {
    if before.id == now.id {
        return Ok(());
    }
    let is_alike = before.owner == now.owner && before.settings == now.settings;
    Err(if is_alike { Error::BucketReplaced } else { busy() })
}
