//! Loss of the index, as its devices remember it: the hold on collection, and the devices that lost
//! their registers.
//!
//! An operator accepts a loss once. Two facts must be durable before votes return, and known to all
//! workers: nothing is collected (rule X8), and these devices forgot. Both are fences of reserved
//! bucket ids, which no bucket has. So they need no format and no call of their own, devices sync
//! them, and `sync` copies them to a device that begins anew.
//!
//! ```text
//! id: ff × 12 | ff ff ff ff   closed: collection is held    generation: since when, in milliseconds
//! id: ff × 12 | device (4)    closed: the device forgot
//! ```
//!
//! Writers send a mark to all devices of the index. Most of them must store it, and so must all
//! devices that readers ask: those that decide about the placement of the hold.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use martlet_protocol::backend::BucketFence;
use martlet_protocol::key::index_placement;
use martlet_protocol::{BackendExt, BucketId, Clock, DeviceId, Error, Result, Shard};
use martlet_topology::Topology;
use parking_lot::Mutex;

use crate::cluster::{StepTopology, in_time};

const RESERVED: [u8; 12] = [0xff; 12];
/// Number of the mark of the hold, which no device has.
const HOLD: u32 = u32::MAX;
/// Milliseconds for which a worker keeps the state of the hold.
const KEPT_MS: u64 = 10_000;
/// Milliseconds after which a hold is in force: workers have read it, and deletes that they had begun
/// have ended.
pub const HOLD_SETTLES_MS: u64 = 3 * KEPT_MS;

/// State of the index after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexLoss {
    /// Start of the hold on collection, in milliseconds since 1970; none if nothing is held.
    pub held_since_ms: Option<u64>,
    /// Devices that lost their registers, and got their votes back without a sync of all of them.
    pub lost: BTreeSet<DeviceId>,
}

impl IndexLoss {
    /// Reads the state.
    ///
    /// # Errors
    /// If too few devices of the index answer.
    pub async fn read(topology: &Topology) -> Result<Self> {
        read(&StepTopology::of(topology)).await
    }

    /// Holds collection: no extent and no tombstone is deleted until [`IndexLoss::release`]. A hold
    /// keeps its start.
    ///
    /// # Errors
    /// If too few devices of the index store the hold.
    pub async fn hold(topology: &Topology, clock: &dyn Clock) -> Result<Self> {
        let cluster = StepTopology::of(topology);
        if read(&cluster).await?.held_since_ms.is_none() {
            set(&cluster, clock, &[HOLD], false).await?;
        }
        read(&cluster).await
    }

    /// Ends the hold, and forgets which devices lost registers: what no entry names is collected
    /// from then on.
    ///
    /// # Errors
    /// If too few devices of the index store the end.
    pub async fn release(topology: &Topology, clock: &dyn Clock) -> Result<Self> {
        let cluster = StepTopology::of(topology);
        let held = read(&cluster).await?;
        let devices: Vec<u32> = held.lost.iter().map(|device| device.0).collect();
        set(&cluster, clock, &devices, true).await?;
        set(&cluster, clock, &[HOLD], true).await?;
        read(&cluster).await
    }

    /// Returns the number of index partitions of which most replicas lost their registers.
    pub fn partitions(&self, topology: &Topology) -> Vec<u32> {
        let cluster = StepTopology::of(topology);
        let index = cluster.index();
        let partitions = index.partitions().filter(|at| most_of(index.primaries(*at), &self.lost));
        partitions.map(|at| at.0).collect()
    }
}

/// Returns true if most replicas of a placement's partition lost their registers.
pub(super) fn is_lost(cluster: &StepTopology, placement: u64, lost: &BTreeSet<DeviceId>) -> bool {
    let index = cluster.index();
    most_of(index.primaries(index.partition(placement)), lost)
}

/// A write needs most replicas. So writes may have been lost if most of them forgot.
fn most_of(primaries: impl Iterator<Item = DeviceId>, lost: &BTreeSet<DeviceId>) -> bool {
    let (mut all, mut gone) = (0, 0);
    for device in primaries {
        all += 1;
        gone += usize::from(lost.contains(&device));
    }
    gone > all / 2
}

/// Records devices that lost their registers.
pub(super) async fn note_lost(
    cluster: &StepTopology,
    clock: &dyn Clock,
    devices: &[DeviceId],
) -> Result<()> {
    let numbers: Vec<u32> = devices.iter().map(|device| device.0).collect();
    set(cluster, clock, &numbers, false).await
}

