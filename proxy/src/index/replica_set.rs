//! Devices of a register, and concurrent calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::backend::Want;
use martlet_protocol::{Backend, DeviceId, Error, Partition, RegisterKey, Result, Term};
use martlet_ring::Sets;
use martlet_topology::Cluster;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::quorum::QuorumTally;

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
    pub(crate) fn has_quorum(&self, devices: impl IntoIterator<Item = DeviceId>) -> bool {
        QuorumTally::of(&self.sets, devices).is_met()
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

/// A call to a device with a timeout.
pub(crate) fn call_in_time<T, F>(
    cluster: &Cluster,
    device: DeviceId,
    most: Duration,
    call: impl FnOnce(Arc<dyn Backend>) -> F + Send + 'static,
) -> BoxFuture<'static, Result<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send,
{
    let node = cluster.node(device).cloned();
    Box::pin(async move {
        match timeout(most, call(node?)).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::unavailable(format!("device {device} does not answer"))),
        }
    })
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

/// Concurrent calls. After a drop, the remaining ones go on in the background: a write reaches its
/// slow replica, and no connection breaks in the middle of a reply.
pub(crate) struct Calls<T: Send + 'static> {
    under_way: FuturesUnordered<BoxFuture<'static, (DeviceId, Role, Result<T>)>>,
    waiting: Vec<DeviceId>,
}

impl<T: Send + 'static> Calls<T> {
    pub(crate) fn new() -> Self {
        Self { under_way: FuturesUnordered::new(), waiting: Vec::new() }
    }

    pub(crate) fn push(
        &mut self,
        device: DeviceId,
        role: Role,
        call: BoxFuture<'static, Result<T>>,
    ) {
        self.waiting.push(device);
        self.under_way.push(Box::pin(async move { (device, role, call.await) }));
    }

    /// Devices that have not replied, once for each call.
    pub(crate) fn waiting(&self) -> &[DeviceId] {
        &self.waiting
    }

    /// The next reply; none without pending calls.
    ///
    /// # Errors
    /// [`Elapsed`] at the deadline.
    pub(crate) async fn next(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(DeviceId, Role, Result<T>)>, Elapsed> {
        let reply = timeout_at(deadline, self.under_way.next()).await?;
        if let Some((device, ..)) = &reply
            && let Some(at) = self.waiting.iter().position(|waiting| waiting == device)
        {
            self.waiting.swap_remove(at);
        }
        Ok(reply)
    }
}

impl<T: Send + 'static> Drop for Calls<T> {
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut rest = std::mem::take(&mut self.under_way);
            runtime.spawn(async move { while rest.next().await.is_some() {} });
        }
    }
}
