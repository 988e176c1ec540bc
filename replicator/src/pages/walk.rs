//! The walk over one device: its pass, its page, and one step of it.

use std::collections::HashSet;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, ExtentId, Result};
use martlet_ring::{Ring, RingHash};

use super::paged_worker::{ExtentPage, PAGE, PagedWorker, PassPlace};
use super::visits::{NextVisit, Visits};
use crate::cluster::{StepTopology, in_time};
use crate::worker::StepProgress;

/// Calls for lists in one step. Bins with few extents share a page.
const LISTS_MAX: usize = 8;

/// Walk over one device.
pub(super) struct DeviceWalk<T> {
    pub(super) device: DeviceId,
    pub(super) after: Option<ExtentId>,
    /// End of the last pass, if none has begun since, in milliseconds since 1970.
    pub(super) ended_ms: Option<u64>,
    /// Rings that determined visits and page.
    rings: Vec<RingHash>,
    visits: Option<Visits>,
    page: Option<ExtentPage<T>>,
    /// Number of completed passes.
    turn: u64,
    /// Items left undone in this pass, and items seen.
    left: u64,
    seen: u64,
    full: HashSet<DeviceId>,
}

/// A walk after a step.
pub(super) struct EndedStep<T> {
    pub(super) walk: DeviceWalk<T>,
    pub(super) progress: StepProgress,
}

impl<T> DeviceWalk<T> {
    /// Creates a walk at a position.
    pub(super) fn at(device: DeviceId, after: Option<ExtentId>) -> Self {
        Self {
            device,
            after,
            ended_ms: None,
            rings: Vec::new(),
            visits: None,
            page: None,
            turn: 0,
            left: 0,
            seen: 0,
            full: HashSet::new(),
        }
    }

    /// Begins the next pass, if one has ended.
    pub(super) fn begin_anew(&mut self) {
        if self.ended_ms.take().is_some() {
            (self.left, self.seen) = (0, 0);
            self.full.clear();
        }
    }

    /// Number of items left undone: by the last pass after its end, else by this pass and on the
    /// page.
    pub(super) fn left(&self) -> u64 {
        self.left + self.page.as_ref().map_or(0, |page| page.deeds.len() as u64)
    }

    /// Number of items of this pass that are not visited yet, as far as known.
    pub(super) fn ahead(&self) -> u64 {
        self.visits.as_ref().map_or(0, |visits| visits.extents.saturating_sub(self.seen))
    }

    /// Processes one page, or a part of a page with much work.
    pub(super) async fn step<W: PagedWorker<Action = T>>(
        mut self,
        worker: &W,
        cluster: &StepTopology,
    ) -> EndedStep<T> {
        let mut progress = match self.advance(worker, cluster).await {
            Ok(progress) => progress,
            Err(error) => {
                // A device that is out keeps its extents until it returns.
                tracing::debug!(worker = W::NAME, device = %self.device, %error, "leaving a device \
                                                                                  for a later pass");
                StepProgress { kept: 1, idle: true, ..StepProgress::default() }
            }
        };
        self.left += progress.kept;
        if std::mem::take(&mut progress.idle) {
            (self.after, self.visits, self.page) = (None, None, None);
            self.turn += 1;
            self.ended_ms = Some(worker.now_ms());
        }
        EndedStep { walk: self, progress }
    }

    /// Advances the walk; the progress is idle at the end of a pass.
    async fn advance<W: PagedWorker<Action = T>>(
        &mut self,
        worker: &W,
        cluster: &StepTopology,
    ) -> Result<StepProgress> {
        let at = PassPlace { cluster, device: self.device, turn: self.turn };
        let rings: Vec<RingHash> = cluster.policies().map(Ring::hash).collect();
        let mut progress = StepProgress::default();
        if self.visits.is_none() || rings != self.rings {
            let visits = worker.visits(at).await?;
            progress.kept = visits.uncompared;
            (self.visits, self.page) = (Some(visits), None);
            (self.rings, self.seen) = (rings, 0);
        }
        let mut page = if let Some(page) = self.page.take() {
            page
        } else {
            let (records, next) = self.gather(cluster).await?;
            let items = records.len() as u64;
            self.seen += items;
            let (deeds, looked) = worker.look(at, records).await?;
            progress.add(&StepProgress { items, ..looked });
            ExtentPage { deeds, next }
        };
        progress.add(&worker.work(at, &mut page, &mut self.full).await?);
        if page.deeds.is_empty() {
            self.after = page.next;
            progress.idle = page.next.is_none();
        } else {
            self.page = Some(page);
            progress.idle = false;
        }
        Ok(progress)
    }

    /// Lists the next extents that are to be visited, and returns the position behind them.
    async fn gather(
        &self,
        cluster: &StepTopology,
    ) -> Result<(Vec<ExtentRecord>, Option<ExtentId>)> {
        let (mut records, mut after) = (Vec::new(), self.after);
        let Some(visits) = &self.visits else { return Ok((records, None)) };
        for _ in 0..LISTS_MAX {
            let NextVisit::After(from) = visits.next_from(after) else {
                return Ok((records, None));
            };
            let limit = PAGE - records.len();
            let node = cluster.node(self.device)?;
            let page = in_time(node.list_extents(self.device, from, limit)).await?;
            let is_last = page.len() < limit;
            after = page.last().map_or(from, |record| Some(record.extent.id));
            let is_visited = |it: &ExtentRecord| visits.contains(it.extent.id.placement());
            records.extend(page.into_iter().filter(is_visited));
            if is_last {
                return Ok((records, None));
            }
            if records.len() >= PAGE {
                break;
            }
        }
        Ok((records, after.filter(|_| visits.next_from(after) != NextVisit::End)))
    }
}
