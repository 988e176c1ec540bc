//! Audit: reads everything at a bounded rate, so that bit rot is found before the last copy rots
//! (rule H1).
//!
//! Nodes verify and quarantine. The worker sets position and rate, and restores quarantined extents
//! from other devices at once. If that fails, `replicate` restores them later, when a device with a
//! copy finds one missing.
//!
//! Once a device is read, its copies are compared with those of the other primaries: see [`copies`].
//!
//! All devices of the scope are audited side by side, each at a rate of its own: one that finishes
//! the device in [`PASS`], or its share of the least rate of all if that is more. Positions are
//! stored as a cursor. The age of the oldest item is that of the oldest unverified byte: the time
//! since the beginning of the last complete pass of any device.

mod copies;
mod positions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Error, ExtentId, PolicyId, Result, SystemClock,
};
use martlet_topology::Topology;

use self::copies::{ComparedPage, DifferingExtents, compare};
use self::positions::{AuditPosition, Positions};
use crate::cluster::{DeviceScope, StepTopology};
use crate::cursors::{Cursors, MemoryCursors};
use crate::replicate::copy::copy_back;
use crate::transfer_timeout::transfer_timeout;
use crate::worker::{StepProgress, Worker};

/// Bounds on the bytes of a step of one device: large enough to hide its overhead, small enough not
/// to disturb clients.
const STEP_BYTES_MIN: u64 = 1024 * 1024;
const STEP_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Seconds of a device's rate that a step reads.
const STEP_SECONDS: u64 = 4;
/// Duration of a pass over the largest device. The rest of thirty days is left to slow steps.
const PASS: Duration = Duration::from_hours(25 * 24);
/// Devices audited concurrently: a bound on concurrent reads of one process.
const DEVICES_AT_ONCE: usize = 16;
/// Time for which the sizes of devices are kept: every node is asked for them.
const SIZES_KEPT: Duration = Duration::from_mins(5);
/// Maximum delay that later steps make up for.
const CATCH_UP_MAX: Duration = Duration::from_mins(1);

/// Number of tries of a step, after which the rest of its part of a device waits for a later pass.
const TRIES: u32 = 2;

/// Rate of the audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditOptions {
    /// Least number of bytes read in a second, over all devices of the scope together. Devices that
    /// need a higher rate to be read in 25 days get it.
    pub bytes_per_second: u64,
    /// Pause between the end of a pass and the beginning of the next.
    pub rest: Duration,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { bytes_per_second: 20 * 1024 * 1024, rest: Duration::from_hours(6) }
    }
}

/// The worker.
pub struct Audit {
    topology: Topology,
    scope: DeviceScope,
    options: AuditOptions,
    clock: Arc<dyn Clock>,
    cursors: Arc<dyn Cursors>,
    positions: Positions,
    /// Extents and bytes of each device, and the time at which nodes were asked.
    sizes: Option<(Instant, HashMap<DeviceId, DeviceSize>)>,
    /// Extents seen in this pass; corrupt items of this pass that could not be restored.
    seen: u64,
    lost: u64,
    left: u64,
    differing: DifferingExtents,
    /// Duration of the last step at the devices' rates, and the time at which it is over.
    planned: Duration,
    until: Instant,
}

/// Content of a device.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceSize {
    extents: u64,
    bytes: u64,
}

/// Result of one step on one device.
struct StretchOutcome {
    items: u64,
    bytes: u64,
    /// Wrong sums of registers that the node rebuilt.
    rebuilt: u64,
    /// Extents in quarantine now.
    corrupt: Vec<ExtentId>,
    /// Extents with different bytes on two primaries.
    differing: Vec<(ExtentId, PolicyId)>,
    /// Extents that were not compared with each primary.
    unanswered: u64,
    next: AuditPosition,
}

impl Audit {
    const NAME: &str = "audit";

    /// Creates a worker over all devices of `scope`.
    pub fn new(topology: impl Into<Topology>, scope: DeviceScope, options: AuditOptions) -> Self {
        Self {
            topology: topology.into(),
            scope,
            options,
            clock: Arc::new(SystemClock),
            cursors: Arc::new(MemoryCursors::default()),
            positions: Positions::default(),
            sizes: None,
            seen: 0,
            lost: 0,
            left: 0,
            differing: DifferingExtents::default(),
            planned: Duration::ZERO,
            until: Instant::now(),
        }
    }

