//! Update: delivers hints from handoffs to the primaries that were out (rules A2, R6).
//!
//! ```text
//! hint ──repair──▶ all current primaries ──all hold it or newer──▶ forgotten
//!                        │ a promise refuses it
//!                        └──▶ identity round ──▶ the remaining primaries again
//! ```
//!
//! A hint is forgotten only when every current primary, and every device from which one is taking
//! over, has confirmed that it holds this order or a newer one. Silence keeps the hint: a primary
//! that is out for a week gets its hints when it returns. A process without the ring of the change
//! in progress doesn't know these devices, and keeps all hints. One that hasn't heard of the change is
//! refused by the devices that have: each delivery names the term by which its receivers were chosen.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::join_all;
use martlet_protocol::backend::{EntryWrite, Hint, WriteReply};
use martlet_protocol::{
    BackendExt, Clock, DeviceId, ErrorKind, RegisterKey, Result, Stamp, StampSource,
};
use martlet_topology::Topology;
use parking_lot::Mutex;

use crate::cluster::{DeviceCursor, DeviceScope, Holders, StepTopology, in_time};
use crate::identity::{Candidate, ReadCandidate, run_round};
use crate::worker::{StepProgress, Worker};

/// Hints processed by one step.
const BATCH: usize = 64;
/// Hints delivered concurrently.
const AT_ONCE: usize = 16;
/// Maximum number of remembered hints that wait only for silent devices; further hints are offered
/// again.
const WAITING_MAX: usize = 100_000;
/// Pause between two passes; short, so that a returning primary gets its missed writes soon.
const REST: Duration = Duration::from_secs(2);

/// The worker.
pub struct Update {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    rounds: DeviceCursor,
    after: Option<RegisterKey>,
    /// A time before the current page of hints was read, in milliseconds since 1970.
    read_ms: u64,
    /// Hints that all but silent devices hold: they are not offered to the others in every pass.
    waiting: Mutex<HashMap<RegisterKey, Stamp>>,
    /// Counters of this pass.
    pass: UpdatePass,
    /// Items left by the last whole pass.
    left: RemainingHints,
}

#[derive(Default)]
struct UpdatePass {
    left: RemainingHints,
    /// Devices that did not answer in this pass: they are not queried again until the next.
    silent: Mutex<HashSet<DeviceId>>,
}

/// Hints that could not be forgotten.
#[derive(Clone, Copy, Debug, Default)]
struct RemainingHints {
    hints: u64,
    oldest_ms: Option<u64>,
}

/// Reply of a device to a delivered write.
enum DeliveryReply {
    /// It holds this order or a newer one.
    Holds,
    /// Its promise lies above.
    Behind(Stamp),
    Silent,
}

