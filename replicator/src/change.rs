//! Ring changes: moves the right to decide about partitions to new holders, phase by phase (rules
//! P2, P3).
//!
//! ```text
//!  old holders decide ──▶ both decide ──────────────────────────▶ new holders decide
//!                         │ a quorum of both sets knows it   ▲
//!                         └──▶ new holders copy ──▶ joined ──┘
//! ```
//!
//! * `plan`: the next action, as a pure function of the ring and of the devices' statuses.
//! * `moves`: the moves of the ring by devices, found once for each ring.
//! * `join`: copying to a new holder.
//!
//! Every replicator runs this worker, several at once: their actions are idempotent, and each
//! decides by the state that devices have persisted. A phase begins when the first device records
//! its term; devices found behind get the term later. The process keeps no state that a crash could
//! lose: what it remembers follows from the ring, or is only the position of a copy.
//!
//! Silence blocks a phase and nothing else: clients go on, by the quorums of the current phase.

mod join;
mod moves;
mod plan;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{BackendExt, Clock, DeviceId, Result, StampSource, Term};
use martlet_topology::Topology;

use self::join::JoiningDevice;
use self::moves::{PlannedMoves, RingMoves};
use self::plan::{ChangeProgress, NextAction, is_over, next};
use crate::cluster::{DeviceScope, StepTopology, in_time};
use crate::worker::{StepProgress, Worker};

/// Pause between two checks.
const REST: Duration = Duration::from_secs(2);
/// Consecutive failed steps after which joining begins anew, perhaps with other sources.
const FAILURES_MAX: u32 = 3;
/// Devices that join in turn, so that one that never ends delays no other.
const JOINING_MAX: usize = 8;

/// The worker.
pub struct RingChange {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    /// Moves of the index ring; none after its change.
    moves: RingMoves,
    /// Devices that are joining; the first one is next.
    joining: VecDeque<JoiningDevice>,
    /// Device that began to join last.
    begun_last: Option<DeviceId>,
    /// Last logged reason for which the change waits; logged once.
    reported: Option<String>,
}

