//! Run over all versions of a bucket, page by page.
//!
//! A run succeeds only if no data key of the bucket needs another master key any more. So it fails
//! if a version could not be rewrapped, if an upload with an outdated key is open, and if a device
//! keeps hints for the bucket, or may keep some because it doesn't answer.
//!
//! An upload that was open at the begin of a pass may have become an object behind the cursor, and so
//! may a hint that was delivered meanwhile. So the pass is repeated if outdated uploads or hints were
//! there at its begin and none are at its end. New writes have keys of the first master key, so the
//! second pass is the last one.
//!
//! Memory is that of one page, whatever the number of versions.

use martlet_protocol::entry::Bucket;
use tokio::time::Instant;

use super::DataKeys;
use super::page::RewrapPage;
use super::state::{Rewrap, ended};
use crate::consistency::ConsistencyOptions;
use crate::error::{Error, Result};

/// Writes that may become versions with an outdated key.
struct PendingWrites {
    /// Number of open uploads with an outdated key.
    uploads: u64,
    /// Reason why hints of the bucket can't be ruled out.
    hints: Option<Error>,
}

impl PendingWrites {
    fn is_none(&self) -> bool {
        self.uploads == 0 && self.hints.is_none()
    }
}

impl DataKeys<'_> {
    /// Rewraps all data keys of a bucket. Succeeds only if none is left that another master key
    /// wraps, apart from writes that a proxy without the first master key makes.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::NoMasterKey`]; a failed listing; versions, uploads or hints
    /// that may need another master key; too many consecutive failures; a stop. Versions rewrapped by
    /// then stay so.
    pub async fn rewrap(self, rewrap: &Rewrap) -> Result<()> {
        let outcome = self.run(rewrap).await;
        rewrap.end();
        outcome
    }

    async fn run(self, rewrap: &Rewrap) -> Result<()> {
        self.store.services.vault.wrapping().ok_or(Error::NoMasterKey)?;
        let name = rewrap.bucket();
        let bucket = self.store.session(ConsistencyOptions::STRICT).bucket(name).await?;
        let expected = self.last_count(&bucket).await;
        rewrap.note_expected(expected);
        let uploads = self.outdated_uploads(name).await?;
        let mut pending = PendingWrites { uploads, hints: self.hints(&bucket).await };
        loop {
            rewrap.begin_pass();
            self.pass(rewrap, &bucket).await?;
            let before = pending;
            let uploads = self.open_uploads(rewrap).await?;
            rewrap.note_uploads(uploads);
            pending = PendingWrites { uploads, hints: self.hints(&bucket).await };
            if before.is_none() || !pending.is_none() {
                break;
            }
        }
        rewrap.check_nothing_left()?;
        pending.hints.map_or(Ok(()), |error| {
            Err(ended(format!(
                "writes that wait for absent devices may need the old master key: rewrap again once all \
                 devices answer ({error})"
            )))
        })
    }

    /// Returns the reason why some device may keep hints of the bucket.
    async fn hints(self, bucket: &Bucket) -> Option<Error> {
        self.store.services.buckets.fences.check_no_hints(bucket).await.err().map(Into::into)
    }

    /// Counts outdated uploads, again and again while too few devices answer.
    async fn open_uploads(self, rewrap: &Rewrap) -> Result<u64> {
        let began = Instant::now();
        loop {
            match self.outdated_uploads(rewrap.bucket()).await {
                Ok(open) => return Ok(open),
                Err(error) => rewrap.wait_after(began, error).await?,
            }
        }
    }

    /// Returns the number of versions at the last count of the bucket; none if there is no count, or
    /// the count can't be read.
    async fn last_count(self, bucket: &Bucket) -> Option<u64> {
        let counted = self.store.services.directory.bucket_usage(bucket).await;
        Some(counted.ok()??.usage.objects)
    }

    async fn pass(self, rewrap: &Rewrap, bucket: &Bucket) -> Result<()> {
        let mut after = None;
        loop {
            rewrap.give_way_to_clients().await?;
            let (began, seen) = (Instant::now(), rewrap.progress().seen);
            after = RewrapPage::new(self.store, rewrap, bucket.id).run(after).await?;
            if after.is_none() {
                return Ok(());
            }
            let span = rewrap.span_of(rewrap.progress().seen - seen);
            rewrap.rest(span.saturating_sub(began.elapsed())).await?;
        }
    }
}
