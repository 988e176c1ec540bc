//! Devices that may hold registers outside of their place: registers in partitions of which the device
//! is no primary.
//!
//! Before tombstones are marked, no device may hold anything older (see [`super`]). Most devices hold
//! nothing outside of their place, and their sums show it: one request asks a device about all
//! partitions of a visited device, whatever the number of tombstones. Devices that do hold something
//! there are asked about each tombstone.
//!
//! Sums leave out marked tombstones and registers without an entry: these protect nothing and bring
//! nothing back. A sum may be wrong (rule H1), or older than a register that came since. So it
//! permits a mark and never a drop: after the marks, every device is asked about each tombstone.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use martlet_protocol::tree::{Span, Sum};
use martlet_protocol::{BackendExt, DeviceId, Error, Partition, RegisterKey, Result, Term};
use martlet_ring::RingHash;

use super::queries::DEVICES_AT_ONCE;
use crate::cluster::{StepTopology, in_time};

/// Milliseconds for which sums are used.
const AGE_MS_MAX: u64 = 60 * 1000;
/// Spans of one request.
const SPANS: usize = 1024;
/// Most partitions of a visited device that are looked at ahead of their tombstones.
const AHEAD_MAX: usize = 4096;

/// Holders outside of their place, by partition, as far as partitions were looked at.
#[derive(Debug, Default)]
pub(crate) struct OutsideHolders {
    of: Option<(RingHash, Term)>,
    since_ms: u64,
    /// Visited device whose partitions were looked at ahead.
    ahead_of: Option<DeviceId>,
    holders: BTreeMap<Partition, BTreeSet<DeviceId>>,
}

/// A partition that is looked at.
struct WantedPartition {
    partition: Partition,
    span: Span,
    primaries: Vec<DeviceId>,
}

impl OutsideHolders {
    /// Looks at some partitions, and at others of which the visited device is the first primary, unless
    /// they are known.
    ///
    /// # Errors
    /// If a device does not answer.
    pub(crate) async fn look(
        &mut self,
        cluster: &StepTopology,
        visited: DeviceId,
        partitions: BTreeSet<Partition>,
        now_ms: u64,
    ) -> Result<()> {
        let ring = cluster.index();
        let of = (ring.hash(), cluster.term());
        let is_young = now_ms.checked_sub(self.since_ms).is_some_and(|age| age <= AGE_MS_MAX);
        if self.of != Some(of) || !is_young {
            *self = Self { of: Some(of), since_ms: now_ms, ..Self::default() };
        }
        let mut wanted = partitions;
        wanted.retain(|partition| !self.holders.contains_key(partition));
        if wanted.is_empty() {
            return Ok(());
        }
        if self.ahead_of != Some(visited) {
            wanted.extend(self.ahead(cluster, visited));
        }
        let wanted = wanted.into_iter().map(|partition| WantedPartition {
            partition,
            span: ring.span(partition),
            primaries: ring.primaries(partition).collect(),
        });
        let found = holders_of(cluster, &wanted.collect::<Vec<_>>()).await?;
        self.holders.extend(found);
        self.ahead_of = Some(visited);
        Ok(())
    }

    /// Returns the devices that may hold a register outside of its place. Its partition was looked
    /// at.
    pub(crate) fn of(&self, cluster: &StepTopology, key: &RegisterKey) -> BTreeSet<DeviceId> {
        let partition = cluster.index().partition(key.placement());
        self.holders.get(&partition).cloned().unwrap_or_default()
    }

    /// Returns the unknown partitions of which a device is the first primary; none if they are many,
    /// as in a small cluster with a large ring.
    fn ahead(&self, cluster: &StepTopology, device: DeviceId) -> Vec<Partition> {
        let ring = cluster.index();
        let is_first = |at: &Partition| ring.primaries(*at).next() == Some(device);
        let unknown = |at: &Partition| !self.holders.contains_key(at);
        let first = ring.partitions().filter(is_first).filter(unknown).take(AHEAD_MAX + 1);
        let first: Vec<Partition> = first.collect();
        if first.len() > AHEAD_MAX { Vec::new() } else { first }
    }
}

/// Returns the devices that hold something in partitions of which they are no primary. Each device is
/// asked once for each [`SPANS`] partitions.
async fn holders_of(
    cluster: &StepTopology,
    wanted: &[WantedPartition],
) -> Result<BTreeMap<Partition, BTreeSet<DeviceId>>> {
    let queries = cluster.index_devices().into_iter().map(|device| async move {
        Ok::<_, Error>((device, held_outside(cluster, device, wanted).await?))
    });
    let queries: Vec<_> = queries.collect();
    let mut found: BTreeMap<Partition, BTreeSet<DeviceId>> =
        wanted.iter().map(|it| (it.partition, BTreeSet::new())).collect();
    let mut replies = futures::stream::iter(queries).buffer_unordered(DEVICES_AT_ONCE);
    while let Some(reply) = replies.next().await {
        let (device, held) = reply?;
        for partition in held {
            found.entry(partition).or_default().insert(device);
        }
    }
    Ok(found)
}

/// Returns the partitions in which a device holds something, though it is no primary.
async fn held_outside(
    cluster: &StepTopology,
    device: DeviceId,
    wanted: &[WantedPartition],
) -> Result<Vec<Partition>> {
    let outside: Vec<&WantedPartition> =
        wanted.iter().filter(|it| !it.primaries.contains(&device)).collect();
    let mut held = Vec::new();
    for part in outside.chunks(SPANS) {
        let spans: Vec<Span> = part.iter().map(|it| it.span).collect();
        let sums: Vec<Sum> = in_time(cluster.node(device)?.sums(device, &spans)).await?;
        if sums.len() != spans.len() {
            return Err(Error::internal(format!("device {device} left out sums")));
        }
        let filled = part.iter().zip(sums).filter(|(_, sum)| *sum != Sum::default());
        held.extend(filled.map(|(it, _)| it.partition));
    }
    Ok(held)
}
