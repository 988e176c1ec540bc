//! Buckets: registers of the root bucket, and the care that deleting one takes (rule M2).
//!
//! ```text
//! (none) ──create──▶ Open ──close──▶ Closing ──found empty──▶ tombstone ──▶ purged
//!                     ▲                 │
//!                     └─────────────────┘ not empty, or its deleter is gone
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use martlet_protocol::backend::{BucketFence, ListStart, RegisterView, Want};
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT, INDEX_SHARDS_MAX};
use martlet_protocol::{BucketId, RegisterKey, RegisterKind, WriteId};
use parking_lot::RwLock;

use crate::api::{NamedBucket, NewBucket};
use crate::error::{Error, Result};
use crate::index::{Intent, Landed, Proposal, Step};
use crate::store::{Inner, ObjectStore};
use crate::walk::{Paths, Walk};

/// Buckets that are remembered at once.
const CACHED_MAX: usize = 10_000;
/// A bucket that has been closing for so long has lost its deleter.
const CLOSING_MS_MAX: u64 = 60_000;

/// Buckets that were looked up lately.
pub(crate) struct BucketCache {
    kept_for: Duration,
    known: RwLock<HashMap<String, (Instant, Arc<Bucket>)>>,
}

impl BucketCache {
    pub(crate) fn new(kept_ms: u64) -> Self {
        Self { kept_for: Duration::from_millis(kept_ms), known: RwLock::default() }
    }

    fn get(&self, name: &str) -> Option<Arc<Bucket>> {
        let known = self.known.read();
        let (since, bucket) = known.get(name)?;
        (since.elapsed() < self.kept_for).then(|| bucket.clone())
    }

    fn put(&self, name: &str, bucket: Arc<Bucket>) {
        let mut known = self.known.write();
        if known.len() >= CACHED_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), bucket));
    }

    fn forget(&self, name: &str) {
        self.known.write().remove(name);
    }
}

fn root(name: &str) -> RegisterKey {
    RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, name)
}

fn bucket_of(view: &RegisterView) -> Option<&Bucket> {
    match &view.entry.as_ref()?.value {
        Value::Bucket(bucket) => Some(bucket),
        _ => None,
    }
}

