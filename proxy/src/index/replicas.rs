//! Calls to the devices of registers: timeouts, and the devices' health.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::backend::{Backend, EntryWrite, RegisterView};
use martlet_protocol::{BackendExt, DeviceId, Error, ErrorKind, RegisterKey, Result};
use martlet_topology::Topology;
use tokio::time::{Instant, sleep};

use super::calls::{Calls, NextReply, call_in_time};
use super::replica_set::{RegisterQuery, ReplicaSet, Role};
use super::replica_votes::ReplicaVotes;
use crate::health::Health;
use crate::options::StoreOptions;

/// Multiple of the hedging time that recently silent devices are given.
const SHUNNED_HEDGES: u32 = 3;
/// Interval at which the arrival of the next ring is checked.
const RING_WAIT: Duration = Duration::from_millis(20);

/// Calls to the devices of registers.
pub(crate) struct ReplicaClient {
    pub(crate) topology: Topology,
    options: StoreOptions,
    /// Health of devices in calls to registers.
    pub(crate) health: Health,
    /// Counter of reads, to rotate replicas.
    turn: AtomicUsize,
}

impl ReplicaClient {
    pub(crate) fn new(topology: Topology, options: StoreOptions) -> Self {
        Self { topology, options, health: Health::default(), turn: AtomicUsize::new(0) }
    }

    pub(crate) fn call_time(&self) -> Duration {
        Duration::from_millis(self.options.index_call_ms)
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.options.index_patience_ms)
    }

    pub(crate) fn hedge_time(&self) -> Duration {
        Duration::from_millis(self.options.index_hedge_ms)
    }

    /// Time limit of an operation on a register, including its turn.
    pub(crate) fn operation_time(&self) -> Duration {
        Duration::from_millis(self.options.index_operation_ms)
    }

    /// Deadline of the wait for a turn. It leaves half of the operation's time for the operation.
    pub(crate) fn turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() / 2
    }

    /// Deadline of the turn of an operation that ends an upload. Its only competitors end that
    /// upload too, which takes several operations.
    pub(crate) fn upload_turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() * 2
    }

    /// Sends a write to all members. Returns once a quorum has it, or at the deadline. Slower
    /// members receive it in the background.
    pub(super) async fn send<'p>(
        &self,
        replica_set: &'p ReplicaSet,
        write: &EntryWrite,
    ) -> ReplicaVotes<'p> {
        let mut votes = ReplicaVotes::of(&replica_set.sets);
        let mut calls = Calls::new();
        for device in replica_set.members() {
            let write = write.clone();
            let call = move |node: Arc<dyn Backend>| async move { node.write(device, write).await };
            calls.push(
                device,
                Role::Member,
                call_in_time(&replica_set.cluster, device, self.call_time(), call),
            );
        }
        let began = Instant::now();
        let mut deadline = began + self.patience();
        while let Ok(Some((device, _, reply))) = self.reply(&mut calls, deadline).await {
            votes.push(device, reply);
            deadline = deadline.min(self.give_up_at(&calls, began));
            if votes.is_taken() {
                return votes;
            }
            if votes.is_answered() {
                // Enough replies to go on; a short wait may still complete the quorum.
                deadline = deadline.min(Instant::now() + self.hedge_time());
            }
        }
        if !calls.waiting().is_empty() {
            self.note_silence(&calls, began);
            votes.leave_silent();
        }
        votes
    }

    /// The current devices of a register.
    pub(crate) fn replica_set_of(&self, key: &RegisterKey) -> Result<ReplicaSet> {
        self.replica_set_at(key.placement())
    }

    /// The current devices of a placement hash.
    pub(crate) fn replica_set_at(&self, placement: u64) -> Result<ReplicaSet> {
        ReplicaSet::of(self.topology.cluster(), self.topology.term(), placement)
    }

    /// Returns true if a newer term or ring applies than that of `replica_set`. Refused requests
    /// may be repeated at the new devices (rule P1).
    pub(crate) fn has_moved_on(&self, replica_set: &ReplicaSet) -> bool {
        self.topology.cluster().index().term_at(self.topology.term()) != Some(replica_set.term)
    }

    /// Returns true if a newer term or ring applies after a failure. If a device is at a later term
    /// than this proxy's ring, first waits for the next ring. The wait is at most that for a silent
    /// device.
    pub(crate) async fn has_moved_on_after(
        &self,
        replica_set: &ReplicaSet,
        error: Option<&Error>,
    ) -> bool {
        let until = Instant::now() + self.patience();
        let is_behind = error.is_some_and(|error| error.newer_term().is_some());
        while is_behind && !self.has_moved_on(replica_set) && Instant::now() < until {
            sleep(RING_WAIT).await;
        }
        self.has_moved_on(replica_set)
    }

    /// The next reply, recorded in the device's health. A refusal because of an outdated term
    /// counts as a reply.
    pub(crate) async fn reply<T: Send + 'static>(
        &self,
        calls: &mut Calls<T>,
        deadline: Instant,
    ) -> NextReply<T> {
        let reply = calls.next(deadline).await;
        match &reply {
            Ok(Some((device, _, Err(error)))) if error.newer_term().is_some() => {
                self.topology.learn(error);
                self.health.answered(*device);
            }
            Ok(Some((device, _, Err(error)))) if error.kind() == ErrorKind::Unavailable => {
                self.health.failed(*device);
            }
            Ok(Some((device, ..))) => self.health.answered(*device),
            _ => {}
        }
        reply
    }

    /// Deadline of calls that began at `began`; shorter if all remaining devices were silent
    /// lately.
    pub(crate) fn give_up_at<T: Send + 'static>(
        &self,
        calls: &Calls<T>,
        began: Instant,
    ) -> Instant {
        let shunned = |device: &DeviceId| self.health.is_shunned(*device);
        if !calls.waiting().is_empty() && calls.waiting().iter().all(shunned) {
            return began + self.hedge_time() * SHUNNED_HEDGES;
        }
        began + self.patience()
    }

    /// Records the devices that have not replied.
    pub(crate) fn note_silence<T: Send + 'static>(&self, calls: &Calls<T>, began: Instant) {
        for device in calls.waiting() {
            self.health.overtaken(*device, began.elapsed());
        }
    }

    /// Members in the order of this read: those that count in all sets come first, each group
    /// rotated to spread the load. Recently failed devices come last.
    pub(super) fn in_turn(&self, replica_set: &ReplicaSet) -> Vec<DeviceId> {
        let mut members: Vec<_> = replica_set.members().collect();
        if members.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let common = replica_set.sets.common();
            let (both, one) = members.split_at_mut(common);
            for part in [both, one].into_iter().filter(|part| !part.is_empty()) {
                part.rotate_left(turn % part.len());
            }
            if self.health.has_shunned() {
                members.sort_by_cached_key(|device| self.health.shuns(*device));
            }
        }
        members
    }

    /// Adds the request of a register to `calls`.
    pub(super) fn query(
        &self,
        calls: &mut Calls<RegisterView>,
        replica_set: &ReplicaSet,
        device: DeviceId,
        role: Role,
        query: RegisterQuery<'_>,
    ) {
        let RegisterQuery { key, want } = query;
        let (key, term) = (key.clone(), replica_set.term);
        let call =
            call_in_time(&replica_set.cluster, device, self.call_time(), move |node| async move {
                match role {
                    Role::Member | Role::Previous => node.read(device, &key, want, term).await,
                    Role::Handoff => node.read_hint(device, &key, want).await,
                }
            });
        calls.push(device, role, call);
    }
}
