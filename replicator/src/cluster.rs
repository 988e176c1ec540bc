//! The workers' view of the cluster: rings, nodes, and the scope of devices that a process handles.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_protocol::{Backend, DeviceId, Error, ExtentId, PolicyId, Result, Term};
use martlet_ring::{Ring, Sets};
use parking_lot::RwLock;

use crate::index_term::{KnownTerm, RingSpreadFlag};

/// Timeout of an index call, after which a device counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The rings, and the node of each device.
#[derive(Clone)]
pub struct ClusterTopology {
    /// Ring of the index.
    pub index: Arc<Ring>,
    /// Ring of the extents of each policy.
    pub data: HashMap<PolicyId, Arc<Ring>>,
    /// Node that serves each device.
    pub nodes: HashMap<DeviceId, Arc<dyn Backend>>,
    /// Highest known term; it outlives the rings.
    pub term: KnownTerm,
    /// True if most nodes of the index ring have it.
    pub spread: RingSpreadFlag,
}

/// The current cluster. Rings change and nodes move, so workers read it again at each step.
#[derive(Clone)]
pub struct SharedTopology(Arc<RwLock<Arc<ClusterTopology>>>);

/// Devices that a process handles. Some process should handle each device; two are wasteful, and
/// harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceScope {
    /// Devices of every node.
    #[default]
    All,
    /// Devices of these nodes, by their names in the rings.
    Nodes(Vec<String>),
}

/// Holders of the registers of one index partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    pub(crate) primaries: Vec<DeviceId>,
    /// Devices from which primaries are taking over, as far as the ring still has them.
    pub(crate) previous: Vec<DeviceId>,
    /// True if other devices may decide too: a replica is moving between devices, or the ring is
    /// not in use.
    pub(crate) in_transition: bool,
}

impl SharedTopology {
    /// Wraps a cluster that may be replaced later.
    pub fn new(cluster: ClusterTopology) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(cluster))))
    }

    /// Returns the current cluster.
    pub fn get(&self) -> Arc<ClusterTopology> {
        self.0.read().clone()
    }

    /// Replaces the cluster: every later step of every worker uses the new one. The highest known
    /// term stays.
    pub fn set(&self, mut cluster: ClusterTopology) {
        let mut current = self.0.write();
        current.term.raise(cluster.term.get());
        cluster.term = current.term.clone();
        *current = Arc::new(cluster);
    }
}

impl From<ClusterTopology> for SharedTopology {
    fn from(cluster: ClusterTopology) -> Self {
        Self::new(cluster)
    }
}

impl DeviceScope {
    /// Returns the devices of a ring in scope, by id.
    fn of(&self, ring: &Ring) -> BTreeSet<DeviceId> {
        let mine = ring.devices().iter().filter(|device| match self {
            Self::All => true,
            Self::Nodes(names) => names.contains(&device.node.name),
        });
        mine.map(|device| device.id).collect()
    }
}

impl ClusterTopology {
    /// Returns the node of a device. `Unavailable` if no node serves it.
    pub(crate) fn node(&self, device: DeviceId) -> Result<&dyn Backend> {
        let node = self.nodes.get(&device);
        node.map(AsRef::as_ref)
            .ok_or_else(|| Error::unavailable(format!("no node answers for device {device}")))
    }

    /// Returns the holders of `placement` on the index ring.
    pub(crate) fn holders(&self, placement: u64) -> Holders {
        let primaries: Vec<DeviceId> =
            self.index.primaries(self.index.partition(placement)).collect();
        let sets = self.sets(placement);
        let mut previous: Vec<DeviceId> =
            sets.members().filter(|id| !primaries.contains(id)).collect();
        let in_transition = !previous.is_empty() || self.named().is_err() || self.is_behind();
        previous.retain(|id| self.index.device(*id).is_some());
        Holders { primaries, previous, in_transition }
    }

    /// Returns the devices that decide about `placement` at the highest known term (rule P2).
    pub(crate) fn sets(&self, placement: u64) -> Sets {
        self.index.sets(self.index.partition(placement), self.term.get())
    }

    /// Returns the term for requests that use the index ring (rule P1).
    pub(crate) fn named(&self) -> Result<Term> {
        self.index.term_at(self.term.get()).ok_or_else(|| {
            Error::unavailable("the index ring waits for the end of the ring change before it")
        })
    }

    /// Returns true if a ring change is in progress that the index ring doesn't contain.
    pub(crate) fn is_behind(&self) -> bool {
        self.term.get() > Term::of(self.index.change(), martlet_protocol::Phase::New)
    }

    /// Returns every device of the index ring: primaries and handoffs of any partition.
    pub(crate) fn index_devices(&self) -> Vec<DeviceId> {
        self.index.devices().iter().map(|device| device.id).collect()
    }

