//! Buckets by name, from the cache or from their registers.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Bucket, BucketState};
use martlet_protocol::{AchievedLevel, Level, RegisterKey, WriteId};
use tokio::time::Instant;

use super::cache::BucketCache;
use super::emptiness::SearchProgress;
use super::fence::Fences;
use super::record::{bucket_of, busy, check_key, check_same, root, write};
use super::target::ObjectTarget;
use crate::consistency::deciding_level;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, RegisterClient, Step, WriteOutcome};

/// Time after which a closing bucket counts as abandoned by its deleter, in milliseconds.
const CLOSING_MS_MAX: u64 = 60_000;

/// Buckets by name, from the cache or from their registers.
pub(crate) struct BucketCatalog {
    pub(super) registers: Arc<RegisterClient>,
    pub(crate) fences: Fences,
    pub(super) cache: BucketCache,
    pub(super) progress: SearchProgress,
}

impl BucketCatalog {
    pub(crate) fn new(registers: Arc<RegisterClient>, cache_ms: u64) -> Self {
        let fences = Fences::new(registers.replicas.clone(), registers.stamps.clone());
        let (cache, progress) = (BucketCache::new(cache_ms), SearchProgress::default());
        Self { registers, fences, cache, progress }
    }

    /// Removes a bucket from the cache.
    pub(crate) fn forget(&self, name: &str) {
        self.cache.forget(name);
    }

    /// A bucket by name, from the cache or from its register.
    pub(crate) async fn bucket(&self, context: &RequestContext, name: &str) -> Result<Arc<Bucket>> {
        let level = context.bucket_level();
        let (mut bucket, mut given) = match self.cache.get(name) {
            Some(cached) => cached,
            // Rare, and large: boxed, so that other requests need no space for it.
            None => match Box::pin(self.look_up(context, name, level)).await {
                Err(error @ Error::Backend(_)) => {
                    // An expired cache entry serves unless the level is strict.
                    let cached = self.cache.get_old(name);
                    (
                        cached
                            .filter(|cached| context.deciding_level(cached) != Level::Strict)
                            .ok_or(error)?,
                        AchievedLevel::Degraded,
                    )
                }
                found => found?,
            },
        };
        if context.deciding_level(&bucket) == Level::Strict && given != AchievedLevel::Quorum {
            (bucket, given) = Box::pin(self.look_up(context, name, Level::Strict)).await?;
        }
        context.note(given);
        Ok(bucket)
    }

    /// Reads a bucket from its register, and caches it. One replica alone never answers, whatever the
    /// level: it may hold an older policy, and the cache serves requests of every level (rule A4).
    pub(super) async fn look_up(
        &self,
        context: &RequestContext,
        name: &str,
        level: Level,
    ) -> Result<(Arc<Bucket>, AchievedLevel)> {
        let since = Instant::now();
        let level = deciding_level(Some(level), Level::default());
        let (view, given) = self.registers.read_given(&root(name), Want::Entry, level).await?;
        let Some(bucket) = bucket_of(&view) else {
            if given == AchievedLevel::Quorum {
                self.cache.remove(name);
            }
            context.note(given);
            return Err(Error::NoSuchBucket);
        };
        let bucket = self.cache.put(name, since, bucket.clone(), given);
        Ok((bucket, given))
    }

    /// A bucket that accepts writes. Reopens a closing bucket that its deleter abandoned.
    pub(crate) async fn open_bucket(
        &self,
        context: &RequestContext,
        name: &str,
    ) -> Result<Arc<Bucket>> {
        let bucket = self.bucket(context, name).await?;
        match bucket.state {
            BucketState::Open => Ok(bucket),
            BucketState::Closing => Box::pin(self.reopen(name, None)).await,
        }
    }

    /// Reads the bucket again after a replica refused a write as fenced. Reopens an abandoned one.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`] if another bucket has the name. The caller may repeat the whole
    /// operation there.
    pub(crate) async fn refreshed(
        &self,
        context: &RequestContext,
        name: &str,
        before: &Bucket,
    ) -> Result<Arc<Bucket>> {
        let level = context.deciding_level(before);
        let mut bucket = self.bucket_after(context, name, Instant::now(), level).await?;
        if bucket.state == BucketState::Closing {
            bucket = self.reopen(name, None).await?;
        }
        check_same(before, &bucket)?;
        if bucket.generation <= before.generation {
            // The process that reopened it did not reach enough replicas.
            self.fences.fence(&bucket, true).await?;
        }
        Ok(bucket)
    }

