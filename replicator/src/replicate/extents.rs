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

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::extent_sums::ExtentClass;
use martlet_protocol::{Clock, DeviceId, ErrorKind, Result};
use martlet_topology::Topology;

use super::agreement::agreement;
use super::copy::copy;
use super::delete_marks::check_marks;
use super::plan::{CopyAction, CopyTurn, plan, plan_needed};
use super::presence::{presence, release_copies};
use super::required_devices::RequiredDevices;
use crate::cluster::{DeviceScope, StepTopology};
use crate::coded::code_of;
use crate::cursors::Cursors;
use crate::differences::{ClassHome, Comparison, differing};
use crate::pages::visits::Visits;
use crate::pages::{ExtentPage, PagedWorker, Pages, PassPlace};
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
    options: ReplicateOptions,
    copying: Arc<Copying>,
    pages: Pages<Copying>,
}

/// The work on pages, shared by the walks over all devices.
#[derive(Clone)]
struct Copying {
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    young_ms: u64,
}

impl ReplicateExtents {
    /// Creates a worker over the data devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let options = ReplicateOptions::default();
        let copying = Arc::new(Copying { clock, scope, young_ms: options.young_ms });
        Self { topology: topology.into(), options, copying, pages: Pages::new() }
    }

    /// Sets other options.
    #[must_use]
    pub fn with_options(self, options: ReplicateOptions) -> Self {
        let copying = Copying { young_ms: options.young_ms, ..(*self.copying).clone() };
        Self { options, copying: Arc::new(copying), ..self }
    }

    /// Continues at the position in `cursors`.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        self.pages.resume_from(cursors);
        self
    }
}

/// Returns the copies to make of needed extents while a primary has their delete mark: the
/// copies that other primaries lack.
async fn copies_of_needed(
    at: PassPlace<'_>,
    wanted: Vec<ExtentRecord>,
) -> Result<Vec<(ExtentRecord, CopyAction)>> {
    let presences = presence(&RequiredDevices::of(at.cluster), at.device, &wanted).await?;
    let planned = wanted.into_iter().zip(presences).map(|(record, presences)| {
        let turn = CopyTurn::of(record.extent.id, at.turn);
        (record, plan_needed(at.device, presences, turn))
    });
    Ok(planned.filter(|(_, deed)| matches!(deed, CopyAction::Copy(_))).collect())
}

/// Returns the copies of extents of which no primary has other bytes.
async fn without_contradictions(
    places: &RequiredDevices<'_>,
    copies: Vec<(ExtentRecord, Vec<DeviceId>)>,
    progress: &mut StepProgress,
) -> Vec<(ExtentRecord, Vec<DeviceId>)> {
    let records: Vec<&ExtentRecord> = copies.iter().map(|(record, _)| record).collect();
    let agreed = agreement(places, &records).await;
    let count = copies.len();
    let copies = copies.into_iter().zip(agreed).filter(|(_, agreed)| !agreed.differs);
    let copies: Vec<_> = copies.map(|(copy, _)| copy).collect();
    progress.kept += (count - copies.len()) as u64;
    copies
}

