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
//! * `join`: copying to a new holder.
//!
//! Every replicator runs this worker, several at once: their actions are idempotent, and each
//! decides by the state that devices have persisted. A phase begins when the first device records
//! its term; devices found behind get the term later. The process keeps no state that a crash could
//! lose.
//!
//! Silence blocks a phase and nothing else: clients go on, by the quorums of the current phase.

mod join;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{BackendExt, Clock, DeviceId, Result, StampSource, Term};
use martlet_topology::Topology;

use self::join::JoiningDevice;
pub use self::plan::ChangeProgress;
use self::plan::{NextAction, next};
use crate::cluster::{DeviceScope, StepTopology, in_time};
use crate::worker::{StepProgress, Worker};

/// Pause between two checks.
const REST: Duration = Duration::from_secs(2);
/// Consecutive failed steps after which joining begins anew, perhaps with other sources.
const FAILURES_MAX: u32 = 3;

/// The worker.
pub struct RingChange {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    joining: Option<JoiningDevice>,
    /// Last logged reason for which the change waits; logged once.
    reported: Option<String>,
}

impl RingChange {
    /// Creates a worker that advances the change of the index ring, and lets devices of `scope`
    /// join.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let stamps = StampSource::new(clock.clone());
        Self { topology: topology.into(), clock, scope, stamps, joining: None, reported: None }
    }

    /// Copies a page to a joining device. Returns true if it has joined, and the number of
    /// registers visited. None if no waiting device belongs to this worker.
    async fn join(
        &mut self,
        cluster: &StepTopology,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Option<(bool, u64)>> {
        self.joining.take_if(|joining| !joining.is_unchanged(cluster, statuses));
        let now_ms = self.clock.now_ms();
        let mut joining = match self.joining.take() {
            Some(joining) => joining,
            None => match self.begin(cluster, waiting, statuses)? {
                Some(joining) => joining,
                None => return Ok(None),
            },
        };
        match joining.resume(cluster, &self.stamps, now_ms).await {
            Ok((true, items)) => Ok(Some((true, items))),
            Ok((false, items)) => {
                self.joining = Some(joining);
                Ok(Some((false, items)))
            }
            Err(error) => {
                joining.failures += 1;
                self.joining = Some(joining).filter(|it| it.failures < FAILURES_MAX);
                Err(error)
            }
        }
    }

    /// Begins with the first of `waiting` that is in scope and has enough sources.
    fn begin(
        &self,
        cluster: &StepTopology,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Option<JoiningDevice>> {
        let (mine, now_ms) = (cluster.index_devices_of(&self.scope), self.clock.now_ms());
        let mut reason = None;
        for device in waiting.iter().filter(|id| mine.contains(id)) {
            match JoiningDevice::begin(cluster.index(), *device, statuses, now_ms) {
                Ok(joining) => return Ok(Some(joining)),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        reason.map_or(Ok(None), Err)
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
        let left = ChangeProgress::of(cluster.index(), term, &statuses);
        let mut progress = StepProgress {
            done: raised as u64,
            backlog: left.moving - left.arrived,
            kept: (behind.len() - raised) as u64,
            idle: raised == 0,
            ..StepProgress::default()
        };
        let next = match next(cluster.index(), term, &statuses) {
            NextAction::Begin(_) if !cluster.has_spread() => NextAction::Wait(
                "too few nodes have the new index ring: push it to a node of the old ring".into(),
            ),
            next => next,
        };
        let joined = match next {
            NextAction::Begin(term) => {
                let raised = raise(&cluster, &everyone, term).await;
                if raised > 0 {
                    cluster.raise_term(term);
                    tracing::info!(%term, change = left.change, devices = raised, "a ring change \
                                                                                 advanced");
                }
                (progress.done, progress.idle) = (progress.done + raised as u64, raised == 0);
                Ok(())
            }
            NextAction::Join if raised == 0 => {
                self.join(&cluster, &left.waits_for, &statuses).await.map(|page| {
                    if let Some((ended, items)) = page {
                        (progress.items, progress.idle) = (items, false);
                        progress.done += u64::from(ended);
                    }
                })
            }
            NextAction::Wait(reason) => {
                self.report_blocked(&reason);
                progress.kept += 1;
                return Ok(progress);
            }
            NextAction::Join | NextAction::Over => Ok(()),
        };
        match joined {
            Ok(()) => self.reported = None,
            Err(error) => {
                self.report_blocked(&error.to_string());
                (progress.kept, progress.idle) = (progress.kept + 1, true);
            }
        }
        let since = self.joining.as_ref().map(|joining| joining.since_ms);
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = since.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