impl Inner {
    /// A bucket by its name, as it was a moment ago.
    pub(crate) async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        if let Some(bucket) = self.buckets.get(name) {
            return Ok(bucket);
        }
        let view = self.read(&root(name), Want::Entry).await?;
        let bucket = Arc::new(bucket_of(&view).ok_or(Error::NoSuchBucket)?.clone());
        self.buckets.put(name, bucket.clone());
        Ok(bucket)
    }

    /// A bucket that takes writes.
    pub(crate) async fn open_bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let bucket = self.bucket(name).await?;
        match bucket.state {
            BucketState::Open => Ok(bucket),
            BucketState::Closing => self.reopen(name, None).await,
        }
    }

    /// After a replica refused a write as fenced: the bucket as it is now, if it is the same and
    /// takes writes of a later generation.
    pub(crate) async fn refreshed(&self, name: &str, before: &Bucket) -> Result<Arc<Bucket>> {
        self.buckets.forget(name);
        let bucket = self.open_bucket(name).await?;
        if bucket.id != before.id {
            return Err(Error::NoSuchBucket);
        }
        if bucket.generation <= before.generation {
            return Err(busy());
        }
        Ok(bucket)
    }

    fn root_intent<'a>(&self, key: &'a RegisterKey, write_id: WriteId) -> Intent<'a> {
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        Intent { key, write_id, generation: 0, commit_by_ms, claim: None }
    }

    /// Opens a closing bucket again: the one that `closing` closed, or one that has been closing
    /// for too long.
    async fn reopen(&self, name: &str, closing: Option<WriteId>) -> Result<Arc<Bucket>> {
        let key = root(name);
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
        self.buckets.put(name, bucket.clone());
        Ok(bucket)
    }

    /// Tells every device of the index which generation of a bucket it takes.
    async fn fence(&self, bucket: &Bucket, open: bool) -> Result<()> {
        let fence = BucketFence { bucket: bucket.id, generation: bucket.generation, open };
        let devices = self.cluster.index().devices().iter().map(|device| device.id);
        let told = devices
            .map(|device| async move { self.cluster.node(device)?.fence(device, fence).await });
        try_join_all(told).await?;
        Ok(())
    }

    /// Whether a bucket holds no object.
    async fn is_empty(&self, bucket: &Bucket) -> Result<bool> {
        let paths = Paths::all(bucket, RegisterKind::Object);
        let mut walk = Walk::new(self, &paths, ListStart::First, 100);
        while let Some((_, entry)) = walk.next().await? {
            if !entry.value.is_tombstone() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes all registers of a bucket that is gone; their extents become the nodes' garbage. The
    /// fence stands again at once: a write that began before may still be on its way.
    async fn purge(&self, bucket: &Bucket) -> Result<()> {
        for device in self.cluster.index().devices() {
            self.cluster.node(device.id)?.purge_bucket(device.id, bucket.id).await?;
        }
        self.fence(bucket, false).await
    }
}

fn busy() -> Error {
    martlet_protocol::Error::unavailable("the bucket is being deleted or changed").into()
}

impl ObjectStore {
    /// Makes a bucket.
    ///
    /// # Errors
    /// [`Error::BucketExists`] with its owner, when there is one of that name.
    pub async fn create_bucket(&self, name: &str, new: NewBucket) -> Result<Bucket> {
        let shards = new.index_shards;
        if !shards.is_power_of_two() || shards > INDEX_SHARDS_MAX {
            let message = format!("shards are a power of two up to {INDEX_SHARDS_MAX}");
            return Err(Error::InvalidRequest(message));
        }
        let bucket = Bucket {
            id: BucketId::random(),
            created_ms: self.inner.stamps.now_ms(),
            generation: 1,
            state: BucketState::Open,
            index_shards: shards,
            policy: self.inner.cluster.default_policy(),
            owner: new.owner,
        };
        let key = root(name);
        let intent = self.inner.root_intent(&key, WriteId::random());
        let mut evaluate = |view: &RegisterView| match bucket_of(view) {
            Some(there) => Err(Error::BucketExists { owner: there.owner.clone() }),
            None => Ok(Step::Write(Proposal::of(Value::Bucket(Box::new(bucket.clone()))))),
        };
        let landed = self.inner.decide(intent, &mut evaluate).await;
        self.inner.buckets.forget(name);
        match landed? {
            Landed::At(_) => Ok(bucket),
            Landed::Kept(_) | Landed::Fenced => Err(busy()),
        }
    }

    /// A bucket by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        self.inner.bucket(name).await
    }

    /// Deletes a bucket that holds no objects. Uploads that are still open go with it.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::BucketNotEmpty`].
    pub async fn delete_bucket(&self, name: &str) -> Result<()> {
        let inner = &self.inner;
        inner.buckets.forget(name);
        // Asked beforehand, so that the usual refusal disturbs no writer.
        if !inner.is_empty(&*inner.bucket(name).await?).await? {
            return Err(Error::BucketNotEmpty);
        }
        let (closing, bucket) = self.close(name).await?;
        inner.buckets.forget(name);
        let empty = match inner.fence(&bucket, false).await {
            Ok(()) => inner.is_empty(&bucket).await,
            Err(error) => Err(error),
        };
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
        if let Err(error) = inner.purge(&bucket).await {
            tracing::warn!(bucket = name, %error, "registers of a deleted bucket are left behind");
        }
        Ok(())
    }

    /// Takes a bucket into `Closing`, from whoever else was at it.
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
        self.inner.decide(self.inner.root_intent(&key, write_id), &mut evaluate).await?;
        Ok((write_id, closed.ok_or_else(busy)?))
    }

    /// Buckets by name, above `after`, and whether there are more.
    ///
    /// # Errors
    /// When a node that holds some of them does not answer.
    pub async fn list_buckets(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<NamedBucket>, bool)> {
        let paths = Paths::root(prefix);
        let start = after.map_or(ListStart::First, |name| ListStart::After(name.to_owned().into()));
        let mut walk = Walk::new(&self.inner, &paths, start, limit.saturating_add(1));
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