    /// Takes the times of passes from `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Continues at the positions in `cursors`.
    #[must_use]
    pub fn with_cursors(self, cursors: Arc<dyn Cursors>) -> Self {
        let positions = Positions::load(&*cursors, Self::NAME);
        let differing = DifferingExtents::load(&*cursors);
        Self { cursors, positions, differing, ..self }
    }

    /// Returns the bytes a second at which a device is read.
    fn rate(&self, size: DeviceSize) -> u64 {
        let share = self.options.bytes_per_second / (self.positions.0.len() as u64).max(1);
        share.max(size.bytes / PASS.as_secs()).max(1)
    }

    fn size(&self, device: DeviceId) -> DeviceSize {
        let sizes = self.sizes.as_ref().map(|(_, sizes)| sizes);
        sizes.and_then(|sizes| sizes.get(&device)).copied().unwrap_or_default()
    }

    async fn measure(&mut self, cluster: &StepTopology) {
        if self.sizes.as_ref().is_some_and(|(at, _)| at.elapsed() < SIZES_KEPT) {
            return;
        }
        let statuses = cluster.statuses().await.into_iter();
        let size = |(device, it): (DeviceId, martlet_protocol::backend::DeviceStatus)| {
            (device, DeviceSize { extents: it.extents, bytes: it.extent_bytes })
        };
        self.sizes = Some((Instant::now(), statuses.map(size).collect()));
    }

    /// Restores extents that a node has quarantined.
    async fn restore(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        corrupt: &[ExtentId],
        progress: &mut StepProgress,
    ) {
        for id in corrupt {
            tracing::warn!(%device, extent = %id, "moved a corrupt extent into quarantine");
            match copy_back(cluster, device, *id).await {
                Ok(bytes) => {
                    progress.done += 1;
                    progress.copied += u64::from(bytes > Some(0));
                    progress.copied_bytes += bytes.unwrap_or(0);
                }
                Err(error) => {
                    tracing::warn!(%device, extent = %id, %error, "could not restore an extent for \
                                                                   now");
                    progress.kept += 1;
                    self.lost += 1;
                }
            }
        }
    }

    /// Records the result of a step on a device.
    async fn record(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        outcome: Result<StretchOutcome>,
        progress: &mut StepProgress,
    ) {
        let rate = self.rate(self.size(device));
        let Some(audit) = self.positions.0.get_mut(&device) else { return };
        match outcome {
            Ok(StretchOutcome { items, bytes, rebuilt, corrupt, differing, unanswered, next }) => {
                (audit.at, audit.failures) = (next, 0);
                if next == AuditPosition::Finished {
                    audit.finish();
                }
                self.seen += items;
                progress.items += items;
                progress.done += rebuilt;
                progress.kept += unanswered;
                self.differing.note(differing);
                let took = Duration::from_millis(bytes.saturating_mul(1000) / rate);
                self.planned = self.planned.max(took);
                self.restore(cluster, device, &corrupt, progress).await;
            }
            Err(error) => {
                tracing::debug!(%device, part = ?audit.at, %error, "could not audit a part");
                progress.kept += 1;
                audit.failures += 1;
                if audit.failures >= TRIES {
                    // A comparison that is left out leaves no byte unverified.
                    audit.has_gaps |= !matches!(audit.at, AuditPosition::Copies(_));
                    audit.failures = 0;
                    match audit.at {
                        AuditPosition::Registers(_) => audit.at = AuditPosition::Extents(None),
                        _ => audit.finish(),
                    }
                }
            }
        }
    }

    /// Begins the next pass once all devices have finished; returns true if they have.
    fn end_pass(&mut self, now_ms: u64) -> bool {
        if !self.positions.open().is_empty() {
            return false;
        }
        for audit in self.positions.0.values_mut() {
            audit.begin_anew(now_ms);
        }
        self.left = std::mem::take(&mut self.lost);
        self.seen = 0;
        true
    }
}

