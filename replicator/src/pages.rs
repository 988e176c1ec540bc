//! Walk over all extents of some devices, page by page. Workers with different purposes share this
//! code.
//!
//! ```text
//! step ── look at a page ── work: as much of it as fits ──┬── work is left: kept for the next step
//!                                                         └── on to the next page, device, pass
//! ```
//!
//! A page is looked at again if a ring has changed since. The position is saved with each page.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, ExtentId, Result};
use martlet_ring::{Ring, RingHash};

use crate::cluster::{DeviceCursor, ExtentCount, StepTopology, in_time};
use crate::cursors::{Cursors, MemoryCursors, load_place, save_place};
use crate::worker::StepProgress;

/// Extents in one page.
pub(crate) const PAGE: usize = 500;

/// Position and counters of a worker's walk.
pub(crate) struct Pages<T> {
    name: &'static str,
    cursors: Arc<dyn Cursors>,
    rounds: DeviceCursor,
    after: Option<ExtentId>,
    page: Option<ExtentPage<T>>,
    /// Number of completed passes, which decides the turns.
    pub(crate) turn: u64,
    pass: PassCounters,
    /// Items left undone by the last whole pass, and the time since which items are left.
    left: u64,
    since_ms: Option<u64>,
    /// Bytes of the last step.
    pub(crate) step_bytes: u64,
    /// Number of extents of a pass.
    count: ExtentCount,
}

/// Counters of one pass.
#[derive(Default)]
struct PassCounters {
    left: u64,
    seen: u64,
    full: HashSet<DeviceId>,
}

/// A page that was looked at, and its remaining work.
pub(crate) struct ExtentPage<T> {
    pub(crate) device: DeviceId,
    pub(crate) deeds: VecDeque<T>,
    rings: Vec<RingHash>,
    /// Position of the next page; none at the end of the device.
    next: Option<ExtentId>,
}

/// A worker that walks pages of extents.
#[async_trait]
pub(crate) trait PagedWorker: Send {
    /// Possible work on an extent.
    type Action: Send;

    fn pages(&mut self) -> &mut Pages<Self::Action>;

    /// Devices to walk.
    fn devices(&self, cluster: &StepTopology) -> BTreeSet<DeviceId>;

    fn now_ms(&self) -> u64;

    /// Determines the work on a page of a device's extents.
    async fn look(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Self::Action>, StepProgress)>;

    /// Does as much work on a page as fits into a step.
    async fn work(
        &mut self,
        cluster: &StepTopology,
        page: &mut ExtentPage<Self::Action>,
    ) -> Result<StepProgress>;
}

impl<T> Pages<T> {
    /// Creates a walk at its beginning.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            cursors: Arc::new(MemoryCursors::default()),
            rounds: DeviceCursor::default(),
            after: None,
            page: None,
            turn: 0,
            pass: PassCounters::default(),
            left: 0,
            since_ms: None,
            step_bytes: 0,
            count: ExtentCount::default(),
        }
    }

    /// Continues at the position in `cursors`.
    pub(crate) fn resume_from(&mut self, cursors: Arc<dyn Cursors>) {
        if let Some((device, after)) = load_place(&*cursors, self.name) {
            self.rounds = DeviceCursor::from(device);
            self.after = after;
        }
        self.cursors = cursors;
    }

    /// Devices that refused bytes as full in this pass.
    pub(crate) fn full(&self) -> &HashSet<DeviceId> {
        &self.pass.full
    }

    /// Records devices that are full, until the end of this pass.
    pub(crate) fn note_full(&mut self, devices: impl IntoIterator<Item = DeviceId>) {
        self.pass.full.extend(devices);
    }

    /// Pause after a step, for a limit in bytes a second.
    pub(crate) fn busy_pause(
        &self,
        bytes_per_second_max: Option<u64>,
        usual: Duration,
    ) -> Duration {
        let Some(rate) = bytes_per_second_max else { return usual };
        usual.max(Duration::from_millis(self.step_bytes.saturating_mul(1000) / rate.max(1)))
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, devices: &BTreeSet<DeviceId>) -> bool {
        self.after = None;
        let ended = self.rounds.advance(devices);
        if ended {
            self.turn += 1;
            self.left = std::mem::take(&mut self.pass).left;
            if self.left == 0 {
                self.since_ms = None;
            }
        }
        ended
    }

    /// Continues after work on a page.
    fn leave(
        &mut self,
        page: ExtentPage<T>,
        devices: &BTreeSet<DeviceId>,
        progress: &mut StepProgress,
    ) {
        self.pass.left += progress.kept;
        if !page.deeds.is_empty() {
            progress.backlog = page.deeds.len() as u64;
            self.page = Some(page);
            return;
        }
        self.after = page.next;
        progress.idle = page.next.is_none() && self.advance(devices);
        if let Some(device) = self.rounds.at(devices) {
            save_place(&*self.cursors, self.name, device, self.after);
        }
    }

    /// Adds the items left undone besides the page, and the age of the oldest.
    fn report(&mut self, now_ms: u64, progress: &mut StepProgress) {
        progress.backlog += if progress.idle { self.left } else { self.pass.left };
        if progress.backlog > 0 {
            self.since_ms.get_or_insert(now_ms);
        }
        progress.oldest_age_ms = self.since_ms.map_or(0, |since| now_ms.saturating_sub(since));
    }
}

