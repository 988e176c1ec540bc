//! Collect: removes tombstones that are no longer needed (rule T1).
//!
//! ```text
//! old ──all primaries hold it, other devices hold nothing──▶ marked on all primaries
//!     ──all primaries hold it marked──▶ ──other devices hold nothing──▶ dropped
//! ```
//!
//! 1. Every device answers with its votes. The primaries hold the tombstone. All other devices hold
//!    nothing, by their sums of the partition and their counts of hints, or by an answer about the
//!    register (see [`outside`]).
//! 2. The primaries mark it. Marked tombstones are not copied, so nothing older may be there.
//! 3. The primaries confirm the mark by a new answer: a mark is skipped where something newer came.
//! 4. After that, every device of the ring is asked about the register. A copy that came since the
//!    first step, by a handoff or a ring change, keeps the tombstone.
//! 5. Where a primary lacks the tombstone, as after a drop that was cut off, the primaries are asked
//!    again: an older copy may have moved there from a device that was asked later.
//! 6. The tombstone is dropped where it is held, if every device answers with its votes at the term of
//!    the first step, this process knows no newer rings, and the answers are a minute old at most.
//!
//! An error, silence, another order or a copy elsewhere ends this, and the tombstone stays. A page
//! has 512 tombstones at most and takes one request about them to each device, in the fourth step.
//!
//! A tombstone protects against remaining copies of the deleted entry. So it is dropped only when
//! every device of the index ring has confirmed that it holds no such copy, and every primary that
//! it holds the tombstone. A marked tombstone has left the trees by which devices compare their
//! registers. So a device that dropped the tombstone doesn't get it back from one that has not.
//!
//! Silence blocks: while any device of the ring is out, nothing is collected, without a time limit.
//! So a device that was away for longer than the reclaim age has missed no collection. It comes
//! back with its votes, and finds every tombstone that it needs. Its absence needs no clock and no
//! memory of other devices (rule G1). A device that is removed from the ring never comes back under
//! its id.
//!
//! A write that was in flight during the queries can't arrive later. Devices refuse clients' writes
//! that are older than ten minutes (rule T2), workers discard pages that are minutes old, and the
//! reclaim age exceeds both.
//!
//! A ballot that finds nothing and decides to write nothing leaves its promise on an otherwise
//! empty register. The promise refuses ballots and writes below it, which are refused anyway for
//! their age after ten minutes (rule T2). So the promise is dropped an hour after it was made.
//! First every device must have confirmed that it holds nothing else of the register, and all
//! primaries must answer with their votes. Devices don't compare promises, so none comes back, and
//! none needs a mark first.
//!
//! All registers of deleted buckets are removed too, tombstones or not: see [`deleted_buckets`]. A deleted bucket
//! without registers is closed for good at the end of a pass: see [`unpurged`].
//!
//! A device lists its tombstones and promises by time, so a pass visits the old ones alone, and a
//! row for each of its buckets:
//!
//! ```text
//! buckets ──▶ tombstones, the oldest first ──▶ promises ──▶ the next device
//!   └ a device without lists: all registers
//! ```
//!
//! Dropped registers leave the lists, so the lists are the position. Marked tombstones stay in them:
//! the next pass finds those that a dead worker left.
//!
//! A device that twice refuses the first page of its lists has none yet, or is of an earlier version.
//! It returns what has aged among all its registers, thousands at a time, and no inline bytes. A
//! later page that fails ends the visit, for a walk over 10^8 registers costs hours. The position of
//! a walk is stored as a cursor. A
//! process that continues a pass does not know if it left marked tombstones, so its next pass visits
//! these too.

mod decision;
pub(crate) mod deleted_buckets;
mod listed;
mod outside;
mod queries;
mod unpurged;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::{AgedBucket, AgedPage, AgedRegister, AgedWalk, StrayCondition};
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::{BackendExt, BucketId, Clock, DeviceId, Error, RegisterKey, Result, Stamp};
use martlet_ring::RingHash;
use martlet_topology::Topology;

use self::decision::CollectDecision;
use self::deleted_buckets::{Buckets, PurgedDevices};
use self::listed::DevicePlace;
pub(crate) use self::outside::OutsideHolders;
pub(crate) use self::queries::check_everyone;
use self::queries::{Cases, confirmed, drop_registers, mark, pages_of};
use self::unpurged::UnpurgedBuckets;
use crate::cluster::{DeviceCursor, DeviceScope, StepTopology, in_time};
use crate::copying::PAGE;
use crate::cursors::{Cursors, MemoryCursors, load_register, save_register};
use crate::rebuild::loss::CollectionHold;
use crate::worker::{StepProgress, Worker};