    /// Returns the devices of the index ring in `scope`.
    pub(crate) fn index_devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        scope.of(&self.index)
    }

    /// Returns the devices in `scope` that may hold extents of any policy.
    pub(crate) fn data_devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        self.data.values().flat_map(|ring| scope.of(ring)).collect()
    }

    /// Returns the index and data devices in `scope`.
    pub(crate) fn devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        &self.index_devices_of(scope) | &self.data_devices_of(scope)
    }

    /// Returns true if a device may hold extents.
    pub(crate) fn has_extents(&self, device: DeviceId) -> bool {
        self.data.values().any(|ring| ring.device(device).is_some())
    }

    /// Number of extents on these devices, as far as they answer.
    pub(crate) async fn extents_on(&self, devices: &BTreeSet<DeviceId>) -> u64 {
        let statuses = self.statuses().await;
        devices.iter().filter_map(|device| statuses.get(device)).map(|it| it.extents).sum()
    }

    /// Returns every device of a policy's ring; each may have a copy of any of its extents.
    pub(crate) fn data_devices(&self, policy: PolicyId) -> Result<Vec<DeviceId>> {
        Ok(self.ring_of(policy)?.devices().iter().map(|device| device.id).collect())
    }

    /// Returns the devices of a policy's ring in the best order for finding one extent: its
    /// primaries, then its handoffs.
    pub(crate) fn holders_of(&self, policy: PolicyId, id: ExtentId) -> Result<Vec<DeviceId>> {
        let ring = self.ring_of(policy)?;
        let partition = ring.partition(id.placement());
        Ok(ring.primaries(partition).chain(ring.handoffs(partition)).collect())
    }

    fn ring_of(&self, policy: PolicyId) -> Result<&Ring> {
        let ring = self.data.get(&policy).map(AsRef::as_ref);
        ring.ok_or_else(|| {
            Error::unavailable(format!("there is no ring for the storage policy {}", policy.0))
        })
    }

    /// Returns the statuses of serving devices; each node is queried once. A device that is being
    /// reopened, or is offline, reports no votes, and counts as silent.
    pub(crate) async fn statuses(&self) -> HashMap<DeviceId, DeviceStatus> {
        let mut asked: Vec<&Arc<dyn Backend>> = Vec::new();
        // In the order of devices, so that simulations are repeatable.
        let by_device: BTreeMap<_, _> = self.nodes.iter().collect();
        for node in by_device.into_values() {
            if !asked.iter().any(|known| Arc::ptr_eq(known, node)) {
                asked.push(node);
            }
        }
        let answers = asked.into_iter().map(|node| in_time(node.devices()));
        let answers = futures::future::join_all(answers).await;
        let all: Vec<DeviceStatus> = answers.into_iter().flatten().flatten().collect();
        for status in &all {
            self.term.raise(status.term);
        }
        all.into_iter()
            .filter(|status| matches!(status.health, DeviceHealth::Ready | DeviceHealth::Full))
            .map(|status| (status.device, status))
            .collect()
    }
}

/// Limits a call to [`PATIENCE`]; a timeout is `Unavailable`.
pub(crate) async fn in_time<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, call)
        .await
        .unwrap_or_else(|_| Err(Error::unavailable("a device did not answer in time")))
}

/// Position in an endless walk over a changing set of devices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceCursor(Option<DeviceId>);

impl From<DeviceId> for DeviceCursor {
    fn from(device: DeviceId) -> Self {
        Self(Some(device))
    }
}

impl DeviceCursor {
    /// Returns the current device of the walk.
    pub(crate) fn at(self, devices: &BTreeSet<DeviceId>) -> Option<DeviceId> {
        let from = self.0.unwrap_or(DeviceId(0));
        devices.range(from..).next().or_else(|| devices.first()).copied()
    }

    /// Advances to the next device; returns true if that ended a round.
    pub(crate) fn advance(&mut self, devices: &BTreeSet<DeviceId>) -> bool {
        let next = self.at(devices).and_then(|at| {
            devices.range((std::ops::Bound::Excluded(at), std::ops::Bound::Unbounded)).next()
        });
        self.0 = next.copied();
        next.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(ids: &[u32]) -> BTreeSet<DeviceId> {
        ids.iter().map(|id| DeviceId(*id)).collect()
    }

    #[test]
    fn a_round_meets_every_device_once_while_others_come_and_go() {
        let mut rounds = DeviceCursor::default();
        assert_eq!(rounds.at(&devices(&[])), None);
        assert!(rounds.advance(&devices(&[])));
        let mut met = Vec::new();
        for present in [&[1, 3, 5][..], &[1, 3, 5], &[1, 2, 5], &[1, 2, 5]] {
            let present = devices(present);
            met.push(rounds.at(&present).unwrap().0);
            let ended = rounds.advance(&present);
            assert_eq!(ended, met.len() == 3, "{met:?}");
        }
        assert_eq!(met, [1, 3, 5, 1]);
    }
}
