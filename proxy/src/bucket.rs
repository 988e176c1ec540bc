//! Buckets: registers of the root bucket, and their safe deletion (rule M2).
//!
//! ```text
//! (none) ──create──▶ Open ──close──▶ Closing ──found empty──▶ tombstone ──▶ purged
//!                     ▲                 │
//!                     └─────────────────┘ not empty, or its deleter is gone
//! ```

mod cache;
mod fence;
mod lock;
mod policy;
mod replaced;
mod settings;

use std::sync::Arc;

pub(crate) use cache::BucketCache;
pub use lock::lock_from_the_beginning;
pub(crate) use lock::lock_of;
use martlet_protocol::backend::{ListStart, RegisterView, Want};
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT, INDEX_SHARDS_MAX};
use martlet_protocol::{BucketId, Given, Level, RegisterKey, WriteId};
pub(crate) use replaced::again_if_replaced;
use tokio::time::Instant;

use crate::api::{NamedBucket, NewBucket};
use crate::error::{Error, Result};
use crate::index::{Intent, Landed, Proposal, Step};
use crate::quota::Asked;
use crate::store::{Inner, ObjectStore};
use crate::walk::{Paths, Walk};

/// Time after which a closing bucket counts as abandoned by its deleter, in milliseconds.
const CLOSING_MS_MAX: u64 = 60_000;

pub(crate) fn root(name: &str) -> RegisterKey {
    RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, name)
}

pub(crate) fn bucket_of(view: &RegisterView) -> Option<&Bucket> {
    match &view.entry.as_ref()?.value {
        Value::Bucket(bucket) => Some(bucket),
        _ => None,
    }
}

impl Inner {
    /// A bucket by name, from the cache or from its register.
    pub(crate) async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let default = self.ask.level.unwrap_or_default();
        let (mut bucket, mut given) = match self.buckets.get(name) {
            Some(known) => known,
            None => match self.look_up(name, default).await {
                Err(error @ Error::Backend(_)) => {
                    // An expired cache entry serves unless the level is strict.
                    let known = self.buckets.get_old(name);
                    (
                        known.filter(|known| self.level(known) != Level::Strict).ok_or(error)?,
                        Given::Degraded,
                    )
                }
                found => found?,
            },
        };
        if self.level(&bucket) == Level::Strict && given != Given::Quorum {
            (bucket, given) = self.look_up(name, Level::Strict).await?;
        }
        self.note(given);
        Ok(bucket)
    }

    async fn look_up(&self, name: &str, level: Level) -> Result<(Arc<Bucket>, Given)> {
        let since = Instant::now();
        let (view, given) = self.read_given(&root(name), Want::Entry, level).await?;
        let Some(bucket) = bucket_of(&view) else {
            if given == Given::Quorum {
                self.buckets.forget(name);
            }
            self.note(given);
            return Err(Error::NoSuchBucket);
        };
        let bucket = Arc::new(bucket.clone());
        self.buckets.put(name, since, bucket.clone(), given);
        Ok((bucket, given))
    }

    /// A bucket that accepts writes. Reopens a closing bucket that its deleter abandoned.
    pub(crate) async fn open_bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let bucket = self.bucket(name).await?;
        match bucket.state {
            BucketState::Open => Ok(bucket),
            BucketState::Closing => self.reopen(name, None).await,
        }
    }

    /// Reads the bucket again after a replica refused a write as fenced. Reopens an abandoned one.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`] if another bucket has the name. The caller may repeat the whole
    /// operation there.
    pub(crate) async fn refreshed(&self, name: &str, before: &Bucket) -> Result<Arc<Bucket>> {
        let mut bucket = self.bucket_after(name, Instant::now(), self.level(before)).await?;
        if bucket.state == BucketState::Closing {
            bucket = self.reopen(name, None).await?;
        }
        replaced::check_same(before, &bucket)?;
        if bucket.generation <= before.generation {
            // The process that reopened it did not reach enough replicas.
            self.fence(&bucket, true).await?;
        }
        Ok(bucket)
    }

    pub(crate) fn root_intent<'a>(&self, key: &'a RegisterKey, write_id: WriteId) -> Intent<'a> {
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        Intent { key, write_id, generation: 0, commit_by_ms, level: Level::Strict, claim: None }
    }

    /// Reopens a closing bucket: the one that write `closing` closed, or an abandoned one.
    async fn reopen(&self, name: &str, closing: Option<WriteId>) -> Result<Arc<Bucket>> {
        let (key, since) = (root(name), Instant::now());
        let now_ms = self.stamps.now_ms();
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
            opened = Some(bucket.clone());
            Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket)))))
        };
        self.decide(self.root_intent(&key, WriteId::random()), &mut evaluate).await?;
        let bucket = Arc::new(opened.ok_or_else(busy)?);
        self.fence(&bucket, true).await?;
        self.buckets.put(name, since, bucket.clone(), Given::Quorum);
        Ok(bucket)
    }

    /// Returns true if a closed bucket is empty for good. All devices are fenced, no shard holds an
    /// object, and no hints for it are pending.
    async fn found_empty(&self, bucket: &Bucket) -> Result<bool> {
        let before = self.term();
        if !self.fence(bucket, false).await? {
            return Err(busy());
        }
        if !self.is_empty(bucket).await? {
            return Ok(false);
        }
        self.check_no_hints(bucket).await?;
        // A ring change moved some registers to devices that may lack the fence.
        if self.term() > before { Err(busy()) } else { Ok(true) }
    }

    /// Sets a bucket to `Closing`, also if another request is deleting it.
    async fn close(&self, name: &str) -> Result<(WriteId, Bucket)> {
        let key = root(name);
        let write_id = WriteId::random();
        let mut closed = None;
        let mut evaluate = |view: &RegisterView| {
            let mut bucket = bucket_of(view).ok_or(Error::NoSuchBucket)?.clone();
            bucket.state = BucketState::Closing;
            bucket.generation += 1;
            closed = Some(bucket.clone());
            Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket)))))
        };
        self.decide(self.root_intent(&key, write_id), &mut evaluate).await?;
        Ok((write_id, closed.ok_or_else(busy)?))
    }
}

