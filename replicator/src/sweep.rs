//! Sweep: deletes extents that no entry ever came to own (rule X3).
//!
//! A crash, a disconnected client or a failed node leaves extents whose entry was never written.
//! The sweep walks every extent of every device and queries the index about it. It deletes an
//! extent only if all of these conditions hold:
//!
//! * its commit window is over: no proxy can still write an entry that names it (rule X2);
//! * all primaries of its owner's register have answered, with votes and without moves. None knows
//!   an object, upload, or part of an unfinished upload that names it. Every device of the index
//!   ring has reported no hint that names it;
//! * this was found twice, a grace time apart: a reader may have received its location just before
//!   the entry was removed.
//!
//! Any error means keep. The sweep's position and suspects live only in memory. After a restart
//! every extent is again checked twice, which costs time and can't delete too much.

mod buckets;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{BackendExt, BucketId, Clock, DeviceId, ExtentId, Result};
use martlet_topology::Topology;

pub(crate) use self::buckets::{KnownBucket, list_buckets};
use crate::cluster::{DeviceCursor, DeviceScope, StepTopology, in_time};
use crate::needed_extents::NeedCheck;
use crate::replicate::delete_marks::is_wanted;
use crate::worker::{StepProgress, Worker};

/// Extents checked by one step.
const BATCH: usize = 256;
/// Maximum number of remembered suspects; further ones wait for a later pass.
const SUSPECTS_MAX: usize = 100_000;

/// Options of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Milliseconds between two checks of an unneeded extent.
    pub grace_ms: u64,
    /// All writers of extents born before this have ended, in milliseconds since 1970. This is the
    /// start of the process, if it is the whole cluster; zero if other proxies may write.
    pub writers_gone_before_ms: u64,
}

impl SweepOptions {
    /// Options if other processes may write: an extent stays until its commit window is over.
    pub fn among_others(grace_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: 0 }
    }

    /// Options if this process is the whole cluster, since it started at `started_ms`.
    pub fn alone(grace_ms: u64, started_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: started_ms }
    }
}

/// The worker.
pub struct Sweep {
    topology: Topology,
    clock: Arc<dyn Clock>,
    options: SweepOptions,
    scope: DeviceScope,
    /// Device that is being walked, and the last extent visited.
    rounds: DeviceCursor,
    after: Option<ExtentId>,
    /// Buckets with their shards, as of the beginning of this pass.
    buckets: Option<Arc<HashMap<BucketId, KnownBucket>>>,
    /// Extents that were unneeded at their last check.
    suspects: HashMap<(DeviceId, ExtentId), Suspect>,
    pass: u64,
}

/// Time at which an extent was first found unneeded, and the last pass that found it so.
struct Suspect {
    since_ms: u64,
    pass: u64,
}

