//! Deletions of buckets that ended without a purge (rule M2).
//!
//! ```text
//! closed, not listed, no register ──10 minutes, another pass: again──▶ closed for good on every device
//! ```
//!
//! A proxy that deletes a bucket writes its tombstone, and purges the bucket from all devices. If the proxy dies
//! between the two, the fences of the bucket stay closed, like those of a bucket that is being deleted. Registers that
//! are left name the bucket to [`deleted_buckets`](super::deleted_buckets). A bucket without any is met nowhere. Its
//! extents would stay for ever: the sweep deletes extents of an unlisted bucket only if a device knows that the
//! deletion ended.
//!
//! So the end of a pass reads all fences. A bucket is closed for good if all of these conditions hold, in two passes
//! that are ten minutes apart:
//!
//! * every device of the index ring answers, with its votes, at the highest known term;
//! * the highest fence of the bucket on any device is closed;
//! * after the fences were read, no primary of the bucket list and no hint names the bucket;
//! * no device holds a register of the bucket, or a hint for one;
//! * no name claims the bucket's id, as an adoption does before it makes the bucket;
//! * collection is not held (rule X8).
//!
//! An error or silence keeps everything. A device that knows the end of a deletion suffices for all others: its fence
//! is copied to them at once, since requests for it ask only a few devices.
//!
//! A pass looks at 1,000 buckets that aren't open: those that an earlier pass found, and further ones in the order of
//! their ids. The next pass goes on behind them, and the position outlives a restart. A pass that ends before the last
//! bucket is followed by another one that looks at fences.
//!
//! One process does this: that of the first device of the index ring. Fences are read in pages
//! ([`MergedFences`]), so memory has a bound for any number of them.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join_all, try_join_all};
use futures::{StreamExt, stream};
use martlet_protocol::backend::{BucketFence, Want};
use martlet_protocol::entry::Value;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::lost::adoption_register;
use martlet_protocol::{
    BackendExt, BucketId, Error, RegisterKey, RegisterKind, Result, Shard, Term,
};

use super::deleted_buckets::fences_of;
use super::queries::check_everyone;
use crate::cluster::{StepTopology, in_time};
use crate::cursors::Cursors;
use crate::fences::MergedFences;
use crate::rebuild::loss::CollectionHold;
use crate::sweep::list_buckets;

/// Name under which the position is stored.
const NAME: &str = "collect-unpurged";
/// Devices whose fences of named buckets are read at a time.
const FENCES_AT_ONCE: usize = 16;
/// Buckets that one check looks at closer.
const BUCKETS_MAX: usize = 1000;
/// Milliseconds between the two passes that find a bucket: longer than any write is under way.
const APART_MS: u64 = FIRST_HAND_AGE_MS_MAX;

/// Buckets whose deletion may have ended without a purge.
#[derive(Debug, Default)]
pub(super) struct UnpurgedBuckets {
    /// Time at which each was found first, in milliseconds since 1970.
    since_ms: BTreeMap<BucketId, u64>,
    /// True if the last check ended before the last bucket.
    is_partial: bool,
}

/// Buckets that are not open, by what their fences show.
#[derive(Default)]
struct ClosedBuckets {
    /// Closed ones of which no device knows the end of the deletion.
    unsure: BTreeSet<BucketId>,
    /// Those of which some devices know the end of the deletion, and others don't.
    ended: BTreeSet<BucketId>,
}

impl UnpurgedBuckets {
    /// Returns true if the next pass must go on: buckets were found that must be found again, or not all were looked
    /// at.
    pub(super) fn is_waiting(&self) -> bool {
        !self.since_ms.is_empty() || self.is_partial
    }

    /// Closes buckets for good whose deletion ended without a purge, from the position in `cursors`; returns their
    /// number.
    ///
    /// # Errors
    /// If a device doesn't answer, or collection is held. What was closed before that stays closed, and the position
    /// stays.
    pub(super) async fn close(
        &mut self,
        cluster: &StepTopology,
        cursors: &dyn Cursors,
        now_ms: u64,
    ) -> Result<u64> {
        check_everyone(cluster).await?;
        let term = cluster.term();
        let position = cursors.load(NAME).and_then(|saved| saved.parse().ok());
        let mut closed = ClosedBuckets::default();
        closed.add_named(cluster, self.since_ms.keys()).await?;
        let next = closed.add_above(cluster, position).await?;
        let count = self.close_found(cluster, term, closed, now_ms).await?;
        self.is_partial = next.is_some();
        cursors.save(NAME, &next.map_or_else(|| "-".to_owned(), |bucket| bucket.to_string()));
        Ok(count)
    }

    /// Closes those of some buckets for good whose deletion ended without a purge, as their fences showed at a term.
    async fn close_found(
        &mut self,
        cluster: &StepTopology,
        term: Term,
        closed: ClosedBuckets,
        now_ms: u64,
    ) -> Result<u64> {
        let ClosedBuckets { unsure, mut ended } = closed;
        let found = if unsure.is_empty() { unsure } else { unpurged(cluster, unsure).await? };
        self.since_ms.retain(|bucket, _| found.contains(bucket));
        for bucket in found {
            let since_ms = *self.since_ms.entry(bucket).or_insert(now_ms);
            if since_ms.saturating_add(APART_MS) <= now_ms {
                ended.insert(bucket);
            }
        }
        if ended.is_empty() {
            return Ok(0);
        }
        check_everyone(cluster).await?;
        if !cluster.is_current() || cluster.term() != term {
            return Err(Error::unavailable("the holders changed: buckets are closed later"));
        }
        let mut closed = 0;
        for bucket in ended {
            // Many buckets may take longer than a hold takes to be in force (rule X8).
            if CollectionHold::is_on_now(cluster).await {
                return Err(Error::unavailable("collection is held: buckets are closed later"));
            }
            close(cluster, bucket).await?;
            self.since_ms.remove(&bucket);
            closed += 1;
        }
        Ok(closed)
    }
}