/// Processes one page, or a part of a page with much work.
pub(crate) async fn step<W: PagedWorker>(
    worker: &mut W,
    cluster: &StepTopology,
) -> Result<StepProgress> {
    worker.pages().step_bytes = 0;
    let devices = worker.devices(cluster);
    let Some(device) = worker.pages().rounds.at(&devices) else {
        return Ok(StepProgress { idle: true, ..StepProgress::default() });
    };
    let mut progress = match step_pages(worker, cluster, device, &devices).await {
        Ok(progress) => progress,
        Err(error) => {
            // A device that is out keeps its extents until it returns.
            let pages = worker.pages();
            tracing::debug!(worker = pages.name, %device, %error, "leaving a device for a later \
                                                                   pass");
            pages.pass.left += 1;
            let idle = pages.advance(&devices);
            StepProgress { kept: 1, idle, ..StepProgress::default() }
        }
    };
    let now_ms = worker.now_ms();
    worker.pages().report(now_ms, &mut progress);
    if !progress.idle {
        let mut count = worker.pages().count;
        let all = count.of(cluster, &devices).await;
        worker.pages().count = count;
        progress.ahead = all.saturating_sub(worker.pages().pass.seen);
    }
    Ok(progress)
}

async fn step_pages<W: PagedWorker>(
    worker: &mut W,
    cluster: &StepTopology,
    device: DeviceId,
    devices: &BTreeSet<DeviceId>,
) -> Result<StepProgress> {
    let stands = |page: &ExtentPage<_>| page.device == device && page.rings == rings(cluster);
    let (mut page, mut progress) = match worker.pages().page.take().filter(stands) {
        Some(page) => (page, StepProgress::default()),
        None => look(worker, cluster, device).await?,
    };
    progress.add(&worker.work(cluster, &mut page).await?);
    worker.pages().leave(page, devices, &mut progress);
    Ok(progress)
}

/// Looks at the next page of a device.
async fn look<W: PagedWorker>(
    worker: &mut W,
    cluster: &StepTopology,
    device: DeviceId,
) -> Result<(ExtentPage<W::Action>, StepProgress)> {
    let after = worker.pages().after;
    let records = in_time(cluster.node(device)?.list_extents(device, after, PAGE)).await?;
    let next = records.last().map(|record| record.extent.id).filter(|_| records.len() >= PAGE);
    let items = records.len() as u64;
    let (deeds, mut progress) = worker.look(cluster, device, records).await?;
    progress.items = items;
    worker.pages().pass.seen += items;
    Ok((ExtentPage { device, deeds, rings: rings(cluster), next }, progress))
}

/// Rings that determine the work on a page.
fn rings(cluster: &StepTopology) -> Vec<RingHash> {
    cluster.policies().map(Ring::hash).collect()
}