fn mark(number: u32) -> BucketId {
    let mut id = [0; 16];
    id[..12].copy_from_slice(&RESERVED);
    id[12..].copy_from_slice(&number.to_be_bytes());
    BucketId(id)
}

fn number_of(bucket: BucketId) -> Option<u32> {
    let (reserved, number) = bucket.0.split_at(12);
    (reserved == RESERVED).then(|| number.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Returns the devices that readers ask.
fn readers(cluster: &StepTopology) -> Vec<DeviceId> {
    cluster.sets(index_placement(mark(HOLD), Shard(0))).members().collect()
}

/// Returns the fences of marks on some devices, and the number of devices that answered.
async fn marks_of(
    cluster: &StepTopology,
    devices: &[DeviceId],
) -> (BTreeMap<u32, BucketFence>, usize) {
    let queries = devices
        .iter()
        .map(|device| async move { in_time(cluster.node(*device)?.fences(*device)).await });
    let (mut marks, mut answered): (BTreeMap<u32, BucketFence>, usize) = Default::default();
    for fences in join_all(queries).await.into_iter().flatten() {
        answered += 1;
        for fence in fences {
            let Some(number) = number_of(fence.bucket) else { continue };
            let held = marks.entry(number).or_insert(fence);
            if (fence.generation, !fence.open) > (held.generation, !held.open) {
                *held = fence;
            }
        }
    }
    (marks, answered)
}

async fn read(cluster: &StepTopology) -> Result<IndexLoss> {
    let devices = readers(cluster);
    let (marks, answered) = marks_of(cluster, &devices).await;
    if answered * 2 <= devices.len() {
        return Err(Error::unavailable("too few devices of the index answer about the hold"));
    }
    let closed = marks.into_iter().filter(|(_, fence)| !fence.open);
    let mut loss = IndexLoss::default();
    for (number, fence) in closed {
        match number {
            HOLD => loss.held_since_ms = Some(fence.generation),
            device => {
                loss.lost.insert(DeviceId(device));
            }
        }
    }
    Ok(loss)
}

/// Sends marks to all devices of the index.
async fn set(cluster: &StepTopology, clock: &dyn Clock, numbers: &[u32], open: bool) -> Result<()> {
    let (devices, readers) = (cluster.index_devices(), readers(cluster));
    let (marks, _) = marks_of(cluster, &readers).await;
    let fences: Vec<BucketFence> = numbers
        .iter()
        .map(|number| {
            let above = marks.get(number).map_or(0, |fence| fence.generation + 1);
            let generation = clock.now_ms().max(above);
            BucketFence { bucket: mark(*number), generation, open }
        })
        .collect();
    let sent = devices.iter().map(|device| {
        let fences = &fences;
        async move {
            for fence in fences {
                in_time(cluster.node(*device)?.fence(*device, *fence)).await?;
            }
            Ok::<DeviceId, Error>(*device)
        }
    });
    let stored: BTreeSet<DeviceId> = join_all(sent).await.into_iter().flatten().collect();
    let silent = readers.iter().find(|device| !stored.contains(device));
    if let Some(device) = silent {
        return Err(Error::unavailable(format!(
            "device {device} did not store the hold on collection: bring it back, or remove it from \
             the index ring, and try again"
        )));
    }
    if stored.len() * 2 <= devices.len() {
        return Err(Error::unavailable("too few devices of the index stored the hold"));
    }
    Ok(())
}

/// State of the hold, as a worker knows it.
#[derive(Debug, Default)]
pub(crate) struct CollectionHold {
    /// The state, and the time before it was read, in milliseconds since 1970.
    known: Mutex<Option<(u64, bool)>>,
}

impl CollectionHold {
    /// Returns true if collection is held, or if the state is unknown. The state is at most
    /// [`KEPT_MS`] old.
    pub(crate) async fn is_on(&self, cluster: &StepTopology, now_ms: u64) -> bool {
        if let Some((at_ms, is_on)) = *self.known.lock()
            && (at_ms..at_ms.saturating_add(KEPT_MS)).contains(&now_ms)
        {
            return is_on;
        }
        match read(cluster).await {
            Ok(loss) => {
                let is_on = loss.held_since_ms.is_some();
                let before = self.known.lock().replace((now_ms, is_on));
                if is_on != before.is_some_and(|(_, was_on)| was_on) {
                    tracing::warn!(is_on, "the hold on collection of an operator begins or ends");
                }
                is_on
            }
            Err(error) => {
                tracing::debug!(%error, "keeping everything: the state of the hold is unknown");
                true
            }
        }
    }
}
