//! Registers of deleted buckets (rule M2).
//!
//! The proxy that deletes a bucket then purges its registers from every device. If the proxy dies
//! first, or a device is out, some registers stay, closed to all writes. A device that returns
//! would copy them to devices that dropped them. They are removed if all of these conditions hold:
//!
//! * they and their bucket are older than any write that may be in flight (rule T2);
//! * after they were found, all primaries of the bucket list and every device's hints have
//!   confirmed that no bucket has this id. Ids are never used again;
//! * a device that holds some has recorded that the bucket is closed, and no primary of its first shard
//!   has a later fence that is open. So the loss of the bucket list removes nothing, also of a bucket
//!   whose deletion was given up while a device was out;
//! * collection is not held (rule X8).
//!
//! Silence means keep.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::future::join_all;
use futures::{StreamExt, stream};
use martlet_protocol::backend::BucketFence;
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::{BackendExt, BucketId, DeviceId, ErrorKind, Result, Shard, Stamp};

use crate::cluster::{StepTopology, in_time};
use crate::rebuild::loss::CollectionHold;
use crate::sweep::list_buckets;

/// Devices asked for their fences at a time.
const AT_ONCE: usize = 32;

/// Existing and deleted buckets, as far as one pass of a worker has queried them.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// Buckets at the last listing. A bucket deleted later is handled by the next pass.
    there: HashSet<BucketId>,
    gone: HashSet<BucketId>,
    /// Buckets that were not listed, and that no device asked so far knows as closed.
    lost: HashSet<BucketId>,
}

/// Devices of a purge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PurgedDevices<'a> {
    /// Devices on which registers were found: a few.
    pub(crate) holders: &'a [DeviceId],
    /// Devices that drop the registers of a deleted bucket.
    pub(crate) all: &'a [DeviceId],
}

impl Buckets {
    /// Removes registers of deleted buckets from devices. Returns the remaining items of `met`,
    /// and the number of removed registers. `of` returns bucket and order of an item.
    pub(crate) async fn purge<T>(
        &mut self,
        cluster: &StepTopology,
        now_ms: u64,
        devices: PurgedDevices<'_>,
        mut met: Vec<T>,
        of: impl Fn(&T) -> Option<(BucketId, Stamp)>,
    ) -> (Vec<T>, u64) {
        let young = Stamp::at_ms(now_ms.saturating_sub(FIRST_HAND_AGE_MS_MAX));
        let old = met.iter().filter_map(&of);
        let old = old.filter(|(bucket, order)| *bucket != BucketId::ROOT && *order < young);
        let old = old.map(|(bucket, _)| bucket).collect();
        let gone = match self.gone_of(cluster, devices.holders, old).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::debug!(%error, "could not list the buckets");
                return (met, 0);
            }
        };
        if !gone.is_empty() && CollectionHold::is_on_now(cluster).await {
            // A bucket may get its register back under the hold.
            *self = Self::default();
            return (met, 0);
        }
        let mut purged = BTreeSet::new();
        for bucket in gone {
            if purge(cluster, bucket, devices.all).await {
                tracing::info!(%bucket, "removed the rest of a deleted bucket");
                purged.insert(bucket);
            }
        }
        let before = met.len();
        met.retain(|one| of(one).is_none_or(|(bucket, _)| !purged.contains(&bucket)));
        let went = (before - met.len()) as u64;
        (met, went)
    }

    /// Returns the deleted buckets among `met`.
    async fn gone_of(
        &mut self,
        cluster: &StepTopology,
        holders: &[DeviceId],
        met: BTreeSet<BucketId>,
    ) -> Result<BTreeSet<BucketId>> {
        let knows = |set: &Self, id: &BucketId| set.there.contains(id) || set.gone.contains(id);
        if met.iter().any(|id| !knows(self, id) && !self.lost.contains(id)) {
            self.there = list_buckets(cluster).await?.into_keys().collect();
        }
        let unlisted: BTreeSet<BucketId> =
            met.iter().filter(|id| !knows(self, id)).copied().collect();
        let closed = closed_of(cluster, holders, &unlisted).await?;
        self.lost.extend(unlisted.difference(&closed));
        self.gone.extend(closed);
        Ok(met.into_iter().filter(|id| self.gone.contains(id)).collect())
    }
}

/// Returns those of `buckets` whose highest fence is closed, on the primaries of their first shard and on
/// `holders` of their registers. An opened bucket has a quorum of open fences among the primaries.
///
/// # Errors
/// If a device does not answer.
async fn closed_of(
    cluster: &StepTopology,
    holders: &[DeviceId],
    buckets: &BTreeSet<BucketId>,
) -> Result<BTreeSet<BucketId>> {
    if buckets.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ring = cluster.index();
    let primaries = |bucket: &BucketId| {
        ring.primaries(ring.partition(index_placement(*bucket, Shard(0)))).collect::<Vec<_>>()
    };
    let mut devices: BTreeSet<DeviceId> = buckets.iter().flat_map(primaries).collect();
    devices.extend(holders);
    let named: Vec<BucketId> = buckets.iter().copied().collect();
    let calls = devices.into_iter().map(|device| fences_of(cluster, device, &named));
    let calls: Vec<_> = calls.collect();
    let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
    let mut highest: BTreeMap<BucketId, BucketFence> = BTreeMap::new();
    while let Some(fences) = calls.next().await {
        for fence in fences? {
            let held = highest.entry(fence.bucket).or_insert(fence);
            *held = std::cmp::max_by_key(fence, *held, |it| (it.generation, !it.open));
        }
    }
    highest.retain(|_, fence| !fence.open);
    Ok(highest.into_keys().collect())
}

/// Returns the fences that a device has of these buckets.
pub(super) async fn fences_of(
    cluster: &StepTopology,
    device: DeviceId,
    buckets: &[BucketId],
) -> Result<Vec<BucketFence>> {
    in_time(cluster.node(device)?.fences_of(device, buckets)).await
}

/// Removes everything of a deleted bucket from devices, which stay closed to it. Returns true if
/// all of them removed it.
async fn purge(cluster: &StepTopology, bucket: BucketId, devices: &[DeviceId]) -> bool {
    let purge = |device: &DeviceId| purge_one(cluster, *device, bucket);
    let outcomes = join_all(devices.iter().map(purge)).await;
    let is_known_closed = outcomes.iter().any(Result::is_ok);
    let (mut all, mut unfenced) = (true, Vec::new());
    for (device, outcome) in devices.iter().zip(outcomes) {
        match outcome {
            Ok(()) => {}
            // The device got registers of the bucket from others, and has no fence of it.
            Err(error) if error.kind() == ErrorKind::Conflict && is_known_closed => {
                unfenced.push(*device);
            }
            Err(error) => {
                tracing::debug!(%bucket, %device, %error, "keeping registers of a deleted bucket \
                                                           for now");
                all = false;
            }
        }
    }
    let close_and_purge = unfenced.into_iter().map(|device| async move {
        let fence = BucketFence::of_deleted(bucket);
        in_time(cluster.node(device)?.fence(device, fence)).await?;
        purge_one(cluster, device, bucket).await
    });
    all && join_all(close_and_purge).await.iter().all(Result::is_ok)
}

async fn purge_one(cluster: &StepTopology, device: DeviceId, bucket: BucketId) -> Result<()> {
    in_time(cluster.node(device)?.purge_bucket(device, bucket)).await
}

#[cfg(test)]
mod tests;