/// Name under which the position is stored.
const NAME: &str = "collect";
/// Maximum rest between two passes.
const REST_MAX: Duration = Duration::from_hours(12);
/// Number of passes in each reclaim age.
const PASSES: u64 = 16;
/// Age in milliseconds after which a promise may be dropped. It exceeds the age of everything that
/// the promise refuses, with a margin for clocks and slow processes.
const PROMISE_AGE_MS: u64 = 6 * FIRST_HAND_AGE_MS_MAX;
/// Maximum age in milliseconds of answers that justify a drop.
const ANSWER_AGE_MS_MAX: u64 = 60_000;
/// Interval in milliseconds of passes that look for registers with only promises, which a walk
/// omits.
const PROMISES_EVERY_MS: u64 = 24 * 60 * 60 * 1000;

/// Options of the worker.
#[derive(Clone, Copy, Debug)]
pub struct CollectOptions {
    /// Age in milliseconds after which a tombstone may be collected; it exceeds the time that any
    /// write can be in flight.
    pub age_ms: u64,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { age_ms: 7 * 24 * 60 * 60 * 1000 }
    }
}

/// The worker.
pub struct Collect {
    topology: Topology,
    clock: Arc<dyn Clock>,
    options: CollectOptions,
    scope: DeviceScope,
    cursors: Arc<dyn Cursors>,
    rounds: DeviceCursor,
    place: DevicePlace,
    /// True if this pass also visits marked tombstones and promises, which a walk omits. This holds
    /// for the first pass over a ring, after a pass that left marked tombstones, and once a day.
    thorough: bool,
    /// Start of the last such pass, in milliseconds since 1970.
    thorough_ms: u64,
    ring: Option<RingHash>,
    /// Existing buckets, as far as this pass has queried them.
    buckets: Buckets,
    /// Buckets whose deletion may have ended without a purge.
    unpurged: UnpurgedBuckets,
    hold: CollectionHold,
    /// Devices that may hold registers outside of their place.
    outside: OutsideHolders,
    /// Items left by this pass.
    left: RemainingTombstones,
    /// Items left by the last whole pass.
    before: RemainingTombstones,
}

/// Old tombstones that stay.
#[derive(Clone, Copy, Debug, Default)]
struct RemainingTombstones {
    count: u64,
    oldest_ms: Option<u64>,
    /// True if some of them may be marked.
    marked: bool,
}