impl Update {
    /// Creates a worker over the index devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let stamps = StampSource::new(clock.clone());
        let (pass, left) = (UpdatePass::default(), RemainingHints::default());
        let (rounds, after, waiting) = (DeviceCursor::default(), None, Mutex::default());
        let topology = topology.into();
        Self { topology, clock, scope, stamps, rounds, after, read_ms: 0, waiting, pass, left }
    }

    /// Delivers a hint to all devices that should hold it; returns true if all of them do.
    ///
    /// Receivers of a later term refuse: this process hasn't heard of it, and may lack its ring.
    async fn deliver(&self, cluster: &StepTopology, hint: &Hint) -> bool {
        // The receivers are members at this term, or at a later one that is learned meanwhile.
        let (known, named) = (cluster.term(), cluster.named());
        let Ok(term) = named else { return false };
        let holders = cluster.holders(hint.key.placement());
        if cluster.is_behind() || self.waits_for_the_silent(cluster, &holders, hint) {
            return false;
        }
        let Hint { entry, inline, keep_body, .. } = hint.clone();
        let candidate = Candidate { entry, inline, keep_body };
        let repair = candidate.repair(&hint.key, self.read_ms, term);
        let Some(above) = self.offer(cluster, &holders, &repair).await else {
            let mut waiting = self.waiting.lock();
            // Devices of a later term, which is known now, aren't silent and lack the hint.
            if waiting.len() < WAITING_MAX && cluster.term() == known {
                waiting.insert(hint.key.clone(), hint.entry.order);
            }
            return false;
        };
        if above == Stamp::ZERO {
            return true;
        }
        let known = Some(ReadCandidate { candidate, read_ms: self.read_ms });
        match run_round(cluster, &self.stamps, &hint.key, known, above).await {
            Ok(Some(settled)) => {
                let repair = settled.repair(&hint.key, self.read_ms, term);
                self.offer(cluster, &holders, &repair).await == Some(Stamp::ZERO)
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(key = ?hint.key, %error, "keeping a hint: could not settle its \
                                                          register");
                false
            }
        }
    }

    /// Returns true if only devices that were silent in this pass can lack the hint.
    fn waits_for_the_silent(&self, cluster: &StepTopology, holders: &Holders, hint: &Hint) -> bool {
        if self.waiting.lock().get(&hint.key) != Some(&hint.entry.order) {
            return false;
        }
        let silent = self.pass.silent.lock();
        receivers(cluster, holders, &hint.key).iter().any(|device| silent.contains(device))
    }

    /// Offers a write to all its receivers. Returns zero if all hold it, the promise that refuses it,
    /// or none if a device is silent or of a later term, and no promise refuses it.
    async fn offer(
        &self,
        cluster: &StepTopology,
        holders: &Holders,
        repair: &EntryWrite,
    ) -> Option<Stamp> {
        let wanted = receivers(cluster, holders, &repair.key);
        let deliveries = wanted.iter().map(|device| self.deliver_entry(cluster, *device, repair));
        let answers = join_all(deliveries).await;
        let (mut above, mut silent) = (Stamp::ZERO, false);
        for answer in answers {
            match answer {
                DeliveryReply::Holds => {}
                DeliveryReply::Behind(floor) => above = above.max(floor),
                DeliveryReply::Silent => silent = true,
            }
        }
        // A promise is settled now even if a device is silent: a quorum should hold the write.
        (above > Stamp::ZERO || !silent).then_some(above)
    }

    async fn deliver_entry(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        repair: &EntryWrite,
    ) -> DeliveryReply {
        if self.pass.silent.lock().contains(&device) {
            return DeliveryReply::Silent;
        }
        let key = &repair.key;
        let write = async { in_time(cluster.node(device)?.write(device, repair.clone())).await };
        match write.await {
            Ok(WriteReply::Stored | WriteReply::Superseded | WriteReply::Unvoted) => {
                DeliveryReply::Holds
            }
            Ok(WriteReply::Behind(floor)) => DeliveryReply::Behind(floor),
            Ok(WriteReply::OutOfTime) => {
                tracing::debug!(%device, ?key, "keeping a hint: its read is too old");
                DeliveryReply::Silent
            }
            Ok(WriteReply::Fenced) => {
                tracing::warn!(%device, ?key, "a device handled a repair like a first write");
                DeliveryReply::Silent
            }
            Err(error) => {
                tracing::debug!(%device, ?key, %error, "keeping a hint: a primary did not take it");
                cluster.learn(&error);
                // A full device still accepts writes without bytes.
                if error.kind() == ErrorKind::Unavailable && error.newer_term().is_none() {
                    self.pass.silent.lock().insert(device);
                }
                DeliveryReply::Silent
            }
        }
    }

    /// Delivers a page of a device's hints and forgets the hints that all devices hold. Returns
    /// their number, and the hints left.
    async fn page(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        hints: &[Hint],
    ) -> (u64, RemainingHints) {
        let mut ways = Vec::with_capacity(hints.len());
        for hint in hints {
            ways.push(self.deliver_and_forget(cluster, device, hint));
        }
        let ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
        let kept: Vec<u64> = ways.filter_map(std::future::ready).collect().await;
        let left = RemainingHints { hints: kept.len() as u64, oldest_ms: kept.into_iter().min() };
        ((hints.len() as u64) - left.hints, left)
    }

    /// Returns the time since which a hint is stored, if it stays.
    async fn deliver_and_forget(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        hint: &Hint,
    ) -> Option<u64> {
        if !self.deliver(cluster, hint).await {
            return Some(hint.since_ms);
        }
        self.waiting.lock().remove(&hint.key);
        let order = hint.entry.order;
        let forget =
            async { in_time(cluster.node(device)?.forget_hint(device, &hint.key, order)).await };
        forget.await.is_err().then_some(hint.since_ms)
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&cluster.index_devices_of(&self.scope));
        if ended {
            self.left = std::mem::take(&mut self.pass).left;
            if self.left.hints == 0 {
                self.waiting.lock().clear();
            }
        }
        ended
    }
}

/// Returns the devices that get hints of a register: all members of its sets.
///
/// A new holder that is no member yet is left out: it copies what the members hold as it joins. A
/// collector with the ring before doesn't ask this device, and would drop a tombstone above the hint
/// (rule T1).
fn receivers(cluster: &StepTopology, holders: &Holders, key: &RegisterKey) -> Vec<DeviceId> {
    let sets = cluster.sets(key.placement());
    let primaries = holders.primaries.iter().filter(|device| sets.contains(**device));
    primaries.chain(&holders.previous).copied().collect()
}

impl RemainingHints {
    fn add(&mut self, more: Self) {
        self.hints += more.hints;
        self.oldest_ms = self.oldest_ms.into_iter().chain(more.oldest_ms).min();
    }
}

#[async_trait]
impl Worker for Update {
    fn name(&self) -> &'static str {
        "update"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.min(REST)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let mut progress = StepProgress::default();
        let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) else {
            return Ok(StepProgress { idle: true, ..progress });
        };
        let after = self.after.clone();
        self.read_ms = self.clock.now_ms();
        let reply =
            async { in_time(cluster.node(device)?.hints(device, after.as_ref(), BATCH)).await };
        match reply.await {
            Ok(hints) => {
                let (done, left) = self.page(&cluster, device, &hints).await;
                self.pass.left.add(left);
                progress.items = hints.len() as u64;
                (progress.done, progress.kept) = (done, left.hints);
                self.after = hints.last().map(|hint| hint.key.clone());
                if hints.len() < BATCH {
                    progress.idle = self.advance(&cluster);
                }
            }
            Err(error) => {
                // A device that is out keeps its hints until it returns.
                tracing::debug!(%device, %error, "could not list a device's hints");
                progress.idle = self.advance(&cluster);
            }
        }
        let left = if progress.idle { self.left } else { self.pass.left };
        progress.backlog = left.hints;
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = left.oldest_ms.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