impl ClosedBuckets {
    /// Adds a bucket by its fences on the devices, if it isn't open.
    fn add(
        &mut self,
        bucket: BucketId,
        fences: impl IntoIterator<Item = BucketFence>,
        devices: usize,
    ) {
        let (mut highest, mut ended) = (None, 0);
        for fence in fences {
            ended += usize::from(fence == BucketFence::of_deleted(bucket));
            highest = highest.into_iter().chain([fence]).max_by_key(|it| (it.generation, !it.open));
        }
        let Some(highest) = highest.filter(|_| bucket != BucketId::ROOT) else { return };
        if ended == 0 && !highest.open {
            self.unsure.insert(bucket);
        } else if (1..devices).contains(&ended) {
            self.ended.insert(bucket);
        }
    }

    /// Returns true if one check looks at no more buckets.
    fn is_full(&self) -> bool {
        self.unsure.len() + self.ended.len() >= BUCKETS_MAX
    }

    /// Adds these buckets, by a new look at their fences.
    async fn add_named(
        &mut self,
        cluster: &StepTopology,
        buckets: impl Iterator<Item = &BucketId>,
    ) -> Result<()> {
        let named: Vec<BucketId> = buckets.copied().collect();
        if named.is_empty() {
            return Ok(());
        }
        let devices = cluster.index_devices();
        let calls: Vec<_> =
            devices.iter().map(|device| fences_of(cluster, *device, &named)).collect();
        let mut calls = stream::iter(calls).buffer_unordered(FENCES_AT_ONCE);
        let mut seen: BTreeMap<BucketId, Vec<BucketFence>> = BTreeMap::new();
        while let Some(fences) = calls.next().await {
            for fence in fences? {
                seen.entry(fence.bucket).or_default().push(fence);
            }
        }
        for (bucket, fences) in seen {
            self.add(bucket, fences, devices.len());
        }
        Ok(())
    }

    /// Adds buckets above `after` until the check is full. Returns the last bucket that was looked at; none at the end.
    async fn add_above(
        &mut self,
        cluster: &StepTopology,
        after: Option<BucketId>,
    ) -> Result<Option<BucketId>> {
        let devices = cluster.index_devices();
        let needed = devices.iter().map(|device| (*device, true));
        let mut merge = MergedFences::new(cluster, needed, after);
        let mut last = after;
        while let Some(run) = merge.next().await? {
            for (bucket, fences) in run {
                if self.is_full() {
                    return Ok(last);
                }
                self.add(bucket, fences.into_iter().map(|(_, fence)| fence), devices.len());
                last = Some(bucket);
            }
        }
        Ok(None)
    }
}

/// Returns those of closed buckets that nothing lists, holds or claims.
async fn unpurged(
    cluster: &StepTopology,
    mut closed: BTreeSet<BucketId>,
) -> Result<BTreeSet<BucketId>> {
    let there = list_buckets(cluster).await?;
    closed.retain(|bucket| !there.contains_key(bucket));
    let mut found = BTreeSet::new();
    for bucket in closed {
        if !is_held(cluster, bucket).await? && !is_claimed(cluster, bucket).await? {
            found.insert(bucket);
        }
    }
    Ok(found)
}

/// Returns true if a device holds a register of a bucket, or a hint for one.
async fn is_held(cluster: &StepTopology, bucket: BucketId) -> Result<bool> {
    // The first kind of all, and a name that comes before all others and is none.
    let before =
        &RegisterKey { bucket, shard: Shard(0), kind: RegisterKind::Object, name: "".into() };
    let queries = cluster.index_devices().into_iter().map(|device| async move {
        let node = cluster.node(device)?;
        let registers = in_time(node.registers(device, Some(before), 1)).await?;
        let hints = in_time(node.hints(device, Some(before), 1)).await?;
        let mut keys =
            registers.iter().map(|(key, _)| key).chain(hints.iter().map(|hint| &hint.key));
        Ok::<_, Error>(keys.any(|key| key.bucket == bucket))
    });
    Ok(try_join_all(queries).await?.contains(&true))
}

/// Returns true if a name claims the id of a bucket whose register was lost.
async fn is_claimed(cluster: &StepTopology, bucket: BucketId) -> Result<bool> {
    let key = &adoption_register(bucket);
    let sets = cluster.sets(key.placement());
    let reads = sets.members().map(|device| async move {
        let node = cluster.node(device)?;
        let view = in_time(node.read(device, key, Want::Entry, Term::ANY)).await?;
        Ok::<_, Error>(view.entry.is_some_and(|it| !matches!(it.value, Value::Tombstone)))
    });
    Ok(try_join_all(reads).await?.contains(&true))
}

/// Closes a bucket for good on every device.
///
/// # Errors
/// If a device doesn't answer. The next pass goes on, from the devices that did.
async fn close(cluster: &StepTopology, bucket: BucketId) -> Result<()> {
    let fence = BucketFence::of_deleted(bucket);
    let calls = cluster
        .index_devices()
        .into_iter()
        .map(|device| async move { in_time(cluster.node(device)?.fence(device, fence)).await });
    join_all(calls).await.into_iter().collect::<Result<()>>()?;
    tracing::info!(%bucket, "closed a deleted bucket for good");
    Ok(())
}

#[cfg(test)]
mod tests;
