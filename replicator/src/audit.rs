//! Audit: reads everything at a bounded rate, so that bit rot is found before the last copy rots
//! (rule H1).
//!
//! Nodes verify and quarantine. The worker sets position and rate, and restores quarantined extents
//! from other devices at once. If that fails, `replicate` restores them later, when a device with a
//! copy finds one missing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::AuditResult;
use martlet_protocol::tree::BinKey;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId, Result};
use martlet_topology::Topology;

use crate::cluster::{DeviceCursor, DeviceScope, StepTopology};
use crate::cursors::{Cursors, MemoryCursors, load_place, save_place};
use crate::replicate::copy::copy_back;
use crate::transfer_timeout::transfer_timeout;
use crate::worker::{StepProgress, Worker};

/// Bounds on the bytes of a step: large enough to hide its overhead, small enough not to disturb
/// clients.
const STEP_BYTES_MIN: u64 = 1024 * 1024;
const STEP_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Number of tries of a step, after which the rest of its part of a device waits for a later pass.
const TRIES: u32 = 2;

/// Rate of the audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditOptions {
    /// Bytes read in a second, over all devices of the scope together.
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
    cursors: Arc<dyn Cursors>,
    rounds: DeviceCursor,
    part: AuditPosition,
    /// Number of failures of the next step.
    failures: u32,
    /// Extents seen in this pass; corrupt items of this pass that could not be restored.
    seen: u64,
    lost: u64,
    left: u64,
    /// Bytes of the last step.
    step_bytes: u64,
}

/// Part of a device that is being audited, and the position in it.
#[derive(Clone, Copy, Debug)]
enum AuditPosition {
    Registers(Option<BinKey>),
    Extents(Option<ExtentId>),
}

impl Audit {
    const NAME: &str = "audit";

    /// Creates a worker over all devices of `scope`.
    pub fn new(topology: impl Into<Topology>, scope: DeviceScope, options: AuditOptions) -> Self {
        Self {
            topology: topology.into(),
            scope,
            options,
            cursors: Arc::new(MemoryCursors::default()),
            rounds: DeviceCursor::default(),
            part: AuditPosition::Registers(None),
            failures: 0,
            seen: 0,
            lost: 0,
            left: 0,
            step_bytes: 0,
        }
    }

    /// Continues at the position in `cursors`: at an extent of a device.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        if let Some((device, after)) = load_place(&*cursors, Self::NAME) {
            self.rounds = DeviceCursor::from(device);
            self.part =
                after.map_or(AuditPosition::Registers(None), |id| AuditPosition::Extents(Some(id)));
        }
        self.cursors = cursors;
        self
    }

    /// Bytes of about one second.
    fn step_bytes(&self) -> u64 {
        self.options.bytes_per_second.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
    }

    /// Audits the next part of a device; returns true if that was its last.
    async fn stretch(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
    ) -> Result<(StepProgress, bool)> {
        match self.part {
            AuditPosition::Registers(_) if cluster.index().device(device).is_none() => {
                self.part = AuditPosition::Extents(None);
                Ok((StepProgress::default(), false))
            }
            AuditPosition::Registers(after) => {
                let node = cluster.node(device)?;
                let audited = in_transfer_time(0, node.audit_registers(device, after)).await?;
                if !audited.corrupt.is_empty() {
                    let runs = audited.corrupt.len();
                    tracing::warn!(%device, runs, "rebuilding wrong hash sums of registers");
                }
                let next = audited.next.map(|bin| AuditPosition::Registers(Some(bin)));
                self.part = next.unwrap_or(AuditPosition::Extents(None));
                self.step_bytes = audited.bytes;
                let done = audited.corrupt.len() as u64;
                Ok((StepProgress { done, ..StepProgress::default() }, false))
            }
            AuditPosition::Extents(_) if !cluster.has_extents(device) => {
                Ok((StepProgress::default(), true))
            }
            AuditPosition::Extents(after) => {
                let (node, most) = (cluster.node(device)?, self.step_bytes());
                let audited =
                    in_transfer_time(most, node.audit_extents(device, after, most)).await?;
                let mut progress = StepProgress { items: audited.items, ..StepProgress::default() };
                self.restore(cluster, device, &audited, &mut progress).await;
                self.seen += audited.items;
                self.step_bytes = audited.bytes;
                self.part = AuditPosition::Extents(audited.next);
                Ok((progress, audited.next.is_none()))
            }
        }
    }

    /// Restores extents that a node has quarantined.
    async fn restore(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        audited: &AuditResult<ExtentId>,
        progress: &mut StepProgress,
    ) {
        for id in &audited.corrupt {
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

    /// Continues after a failed step: retries it, then skips to the device's extents, then to the
    /// next device. Returns true if that ended a pass.
    fn fail(&mut self, cluster: &StepTopology) -> bool {
        self.failures += 1;
        if self.failures < TRIES {
            return false;
        }
        self.failures = 0;
        match self.part {
            AuditPosition::Registers(_) => {
                self.part = AuditPosition::Extents(None);
                false
            }
            AuditPosition::Extents(_) => self.advance(cluster),
        }
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        (self.part, self.failures) = (AuditPosition::Registers(None), 0);
        let ended = self.rounds.advance(&cluster.devices_of(&self.scope));
        if ended {
            self.left = std::mem::take(&mut self.lost);
            self.seen = 0;
        }
        ended
    }

    fn save(&self, cluster: &StepTopology) {
        if let Some(device) = self.rounds.at(&cluster.devices_of(&self.scope)) {
            let after = match self.part {
                AuditPosition::Extents(after) => after,
                AuditPosition::Registers(_) => None,
            };
            save_place(&*self.cursors, Self::NAME, device, after);
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
        let rate = self.options.bytes_per_second.max(1);
        usual.max(Duration::from_millis(self.step_bytes.saturating_mul(1000) / rate))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        self.step_bytes = 0;
        let devices = cluster.devices_of(&self.scope);
        let Some(device) = self.rounds.at(&devices) else {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        };
        let mut progress = match self.stretch(&cluster, device).await {
            Ok((mut progress, is_last)) => {
                self.failures = 0;
                progress.idle = is_last && self.advance(&cluster);
                self.save(&cluster);
                progress
            }
            Err(error) => {
                tracing::debug!(%device, part = ?self.part, %error, "could not audit a part");
                let idle = self.fail(&cluster);
                StepProgress { kept: 1, idle, ..StepProgress::default() }
            }
        };
        progress.backlog = if progress.idle { self.left } else { self.lost };
        if !progress.idle {
            progress.ahead = cluster.extents_on(&devices).await.saturating_sub(self.seen);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
