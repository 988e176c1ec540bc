//! Creation, deletion, and listing of buckets, and their consistency level.

use std::sync::Arc;

use martlet_protocol::backend::{ListStart, RegisterView, Want};
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::limits::INDEX_SHARDS_MAX;
use martlet_protocol::lost::HOLD_REGISTER;
use martlet_protocol::{BucketId, Level, PolicyId, RegisterKey, WriteId};

use super::catalog::BucketCatalog;
use super::emptiness::Search;
use super::record::{bucket_of, busy, root, write};
use crate::api::{NamedBucket, NewBucket};
use crate::context::{ContextSource, RequestContext};
use crate::error::{Error, Result};
use crate::index::{Proposal, RegisterClient, Step};
use crate::policy::bucket_policy;
use crate::quota::{Quotas, RequestedUsage};
use crate::walk::{Paths, Walk};

/// Buckets of a store, and their settings.
#[derive(Clone, Copy)]
pub struct Buckets<'a> {
    pub(crate) registers: &'a RegisterClient,
    pub(crate) catalog: &'a BucketCatalog,
    pub(crate) quotas: &'a Arc<Quotas>,
    pub(crate) contexts: ContextSource<'a>,
}

impl Buckets<'_> {
    /// Creates a bucket.
    ///
    /// # Errors
    /// [`Error::BucketExists`] with its owner if the name is taken; [`Error::InvalidArgument`] for
    /// an unknown storage policy; [`Error::InvalidRequest`] for a number of shards that is no power
    /// of two or too large; [`Error::QuotaExceeded`].
    pub async fn create(self, name: &str, new: NewBucket) -> Result<Bucket> {
        create_as(self, name, new, NewIdentity { id: BucketId::random(), generation: 1 }).await
    }

    /// A bucket from the cache, of any age, without a lookup.
    pub fn cached(self, name: &str) -> Option<Arc<Bucket>> {
        self.catalog.cache.get_old(name)
    }

    /// Deletes a bucket that holds no objects. Open uploads are deleted with it.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::BucketNotEmpty`]; unavailable while collection is held (rule
    /// X8): a bucket that lost its entries seems empty, and a rebuild needs its id.
    pub async fn delete(self, name: &str) -> Result<()> {
        let context = &*self.contexts.context();
        self.catalog.forget(name);
        // Checked first, so that the usual refusal doesn't disturb writers.
        let before = self.catalog.bucket(context, name).await?;
        if before.state == BucketState::Open {
            let term = self.registers.replicas.topology.term();
            let search = Search { generation: before.generation, term, is_fenced: false };
            if !self.is_empty(context, &before, search).await? {
                return Err(Error::BucketNotEmpty);
            }
        }
        check_nothing_is_held(self.registers).await?;
        let (closing, bucket) = self.close(name).await?;
        let empty = self.found_empty(context, &bucket).await;
        if !matches!(empty, Ok(true)) {
            self.catalog.reopen(name, Some(closing)).await?;
            return empty.and(Err(Error::BucketNotEmpty));
        }
        let mut evaluate = |view: &RegisterView| match &view.entry {
            Some(entry) if entry.write_id == closing => {
                Ok(Step::Write(Proposal::of(Value::Tombstone)))
            }
            _ => Err(Error::ConditionalConflict),
        };
        let deletion = WriteId::random();
        if let Err(error) = self.decide(name, deletion, &mut evaluate).await
            && !has_ended(self.registers, name, deletion).await
        {
            return Err(error);
        }
        self.catalog.progress.forget(bucket.id);
        self.catalog.fences.purge(&bucket).await;
        Ok(())
    }

    /// Sets the default consistency level of a bucket's requests. Level strict is in force once
    /// this returns: writes of proxies that cache the old level are refused.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], or too few nodes replied.
    pub async fn set_consistency(self, name: &str, level: Level) -> Result<Bucket> {
        let set = |bucket: &mut Bucket| {
            if bucket.consistency != level && level == Level::Strict {
                bucket.generation += 1;
            }
            bucket.consistency = level;
            Ok(())
        };
        let bucket = self.change(name, set).await?;
        if level == Level::Strict {
            self.catalog.fences.fence(&bucket, true).await?;
        }
        Ok(bucket)
    }

    /// Buckets in order of name, above `after`; and true if more follow.
    ///
    /// # Errors
    /// Fails if too few nodes reply for the level.
    pub async fn list(
        self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<NamedBucket>, bool)> {
        let context = &*self.contexts.context();
        let paths = Paths::root(prefix);
        let start = after.map_or(ListStart::First, |name| ListStart::After(name.to_owned().into()));
        let level = context.bucket_level();
        let mut walk =
            Walk::new(self.registers, context, &paths, start, limit.saturating_add(1), level)?;
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

    /// Returns true if a closed bucket is empty for good. All devices are fenced, no shard holds an
    /// object, and no hints for it are pending.
    async fn found_empty(self, context: &RequestContext, bucket: &Bucket) -> Result<bool> {
        let term = self.registers.replicas.topology.term();
        if !self.catalog.fences.fence(bucket, false).await? {
            return Err(busy());
        }
        // Hints from before the fences: one that is delivered during the search, behind its position,
        // would be missed.
        self.catalog.fences.check_no_hints(bucket).await?;
        let search = Search { generation: bucket.generation, term, is_fenced: true };
        if !self.is_empty(context, bucket, search).await? {
            return Ok(false);
        }
        self.catalog.fences.check_no_hints(bucket).await?;
        // A ring change moved some registers to devices that may lack the fence.
        if self.registers.replicas.topology.term() > term { Err(busy()) } else { Ok(true) }
    }

    /// Sets a bucket to `Closing`, also if another request is deleting it. A bucket that is closing
    /// keeps its generation, so that the search for contents goes on.
    async fn close(self, name: &str) -> Result<(WriteId, Bucket)> {
        let write_id = WriteId::random();
        let mut closed = None;
        let mut evaluate = |view: &RegisterView| {
            let mut bucket = bucket_of(view).ok_or(Error::NoSuchBucket)?.clone();
            if bucket.state == BucketState::Open {
                bucket.state = BucketState::Closing;
                bucket.generation += 1;
            }
            let step = write(&bucket);
            closed = Some(bucket);
            Ok(step)
        };
        self.decide(name, write_id, &mut evaluate).await?;
        Ok((write_id, closed.ok_or_else(busy)?))
    }

    /// Changes a bucket by compare-and-set, removes it from the cache, and returns it. `change`
    /// runs again after each concurrent write. A bucket that is being deleted is refused.
    pub(super) async fn change(
        self,
        name: &str,
        change: impl FnMut(&mut Bucket) -> Result<()> + Send,
    ) -> Result<Bucket> {
        let changed = self.catalog.change(name, change).await;
        self.catalog.forget(name);
        changed.map(|(bucket, _)| bucket)
    }

    /// Returns true if the bucket holds nothing but tombstones.
    async fn is_empty(
        self,
        context: &RequestContext,
        bucket: &Bucket,
        search: Search,
    ) -> Result<bool> {
        self.catalog.progress.is_empty(self.registers, context, bucket, search).await
    }

    /// Runs a ballot on the register of a bucket, and removes the bucket from the cache.
    async fn decide(
        self,
        name: &str,
        write_id: WriteId,
        evaluate: &mut (dyn FnMut(&RegisterView) -> Result<Step> + Send),
    ) -> Result<()> {
        let decided = self.catalog.decide(name, write_id, evaluate).await;
        self.catalog.forget(name);
        decided.map(drop)
    }
}

