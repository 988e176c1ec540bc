//! Extents: every primary of an extent gets its copy, and other devices release theirs.
//!
//! ```text
//! a page of a device's extents ──presence──▶ every primary
//!    some lack it     copy, a few at a time, with a limit of bytes in a step
//!    all have it      a device that is no primary queries again, then releases its copy
//!    one deleted it   deleted here too, if unneeded (rule X4); otherwise copied to the others
//!    silence          kept
//! ```
//!
//! Previous holders and handoffs are devices that have an extent and are no primaries of it. One
//! rule serves moves, drains, returns and wiped devices. Recent extents are left to their writers:
//! a copy would conflict with the writer's own.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Clock, DeviceId, ErrorKind, Result};
use martlet_topology::Topology;

use super::copy::copy;
use super::delete_marks::check_marks;
use super::plan::{CopyAction, CopyTurn, plan, plan_wanted};
use super::presence::{presence, release_copies};
use super::required_devices::RequiredDevices;
use crate::cluster::{DeviceScope, StepTopology};
use crate::cursors::Cursors;
use crate::pages::{self, ExtentPage, PagedWorker, Pages};
use crate::worker::{StepProgress, Worker};

/// Copies made concurrently.
const COPY_AT_ONCE: usize = 4;
/// Limits of a step: bytes, or number of copies.
const STEP_BYTES: u64 = 32 * 1024 * 1024;
const STEP_COPIES: usize = 64;

/// Options of the replication of extents.
#[derive(Clone, Copy, Debug)]
pub struct ReplicateOptions {
    /// Age in milliseconds below which extents are left to their writers.
    pub young_ms: u64,
    /// Maximum bytes copied in a second; with none, only clients' latency sets the pace.
    pub bytes_per_second_max: Option<u64>,
}

impl Default for ReplicateOptions {
    fn default() -> Self {
        Self { young_ms: 30_000, bytes_per_second_max: None }
    }
}

/// The worker.
pub struct ReplicateExtents {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    options: ReplicateOptions,
    pages: Pages<(ExtentRecord, CopyAction)>,
}

impl ReplicateExtents {
    const NAME: &str = "replicate-data";

    /// Creates a worker over the data devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        Self {
            topology: topology.into(),
            clock,
            scope,
            options: ReplicateOptions::default(),
            pages: Pages::new(Self::NAME),
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

    /// Returns the copies to make of needed extents while a primary has their delete mark: the
    /// copies that other primaries lack.
    async fn copies_of_wanted(
        &self,
        places: &RequiredDevices<'_>,
        device: DeviceId,
        wanted: Vec<ExtentRecord>,
    ) -> Result<Vec<(ExtentRecord, CopyAction)>> {
        let presences = presence(places, device, &wanted).await?;
        let planned = wanted.into_iter().zip(presences).map(|(record, presences)| {
            let turn = CopyTurn::of(record.extent.id, self.pages.turn);
            (record, plan_wanted(device, presences, turn))
        });
        Ok(planned.filter(|(_, deed)| matches!(deed, CopyAction::Copy(_))).collect())
    }

    /// Makes copies, a few at a time. Returns the extents that no primary lacks any more, as far as
    /// known.
    async fn copy_all(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        copies: Vec<(ExtentRecord, Vec<DeviceId>)>,
        progress: &mut StepProgress,
    ) -> Vec<ExtentRecord> {
        let full = self.pages.full();
        let mut ways = Vec::with_capacity(copies.len());
        for (record, to) in copies {
            ways.push(async move {
                let mut outcomes = Vec::with_capacity(to.len());
                for to in to {
                    let outcome = if full.contains(&to) {
                        Err(ErrorKind::Full)
                    } else {
                        copy_and_tell(cluster, &record, device, to).await
                    };
                    outcomes.push((to, outcome));
                }
                (record, outcomes)
            });
        }
        let done: Vec<_> =
            futures::stream::iter(ways).buffer_unordered(COPY_AT_ONCE).collect().await;
        let (mut whole, mut full) = (Vec::new(), Vec::new());
        for (record, outcomes) in done {
            let mut all = true;
            for (to, outcome) in outcomes {
                match outcome {
                    Ok(bytes) => {
                        progress.copied += u64::from(bytes > 0);
                        progress.copied_bytes += bytes;
                        continue;
                    }
                    Err(ErrorKind::Full) => full.push(to),
                    Err(_) => {}
                }
                all = false;
            }
            progress.done += u64::from(all);
            progress.kept += u64::from(!all);
            if all {
                whole.push(record);
            }
        }
        self.pages.note_full(full);
        whole
    }
}

async fn copy_and_tell(
    cluster: &StepTopology,
    record: &ExtentRecord,
    from: DeviceId,
    to: DeviceId,
) -> Result<u64, ErrorKind> {
    copy(cluster, record, from, to).await.map_err(|error| {
        tracing::debug!(extent = %record.extent.id, %from, %to, %error, "could not copy an extent");
        error.kind()
    })
}

#[async_trait]
impl PagedWorker for ReplicateExtents {
    type Action = (ExtentRecord, CopyAction);

    fn pages(&mut self) -> &mut Pages<Self::Action> {
        &mut self.pages
    }

    fn devices(&self, cluster: &StepTopology) -> BTreeSet<DeviceId> {
        cluster.data_devices_of(&self.scope)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    async fn look(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Self::Action>, StepProgress)> {
        let now_ms = self.clock.now_ms();
        let is_young = |it: &ExtentRecord| it.birth_ms + self.options.young_ms > now_ms;
        let places = RequiredDevices::of(cluster);
        let presences = presence(&places, device, &records).await?;
        let (mut deeds, mut progress) = (VecDeque::new(), StepProgress::default());
        for (record, presences) in records.into_iter().zip(presences) {
            match plan(device, &presences, CopyTurn::of(record.extent.id, self.pages.turn)) {
                CopyAction::Nothing | CopyAction::Leave => {}
                CopyAction::Wait => progress.kept += 1,
                _ if is_young(&record) => progress.kept += 1,
                deed => deeds.push_back((record, deed)),
            }
        }
        Ok((deeds, progress))
    }

    async fn work(
        &mut self,
        cluster: &StepTopology,
        page: &mut ExtentPage<(ExtentRecord, CopyAction)>,
    ) -> Result<StepProgress> {
        let mut progress = StepProgress::default();
        let (mut copies, mut judged, mut strays) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        while bytes < STEP_BYTES && copies.len() < STEP_COPIES {
            let Some((record, deed)) = page.deeds.pop_front() else { break };
            match deed {
                CopyAction::Copy(to) => {
                    bytes += u64::from(record.extent.length) * to.len() as u64;
                    copies.push((record, to));
                }
                CopyAction::LetGo => strays.push(record),
                CopyAction::Judge => judged.push(record),
                CopyAction::Nothing | CopyAction::Leave | CopyAction::Wait => {}
            }
        }
        let whole = self.copy_all(cluster, page.device, copies, &mut progress).await;
        let places = RequiredDevices::of(cluster);
        strays.extend(whole.into_iter().filter(|it| !places.primaries(it).contains(&page.device)));
        release_copies(&places, page.device, &strays, &mut progress).await?;
        let wanted = check_marks(cluster, page.device, judged, &mut progress).await?;
        page.deeds.extend(self.copies_of_wanted(&places, page.device, wanted).await?);
        self.pages.step_bytes = progress.copied_bytes;
        Ok(progress)
    }
}

#[async_trait]
impl Worker for ReplicateExtents {
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