    /// Reopens a closing bucket: the one that write `closing` closed, or an abandoned one.
    pub(super) async fn reopen(&self, name: &str, closing: Option<WriteId>) -> Result<Arc<Bucket>> {
        let since = Instant::now();
        let now_ms = self.registers.stamps.now_ms();
        let mut opened = None;
        let mut evaluate = |view: &RegisterView| {
            let (Some(entry), Some(bucket)) = (&view.entry, bucket_of(view)) else {
                return Err(Error::NoSuchBucket);
            };
            let stale = entry.order.time_ms() + CLOSING_MS_MAX < now_ms;
            if bucket.state == BucketState::Open {
                opened = Some(bucket.clone());
                return Ok(Step::Keep);
            }
            if closing != Some(entry.write_id) && !stale {
                return Err(busy());
            }
            let mut bucket = bucket.clone();
            bucket.state = BucketState::Open;
            bucket.generation += 1;
            let step = write(&bucket);
            opened = Some(bucket);
            Ok(step)
        };
        self.decide(name, WriteId::random(), &mut evaluate).await?;
        let bucket = opened.ok_or_else(busy)?;
        self.fences.fence(&bucket, true).await?;
        Ok(self.cache.put(name, since, bucket, AchievedLevel::Quorum))
    }

    /// Changes a bucket by compare-and-set. Returns it, and true if it was written. `change` runs
    /// again after each concurrent write. A bucket that is being deleted is refused.
    pub(super) async fn change(
        &self,
        name: &str,
        mut change: impl FnMut(&mut Bucket) -> Result<()> + Send,
    ) -> Result<(Bucket, bool)> {
        let mut changed = None;
        let mut evaluate = |view: &RegisterView| {
            let before = bucket_of(view).ok_or(Error::NoSuchBucket)?;
            if before.state == BucketState::Closing {
                return Err(busy());
            }
            let mut bucket = before.clone();
            change(&mut bucket)?;
            let step = if bucket == *before { Step::Keep } else { write(&bucket) };
            changed = Some(bucket);
            Ok(step)
        };
        let outcome = self.decide(name, WriteId::random(), &mut evaluate).await?;
        let is_written = matches!(outcome, WriteOutcome::At(_));
        Ok((changed.ok_or_else(busy)?, is_written))
    }

    /// Runs a ballot on the register of a bucket. The cache isn't changed.
    ///
    /// # Errors
    /// Those of `evaluate`; too few nodes replied; the root bucket is fenced, and nothing was
    /// written.
    pub(super) async fn decide(
        &self,
        name: &str,
        write_id: WriteId,
        evaluate: &mut (dyn FnMut(&RegisterView) -> Result<Step> + Send),
    ) -> Result<WriteOutcome> {
        let key = root(name);
        let intent = Intent::of_root(&key, write_id, self.registers.stamps.now_ms());
        match self.registers.ballots.decide(intent, evaluate).await? {
            WriteOutcome::Fenced => Err(busy()),
            outcome => Ok(outcome),
        }
    }

    /// Register and bucket of an object to write.
    pub(crate) async fn target<'a>(
        &self,
        context: &'a RequestContext,
        name: &'a str,
        key: &str,
    ) -> Result<ObjectTarget<'a>> {
        check_key(key)?;
        let began = Instant::now();
        let bucket = self.open_bucket(context, name).await?;
        let key = RegisterKey::object(bucket.id, bucket.index_shards, key);
        Ok(ObjectTarget { context, name, bucket, key, began })
    }

    /// Refuses to report an absence if the target's bucket was replaced.
    pub(crate) async fn check_target(&self, target: &ObjectTarget<'_>) -> Result<()> {
        self.check_not_replaced(target.context, target.name, &target.bucket, target.began).await
    }

    /// A bucket for a request that names a version. An unversioned bucket is read again, since the
    /// cache may be older than its versioning.
    pub(crate) async fn bucket_with_versions(
        &self,
        context: &RequestContext,
        name: &str,
    ) -> Result<Arc<Bucket>> {
        let cached = self.bucket(context, name).await?;
        if cached.versioning().state.keeps_versions() {
            return Ok(cached);
        }
        self.cache.forget(name);
        self.bucket(context, name).await
    }
}