impl Sweep {
    /// Creates a worker over all devices that may hold extents.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        options: SweepOptions,
    ) -> Self {
        Self {
            topology: topology.into(),
            clock,
            options,
            scope: DeviceScope::All,
            rounds: DeviceCursor::default(),
            after: None,
            buckets: None,
            suspects: HashMap::new(),
            pass: 0,
        }
    }

    /// Limits the worker to devices of `scope`.
    #[must_use]
    pub fn limited_to(self, scope: DeviceScope) -> Self {
        Self { scope, ..self }
    }

    /// Returns true if no entry of an extent can be committed any more.
    fn is_window_over(&self, birth_ms: u64, now_ms: u64) -> bool {
        let window = COMMIT_WINDOW_MS + self.options.grace_ms;
        birth_ms < self.options.writers_gone_before_ms || birth_ms.saturating_add(window) < now_ms
    }

    /// Returns the buckets, listed at the beginning of a pass. Extents of later buckets are younger
    /// still, and are not checked.
    async fn buckets(
        &mut self,
        cluster: &StepTopology,
    ) -> Result<Arc<HashMap<BucketId, KnownBucket>>> {
        if let Some(buckets) = &self.buckets {
            return Ok(buckets.clone());
        }
        let buckets = Arc::new(list_buckets(cluster).await?);
        self.buckets = Some(buckets.clone());
        Ok(buckets)
    }

    /// Returns the unneeded extents of a page, and the number of extents with unknown state.
    async fn unwanted(
        &mut self,
        cluster: &StepTopology,
        page: &[ExtentRecord],
        now_ms: u64,
    ) -> Result<(Vec<ExtentRecord>, u64)> {
        let buckets = self.buckets(cluster).await?;
        let mut wanted = NeedCheck::new(cluster);
        let mut unwanted = Vec::new();
        let mut unknown = 0;
        for record in page.iter().filter(|record| self.is_window_over(record.birth_ms, now_ms)) {
            match is_wanted(&buckets, &mut wanted, record).await {
                Ok(true) => {}
                Ok(false) => unwanted.push(record.clone()),
                Err(error) => {
                    tracing::debug!(extent = %record.extent.id, %error, "keeping an extent: could \
                                                                         not check its entry");
                    unknown += 1;
                }
            }
        }
        Ok((unwanted, unknown))
    }

    /// Returns extents that were already unneeded a grace time ago; records the others as suspects.
    fn convict(
        &mut self,
        device: DeviceId,
        unwanted: &[ExtentRecord],
        now_ms: u64,
    ) -> Vec<ExtentRecord> {
        let mut convicted = Vec::new();
        for record in unwanted {
            let id = (device, record.extent.id);
            if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&id) {
                continue;
            }
            let pass = self.pass;
            let suspect = self.suspects.entry(id).or_insert(Suspect { since_ms: now_ms, pass });
            suspect.pass = pass;
            let is_new = suspect.since_ms == now_ms;
            if !is_new && suspect.since_ms.saturating_add(self.options.grace_ms) <= now_ms {
                convicted.push(record.clone());
            }
        }
        convicted
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&cluster.data_devices_of(&self.scope));
        if ended {
            self.buckets = None;
            // Suspects that this pass did not meet are deleted, or needed after all.
            let pass = self.pass;
            self.suspects.retain(|_, suspect| suspect.pass == pass);
            self.pass += 1;
        }
        ended
    }

    async fn sweep(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        page: &[ExtentRecord],
    ) -> Result<StepProgress> {
        let now_ms = self.clock.now_ms();
        if now_ms < self.options.writers_gone_before_ms {
            // The clock stepped back: new extents would seem older than the process.
            self.options.writers_gone_before_ms = 0;
        }
        let (unwanted, kept) = self.unwanted(cluster, page, now_ms).await?;
        let convicted = self.convict(device, &unwanted, now_ms);
        let ids: Vec<ExtentId> = convicted.iter().map(|record| record.extent.id).collect();
        if !ids.is_empty() {
            in_time(cluster.node(device)?.delete_extents(device, &ids)).await?;
            tracing::info!(%device, extents = ids.len(), "swept extents without an owner");
        }
        for id in &ids {
            self.suspects.remove(&(device, *id));
        }
        let oldest = self.suspects.values().map(|suspect| suspect.since_ms).min();
        Ok(StepProgress {
            items: page.len() as u64,
            done: ids.len() as u64,
            freed: ids.len() as u64,
            freed_bytes: convicted.iter().map(|record| u64::from(record.extent.length)).sum(),
            kept,
            backlog: self.suspects.len() as u64,
            oldest_age_ms: oldest.map_or(0, |since_ms| now_ms.saturating_sub(since_ms)),
            ..StepProgress::default()
        })
    }
}

#[async_trait]
impl Worker for Sweep {
    fn name(&self) -> &'static str {
        "sweep"
    }

    /// A pass queries the index about every extent. It deletes only extents that it found a grace
    /// time earlier, so faster passes have no use.
    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.max(Duration::from_millis(self.options.grace_ms))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let Some(device) = self.rounds.at(&cluster.data_devices_of(&self.scope)) else {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        };
        let step = async {
            let node = cluster.node(device)?;
            let page = in_time(node.list_extents(device, self.after, BATCH)).await?;
            let progress = self.sweep(&cluster, device, &page).await?;
            Ok((page, progress))
        };
        let (page, mut progress) = match step.await {
            Ok(done) => done,
            Err(error) => {
                self.advance(&cluster);
                return Err(error);
            }
        };
        self.after = page.last().map(|record| record.extent.id);
        if page.len() < BATCH {
            progress.idle = self.advance(&cluster);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
