//! Reconstruct: rebuilds lost fragments from others.
//!
//! ```text
//! a page of a device's fragments ──presence──▶ the homes of their siblings
//!    one was deleted         deleted here too, if the extent is not needed (rule X4)
//!    one is missing at home  all other devices are queried; replicate-data copies it home
//!    one moves for long      rebuilt by one of its watchers, beside the device that gives it
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

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::extent_sums::ExtentClass;
use martlet_protocol::{Clock, DeviceId, ErrorKind, Result};
use martlet_topology::Topology;
use parking_lot::Mutex;

pub(crate) use self::build::Rebuild;
use self::build::RebuildOutcome;
use self::page_check::PageCheck;
use self::plan::watched;
use self::silence::Silence;
use crate::cluster::{DeviceScope, StepTopology};
use crate::coded::code_of;
use crate::cursors::Cursors;
use crate::differences::{ClassHome, Comparison, differing};
use crate::pages::visits::Visits;
use crate::pages::{ExtentPage, PagedWorker, Pages, PassPlace};
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
    options: ReplicateOptions,
    rebuilding: Arc<Rebuilding>,
    pages: Pages<Rebuilding>,
}

/// The work on pages, shared by the walks over all devices.
struct Rebuilding {
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    young_ms: u64,
    silence: Mutex<Silence>,
}

impl Reconstruct {
    /// Creates a worker over the devices of coded policies in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let options = ReplicateOptions::default();
        let rebuilding = Rebuilding::new(clock, scope, options);
        Self { topology: topology.into(), options, rebuilding, pages: Pages::new() }
    }

    /// Sets other options.
    #[must_use]
    pub fn with_options(self, options: ReplicateOptions) -> Self {
        let Rebuilding { clock, scope, .. } = &*self.rebuilding;
        let rebuilding = Rebuilding::new(clock.clone(), scope.clone(), options);
        Self { options, rebuilding, ..self }
    }

    /// Continues at the position in `cursors`.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        self.pages.resume_from(cursors);
        self
    }
}

impl Rebuilding {
    fn new(clock: Arc<dyn Clock>, scope: DeviceScope, options: ReplicateOptions) -> Arc<Self> {
        let silence = Mutex::default();
        Arc::new(Self { clock, scope, young_ms: options.young_ms, silence })
    }

    /// Birth time from which on extents are left to their writers, in milliseconds since 1970.
    fn young_ms(&self) -> u64 {
        (self.clock.now_ms() + 1).saturating_sub(self.young_ms)
    }
}

/// Adds a rebuild to the progress, and notes homes that are full.
fn record_outcome(
    built: RebuildOutcome,
    full: &mut HashSet<DeviceId>,
    progress: &mut StepProgress,
) {
    progress.copied += built.made;
    progress.copied_bytes += built.made_bytes;
    progress.read_bytes += built.read_bytes;
    progress.done += u64::from(built.failed.is_empty());
    progress.kept += u64::from(!built.failed.is_empty());
    let refused = built.failed.into_iter().filter(|(_, kind)| *kind == ErrorKind::Full);
    full.extend(refused.map(|(home, _)| home));
}

/// Fragments at home are compared with those that their holder watches.
fn compare(ClassHome { ring, primaries, class, device }: ClassHome<'_>) -> Comparison {
    if class == ExtentClass::COPY {
        return Comparison::Pass;
    }
    let ExtentClass { k, m, needed, fragment } = class;
    let is_of_code = code_of(ring).is_some_and(|code| (code.k(), code.m()) == (k, m));
    let stored: Vec<u8> = (0..needed).chain(k..k.saturating_add(m)).collect();
    let at = stored.iter().position(|it| *it == fragment);
    let is_home = primaries.get(usize::from(fragment)) == Some(&device);
    match at {
        Some(at) if is_of_code && is_home => {
            let watched = watched(at, stored.len(), needed).map(|at| stored[at]);
            let with = watched.filter_map(|fragment| {
                let home = primaries.get(usize::from(fragment))?;
                Some((*home, ExtentClass { fragment, ..class }))
            });
            Comparison::With(with.collect())
        }
        _ => Comparison::Visit,
    }
}

#[async_trait]
impl PagedWorker for Rebuilding {
    const NAME: &str = "reconstruct";

    type Action = Rebuild;

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

    async fn visits(&self, at: PassPlace<'_>) -> Result<Visits> {
        differing(at.cluster, at.device, compare).await
    }

    async fn look(
        &self,
        at: PassPlace<'_>,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Rebuild>, StepProgress)> {
        let (young_ms, now_ms) = (self.young_ms(), self.clock.now_ms());
        let mut progress = StepProgress::default();
        let check = PageCheck { at, young_ms, now_ms, clock: &*self.clock };
        let jobs = check.jobs(records, &self.silence, &mut progress).await?;
        Ok((jobs, progress))
    }

    async fn work(
        &self,
        at: PassPlace<'_>,
        page: &mut ExtentPage<Rebuild>,
        full: &mut HashSet<DeviceId>,
    ) -> Result<StepProgress> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while bytes < STEP_BYTES && jobs.len() < STEP_EXTENTS {
            let Some(job) = page.deeds.pop_front() else { break };
            bytes += job.traffic_bytes();
            jobs.push(job);
        }
        let (known, young_ms) = (&*full, self.young_ms());
        let ways = jobs.into_iter().map(|job| async move {
            let whole = job.coded.whole;
            job.build(at.cluster, known, young_ms).await.inspect_err(|error| {
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
                Ok(Some(built)) => record_outcome(built, full, &mut progress),
                Ok(None) | Err(_) => progress.kept += 1,
            }
        }
        Ok(progress)
    }
}

#[async_trait]
impl Worker for Reconstruct {
    fn name(&self) -> &'static str {
        Rebuilding::NAME
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        self.pages.busy_pause(self.options.bytes_per_second_max, usual)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        self.pages.step(&self.rebuilding, cluster).await
    }
}

#[cfg(test)]
mod tests;
