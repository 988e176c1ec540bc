//! Whom a device syncs from, whether they are enough, and what they know of buckets.

use std::collections::{BTreeSet, HashMap};

use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::BucketFence;
use martlet_protocol::{BucketId, DeviceId, Error, Result};

use crate::cluster::{Cluster, in_time};

/// The other primaries of every partition that a device is a primary of.
pub(super) fn peers_of(cluster: &Cluster, device: DeviceId) -> BTreeSet<DeviceId> {
    let partitions = cluster.index.partitions().map(|at| cluster.index.primaries(at));
    let mut peers: BTreeSet<DeviceId> =
        partitions.filter(|all| all.clone().any(|id| id == device)).flatten().collect();
    peers.remove(&device);
    peers
}

/// Whether each quorum that a device was part of had one of `peers`.
pub(super) fn check_coverage(
    cluster: &Cluster,
    device: DeviceId,
    peers: &BTreeSet<DeviceId>,
) -> Result<()> {
    for partition in cluster.index.partitions() {
        let primaries = cluster.index.primaries(partition);
        let (count, others) = (primaries.len(), primaries.clone().filter(|id| peers.contains(id)));
        if primaries.clone().any(|id| id == device) && others.count() < count - count / 2 {
            return Err(Error::unavailable(format!(
                "device {device} has no vote, and too few of its peers have one for it to sync from"
            )));
        }
    }
    Ok(())
}

/// Lets a device know every fence that any other device of the index ring knows (rule M2).
pub(super) async fn copy_fences(cluster: &Cluster, device: DeviceId) -> Result<()> {
    let others = cluster.index_devices().into_iter().filter(|id| *id != device);
    let asked = others.map(|id| async move { in_time(cluster.node(id)?.fences(id)).await });
    let mut newest: HashMap<BucketId, BucketFence> = HashMap::new();
    for fence in join_all(asked).await.into_iter().flatten().flatten() {
        let held = newest.entry(fence.bucket).or_insert(fence);
        // Of one generation, closed is the safer one: whoever opens it again says so to all.
        if (fence.generation, !fence.open) > (held.generation, !held.open) {
            *held = fence;
        }
    }
    let node = cluster.node(device)?;
    let known: HashMap<BucketId, u64> = in_time(node.fences(device))
        .await?
        .into_iter()
        .map(|fence| (fence.bucket, fence.generation))
        .collect();
    let news =
        newest.into_values().filter(|fence| known.get(&fence.bucket) < Some(&fence.generation));
    try_join_all(news.map(|fence| in_time(node.fence(device, fence)))).await.map(|_| ())
}
