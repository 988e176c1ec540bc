//! Registers: devices that share partitions of the index compare them, and copy what differs to
//! each other (rules R6, H1).
//!
//! ```text
//! a batch of partitions ──sums──▶ the device and each peer     no difference: done
//!    a sum differs        bins of both, page by page
//!    some bins differ     walks of these bins, or of their run, by both ──▶ the newer is copied
//! non-empty partitions of which the device is no member ──▶ strays
//! ```
//!
//! Registers of deleted buckets are not compared but removed (rule M2).
//!
//! A pass over devices that agree costs one call for each batch of partitions and peer, and one for
//! the state of each peer's node. Devices that share no partition are not asked. Only devices with
//! votes are compared: sync fills devices without votes.
//!
//! The position is a number of a partition. A ring or a term that changes within a pass changes the
//! partitions about which the device decides: those behind the position wait for the next pass.
//! Tasks that were found before stay: they compare what both devices hold, and strays are judged by
//! the ring and the term of their own step.
//!
//! While the ring lacks the change in progress, nothing is compared, copied or dropped. A device that
//! the next ring removes isn't asked any more before tombstones are collected, and would bring back
//! what they deleted (rule T1). Passes then end early until the ring comes.
//!
//! A failing device blocks only the comparison of its own partitions. A failed task waits for the
//! next pass. After a few consecutive failures, so do all other tasks of the batch that need the
//! device. A pass over a device ends early only if the device itself fails.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::tree::{Span, Sum};
use martlet_protocol::{BackendExt, Clock, DeviceId, Error, Result, StampSource};
use martlet_topology::Topology;
use tokio::time::Instant;

use super::compare::{Difference, Task};
use super::failures::{DeviceFailure, Failures};
use super::misplaced::{EvictionOutcome, evict_misplaced};
use super::partition_batch::PartitionBatch;
use super::repair::RegisterRepair;
use crate::cluster::{DeviceCursor, DeviceScope, StepTopology, in_time};
use crate::collect::deleted_buckets::{Buckets, PurgedDevices};
use crate::partitions::{DevicePartitions, partition_count};
use crate::worker::{StepProgress, Worker};

/// Maximum number of spans whose sums are requested at a time.
const BATCH_MAX: u32 = 1024;
/// Target duration of a batch. Summing takes time in proportion to the bins. So a slower batch is
/// followed by a smaller one, and a faster batch by a larger one.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Peers queried concurrently.
const AT_ONCE: usize = 16;

/// The worker.
pub struct ReplicateRegisters {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    rounds: DeviceCursor,
    /// Partitions about which the current device decides.
    partitions: DevicePartitions,
    /// First partition of the next batch, and the maximum number of its spans.
    next: u32,
    batch: u32,
    tasks: VecDeque<Task>,
    /// Devices that failed tasks of this batch.
    failures: Failures,
    /// Existing buckets, as far as this pass has queried them.
    buckets: Buckets,
    /// Counters of this pass; items left by the last whole pass; and the time since which something
    /// differs.
    pass: RegistersPass,
    left: u64,
    since_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RegistersPass {
    left: u64,
    found: u64,
    /// Number of devices visited.
    devices: u64,
}

impl ReplicateRegisters {
    /// Creates a worker over the index devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let stamps = StampSource::new(clock.clone());
        Self {
            topology: topology.into(),
            clock,
            scope,
            stamps,
            rounds: DeviceCursor::default(),
            partitions: DevicePartitions::default(),
            next: 0,
            batch: BATCH_MAX,
            tasks: VecDeque::new(),
            failures: Failures::default(),
            buckets: Buckets::default(),
            pass: RegistersPass::default(),
            left: 0,
            since_ms: None,
        }
    }

