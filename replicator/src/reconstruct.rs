//! Reconstruct: rebuilds lost fragments from others.
//!
//! ```text
//! a page of a device's fragments ──presence──▶ the homes of their siblings
//!    one was deleted         deleted here too, if the extent is not needed (rule X4)
//!    one is missing at home  all other devices are queried; replicate-data copies it home
//!    no device has it        rebuilt from any d others, written home, compared
//!    fewer than d are left   left unchanged, and reported
//!    silence                 left unchanged
//! ```
//!
//! The holder of a fragment watches the next m fragments of its extent. Of the watchers that see a
//! loss, one in turn rebuilds all lost fragments. Two at once make the same bytes under one id.
//! Recent extents are left to their writers. So are extents that no entry names yet and that lack
//! fragments: the write is in flight or has died, and the sweep decides which (rule X2).

mod build;
mod holders;
mod page_check;
mod plan;
mod silence;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Clock, DeviceId, ErrorKind, Result};
use martlet_topology::Topology;

pub(crate) use self::build::Rebuild;
use self::build::RebuildOutcome;
use self::page_check::PageCheck;
use self::silence::Silence;
use crate::cluster::{DeviceScope, StepTopology};
use crate::coded::code_of;
use crate::cursors::Cursors;
use crate::pages::{self, ExtentPage, PagedWorker, Pages};
use crate::replicate::ReplicateOptions;
use crate::worker::{StepProgress, Worker};

/// Extents processed concurrently.
const AT_ONCE: usize = 2;
/// Limits of a step: bytes read and written, or number of extents.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
const STEP_EXTENTS: usize = 32;

/// The worker.
pub struct Reconstruct {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    options: ReplicateOptions,
    pages: Pages<Rebuild>,
    silence: Silence,
}

impl Reconstruct {
    const NAME: &str = "reconstruct";

    /// Creates a worker over the devices of coded policies in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        Self {
            topology: topology.into(),
            clock,
            scope,
            options: ReplicateOptions::default(),
            pages: Pages::new(Self::NAME),
            silence: Silence::default(),
        }
    }

    /// Sets other options.
    #[must_use]
    pub fn with_options(self, options: ReplicateOptions) -> Self {
        Self { options, ..self }
    }

    /// Continues at the position in `cursors`.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        self.pages.resume_from(cursors);
        self
    }

    /// Birth time from which on extents are left to their writers, in milliseconds since 1970.
    fn young_ms(&self) -> u64 {
        (self.clock.now_ms() + 1).saturating_sub(self.options.young_ms)
    }

    fn record_outcome(&mut self, built: RebuildOutcome, progress: &mut StepProgress) {
        progress.copied += built.made;
        progress.copied_bytes += built.made_bytes;
        progress.read_bytes += built.read_bytes;
        progress.done += u64::from(built.failed.is_empty());
        progress.kept += u64::from(!built.failed.is_empty());
        let full = built.failed.into_iter().filter(|(_, kind)| *kind == ErrorKind::Full);
        self.pages.note_full(full.map(|(home, _)| home));
    }
}

#[async_trait]
impl PagedWorker for Reconstruct {
    type Action = Rebuild;

    fn pages(&mut self) -> &mut Pages<Rebuild> {
        &mut self.pages
    }

    /// Returns the devices in scope that belong to a coded ring.
    fn devices(&self, cluster: &StepTopology) -> BTreeSet<DeviceId> {
        let mut devices = cluster.data_devices_of(&self.scope);
        let coded = || cluster.policies().filter(|ring| code_of(ring).is_some());
        devices.retain(|device| coded().any(|ring| ring.device(*device).is_some()));
        devices
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    async fn look(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Rebuild>, StepProgress)> {
        let (turn, young_ms, now_ms) = (self.pages.turn, self.young_ms(), self.clock.now_ms());
        let mut progress = StepProgress::default();
        let look = PageCheck { cluster, device, turn, young_ms, now_ms };
        let jobs = look.jobs(records, &mut self.silence, &mut progress).await?;
        Ok((jobs, progress))
    }

    async fn work(
        &mut self,
        cluster: &StepTopology,
        page: &mut ExtentPage<Rebuild>,
    ) -> Result<StepProgress> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while bytes < STEP_BYTES && jobs.len() < STEP_EXTENTS {
            let Some(job) = page.deeds.pop_front() else { break };
            bytes += job.traffic_bytes();
            jobs.push(job);
        }
        let (full, young_ms) = (self.pages.full(), self.young_ms());
        let ways = jobs.into_iter().map(|job| async move {
            let whole = job.coded.whole;
            job.build(cluster, full, young_ms).await.inspect_err(|error| {
                tracing::debug!(extent = %whole, %error, "could not reconstruct lost fragments for \
                                                          now");
            })
        });
        let ways: Vec<_> = ways.collect();
        let outcomes: Vec<_> =
            futures::stream::iter(ways).buffer_unordered(AT_ONCE).collect().await;
        let mut progress = StepProgress::default();
        for outcome in outcomes {
            match outcome {
                Ok(Some(built)) => self.record_outcome(built, &mut progress),
                Ok(None) | Err(_) => progress.kept += 1,
            }
        }
        self.pages.step_bytes = progress.copied_bytes + progress.read_bytes;
        Ok(progress)
    }
}

#[async_trait]
impl Worker for Reconstruct {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        self.pages.busy_pause(self.options.bytes_per_second_max, usual)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        pages::step(self, &cluster).await
    }
}

#[cfg(test)]
mod tests;
