//! Devices of a register, and requests to them.

use std::collections::HashSet;
use std::sync::Arc;

use martlet_protocol::backend::Want;
use martlet_protocol::{DeviceId, Partition, RegisterKey, Result, Term};
use martlet_ring::Sets;
use martlet_topology::Cluster;

/// Handoffs for each replica that are written to and queried, in ring order.
const HANDOFFS_PER_REPLICA: usize = 3;

/// Devices of a register by the rings and term of one moment.
pub(crate) struct ReplicaSet {
    pub(crate) cluster: Arc<Cluster>,
    partition: Partition,
    /// The sets of devices that decide about it (rule P2).
    pub(crate) sets: Sets,
    /// Term of its requests (rule P1).
    pub(crate) term: Term,
}

impl ReplicaSet {
    /// Place of a placement hash at a known term.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while the ring waits for the change before its own.
    pub(crate) fn of(cluster: Arc<Cluster>, known: Term, placement: u64) -> Result<Self> {
        let (ring, term) = (cluster.index(), cluster.request_term(known)?);
        let partition = ring.partition(placement);
        let sets = ring.sets(partition, term);
        Ok(Self { cluster, partition, sets, term })
    }

    /// Its members without duplicates; those that count in all sets come first.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = DeviceId> + Clone + '_ {
        self.sets.members()
    }

    /// Returns true for a single replica, which needs no agreement.
    pub(crate) fn is_alone(&self) -> bool {
        self.members().len() == 1
    }

    /// Returns true if these devices form a quorum of each set.
    pub(crate) fn has_quorum(&self, devices: &(impl Iterator<Item = DeviceId> + Clone)) -> bool {
        self.sets.has_quorum(|member| devices.clone().any(|device| device == member))
    }

    /// Former holders of moved replicas that are no longer members.
    pub(crate) fn previous(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let ring = self.cluster.index();
        let previous = (0..ring.replicas()).filter_map(|at| ring.previous(self.partition, at));
        previous.filter(|device| !self.sets.contains(*device))
    }

    /// Devices that may keep hints for the members.
    pub(crate) fn handoffs(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let handoffs = self.cluster.index().handoffs(self.partition);
        let handoffs = handoffs.filter(|device| !self.sets.contains(*device));
        handoffs.take(HANDOFFS_PER_REPLICA * self.cluster.index().replicas())
    }

    /// Returns true if these devices are on as many nodes as a write needs, for each set. Members
    /// count for their sets, and non-members for all. If the ring has fewer nodes than that, each
    /// device counts (rule A2).
    pub(crate) fn has_nodes(&self, devices: &(impl IntoIterator<Item = DeviceId> + Clone)) -> bool {
        let lacking = self.lacking_nodes(devices);
        lacking.into_iter().all(|lacking| lacking == 0)
    }

    /// Number of nodes that these devices lack, for each set.
    pub(crate) fn lacking_nodes(
        &self,
        devices: &(impl IntoIterator<Item = DeviceId> + Clone),
    ) -> Vec<usize> {
        let lacking = |at: usize| {
            let needed = self.sets.quorum(at);
            let by_node = self.cluster.index_nodes() >= needed;
            let mut nodes = HashSet::new();
            for device in devices.clone() {
                if self.sets.is_of(at, device) || !self.sets.contains(device) {
                    let node = self.cluster.node_name(device).filter(|_| by_node);
                    nodes.insert((node, node.is_none().then_some(device)));
                }
            }
            needed.saturating_sub(nodes.len())
        };
        (0..self.sets.count()).map(lacking).collect()
    }
}

/// A register to read, and the parts of its view that are needed.
#[derive(Clone, Copy)]
pub(super) struct RegisterQuery<'a> {
    pub(super) key: &'a RegisterKey,
    pub(super) want: Want,
}

/// Role in which a device was queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Decides about the register.
    Member,
    /// Decided about it before.
    Previous,
    /// May keep hints.
    Handoff,
}