impl Collect {
    /// Creates a worker over the tombstones whose first primary is in `scope`.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        scope: DeviceScope,
        options: CollectOptions,
    ) -> Self {
        let topology = topology.into();
        let (rounds, ring) = (DeviceCursor::default(), None);
        let thorough_ms = clock.now_ms();
        let (left, before, buckets) =
            (RemainingTombstones::default(), RemainingTombstones::default(), Buckets::default());
        Self {
            topology,
            clock,
            options,
            scope,
            cursors: Arc::new(MemoryCursors::default()),
            rounds,
            place: DevicePlace::default(),
            thorough: true,
            thorough_ms,
            ring,
            buckets,
            unpurged: UnpurgedBuckets::default(),
            hold: CollectionHold::default(),
            outside: OutsideHolders::default(),
            left,
            before,
        }
    }

    /// Continues at the position in `cursors`.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        if let Some((device, after)) = load_register(&*cursors, NAME) {
            self.left.marked = after.is_some();
            self.rounds = DeviceCursor::from(device);
            if after.is_some() {
                self.place = DevicePlace::Registers(after);
            }
        }
        self.cursors = cursors;
        self
    }

    /// Returns what has aged among the next registers of a device.
    async fn page(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        after: Option<&RegisterKey>,
    ) -> Result<AgedPage> {
        let before = |age_ms| Stamp::at_ms(self.clock.now_ms().saturating_sub(age_ms));
        let walk = AgedWalk {
            tombstones_before: before(self.options.age_ms),
            buckets_before: before(FIRST_HAND_AGE_MS_MAX),
            thorough: self.thorough,
        };
        let node = cluster.node(device)?;
        in_time(node.aged(device, walk, after, PAGE)).await
    }

    /// Removes registers of deleted buckets from all devices. Returns the aged registers of other
    /// buckets, and the number of visited registers that were removed.
    async fn purge(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        page: AgedPage,
    ) -> (Vec<AgedRegister>, u64) {
        let (now_ms, everyone) = (self.clock.now_ms(), cluster.index_devices());
        let AgedPage { mut aged, buckets, .. } = page;
        let all = buckets.clone();
        let of = |it: &AgedBucket| Some((it.bucket, it.order));
        let devices = PurgedDevices { holders: &[device], all: &everyone };
        let (stay, _) = self.buckets.purge(cluster, now_ms, devices, buckets, of).await;
        let stay: HashSet<BucketId> = stay.into_iter().map(|it| it.bucket).collect();
        let gone: HashMap<BucketId, u64> = all
            .into_iter()
            .filter(|it| !stay.contains(&it.bucket))
            .map(|it| (it.bucket, it.entries))
            .collect();
        aged.retain(|it| !gone.contains_key(&it.key.bucket));
        (aged, gone.values().sum())
    }

    /// Returns the old tombstones of a page that this device should collect.
    fn due(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        page: &[AgedRegister],
    ) -> Vec<(RegisterKey, Stamp)> {
        let tombstones = page.iter().filter_map(|it| Some((it.key.clone(), it.tombstone?)));
        // The first primary may have dropped marked tombstones already.
        let is_mine = |(key, _): &(RegisterKey, Stamp)| {
            self.thorough || cluster.holders(key.placement()).primaries.first() == Some(&device)
        };
        tombstones.filter(is_mine).collect()
    }

    /// Marks and drops tombstones as allowed; returns the number dropped. The order matters: see
    /// [`self`].
    async fn collect(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        due: Vec<(RegisterKey, Stamp)>,
    ) -> Result<u64> {
        let with_hints = check_everyone(cluster).await?;
        let term = cluster.term();
        let marked_before = self.left.marked;
        let now_ms = self.clock.now_ms();
        let before = Stamp::at_ms(now_ms.saturating_sub(self.options.age_ms));
        let partition = |it: &(RegisterKey, Stamp)| cluster.index().partition(it.0.placement());
        let partitions = due.iter().map(partition).collect();
        self.outside.look(cluster, device, partitions, now_ms).await?;
        let elsewhere = |key: &RegisterKey| {
            let mut devices = self.outside.of(cluster, key);
            devices.extend(with_hints.iter().copied().chain([device]));
            devices
        };
        let cases = Cases::query_some(cluster, due, elsewhere).await?;
        let (mut marks, mut marked) = (Vec::new(), Vec::new());
        for (key, order, verdict) in cases.verdicts(cluster, before) {
            match verdict {
                CollectDecision::Mark => marks.push((key, order)),
                CollectDecision::Drop { .. } => marked.push((key, order)),
                CollectDecision::Keep => {}
            }
        }
        let marks_made = marks.len() as u64;
        if !marks.is_empty() {
            self.left.marked = true;
            mark(cluster, &marks).await?;
            marked.extend(confirmed(cluster, marks).await?);
        }
        if marked.is_empty() {
            return Ok(0);
        }
        let asked_ms = self.clock.now_ms();
        let cases = Cases::query(cluster, marked).await?.unmoved(cluster).await?;
        check_everyone(cluster).await?;
        if !cluster.is_current() || cluster.term() != term {
            return Err(Error::unavailable("the holders changed: marked tombstones stay for now"));
        }
        if self.clock.now_ms().saturating_sub(asked_ms) > ANSWER_AGE_MS_MAX {
            return Err(Error::unavailable("the answers are too old to drop tombstones"));
        }
        // A step takes minutes at worst, and a hold promises the end of drops much sooner (rule X8).
        if CollectionHold::is_on_now(cluster).await {
            return Err(Error::unavailable("collection is held: marked tombstones stay"));
        }
        let (drops, count) = cases.drops(cluster, before);
        self.left.marked |= count > 0;
        drop_registers(cluster, device, drops, StrayCondition::at(term, asked_ms)).await?;
        if count >= marks_made {
            self.left.marked = marked_before;
        }
        Ok(count)
    }

    /// Drops registers that hold only expired promises; returns their number.
    async fn collect_promises(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        empty: Vec<(RegisterKey, Stamp)>,
    ) -> Result<u64> {
        let before = Stamp::at_ms(self.clock.now_ms().saturating_sub(PROMISE_AGE_MS));
        let mut all = 0;
        for page in pages_of(empty) {
            let condition = StrayCondition::at(cluster.term(), self.clock.now_ms());
            check_everyone(cluster).await?;
            let cases = Cases::query(cluster, page).await?;
            let (drops, count) = cases.spent_promises(cluster, before);
            drop_registers(cluster, device, drops, condition).await?;
            all += count;
        }
        Ok(all)
    }

    /// Advances to the next device; returns true if that ended a pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        self.place = DevicePlace::default();
        let ended = self.rounds.advance(&cluster.index_devices_of(&self.scope));
        if ended {
            self.before = std::mem::take(&mut self.left);
            self.buckets = Buckets::default();
            let now_ms = self.clock.now_ms();
            self.thorough = self.before.marked
                || self.ring != Some(cluster.index().hash())
                || self.thorough_ms.saturating_add(PROMISES_EVERY_MS) <= now_ms;
            if self.thorough {
                self.thorough_ms = now_ms;
            }
            self.ring = Some(cluster.index().hash());
        }
        ended
    }

    /// Visits the next registers of a device without lists; returns the place behind them.
    async fn walk(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        after: Option<RegisterKey>,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        let page = self.page(cluster, device, after.as_ref()).await?;
        progress.items = page.visited;
        let next = page.next.clone();
        let (page, purged) = self.purge(cluster, device, page).await;
        progress.done = purged;
        let due = self.due(cluster, device, &page);
        let empty = page.into_iter().filter(|it| it.tombstone.is_none());
        let empty = empty.map(|it| (it.key, Stamp::ZERO)).collect();
        self.drop_promises(cluster, device, empty, progress).await;
        self.drop_tombstones(cluster, device, due, progress).await;
        Ok(next.map(|next| DevicePlace::Registers(Some(next))))
    }

    async fn drop_promises(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        empty: Vec<(RegisterKey, Stamp)>,
        progress: &mut StepProgress,
    ) {
        let promises = self.collect_promises(cluster, device, empty).await;
        progress.done += promises.unwrap_or_else(|error| {
            tracing::debug!(%device, %error, "keeping promises for now");
            0
        });
    }

    async fn drop_tombstones(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        due: Vec<(RegisterKey, Stamp)>,
        progress: &mut StepProgress,
    ) {
        let mut has_failed = false;
        for page in pages_of(due) {
            // A device that is silent now would let each page wait for it.
            let went = if has_failed {
                0
            } else {
                self.collect(cluster, device, page.clone()).await.unwrap_or_else(|error| {
                    tracing::debug!(%device, %error, "keeping tombstones for now");
                    has_failed = true;
                    0
                })
            };
            self.leave(&page, went);
            progress.done += went;
            progress.kept += page.len() as u64 - went;
        }
    }

    /// Closes buckets for good whose deletion ended without a purge, if this process is the one to do so; returns
    /// their number.
    async fn close_unpurged(&mut self, cluster: &StepTopology) -> u64 {
        let first = cluster.index_devices().into_iter().min();
        if first.is_none_or(|first| !cluster.index_devices_of(&self.scope).contains(&first)) {
            return 0;
        }
        let closed = self.unpurged.close(cluster, &*self.cursors, self.clock.now_ms()).await;
        closed.unwrap_or_else(|error| {
            tracing::debug!(%error, "looking for deletions without a purge later");
            0
        })
    }

    fn leave(&mut self, due: &[(RegisterKey, Stamp)], went: u64) {
        let oldest_ms = due.iter().map(|(_, order)| order.time_ms()).min();
        let count = due.len() as u64 - went;
        if count > 0 {
            self.left.count += count;
            self.left.oldest_ms = self.left.oldest_ms.into_iter().chain(oldest_ms).min();
        }
    }
}