    /// Compares a batch of partitions of a device.
    async fn compare(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        mut batch: PartitionBatch,
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<StepProgress> {
        let mine = in_time(cluster.node(device)?.sums(device, &batch.spans)).await?;
        if mine.len() != batch.spans.len() {
            return Err(Error::internal(format!("device {device} left out sums")));
        }
        let mut progress = StepProgress::default();
        let mut strays = Vec::new();
        if is_settled(cluster, device, statuses) {
            strays = batch.find_strays(cluster, device, |at| mine[at].count == 0).await?;
        }
        let votes = |peer: &DeviceId| statuses.get(peer).is_some_and(|status| status.voting);
        let (queries, silent): (Vec<_>, Vec<_>) =
            batch.shared.iter().partition(|(peer, _)| votes(peer));
        progress.kept += silent.iter().map(|(_, shared)| shared.len() as u64).sum::<u64>();
        let queries = queries.into_iter().map(|(peer, shared)| {
            let spans: Vec<Span> = shared.iter().map(|at| batch.spans[*at]).collect();
            async move { (*peer, shared, sums(cluster, *peer, &spans).await) }
        });
        let answers = futures::stream::iter(queries.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        for (peer, shared, theirs) in answers.collect::<Vec<_>>().await {
            let Ok(theirs) = theirs else {
                progress.kept += shared.len() as u64;
                continue;
            };
            let differing = shared.iter().zip(theirs).filter(|(at, theirs)| mine[**at] != *theirs);
            for (at, _) in differing {
                self.tasks.push_back(Task::bins(device, peer, batch.spans[*at]));
            }
        }
        self.tasks.extend(strays.into_iter().map(|at| Task::misplaced(device, at)));
        progress.items = batch.run.len() as u64;
        self.pass.found += self.tasks.len() as u64;
        self.next = batch.run.end;
        Ok(progress)
    }

    /// Compares the next batch of partitions of a device, and adapts the size of batches to the time
    /// of a step. Only nodes of devices that share partitions of the batch are asked.
    ///
    /// A term that rises meanwhile changes the devices that decide: the batch is made anew by the
    /// next step.
    async fn compare_next(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
    ) -> Result<StepProgress> {
        let (ring, term) = (cluster.index(), cluster.term());
        let decided = self.partitions.decided_by(ring, device, term).await;
        let batch = PartitionBatch::of(ring, term, device, decided, self.next, self.batch);
        let peers = batch.shared.keys().copied().chain([device]);
        let statuses = cluster.statuses_of(peers).await;
        if !statuses.get(&device).is_some_and(|status| status.voting) {
            return Err(Error::unavailable(format!("device {device} has no vote, or is silent")));
        }
        cluster.check_not_behind()?;
        cluster.named()?;
        self.failures.clear();
        if cluster.term() != term {
            return Ok(StepProgress::default());
        }
        let begun = Instant::now();
        let compared = self.compare(cluster, device, batch, &statuses).await;
        self.batch = match begun.elapsed() {
            took if took > BATCH_TIME => (self.batch / 4).max(1),
            took if took < BATCH_TIME / 4 => (self.batch * 2).min(BATCH_MAX),
            _ => self.batch,
        };
        compared
    }

    /// Processes one page of differences. Counts failures of other devices.
    async fn work(&mut self, cluster: &StepTopology, task: Task) -> Result<StepProgress> {
        let device = task.device();
        match self.try_work(cluster, task).await {
            Ok(progress) => {
                self.failures.forget(device);
                Ok(progress)
            }
            Err(DeviceFailure { device: failed, error }) => {
                tracing::debug!(%device, %failed, %error, "leaving registers for a later pass");
                self.failures.record(failed);
                if self.failures.is_out(device) {
                    return Err(error);
                }
                Ok(StepProgress { kept: 1 + self.leave(failed), ..StepProgress::default() })
            }
        }
    }

    /// Skips the tasks of this batch that need a device, if it failed too often; returns their
    /// number.
    fn leave(&mut self, failed: DeviceId) -> u64 {
        if !self.failures.is_out(failed) {
            return 0;
        }
        let before = self.tasks.len();
        self.tasks.retain(|task| task.peer() != Some(failed));
        (before - self.tasks.len()) as u64
    }

    async fn try_work(
        &mut self,
        cluster: &StepTopology,
        task: Task,
    ) -> Result<StepProgress, DeviceFailure> {
        let mender = RegisterRepair { cluster, stamps: &self.stamps, clock: &*self.clock };
        match task {
            Task::Strays { device, partition, after } => {
                let out = |member| self.failures.is_out(member);
                let dealt = evict_misplaced(&mender, device, partition, after, out).await;
                let EvictionOutcome { mut progress, next, silent } =
                    dealt.map_err(DeviceFailure::by(device))?;
                for member in silent {
                    self.failures.record(member);
                }
                if let Some(after) = next {
                    let after = Some(after);
                    self.tasks.push_front(Task::Strays { device, partition, after });
                }
                progress.items = 0;
                Ok(progress)
            }
            Task::Pair { device, peer, look } => {
                cluster.check_not_behind().map_err(DeviceFailure::by(device))?;
                let (mut found, next) = look.resume(cluster, device, peer).await?;
                // The ring or the term may have changed since the devices were compared.
                found.retain(|it| are_members(cluster, it.key.placement(), [device, peer]));
                self.failures.forget(peer);
                for look in next.into_iter().rev() {
                    self.tasks.push_front(Task::Pair { device, peer, look });
                }
                let (now_ms, pair) = (self.clock.now_ms(), [device, peer]);
                let of =
                    |it: &Difference| it.mine.max(it.theirs).map(|order| (it.key.bucket, order));
                let devices = PurgedDevices { holders: &pair, all: &pair };
                let (found, purged) = self.buckets.purge(cluster, now_ms, devices, found, of).await;
                let mut progress = mender.repair_all(device, peer, found).await;
                progress.done += purged;
                Ok(progress)
            }
        }
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        self.next = 0;
        self.tasks.clear();
        self.failures.clear();
        self.pass.devices += 1;
        let ended = self.rounds.advance(&cluster.index_devices_of(&self.scope));
        if ended {
            let pass = std::mem::take(&mut self.pass);
            self.buckets = Buckets::default();
            self.left = pass.left;
            if pass.left + pass.found == 0 {
                self.since_ms = None;
            }
        }
        ended
    }

    async fn resume(&mut self, cluster: &StepTopology, device: DeviceId) -> Result<StepProgress> {
        if let Some(task) = self.tasks.pop_front() {
            return self.work(cluster, task).await;
        }
        if self.next < partition_count(cluster.index()) {
            return self.compare_next(cluster, device).await;
        }
        let idle = self.advance(cluster);
        Ok(StepProgress { idle, ..StepProgress::default() })
    }
}

/// Returns true if all of these devices decide about a placement.
fn are_members(cluster: &StepTopology, placement: u64, devices: [DeviceId; 2]) -> bool {
    let sets = cluster.sets(placement);
    devices.iter().all(|device| sets.contains(*device))
}

/// Returns true if the deciding devices are known, and the device has the highest known term.
fn is_settled(
    cluster: &StepTopology,
    device: DeviceId,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> bool {
    let term = statuses.get(&device).map(|status| status.term);
    !cluster.is_behind() && term >= Some(cluster.term())
}

async fn sums(cluster: &StepTopology, peer: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
    let sums = in_time(cluster.node(peer)?.sums(peer, spans)).await?;
    if sums.len() != spans.len() {
        return Err(Error::internal(format!("device {peer} left out sums")));
    }
    Ok(sums)
}

#[async_trait]
impl Worker for ReplicateRegisters {
    fn name(&self) -> &'static str {
        "replicate-index"
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let devices = cluster.index_devices_of(&self.scope);
        let Some(device) = self.rounds.at(&devices) else {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        };
        // Drops tasks of devices that have left.
        self.tasks.retain(|task| task.device() == device);
        let mut progress = match self.resume(&cluster, device).await {
            Ok(progress) => progress,
            Err(error) => {
                tracing::debug!(%device, %error, "a device's leaving registers for a later pass");
                self.pass.left += 1;
                let idle = self.advance(&cluster);
                StepProgress { kept: 1, idle, ..StepProgress::default() }
            }
        };
        self.pass.left += progress.kept;
        progress.backlog = self.tasks.len() as u64;
        progress.backlog += if progress.idle { self.left } else { self.pass.left };
        let now_ms = self.clock.now_ms();
        if progress.backlog > 0 {
            self.since_ms.get_or_insert(now_ms);
        }
        progress.oldest_age_ms = self.since_ms.map_or(0, |since| now_ms.saturating_sub(since));
        if !progress.idle {
            let whole = u64::from(partition_count(cluster.index()));
            let all = devices.len() as u64 * whole;
            let done = self.pass.devices * whole + u64::from(self.next);
            progress.ahead = all.saturating_sub(done);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
