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
//!
//! Hints that wait for a silent member are not read again until it returns ([`device_hints`]). Each visit of a
//! device reads a page of new hints and a page of older ones. So new hints don't wait for old ones.

mod device_hints;

use std::collections::{BTreeMap, HashSet};
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
use tokio::time::Instant;

use self::device_hints::{DeviceHints, OfferedHints, RemainingHints};
use crate::cluster::{DeviceCursor, DeviceScope, Holders, StepTopology, in_time};
use crate::identity::{Candidate, ReadCandidate, run_round};
use crate::worker::{StepProgress, Worker};

/// Hints on a page.
const BATCH: usize = 64;
/// Pages of a device in one step: its hints don't wait for all other devices after each page.
const PAGES: usize = 16;
/// Hints delivered concurrently.
const AT_ONCE: usize = 16;
/// Pause between two passes, and between two checks for returned members; short, so that a returning primary
/// gets its missed writes soon.
const REST: Duration = Duration::from_secs(2);
/// Timeout of a check for a returned member. A node that needs longer is no better than silent.
const CHECK_PATIENCE: Duration = Duration::from_secs(2);

/// The worker.
pub struct Update {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    rounds: DeviceCursor,
    /// A time before the current page of hints was read, in milliseconds since 1970.
    read_ms: u64,
    /// Hints of each device in scope.
    hints: BTreeMap<DeviceId, DeviceHints>,
    /// Devices that did not answer: they get no writes until their node reports that they serve.
    silent: Mutex<HashSet<DeviceId>>,
    round: Round,
}

/// State of the current round over the devices.
#[derive(Default)]
struct Round {
    /// True once a device was visited.
    has_begun: bool,
    /// True if a device is to be visited again at once.
    goes_on: bool,
    /// Time of the last check for returned members; none at the beginning of a pass.
    checked: Option<Instant>,
}

/// Reply of a device to a delivered write.
enum DeliveryReply {
    /// It holds this order or a newer one.
    Holds,
    /// Its promise lies above.
    Behind(Stamp),
    Silent,
    /// Neither: it is to be offered again.
    Refused,
}

/// Replies of all receivers of a write.
#[derive(Default)]
struct Delivery {
    /// Highest promise above the write.
    above: Stamp,
    silent: Vec<DeviceId>,
    is_refused: bool,
}

impl Delivery {
    fn refused() -> Self {
        Self { is_refused: true, ..Self::default() }
    }

    /// Returns true if all receivers hold the write or a newer one.
    fn is_complete(&self) -> bool {
        !self.is_unsettled() && self.silent.is_empty()
    }

    /// Returns true if a receiver that answers may lack the write.
    fn is_unsettled(&self) -> bool {
        self.is_refused || self.above > Stamp::ZERO
    }
}

