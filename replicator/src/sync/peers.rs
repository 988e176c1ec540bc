//! Peers of a sync: their choice, their sufficiency, and their fences.

use std::collections::{BTreeSet, HashMap};

use futures::{StreamExt, TryStreamExt};
use martlet_protocol::backend::{BucketFence, DeviceCondition, DeviceStatus};
use martlet_protocol::{BackendExt, DeviceId, DeviceIdentity, Error, Partition, Result};
use martlet_ring::Sets;

use crate::cluster::{StepTopology, in_time};
use crate::fences::MergedFences;

/// Fences that are sent to a device at a time.
const FENCES_AT_ONCE: usize = 64;

/// Returns all other deciding devices of a device's partitions, before and after an unfinished
/// change.
pub(super) fn peers_of(decided: &[(Partition, Sets)], device: DeviceId) -> BTreeSet<DeviceId> {
    let mut peers: BTreeSet<DeviceId> =
        decided.iter().flat_map(|(_, sets)| sets.members()).collect();
    peers.remove(&device);
    peers
}

/// Returns an error unless all peers answer: a silent one may have its votes and its registers.
fn check_all_answer(
    peers: &BTreeSet<DeviceId>,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> Result<()> {
    match peers.iter().find(|peer| !statuses.contains_key(peer)) {
        Some(silent) => Err(Error::unavailable(format!("device {silent} does not answer"))),
        None => Ok(()),
    }
}

/// Returns an error unless all peers answer, and those without votes are among the accepted losses.
pub(super) fn check_accepted(
    peers: &BTreeSet<DeviceId>,
    accepted: &BTreeSet<DeviceId>,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> Result<()> {
    check_all_answer(peers, statuses)?;
    let has_no_vote = |id: &&DeviceId| statuses.get(id).is_none_or(|status| !status.voting);
    match peers.iter().filter(has_no_vote).find(|id| !accepted.contains(id)) {
        Some(other) => {
            Err(Error::unavailable(format!("the loss of device {other} was not accepted")))
        }
        None => Ok(()),
    }
}

/// Returns an error unless each quorum with the device had one of `peers`. If the device is to
/// replace another, this applies to each quorum that decided before.
pub(super) fn check_coverage(
    decided: &[(Partition, Sets)],
    device: DeviceId,
    peers: &BTreeSet<DeviceId>,
) -> Result<()> {
    for (_, sets) in decided {
        for at in 0..sets.count() {
            let (count, others) =
                (sets.set(at).count(), sets.set(at).filter(|id| peers.contains(id)));
            // A quorum without the device may have decided alone.
            let needed = if sets.is_of(at, device) { count - count / 2 } else { sets.quorum(at) };
            if others.count() < needed {
                return Err(Error::unavailable(format!(
                    "device {device} has no vote, and too few peers with votes answer for a sync"
                )));
            }
        }
    }
    Ok(())
}

/// Copies the fences of all other devices of the index ring to a device (rule M2). Silence of a
/// device in `needed` is an error; `needed` may contain devices that have left the ring. A repetition sends
/// what the device lacks.
pub(crate) async fn copy_fences<'a>(
    cluster: &StepTopology,
    device: DeviceId,
    needed: impl IntoIterator<Item = &'a DeviceId>,
) -> Result<()> {
    let needed: BTreeSet<DeviceId> = needed.into_iter().copied().collect();
    let mut others: BTreeSet<DeviceId> = cluster.index_devices().into_iter().collect();
    others.extend(&needed);
    others.remove(&device);
    if needed.contains(&device) {
        return Err(Error::unavailable(format!("device {device} keeps its own fences")));
    }
    let others = others.into_iter().map(|id| (id, needed.contains(&id)));
    let mut merge = MergedFences::new(cluster, others.chain([(device, true)]), None);
    let node = cluster.node(device)?;
    while let Some(run) = merge.next().await? {
        let news = run.into_values().filter_map(|fences| news_of(device, &fences));
        // Fences that wait together share a sync of the device.
        let copies = news.map(|fence| in_time(node.fence(device, fence)));
        let copies = futures::stream::iter(copies).buffer_unordered(FENCES_AT_ONCE);
        copies.try_collect::<()>().await?;
    }
    Ok(())
}

/// Returns the newest of a bucket's fences, unless the device has one of its generation or a later one.
fn news_of(device: DeviceId, fences: &[(DeviceId, BucketFence)]) -> Option<BucketFence> {
    let is_own = |(id, _): &&(DeviceId, BucketFence)| *id == device;
    // In one generation, closed is safer: a proxy that reopens the bucket sends this to all devices.
    let others = fences.iter().filter(|it| !is_own(it)).map(|(_, fence)| *fence);
    let newest = others.max_by_key(|fence| (fence.generation, !fence.open))?;
    let mut own = fences.iter().filter(is_own);
    own.all(|(_, fence)| fence.generation < newest.generation).then_some(newest)
}

/// Copies the fences of `peers` to a device, and records that it has them (rule M2). Nothing happens
/// without peers: the device decides about nothing yet.
pub(crate) async fn bring_fences<'a>(
    cluster: &StepTopology,
    device: DeviceId,
    identity: DeviceIdentity,
    peers: impl ExactSizeIterator<Item = &'a DeviceId>,
    now_ms: impl Fn() -> u64,
) -> Result<()> {
    if peers.len() == 0 {
        return Ok(());
    }
    copy_fences(cluster, device, peers).await?;
    // Copies may take minutes: the time is that after them.
    let condition = DeviceCondition::at(identity, now_ms());
    set_fenced(cluster, device, condition).await
}

/// Records that a device has received the fences of its peers, after [`copy_fences`].
pub(crate) async fn set_fenced(
    cluster: &StepTopology,
    device: DeviceId,
    condition: DeviceCondition,
) -> Result<()> {
    in_time(cluster.node(device)?.set_fenced_of(device, condition)).await
}