/// Makes copies, a few at a time. Returns the extents that no primary lacks any more, as far as
/// known.
async fn copy_all(
    at: PassPlace<'_>,
    copies: Vec<(ExtentRecord, Vec<DeviceId>)>,
    full: &mut HashSet<DeviceId>,
    progress: &mut StepProgress,
) -> Vec<ExtentRecord> {
    let mut ways = Vec::with_capacity(copies.len());
    let known = &*full;
    for (record, to) in copies {
        ways.push(async move {
            let mut outcomes = Vec::with_capacity(to.len());
            for to in to {
                let outcome = if known.contains(&to) {
                    Err(ErrorKind::Full)
                } else {
                    copy_and_report(at.cluster, &record, at.device, to).await
                };
                outcomes.push((to, outcome));
            }
            (record, outcomes)
        });
    }
    let done: Vec<_> = futures::stream::iter(ways).buffer_unordered(COPY_AT_ONCE).collect().await;
    let mut whole = Vec::new();
    for (record, outcomes) in done {
        let mut all = true;
        for (to, outcome) in outcomes {
            match outcome {
                Ok(bytes) => {
                    progress.copied += u64::from(bytes > 0);
                    progress.copied_bytes += bytes;
                    continue;
                }
                Err(ErrorKind::Full) => {
                    full.insert(to);
                }
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
    whole
}

async fn copy_and_report(
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
impl PagedWorker for Copying {
    const NAME: &str = "replicate-data";

    type Action = (ExtentRecord, CopyAction);

    fn devices(&self, cluster: &StepTopology) -> BTreeSet<DeviceId> {
        cluster.data_devices_of(&self.scope)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    async fn visits(&self, at: PassPlace<'_>) -> Result<Visits> {
        differing(at.cluster, at.device, compare).await
    }

    async fn look(
        &self,
        at: PassPlace<'_>,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Self::Action>, StepProgress)> {
        let now_ms = self.clock.now_ms();
        let is_young = |it: &ExtentRecord| it.birth_ms + self.young_ms > now_ms;
        let places = RequiredDevices::of(at.cluster);
        let presences = presence(&places, at.device, &records).await?;
        let (mut deeds, mut progress) = (VecDeque::new(), StepProgress::default());
        for (record, presences) in records.into_iter().zip(presences) {
            match plan(at.device, &presences, CopyTurn::of(record.extent.id, at.turn)) {
                CopyAction::Nothing | CopyAction::Leave => {}
                CopyAction::Wait => progress.kept += 1,
                _ if is_young(&record) => progress.kept += 1,
                deed => deeds.push_back((record, deed)),
            }
        }
        Ok((deeds, progress))
    }

    async fn work(
        &self,
        at: PassPlace<'_>,
        page: &mut ExtentPage<(ExtentRecord, CopyAction)>,
        full: &mut HashSet<DeviceId>,
    ) -> Result<StepProgress> {
        let PassPlace { cluster, device, .. } = at;
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
        let places = RequiredDevices::of(cluster);
        let copies = without_contradictions(&places, copies, &mut progress).await;
        let whole = copy_all(at, copies, full, &mut progress).await;
        strays.extend(whole.into_iter().filter(|it| !places.primaries(it).contains(&device)));
        // Strays that stay cost space. The copies that are missing elsewhere must not wait for them.
        let released = release_copies(&places, device, &strays, &*self.clock, &mut progress).await;
        if let Err(error) = released {
            tracing::debug!(%device, %error, "strays stay for now");
            progress.kept += strays.len() as u64;
        }
        let wanted = check_marks(cluster, device, judged, &*self.clock, &mut progress).await?;
        page.deeds.extend(copies_of_needed(at, wanted).await?);
        Ok(progress)
    }
}

/// Copies are compared with all primaries. Fragments at home are left to reconstruct.
fn compare(ClassHome { ring, primaries, class, device }: ClassHome<'_>) -> Comparison {
    let code = code_of(ring);
    if class == ExtentClass::COPY {
        if code.is_some() || !primaries.contains(&device) {
            return Comparison::Visit;
        }
        let others = primaries.iter().filter(|it| **it != device);
        return Comparison::With(others.map(|it| (*it, class)).collect());
    }
    let is_of_code = code.is_some_and(|code| (code.k(), code.m()) == (class.k, class.m));
    let home = primaries.get(usize::from(class.fragment));
    match home {
        Some(home) if is_of_code && *home == device => Comparison::Pass,
        _ => Comparison::Visit,
    }
}

#[async_trait]
impl Worker for ReplicateExtents {
    fn name(&self) -> &'static str {
        Copying::NAME
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        self.pages.busy_pause(self.options.bytes_per_second_max, usual)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        self.pages.step(&self.copying, cluster).await
    }
}

#[cfg(test)]
mod tests;