impl Update {
    /// Creates a worker over the index devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let (topology, stamps) = (topology.into(), StampSource::new(clock.clone()));
        let (rounds, round) = (DeviceCursor::default(), Round::default());
        let (hints, silent) = (BTreeMap::new(), Mutex::default());
        Self { topology, clock, scope, stamps, rounds, read_ms: 0, hints, silent, round }
    }

    /// Delivers a hint to all devices that should hold it.
    ///
    /// Receivers of a later term refuse: this process hasn't heard of it, and may lack its ring.
    async fn deliver(&self, cluster: &StepTopology, hint: &Hint) -> Delivery {
        // The receivers are members at this term, or at a later one that is learned meanwhile.
        let Ok(term) = cluster.named() else { return Delivery::refused() };
        let holders = cluster.holders(hint.key.placement());
        if cluster.is_behind() {
            return Delivery::refused();
        }
        let Hint { entry, inline, keep_body, .. } = hint.clone();
        let candidate = Candidate { entry, inline, keep_body };
        let repair = candidate.repair(&hint.key, self.read_ms, term);
        let offered = self.offer(cluster, &holders, &repair).await;
        if offered.above == Stamp::ZERO {
            return offered;
        }
        // A promise is settled now even if a device is silent: a quorum should hold the write.
        let known = Some(ReadCandidate { candidate, read_ms: self.read_ms });
        match run_round(cluster, &self.stamps, &hint.key, known, offered.above).await {
            Ok(Some(settled)) => {
                let repair = settled.repair(&hint.key, self.read_ms, term);
                self.offer(cluster, &holders, &repair).await
            }
            Ok(None) => offered,
            Err(error) => {
                tracing::debug!(key = ?hint.key, %error, "keeping a hint: could not settle its \
                                                          register");
                offered
            }
        }
    }

    /// Offers a write to all its receivers.
    async fn offer(
        &self,
        cluster: &StepTopology,
        holders: &Holders,
        repair: &EntryWrite,
    ) -> Delivery {
        let wanted = receivers(cluster, holders, &repair.key);
        let deliveries = wanted.iter().map(|device| self.deliver_entry(cluster, *device, repair));
        let answers = join_all(deliveries).await;
        let mut delivery = Delivery::default();
        for (device, answer) in wanted.into_iter().zip(answers) {
            match answer {
                DeliveryReply::Holds => {}
                DeliveryReply::Behind(floor) => delivery.above = delivery.above.max(floor),
                DeliveryReply::Silent => delivery.silent.push(device),
                DeliveryReply::Refused => delivery.is_refused = true,
            }
        }
        delivery
    }

    async fn deliver_entry(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        repair: &EntryWrite,
    ) -> DeliveryReply {
        if self.silent.lock().contains(&device) {
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
                DeliveryReply::Refused
            }
            Ok(WriteReply::Fenced) => {
                tracing::warn!(%device, ?key, "a device handled a repair like a first write");
                DeliveryReply::Refused
            }
            Err(error) => {
                tracing::debug!(%device, ?key, %error, "keeping a hint: a primary did not take it");
                cluster.learn(&error);
                // A full device still accepts writes without bytes. One of a later term isn't silent.
                if error.kind() == ErrorKind::Unavailable && error.newer_term().is_none() {
                    self.silent.lock().insert(device);
                    return DeliveryReply::Silent;
                }
                DeliveryReply::Refused
            }
        }
    }

    /// Delivers hints of a device, and forgets those that all devices hold.
    async fn page(&self, cluster: &StepTopology, device: DeviceId, hints: &[Hint]) -> OfferedHints {
        let mut ways = Vec::with_capacity(hints.len());
        for hint in hints {
            ways.push(self.deliver_and_forget(cluster, device, hint));
        }
        let mut ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
        let mut offered = OfferedHints::default();
        while let Some((delivery, since_ms)) = ways.next().await {
            if delivery.is_complete() {
                offered.done += 1;
                continue;
            }
            offered.left.add(RemainingHints { hints: 1, oldest_ms: Some(since_ms) });
            offered.is_refused |= delivery.is_unsettled();
            offered.silent.extend(delivery.silent);
        }
        offered
    }

    /// Returns the delivery of a hint, and the time since which it is stored.
    async fn deliver_and_forget(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        hint: &Hint,
    ) -> (Delivery, u64) {
        let mut delivery = self.deliver(cluster, hint).await;
        if delivery.is_complete() {
            let order = hint.entry.order;
            let forget = async {
                in_time(cluster.node(device)?.forget_hint(device, &hint.key, order)).await
            };
            delivery.is_refused = forget.await.is_err();
        }
        (delivery, hint.since_ms)
    }

    /// Reads and delivers a page of arrived hints, and a page of the walk. Returns true if there are more.
    async fn visit(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        hints: &mut DeviceHints,
        progress: &mut StepProgress,
    ) -> bool {
        if hints.begin((cluster.index().hash(), cluster.term()), Instant::now()) {
            // Each hour silent devices are tried once, whatever their nodes report.
            let tried = std::mem::take(&mut *self.silent.lock());
            self.hints.values_mut().for_each(|others| others.note_returned(&tried));
        }
        let more = self.visit_arrivals(cluster, device, hints, progress).await;
        self.visit_walk(cluster, device, hints, progress).await || more
    }

    async fn visit_arrivals(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        hints: &mut DeviceHints,
        progress: &mut StepProgress,
    ) -> bool {
        self.read_ms = self.clock.now_ms();
        let after = hints.arrived();
        let reply =
            async { in_time(cluster.node(device)?.hint_arrivals(device, after, BATCH)).await };
        let page = match reply.await {
            Ok(page) => page,
            Err(error) => {
                // Its release knows no arrivals, or it is out.
                tracing::debug!(%device, %error, "could not read a device's new hints");
                hints.note_refusal();
                return false;
            }
        };
        let more = hints.note_arrivals(&page, BATCH);
        let offered = self.page(cluster, device, &page.hints).await;
        count(progress, &offered);
        hints.offered_arrivals(offered);
        more
    }

    async fn visit_walk(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        hints: &mut DeviceHints,
        progress: &mut StepProgress,
    ) -> bool {
        let walks = hints.walks(&self.silent.lock());
        if !walks {
            return false;
        }
        let began = Instant::now();
        self.read_ms = self.clock.now_ms();
        let after = hints.position().cloned();
        let reply =
            async { in_time(cluster.node(device)?.hints(device, after.as_ref(), BATCH)).await };
        let mut page = match reply.await {
            Ok(page) => page,
            Err(error) => {
                // A device that is out keeps its hints until it returns.
                tracing::debug!(%device, %error, "could not list a device's hints");
                hints.note_failure();
                return false;
            }
        };
        let is_last = page.len() < BATCH;
        hints.advance(&mut page, |key| receivers(cluster, &cluster.holders(key.placement()), key));
        let offered = self.page(cluster, device, &page).await;
        count(progress, &offered);
        hints.walked(offered, began.elapsed(), is_last);
        hints.goes_on()
    }

    /// Finds silent devices that serve again.
    async fn find_returned(&mut self, cluster: &StepTopology) {
        let silent = self.silent.lock().clone();
        if silent.is_empty() {
            return;
        }
        let serving = cluster.statuses_within(CHECK_PATIENCE, silent.iter().copied()).await;
        let returned: HashSet<DeviceId> =
            silent.into_iter().filter(|device| serving.contains_key(device)).collect();
        let members: HashSet<DeviceId> = cluster.index_devices().into_iter().collect();
        self.silent.lock().retain(|it| members.contains(it) && !returned.contains(it));
        for hints in self.hints.values_mut() {
            hints.note_returned(&returned);
        }
    }

    /// Returns the hints of all devices that wait, as far as they were read.
    fn left(&self) -> RemainingHints {
        let mut left = RemainingHints::default();
        for hints in self.hints.values() {
            left.add(hints.left());
        }
        left
    }
}

