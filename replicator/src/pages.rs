//! Walks over the extents of several devices, page by page. Workers with different purposes share
//! this code.
//!
//! ```text
//! step ── some devices at a time ──▶ sums differ where? ── look at a page ── work: as much as fits
//!   ▲                                                        │ work is left: kept for the next step
//!   └──── progress of the devices that ended theirs ◀────────┴ on to the next page
//! ```
//!
//! * [`paged_worker`]: the trait of their workers; [`visits`]: placements that a walk visits;
//!   [`walk`]: the walk over one device; [`positions`]: the form of positions as a cursor.
//!
//! Each device has passes of its own. A pass begins with a comparison of sums (rule X7) and visits
//! the bins that differ. A device that hangs holds up its own walk: a step ends [`LAG`] after its
//! begin at the latest, once any device has ended its part. Others that ended their pass begin the
//! next one after [`AGAIN_MS`]. The worker is idle when every device has ended a pass.
//!
//! A page is looked at again if a ring has changed since. Positions are saved with each step.

mod paged_worker;
pub(crate) mod positions;
pub(crate) mod visits;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{DeviceId, Result};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

#[cfg(test)]
pub(crate) use self::paged_worker::PAGE;
pub(crate) use self::paged_worker::{ExtentPage, PagedWorker, PassPlace};
use self::positions::{load_positions, save_positions};
use self::walk::{DeviceWalk, EndedStep};
use crate::cluster::StepTopology;
use crate::cursors::{Cursors, MemoryCursors};
use crate::worker::StepProgress;

/// Devices whose walks a step advances. Each holds its sums, a page, and the bytes of its work.
pub(crate) const DEVICES_AT_ONCE: usize = 12;
/// Duration of a step after which it leaves its slow devices to later steps.
const LAG: Duration = Duration::from_secs(1);
/// Time in milliseconds after which a device begins its next pass while another device is still in
/// its pass.
const AGAIN_MS: u64 = 60_000;

/// Walks of a worker.
pub(crate) struct Pages<W: PagedWorker> {
    cursors: Arc<dyn Cursors>,
    /// Walks that wait for their next step.
    walks: BTreeMap<DeviceId, DeviceWalk<W::Action>>,
    running: JoinSet<EndedStep<W::Action>>,
    /// Devices of running walks.
    busy: BTreeSet<DeviceId>,
    /// Device that was started last.
    last: DeviceId,
    /// Time since which items are left, in milliseconds.
    since_ms: Option<u64>,
    /// Bytes of the last step.
    step_bytes: u64,
}

impl<W: PagedWorker> Pages<W> {
    /// Creates walks at their beginning.
    pub(crate) fn new() -> Self {
        Self {
            cursors: Arc::new(MemoryCursors::default()),
            walks: BTreeMap::new(),
            running: JoinSet::new(),
            busy: BTreeSet::new(),
            last: DeviceId(u32::MAX),
            since_ms: None,
            step_bytes: 0,
        }
    }

    /// Continues at the positions in `cursors`.
    pub(crate) fn resume_from(&mut self, cursors: Arc<dyn Cursors>) {
        let positions = load_positions(&*cursors, W::NAME).into_iter();
        self.walks = positions.map(|(id, after)| (id, DeviceWalk::at(id, Some(after)))).collect();
        self.cursors = cursors;
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

    /// Advances the walks of some devices.
    pub(crate) async fn step(
        &mut self,
        worker: &Arc<W>,
        cluster: StepTopology,
    ) -> Result<StepProgress> {
        let devices = worker.devices(&cluster);
        self.walks.retain(|device, _| devices.contains(device));
        self.step_bytes = 0;
        let mut started = self.start(worker, &Arc::new(cluster), &devices);
        let mut progress = StepProgress::default();
        let (until, mut any) = (Instant::now() + LAG, false);
        // Walks of earlier steps that still run are not waited for, unless nothing else ends.
        while !started.is_empty() || !any {
            let Some(ended) = self.next_ended(any.then_some(until)).await else { break };
            any = true;
            progress.add(&ended.progress);
            started.remove(&ended.walk.device);
            if devices.contains(&ended.walk.device) {
                self.walks.insert(ended.walk.device, ended.walk);
            }
        }
        self.step_bytes = progress.copied_bytes + progress.read_bytes;
        let has_ended = |it: &DeviceId| self.walks.get(it).is_some_and(|it| it.ended_ms.is_some());
        progress.idle = devices.iter().all(has_ended);
        self.report(worker.now_ms(), &mut progress);
        if progress.idle {
            self.walks.values_mut().for_each(DeviceWalk::begin_anew);
        }
        let places = self.walks.iter().filter_map(|(device, walk)| Some((*device, walk.after?)));
        save_positions(&*self.cursors, W::NAME, places);
        Ok(progress)
    }

    /// Starts the walks that are due, up to [`DEVICES_AT_ONCE`], in turns; returns their devices.
    fn start(
        &mut self,
        worker: &Arc<W>,
        cluster: &Arc<StepTopology>,
        devices: &BTreeSet<DeviceId>,
    ) -> BTreeSet<DeviceId> {
        let now_ms = worker.now_ms();
        let behind = devices.iter().filter(|it| **it > self.last);
        let in_turn = behind.chain(devices.iter().filter(|it| **it <= self.last));
        let is_due = |it: &&DeviceId| {
            let ended_ms = self.walks.get(*it).and_then(|walk| walk.ended_ms);
            let is_waiting = ended_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(AGAIN_MS));
            !self.busy.contains(*it) && !is_waiting
        };
        let due: Vec<DeviceId> = in_turn.filter(is_due).take(DEVICES_AT_ONCE).copied().collect();
        for &device in &due {
            let mut walk =
                self.walks.remove(&device).unwrap_or_else(|| DeviceWalk::at(device, None));
            walk.begin_anew();
            let (worker, cluster) = (worker.clone(), cluster.clone());
            self.busy.insert(device);
            self.last = device;
            self.running.spawn(async move { walk.step(&*worker, &cluster).await });
        }
        due.into_iter().collect()
    }

    /// Waits for the end of a running walk's step; none if nothing runs, or at `until`.
    async fn next_ended(&mut self, until: Option<Instant>) -> Option<EndedStep<W::Action>> {
        let next = self.running.join_next();
        let ended = match until {
            Some(until) => tokio::time::timeout_at(until, next).await.ok()??,
            None => next.await?,
        };
        let ended = match ended.map_err(JoinError::try_into_panic) {
            Ok(ended) => ended,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(Err(_)) => return None,
        };
        self.busy.remove(&ended.walk.device);
        Some(ended)
    }

    /// Sets the items left undone, the age of the oldest, and the items ahead.
    fn report(&mut self, now_ms: u64, progress: &mut StepProgress) {
        progress.backlog = self.walks.values().map(DeviceWalk::left).sum();
        progress.ahead = self.walks.values().map(DeviceWalk::ahead).sum();
        if progress.backlog > 0 {
            self.since_ms.get_or_insert(now_ms);
        } else if progress.idle {
            self.since_ms = None;
        }
        progress.oldest_age_ms = self.since_ms.map_or(0, |since| now_ms.saturating_sub(since));
    }
}

#[cfg(test)]
mod tests;
