//! The workers' view of the cluster: the rings of a step, statuses of devices, and the scope of
//! devices that a process handles.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_protocol::{Backend, DeviceId, Error, ExtentId, PolicyId, Result, Term};
use martlet_ring::{Ring, Sets};
use martlet_topology::{Cluster, Topology};

/// Timeout of an index call, after which a device counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Topology of one step: the rings of the step's start, and the highest known term as it rises.
pub(crate) struct StepTopology {
    cluster: Arc<Cluster>,
    topology: Topology,
}

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

impl DeviceScope {
    /// Returns the devices of a ring in scope, by id.
    fn of(&self, ring: &Ring) -> BTreeSet<DeviceId> {
        let devices = ring.devices().iter();
        match self {
            Self::All => devices.map(|device| device.id).collect(),
            Self::Nodes(names) => {
                let names: HashSet<&str> = names.iter().map(String::as_str).collect();
                let mine = devices.filter(|device| names.contains(device.node.name.as_str()));
                mine.map(|device| device.id).collect()
            }
        }
    }
}

impl Deref for StepTopology {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl StepTopology {
    /// Returns the topology of a step that begins now.
    pub(crate) fn of(topology: &Topology) -> Self {
        Self { cluster: topology.cluster(), topology: topology.clone() }
    }

    /// Returns the highest known term.
    pub(crate) fn term(&self) -> Term {
        self.topology.term()
    }

    /// Raises the highest known term.
    pub(crate) fn raise_term(&self, term: Term) {
        self.topology.raise_term(term);
    }

    /// Records the term that a refusal carries.
    pub(crate) fn learn(&self, refusal: &Error) {
        self.topology.learn(refusal);
    }

    /// Returns true if the process has no newer rings than this step.
    pub(crate) fn is_current(&self) -> bool {
        Arc::ptr_eq(&self.cluster, &self.topology.cluster())
    }

    /// Returns true if most nodes of the index ring have it.
    pub(crate) fn has_spread(&self) -> bool {
        self.topology.has_spread(self.index())
    }

    /// Returns the holders of `placement` on the index ring.
    pub(crate) fn holders(&self, placement: u64) -> Holders {
        let index = self.index();
        let primaries: Vec<DeviceId> = index.primaries(index.partition(placement)).collect();
        let sets = self.sets(placement);
        let mut previous: Vec<DeviceId> =
            sets.members().filter(|id| !primaries.contains(id)).collect();
        let in_transition = !previous.is_empty() || self.named().is_err() || self.is_behind();
        previous.retain(|id| index.device(*id).is_some());
        Holders { primaries, previous, in_transition }
    }

    /// Returns the devices that decide about `placement` at the highest known term (rule P2).
    pub(crate) fn sets(&self, placement: u64) -> Sets {
        self.index().sets(self.index().partition(placement), self.term())
    }

    /// Returns the term for requests that use the index ring (rule P1).
    pub(crate) fn named(&self) -> Result<Term> {
        self.request_term(self.term())
    }

    /// Returns true if a ring change is in progress that the index ring doesn't contain.
    pub(crate) fn is_behind(&self) -> bool {
        self.index().is_overtaken(self.term())
    }

    /// Checks that the index ring contains the ring change in progress.
    ///
    /// # Errors
    /// If it doesn't: the holders of that change are unknown.
    pub(crate) fn check_not_behind(&self) -> Result<()> {
        if self.is_behind() {
            return Err(Error::unavailable(
                "this process lacks the index ring of the ring change in progress",
            ));
        }
        Ok(())
    }

    /// Returns every device of the index ring: primaries and handoffs of any partition.
    pub(crate) fn index_devices(&self) -> Vec<DeviceId> {
        self.index().devices().iter().map(|device| device.id).collect()
    }

    /// Returns the devices of the index ring in `scope`.
    pub(crate) fn index_devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        scope.of(self.index())
    }

    /// Returns the devices in `scope` that may hold extents of any policy.
    pub(crate) fn data_devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        self.policies().flat_map(|ring| scope.of(ring)).collect()
    }

    /// Returns the index and data devices in `scope`.
    pub(crate) fn devices_of(&self, scope: &DeviceScope) -> BTreeSet<DeviceId> {
        &self.index_devices_of(scope) | &self.data_devices_of(scope)
    }

    /// Returns true if a device may hold extents.
    pub(crate) fn has_extents(&self, device: DeviceId) -> bool {
        self.policies().any(|ring| ring.device(device).is_some())
    }

    /// Returns every device of a policy's ring; each may have a copy of any of its extents.
    pub(crate) fn data_devices(&self, policy: PolicyId) -> Result<Vec<DeviceId>> {
        Ok(self.data(policy)?.devices().iter().map(|device| device.id).collect())
    }

    /// Returns the devices of a policy's ring in the best order for finding one extent: its
    /// primaries, then its handoffs.
    pub(crate) fn holders_of(&self, policy: PolicyId, id: ExtentId) -> Result<Vec<DeviceId>> {
        let ring = self.data(policy)?;
        let partition = ring.partition(id.placement());
        Ok(ring.primaries(partition).chain(ring.handoffs(partition)).collect())
    }

    /// Returns the statuses of serving devices; each node is queried once. A device that is being
    /// reopened, or is offline, reports no votes, and counts as silent.
    pub(crate) async fn statuses(&self) -> HashMap<DeviceId, DeviceStatus> {
        self.statuses_from(self.nodes(), PATIENCE).await
    }

    /// Returns the statuses of serving devices on the nodes of `devices`, as [`Self::statuses`] does.
    /// Each of these nodes is queried once, and no other node.
    pub(crate) async fn statuses_of(
        &self,
        devices: impl IntoIterator<Item = DeviceId>,
    ) -> HashMap<DeviceId, DeviceStatus> {
        self.statuses_from(self.nodes_of(devices), PATIENCE).await
    }

    /// Returns the statuses as [`Self::statuses_of`] does, of nodes that reply within `patience`.
    pub(crate) async fn statuses_within(
        &self,
        patience: Duration,
        devices: impl IntoIterator<Item = DeviceId>,
    ) -> HashMap<DeviceId, DeviceStatus> {
        self.statuses_from(self.nodes_of(devices), patience).await
    }

    async fn statuses_from(
        &self,
        nodes: Vec<&Arc<dyn Backend>>,
        patience: Duration,
    ) -> HashMap<DeviceId, DeviceStatus> {
        let answers = nodes.into_iter().map(|node| within(patience, node.devices()));
        let answers = futures::future::join_all(answers).await;
        let all: Vec<DeviceStatus> = answers.into_iter().flatten().flatten().collect();
        for status in &all {
            self.raise_term(status.term);
        }
        all.into_iter()
            .filter(|status| matches!(status.health, DeviceHealth::Ready | DeviceHealth::Full))
            .map(|status| (status.device, status))
            .collect()
    }
}

/// Limits a call to [`PATIENCE`]; a timeout is `Unavailable`.
pub(crate) async fn in_time<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    within(PATIENCE, call).await
}

async fn within<T>(patience: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(patience, call)
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