/// Adds the outcome of a page.
fn count(progress: &mut StepProgress, offered: &OfferedHints) {
    progress.items += offered.done + offered.left.hints;
    progress.done += offered.done;
    progress.kept += offered.left.hints;
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
        let devices = cluster.index_devices_of(&self.scope);
        let mut progress = StepProgress::default();
        let Some(device) = self.rounds.at(&devices) else {
            return Ok(StepProgress { idle: true, ..progress });
        };
        if !self.round.has_begun && self.round.checked.is_none_or(|at| at.elapsed() >= REST) {
            self.find_returned(&cluster).await;
            self.round.checked = Some(Instant::now());
        }
        self.round.has_begun = true;
        let mut hints = self.hints.remove(&device).unwrap_or_default();
        let (mut goes_on, mut pages) = (true, 0);
        while goes_on && pages < PAGES {
            goes_on = self.visit(&cluster, device, &mut hints, &mut progress).await;
            pages += 1;
        }
        self.round.goes_on |= goes_on;
        self.hints.insert(device, hints);
        if self.rounds.advance(&devices) {
            progress.idle = !self.round.goes_on;
            let checked = self.round.checked.filter(|_| self.round.goes_on);
            self.round = Round { checked, ..Round::default() };
            self.hints.retain(|device, _| devices.contains(device));
        }
        let left = self.left();
        progress.backlog = left.hints;
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = left.oldest_ms.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