/// Returns true if a quorum has the tombstone of a deletion whose outcome was unknown: the purge follows. If the register
/// can't be read, the deletion counts as failed.
async fn has_ended(registers: &RegisterClient, name: &str, deletion: WriteId) -> bool {
    let read = registers.read_given(&root(name), Want::Entry, Level::Strict).await;
    let entry = read.ok().and_then(|(view, _)| view.entry);
    entry.is_some_and(|it| it.write_id == deletion && matches!(it.value, Value::Tombstone))
}

/// Returns an error while an operator holds collection (rule X8).
async fn check_nothing_is_held(registers: &RegisterClient) -> Result<()> {
    let key = RegisterKey::account(HOLD_REGISTER);
    let read = registers.read_given(&key, Want::Entry, Level::Strict).await?;
    match read.0.entry.map(|entry| entry.value) {
        None | Some(Value::Tombstone) => Ok(()),
        Some(_) => {
            let message = "objects of a lost index partition come back at present: delete the bucket \
                           afterwards";
            Err(martlet_protocol::Error::unavailable(message).into())
        }
    }
}

/// Id and first generation of a new bucket.
pub(super) struct NewIdentity {
    pub(super) id: BucketId,
    pub(super) generation: u64,
}

/// Checks the number of shards of a new bucket; returns its storage policy.
pub(super) fn policy_of_new(buckets: Buckets<'_>, new: &NewBucket) -> Result<PolicyId> {
    let shards = new.index_shards;
    if !shards.is_power_of_two() || shards > INDEX_SHARDS_MAX {
        let message =
            format!("the number of shards must be a power of two up to {INDEX_SHARDS_MAX}");
        return Err(Error::InvalidRequest(message));
    }
    bucket_policy(&buckets.contexts.context().cluster, new.policy.as_deref())
}

/// Creates a bucket with an id and a generation.
pub(super) async fn create_as(
    buckets: Buckets<'_>,
    name: &str,
    new: NewBucket,
    NewIdentity { id, generation }: NewIdentity,
) -> Result<Bucket> {
    let policy = policy_of_new(buckets, &new)?;
    let bucket = Bucket {
        id,
        created_ms: buckets.registers.stamps.now_ms(),
        generation,
        state: BucketState::Open,
        index_shards: new.index_shards,
        policy,
        owner: new.owner,
        consistency: Level::default(),
        settings: new.settings,
    };
    let charge =
        Box::pin(buckets.quotas.charge(&bucket, RequestedUsage::bucket(name, &bucket))).await?;
    let mut evaluate = |view: &RegisterView| match bucket_of(view) {
        Some(there) => Err(Error::BucketExists { owner: there.owner.clone() }),
        None => Ok(write(&bucket)),
    };
    buckets.decide(name, WriteId::random(), &mut evaluate).await?;
    charge.written(buckets.registers.stamps.now_ms());
    Ok(bucket)
}