impl RingChange {
    /// Creates a worker that advances the change of the index ring, and lets devices of `scope`
    /// join.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let stamps = StampSource::new(clock.clone());
        let (moves, joining) = (RingMoves::default(), VecDeque::new());
        let (topology, begun_last, reported) = (topology.into(), None, None);
        Self { topology, clock, scope, stamps, moves, joining, begun_last, reported }
    }

    /// Copies a page to a joining device. Returns true if it has joined, and the number of
    /// registers visited. None if no waiting device belongs to this worker.
    async fn join(
        &mut self,
        cluster: &StepTopology,
        moves: &PlannedMoves<'_>,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Option<(bool, u64)>> {
        self.joining.retain(|joining| joining.is_unchanged(cluster, statuses));
        if self.joining.len() < JOINING_MAX {
            match self.begin(cluster, moves, waiting, statuses) {
                Ok(joining) => self.joining.extend(joining),
                Err(error) if self.joining.is_empty() => return Err(error),
                Err(error) => tracing::debug!(%error, "another device can't join yet"),
            }
        }
        let Some(mut joining) = self.joining.pop_front() else { return Ok(None) };
        match joining.resume(cluster, &self.stamps).await {
            Ok((true, items)) => Ok(Some((true, items))),
            Ok((false, items)) => {
                self.joining.push_back(joining);
                Ok(Some((false, items)))
            }
            Err(error) => {
                joining.failures += 1;
                self.joining.extend(Some(joining).filter(|it| it.failures < FAILURES_MAX));
                Err(error)
            }
        }
    }

    /// Begins with the next of `waiting` that is in scope and has enough sources.
    fn begin(
        &mut self,
        cluster: &StepTopology,
        moves: &PlannedMoves<'_>,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Option<JoiningDevice>> {
        let (mine, now_ms) = (cluster.index_devices_of(&self.scope), self.clock.now_ms());
        let is_joining = |id: &DeviceId| self.joining.iter().any(|it| it.device() == *id);
        let others: Vec<DeviceId> =
            waiting.iter().filter(|id| mine.contains(id) && !is_joining(id)).copied().collect();
        // The device after the last one comes first.
        let last = others.iter().position(|id| Some(*id) > self.begun_last).unwrap_or(0);
        let mut reason = None;
        for device in others.iter().cycle().skip(last).take(others.len()) {
            match JoiningDevice::begin(moves, *device, statuses, now_ms) {
                Ok(joining) => {
                    self.begun_last = Some(*device);
                    return Ok(Some(joining));
                }
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        reason.map_or(Ok(None), Err)
    }

    /// Takes the next action of a change that isn't over, and adds its progress.
    async fn advance(
        &mut self,
        cluster: &StepTopology,
        term: Term,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        moves: &mut PlannedMoves<'_>,
        progress: &mut StepProgress,
    ) {
        let left = ChangeProgress::of(moves, term, statuses);
        progress.backlog = left.moving - left.arrived;
        let next = match next(moves, term, statuses).await {
            NextAction::Begin(_) if !cluster.has_spread() => NextAction::Wait(
                "too few nodes have the new index ring: push it to a node of the old ring".into(),
            ),
            next => next,
        };
        let joined = match next {
            NextAction::Begin(term) => {
                let raised = raise(cluster, &cluster.index_devices(), term).await;
                if raised > 0 {
                    cluster.raise_term(term);
                    tracing::info!(%term, change = left.change, devices = raised, "a ring change \
                                                                                 advanced");
                }
                (progress.done, progress.idle) = (progress.done + raised as u64, raised == 0);
                Ok(())
            }
            // Devices that were behind report their new term at the next step.
            NextAction::Join if progress.done == 0 => {
                self.join(cluster, moves, &left.waits_for, statuses).await.map(|page| {
                    if let Some((ended, items)) = page {
                        (progress.items, progress.idle) = (items, false);
                        progress.done += u64::from(ended);
                    }
                })
            }
            NextAction::Wait(reason) => {
                self.report_blocked(&reason);
                progress.kept += 1;
                return;
            }
            NextAction::Join | NextAction::Over => Ok(()),
        };
        match joined {
            Ok(()) => self.reported = None,
            Err(error) => {
                self.report_blocked(&error.to_string());
                // Other devices go on at once.
                (progress.kept, progress.idle) = (progress.kept + 1, self.joining.len() <= 1);
            }
        }
        let since = self.joining.iter().map(|joining| joining.since_ms).min();
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = since.map_or(0, |since| now_ms.saturating_sub(since));
    }

    fn report_blocked(&mut self, reason: &str) {
        if self.reported.as_deref() != Some(reason) {
            tracing::info!(reason, "waiting with a change of the index ring");
            self.reported = Some(reason.to_owned());
        }
    }
}

/// Sends a term to devices; returns the number that persisted it.
async fn raise(cluster: &StepTopology, devices: &[DeviceId], term: Term) -> usize {
    let calls = devices.iter().map(|device| async move {
        let call = async { in_time(cluster.node(*device)?.raise_term(*device, term)).await };
        call.await.inspect_err(|error| {
            tracing::debug!(%device, %term, %error, "could not send a ring change to a device");
        })
    });
    join_all(calls).await.into_iter().flatten().count()
}

#[async_trait]
impl Worker for RingChange {
    fn name(&self) -> &'static str {
        "ring-change"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.min(REST)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let statuses = cluster.statuses().await;
        let term = cluster.term();
        let everyone = cluster.index_devices();
        let is_behind = |id: &&DeviceId| statuses.get(id).is_some_and(|status| status.term < term);
        let behind: Vec<DeviceId> = everyone.iter().filter(is_behind).copied().collect();
        let raised = raise(&cluster, &behind, term).await;
        let mut progress = StepProgress {
            done: raised as u64,
            kept: (behind.len() - raised) as u64,
            idle: raised == 0,
            ..StepProgress::default()
        };
        if is_over(cluster.index(), term) {
            // The ring keeps its moves until they are settled. Another process may have ended the change
            // while devices joined here.
            (self.moves, self.reported) = (RingMoves::default(), None);
            self.joining.clear();
            return Ok(progress);
        }
        let mut known = std::mem::take(&mut self.moves);
        let mut moves = known.of(cluster.index()).await;
        self.advance(&cluster, term, &statuses, &mut moves, &mut progress).await;
        self.moves = known;
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
