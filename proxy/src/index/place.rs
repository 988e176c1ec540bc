//! Where a register lives, and calls to the devices that it lives on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, Partition, RegisterKey, Result, Term};
use martlet_ring::Sets;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::cluster::Cluster;
use crate::quorum::QuorumTally;
use crate::store::Inner;

/// Handoffs that are written to and asked, in the order of the ring, for each replica there is.
const HANDOFFS_PER_REPLICA: usize = 3;
/// Hedging times that devices are given which have not answered lately.
const SHUNNED_HEDGES: u32 = 3;
/// How often it is looked whether the next ring has come.
const RING_WAIT: Duration = Duration::from_millis(20);

/// Where a register lives, by the rings and the term of one moment.
pub(crate) struct Place {
    cluster: Arc<Cluster>,
    partition: Partition,
    /// Who decides about it (rule P2).
    pub(crate) sets: Sets,
    /// The term that its requests name (rule P1).
    pub(crate) term: Term,
}

impl Place {
    /// Where a placement is, for one who knows of a term.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while the ring has to wait for the change before its own.
    pub(crate) fn of(cluster: Arc<Cluster>, known: Term, placement: u64) -> Result<Self> {
        let ring = cluster.index();
        let Some(term) = ring.term_at(known) else {
            let message =
                format!("the ring of epoch {} waits for the change before it", ring.epoch());
            return Err(Error::unavailable(message));
        };
        let partition = ring.partition(placement);
        let sets = ring.sets(partition, term);
        Ok(Self { cluster, partition, sets, term })
    }

    /// Those who decide, each once; first those who count in all sets.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = DeviceId> + Clone + '_ {
        self.sets.members()
    }

    /// Whether there is but one replica, and nobody to agree with.
    pub(crate) fn is_alone(&self) -> bool {
        self.members().len() == 1
    }

    /// Whether these devices are a quorum of each set.
    pub(crate) fn has_quorum(&self, devices: impl IntoIterator<Item = DeviceId>) -> bool {
        QuorumTally::of(&self.sets, devices).is_met()
    }

    /// Those who held replicas that have moved, and have no say any more.
    pub(crate) fn previous(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let ring = self.cluster.index();
        let previous = (0..ring.replicas()).filter_map(|at| ring.previous(self.partition, at));
        previous.filter(|device| !self.sets.contains(*device))
    }

    /// Those who may keep hints for the members.
    pub(crate) fn handoffs(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let handoffs = self.cluster.index().handoffs(self.partition);
        let handoffs = handoffs.filter(|device| !self.sets.contains(*device));
        handoffs.take(HANDOFFS_PER_REPLICA * self.cluster.index().replicas())
    }

    /// Whether these devices are on as many nodes as a write has to be on, for each set: its own
    /// members count for it, and those who are of none count for all. Where the ring has fewer
    /// nodes than that, each device counts (rule A2).
    pub(crate) fn has_nodes(&self, devices: &(impl IntoIterator<Item = DeviceId> + Clone)) -> bool {
        let lacking = self.lacking_nodes(devices);
        lacking.into_iter().all(|lacking| lacking == 0)
    }

    /// How many nodes these devices lack of that, set by set.
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
        call_in_time(&self.cluster, device, most, call)
    }
}

/// A call to a device that ends in time.
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

impl Inner {
    /// Where a register lives now.
    pub(crate) fn place_of(&self, key: &RegisterKey) -> Result<Place> {
        self.place_at(key.placement())
    }

    /// Where a placement is now.
    pub(crate) fn place_at(&self, placement: u64) -> Result<Place> {
        Place::of(self.cluster(), self.term(), placement)
    }

    /// Whether a newer term or ring has come that a place of before does not go by: what was refused
    /// there may be asked again where the register lives now (rule P1).
    pub(crate) fn has_moved_on(&self, place: &Place) -> bool {
        self.cluster().index().term_at(self.term()) != Some(place.term)
    }

    /// The same after a failure. Where a device is further than this proxy's ring goes, the next ring
    /// is on its way, and is waited for as long as a silent device would be.
    pub(crate) async fn has_moved_on_after(&self, place: &Place, error: Option<&Error>) -> bool {
        let until = Instant::now() + self.patience();
        let is_behind = error.is_some_and(|error| error.newer_term().is_some());
        while is_behind && !self.has_moved_on(place) && Instant::now() < until {
            sleep(RING_WAIT).await;
        }
        self.has_moved_on(place)
    }

    /// Takes in what an error says of the term.
    pub(crate) fn learn(&self, error: &Error) {
        if let Some(newer) = error.newer_term() {
            self.raise_term(newer);
        }
    }

    /// The next reply to a call, noted for who answers and who does not. One who refuses a caller
    /// that is behind has answered.
    pub(crate) async fn reply<T: Send + 'static>(
        &self,
        calls: &mut Calls<T>,
        deadline: Instant,
    ) -> Result<Option<(DeviceId, Role, Result<T>)>, Elapsed> {
        let reply = calls.next(deadline).await;
        match &reply {
            Ok(Some((device, _, Err(error)))) if error.newer_term().is_some() => {
                self.learn(error);
                self.silent.answered(*device);
            }
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
    /// One who decides.
    Member,
    /// One who decided before.
    Previous,
    /// One who may keep hints.
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