pub(crate) fn busy() -> Error {
    martlet_protocol::Error::unavailable("the bucket is being deleted or changed").into()
}

impl ObjectStore {
    /// Creates a bucket.
    ///
    /// # Errors
    /// [`Error::BucketExists`] with its owner if the name is taken; [`Error::InvalidArgument`] for
    /// an unknown storage policy; [`Error::InvalidRequest`] for a number of shards that is no power
    /// of two or too large; [`Error::QuotaExceeded`].
    pub async fn create_bucket(&self, name: &str, new: NewBucket) -> Result<Bucket> {
        let shards = new.index_shards;
        if !shards.is_power_of_two() || shards > INDEX_SHARDS_MAX {
            let message =
                format!("the number of shards must be a power of two up to {INDEX_SHARDS_MAX}");
            return Err(Error::InvalidRequest(message));
        }
        let inner = self.inner();
        let policy = inner.cluster.policy_asked(new.policy.as_deref())?;
        let bucket = Bucket {
            id: BucketId::random(),
            created_ms: inner.stamps.now_ms(),
            generation: 1,
            state: BucketState::Open,
            index_shards: shards,
            policy,
            owner: new.owner,
            consistency: Level::default(),
            settings: new.settings,
        };
        let charge = Box::pin(inner.charge(&bucket, Asked::bucket(name, &bucket))).await?;
        let key = root(name);
        let intent = inner.root_intent(&key, WriteId::random());
        let mut evaluate = |view: &RegisterView| match bucket_of(view) {
            Some(there) => Err(Error::BucketExists { owner: there.owner.clone() }),
            None => Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket.clone()))))),
        };
        let landed = inner.decide(intent, &mut evaluate).await;
        inner.buckets.forget(name);
        match landed? {
            Landed::At(_) => {
                charge.written(inner.stamps.now_ms());
                Ok(bucket)
            }
            Landed::Kept(_) | Landed::Fenced => Err(busy()),
        }
    }

    /// A bucket by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        self.inner().bucket(name).await
    }

    /// Deletes a bucket that holds no objects. Open uploads are deleted with it.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::BucketNotEmpty`].
    pub async fn delete_bucket(&self, name: &str) -> Result<()> {
        let inner = &self.inner();
        inner.buckets.forget(name);
        // Checked first, so that the usual refusal doesn't disturb writers.
        if !inner.is_empty(&*inner.bucket(name).await?).await? {
            return Err(Error::BucketNotEmpty);
        }
        let (closing, bucket) = inner.close(name).await?;
        inner.buckets.forget(name);
        let empty = inner.found_empty(&bucket).await;
        if !matches!(empty, Ok(true)) {
            inner.reopen(name, Some(closing)).await?;
            return empty.and(Err(Error::BucketNotEmpty));
        }
        let key = root(name);
        let intent = inner.root_intent(&key, WriteId::random());
        let mut evaluate = |view: &RegisterView| match &view.entry {
            Some(entry) if entry.write_id == closing => {
                Ok(Step::Write(Proposal::of(Value::Tombstone)))
            }
            _ => Err(Error::ConditionalConflict),
        };
        let landed = inner.decide(intent, &mut evaluate).await;
        inner.buckets.forget(name);
        landed?;
        inner.purge(&bucket).await;
        Ok(())
    }

    /// Sets the default consistency level of a bucket's requests. Level strict is in force once
    /// this returns: writes of proxies that cache the old level are refused.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], or too few nodes replied.
    pub async fn set_bucket_consistency(&self, name: &str, level: Level) -> Result<Bucket> {
        let inner = self.inner();
        let key = root(name);
        let mut set = None;
        let mut evaluate = |view: &RegisterView| {
            let mut bucket = bucket_of(view).ok_or(Error::NoSuchBucket)?.clone();
            if bucket.state == BucketState::Closing {
                return Err(busy());
            }
            if bucket.consistency == level {
                set = Some(bucket);
                return Ok(Step::Keep);
            }
            bucket.consistency = level;
            if level == Level::Strict {
                bucket.generation += 1;
            }
            set = Some(bucket.clone());
            Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket)))))
        };
        let landed = inner.decide(inner.root_intent(&key, WriteId::random()), &mut evaluate).await;
        inner.buckets.forget(name);
        landed?;
        let bucket = set.ok_or_else(busy)?;
        if level == Level::Strict {
            inner.fence(&bucket, true).await?;
        }
        Ok(bucket)
    }

    /// Buckets in order of name, above `after`; and true if more follow.
    ///
    /// # Errors
    /// Fails if too few nodes reply for the level.
    pub async fn list_buckets(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<NamedBucket>, bool)> {
        let paths = Paths::root(prefix);
        let start = after.map_or(ListStart::First, |name| ListStart::After(name.to_owned().into()));
        let inner = self.inner();
        let level = inner.ask.level.unwrap_or_default();
        let mut walk = Walk::new(&inner, &paths, start, limit.saturating_add(1), level)?;
        let mut buckets = Vec::new();
        while let Some((name, entry)) = walk.next().await? {
            let Value::Bucket(bucket) = entry.value else { continue };
            if buckets.len() == limit {
                return Ok((buckets, true));
            }
            buckets.push(NamedBucket { name: crate::walk::text(name)?, bucket: *bucket });
        }
        Ok((buckets, false))
    }
}