#[async_trait]
impl Worker for Collect {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A pass finds tombstones that became old since the last pass. A few passes in each reclaim age
    /// are enough.
    fn idle_pause(&self, usual: Duration) -> Duration {
        let wanted = Duration::from_millis(self.options.age_ms / PASSES);
        wanted.clamp(usual.min(REST_MAX), REST_MAX)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let mut progress = StepProgress::default();
        // Without its tombstone, a deleted object would come back by a rebuild of the index.
        if self.hold.is_on(&cluster, self.clock.now_ms()).await {
            return Ok(StepProgress { idle: true, ..progress });
        }
        let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) else {
            return Ok(StepProgress { idle: true, ..progress });
        };
        let was_thorough = self.thorough;
        match self.visit(&cluster, device, &mut progress).await {
            Ok(Some(next)) => self.place = next,
            Ok(None) => progress.idle = self.advance(&cluster),
            Err(error) => {
                // A device that is out keeps its registers until it returns, and so do all other
                // devices.
                tracing::debug!(%device, %error, "could not list a device's registers");
                self.left.marked = true;
                progress.idle = self.advance(&cluster);
            }
        }
        if progress.idle && (was_thorough || self.unpurged.is_waiting()) {
            progress.done += self.close_unpurged(&cluster).await;
        }
        if let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) {
            save_register(&*self.cursors, NAME, device, self.place.walked_to());
        }
        let left = if progress.idle { self.before } else { self.left };
        progress.backlog = left.count;
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = left.oldest_ms.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