/// Audits the next part of a device.
async fn stretch(
    cluster: &StepTopology,
    device: DeviceId,
    at: AuditPosition,
    bytes_max: u64,
) -> Result<StretchOutcome> {
    let nothing = |next| StretchOutcome {
        items: 0,
        bytes: 0,
        rebuilt: 0,
        corrupt: Vec::new(),
        differing: Vec::new(),
        unanswered: 0,
        next,
    };
    match at {
        AuditPosition::Registers(_) if cluster.index().device(device).is_none() => {
            Ok(nothing(AuditPosition::Extents(None)))
        }
        AuditPosition::Registers(after) => {
            let node = cluster.node(device)?;
            let audited = in_transfer_time(0, node.audit_registers(device, after)).await?;
            let rebuilt = audited.corrupt.len() as u64;
            if rebuilt > 0 {
                tracing::warn!(%device, runs = rebuilt, "rebuilding wrong hash sums of registers");
            }
            let next = audited.next.map(|bin| AuditPosition::Registers(Some(bin)));
            let next = next.unwrap_or(AuditPosition::Extents(None));
            Ok(StretchOutcome { bytes: audited.bytes, rebuilt, ..nothing(next) })
        }
        AuditPosition::Extents(after) if cluster.has_extents(device) => {
            let node = cluster.node(device)?;
            let call = node.audit_extents(device, after, bytes_max);
            let audited = in_transfer_time(bytes_max, call).await?;
            let next = audited.next.map(|id| AuditPosition::Extents(Some(id)));
            let (items, bytes, corrupt) = (audited.items, audited.bytes, audited.corrupt);
            let next = next.unwrap_or(AuditPosition::Copies(None));
            Ok(StretchOutcome { items, bytes, corrupt, ..nothing(next) })
        }
        AuditPosition::Copies(after) if cluster.has_extents(device) => {
            let ComparedPage { bytes, unanswered, differing, next } =
                compare(cluster, device, after).await?;
            let next = next.map(|id| AuditPosition::Copies(Some(id)));
            let next = next.unwrap_or(AuditPosition::Finished);
            Ok(StretchOutcome { bytes, differing, unanswered, ..nothing(next) })
        }
        AuditPosition::Extents(_) | AuditPosition::Copies(_) | AuditPosition::Finished => {
            Ok(nothing(AuditPosition::Finished))
        }
    }
}

async fn in_transfer_time<T>(bytes: u64, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::unavailable("a device did not finish its verification in time");
    tokio::time::timeout(transfer_timeout(bytes), call).await.unwrap_or_else(|_| Err(late()))
}

#[async_trait]
impl Worker for Audit {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.max(self.options.rest)
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        usual.max(self.until.saturating_duration_since(Instant::now()))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let (now_ms, began) = (self.clock.now_ms(), Instant::now());
        self.positions.follow(&cluster.devices_of(&self.scope), now_ms);
        self.planned = Duration::ZERO;
        if self.positions.0.is_empty() {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        }
        self.measure(&cluster).await;
        self.differing.compare_again(&cluster, now_ms).await;
        let topology = &cluster;
        let steps = self.positions.open().into_iter().map(|(device, at)| {
            let rate = self.rate(self.size(device));
            let most = rate.saturating_mul(STEP_SECONDS).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
            async move { (device, stretch(topology, device, at, most).await) }
        });
        let steps: Vec<_> = steps.collect();
        let outcomes: Vec<_> =
            futures::stream::iter(steps).buffer_unordered(DEVICES_AT_ONCE).collect().await;
        let mut progress = StepProgress::default();
        for (device, outcome) in outcomes {
            self.record(&cluster, device, outcome, &mut progress).await;
        }
        let late = began.checked_sub(CATCH_UP_MAX).unwrap_or(began);
        self.until = self.until.max(late) + self.planned;
        progress.idle = self.end_pass(now_ms);
        self.positions.save(&*self.cursors, Self::NAME);
        self.differing.save(&*self.cursors);
        progress.differing = self.differing.count();
        progress.backlog = if progress.idle { self.left } else { self.lost } + progress.differing;
        if !progress.idle {
            let all = self.positions.0.keys().map(|device| self.size(*device).extents);
            progress.ahead = all.sum::<u64>().saturating_sub(self.seen);
        }
        let oldest_ms = self.positions.oldest_ms().unwrap_or(now_ms);
        progress.oldest_age_ms = now_ms.saturating_sub(oldest_ms);
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
