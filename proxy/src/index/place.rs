//! Where a register lives, and calls to the devices that it lives on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, Partition, RegisterKey, Result};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::Cluster;
use crate::store::Inner;

/// Handoffs that are written to and asked, in the order of the ring, for each replica there is.
const HANDOFFS_PER_REPLICA: usize = 3;
/// Hedging times that devices are given which have not answered lately.
const SHUNNED_HEDGES: u32 = 3;

/// Where a register lives, by the rings of one moment.
pub(crate) struct Place {
    cluster: Arc<Cluster>,
    partition: Partition,
    pub(crate) primaries: Vec<DeviceId>,
}

impl Place {
    pub(crate) fn of(cluster: Arc<Cluster>, placement: u64) -> Self {
        let partition = cluster.index().partition(placement);
        let primaries = cluster.index().primaries(partition).collect();
        Self { cluster, partition, primaries }
    }

    /// Primaries that have to agree: any two such sets meet.
    pub(crate) fn needed(&self) -> usize {
        self.primaries.len() / 2 + 1
    }

    /// Those who held replicas that are moving.
    pub(crate) fn previous(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let replicas = 0..self.primaries.len();
        let previous = replicas.filter_map(|at| self.cluster.index().previous(self.partition, at));
        previous.filter(|device| !self.primaries.contains(device))
    }

    /// Those who may keep hints for the primaries.
    pub(crate) fn handoffs(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let handoffs = self.cluster.index().handoffs(self.partition);
        handoffs.take(HANDOFFS_PER_REPLICA * self.primaries.len())
    }

    /// On how many nodes these devices are; where the ring has fewer nodes than have to hold a
    /// write, each device counts (rule A2).
    pub(crate) fn nodes(&self, devices: impl IntoIterator<Item = DeviceId>) -> usize {
        let by_node = self.cluster.index_nodes() >= self.needed();
        let mut nodes = HashSet::new();
        for device in devices {
            let node = self.cluster.node_name(device).filter(|_| by_node);
            nodes.insert((node, node.is_none().then_some(device)));
        }
        nodes.len()
    }

    /// A call to a device that ends in time.
    pub(crate) fn call<T, F>(
        &self,
        device: DeviceId,
        most: Duration,
        call: impl FnOnce(Arc<dyn Backend>) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let node = self.cluster.node(device).cloned();
        Box::pin(async move {
            match timeout(most, call(node?)).await {
                Ok(reply) => reply,
                Err(_) => Err(Error::unavailable(format!("device {device} does not answer"))),
            }
        })
    }
}

impl Inner {
    /// The next reply to a call, noted for who answers and who does not.
    pub(crate) async fn reply<T: Send + 'static>(
        &self,
        calls: &mut Calls<T>,
        deadline: Instant,
    ) -> Result<Option<(DeviceId, Role, Result<T>)>, Elapsed> {
        let reply = calls.next(deadline).await;
        match &reply {
            Ok(Some((device, _, Err(error)))) if error.kind() == ErrorKind::Unavailable => {
                self.silent.failed(*device);
            }
            Ok(Some((device, ..))) => self.silent.answered(*device),
            _ => {}
        }
        reply
    }

    /// Until when calls that began at a time are waited for: not for long where all that are left
    /// are to devices that have not answered lately.
    pub(crate) fn give_up_at<T: Send + 'static>(
        &self,
        calls: &Calls<T>,
        began: Instant,
    ) -> Instant {
        let shunned = |device: &DeviceId| self.silent.is_shunned(*device);
        if !calls.waiting().is_empty() && calls.waiting().iter().all(shunned) {
            return began + self.hedge_time() * SHUNNED_HEDGES;
        }
        began + self.patience()
    }

    /// Notes who was waited for in vain.
    pub(crate) fn note_silence<T: Send + 'static>(&self, calls: &Calls<T>, began: Instant) {
        for device in calls.waiting() {
            self.silent.overtaken(*device, began.elapsed());
        }
    }
}

/// In what part a device was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Primary,
    Previous,
    Handoff,
}

/// Calls that are under way. Those that nobody waits for any more go on behind: a write reaches its
/// slow third replica, and a connection is not broken off in mid-reply.
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

    /// Who has not answered, as often as it was asked.
    pub(crate) fn waiting(&self) -> &[DeviceId] {
        &self.waiting
    }

    /// The next reply; none when there is nothing to wait for, an error at the deadline.
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

/// Where an object's register lives now.
pub(crate) fn place_of(cluster: Arc<Cluster>, key: &RegisterKey) -> Place {
    Place::of(cluster, key.placement())
}
