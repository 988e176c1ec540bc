//! Usage: publishes what each bucket contains, again and again.
//!
//! ```text
//! look ──▶ all buckets ──▶ due ones: rows of devices, added up ──▶ published
//!                            └─ too few devices keep rows, and a quota applies: listed ──▶ published
//! ```
//!
//! The object layer defines usage ([`UsageCounter`]). Devices keep the usage of their registers, so
//! the cost of a bucket is a look-up for each shard and replica. One worker handles each shard of the
//! list of buckets: the worker whose scope has the first primary of the shard that answers with a
//! vote. So few workers look and count, however many nodes there are. The workers of the other primaries
//! look too, and count buckets whose counts are late: a device may vote while no worker counts for it.
//! If two workers count a bucket, the later one finds it counted already. An interrupted count is begun
//! anew.
//!
//! Buckets with a quota are published in each period. Others are published sixty times as seldom,
//! and only if their usage has changed since the last published count, which is read again, or once a
//! day. Slow work is done rarely: after some work, its next run waits ten times as long as it took. A
//! look lists all buckets, so a look waits longer where several workers look.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::key::{index_placement, shard_of};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::usage::{Count, CountAt, Countable, Counted, UsageCounter};
use martlet_protocol::{BucketId, Clock, DeviceId, Result, Shard};
use martlet_topology::Topology;

use crate::cluster::{DeviceScope, StepTopology};
use crate::worker::{StepProgress, Worker};

/// Wait before the next count, as a multiple of the last count's duration.
const REST_TIMES: u64 = 10;
/// Periods between two counts of a bucket without a quota.
const UNLIMITED_PERIODS: u64 = 60;
/// Age in milliseconds after which an unchanged count is published again.
const UNCHANGED_MS: u64 = 24 * 60 * 60 * 1000;
/// Nodes that may look at the same time: more nodes look as much more seldom.
const LOOKING_NODES: u64 = 8;
/// Most workers that look: three primaries of each shard of the list of buckets.
const LOOKING_MAX: usize = 3 * INDEX_SHARDS_DEFAULT as usize;
/// Periods after which the count of a bucket with a quota is late.
const LATE_PERIODS: u64 = 10;
/// Buckets of one step. In a large cluster each device has rows of some of them.
const BUCKETS_A_STEP: usize = 2048;
/// Counts that are published, or read again, at a time.
const REPORTS_AT_ONCE: usize = 64;

/// The worker.
pub struct CountUsage {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    counter: Arc<dyn UsageCounter>,
    /// Minimum milliseconds between two counts of one bucket.
    period_ms: u64,
    /// Time of the next look for buckets, and of the next search for due ones.
    look_at_ms: u64,
    search_at_ms: u64,
    /// Buckets of this worker, as of the last look.
    known: HashMap<BucketId, KnownBucket>,
    /// Buckets whose rows are to be added up.
    due: VecDeque<BucketId>,
    /// Buckets that have to be listed.
    unkept: VecDeque<BucketId>,
    /// The count that lists a bucket.
    current: Option<Count>,
}

/// A bucket of this worker.
struct KnownBucket {
    bucket: Countable,
    /// Time of its next count.
    due_ms: u64,
}

impl CountUsage {
    /// Creates a worker for the buckets of `scope`, each counted at most once in `period`.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        scope: DeviceScope,
        counter: Arc<dyn UsageCounter>,
        period: Duration,
    ) -> Self {
        let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            topology: topology.into(),
            clock,
            scope,
            counter,
            period_ms,
            look_at_ms: 0,
            search_at_ms: 0,
            known: HashMap::new(),
            due: VecDeque::new(),
            unkept: VecDeque::new(),
            current: None,
        }
    }

    /// Returns the wait after work that took `took_ms`.
    fn rest_ms(&self, took_ms: u64) -> u64 {
        took_ms.saturating_mul(REST_TIMES).max(self.period_ms)
    }

    /// Lists the buckets.
    async fn look(&mut self, cluster: &StepTopology) -> Result<()> {
        let began_ms = self.clock.now_ms();
        let WorkerShards { own, later } = shards_of(cluster, &self.scope).await;
        let all: BTreeSet<Shard> = own.union(&later).copied().collect();
        if all.is_empty() {
            self.known.clear();
            self.look_at_ms = began_ms.saturating_add(self.period_ms);
            return Ok(());
        }
        let countable = self.counter.countable(&all).await?;
        let now_ms = self.clock.now_ms();
        let looking = cluster.index_nodes().min(LOOKING_MAX) as u64;
        let crowd = (looking / LOOKING_NODES).max(1);
        let rest_ms = self.rest_ms(now_ms.saturating_sub(began_ms).saturating_mul(crowd));
        self.look_at_ms = now_ms.saturating_add(rest_ms);
        let mut known = HashMap::new();
        for bucket in countable {
            let before = self.known.remove(&bucket.id);
            let before = before.filter(|it| it.bucket.limited == bucket.limited);
            let due_ms = match before {
                _ if !own.contains(&shard_of(bucket.name.as_bytes(), INDEX_SHARDS_DEFAULT)) => {
                    self.takeover_ms(&bucket, before.as_ref(), now_ms)
                }
                Some(before) => before.due_ms,
                None => bucket.counted.map_or(0, |last| self.due_ms(&bucket, last)),
            };
            known.insert(bucket.id, KnownBucket { bucket, due_ms });
        }
        self.known = known;
        Ok(())
    }

    /// Returns the time of the next count of a bucket that another worker should count: it is late then.
    fn takeover_ms(&self, bucket: &Countable, before: Option<&KnownBucket>, now_ms: u64) -> u64 {
        let late_ms = if bucket.limited {
            self.period_ms.saturating_mul(LATE_PERIODS)
        } else {
            // An unchanged count is published once a day.
            UNCHANGED_MS.saturating_mul(2)
        };
        match bucket.counted {
            Some(last) => self.due_ms(bucket, last).saturating_add(late_ms),
            None => before.map_or(now_ms.saturating_add(late_ms), |it| it.due_ms),
        }
    }

    /// Returns the time of a bucket's next count.
    fn due_ms(&self, bucket: &Countable, last: Counted) -> u64 {
        let rest_ms = self.rest_ms(last.took_ms);
        let rest_ms = if bucket.limited {
            rest_ms
        } else {
            rest_ms.max(self.period_ms.saturating_mul(UNLIMITED_PERIODS))
        };
        last.began_ms.saturating_add(last.took_ms).saturating_add(rest_ms)
    }

    fn find_due_buckets(&mut self) {
        let now_ms = self.clock.now_ms();
        self.search_at_ms = now_ms.saturating_add(self.period_ms);
        let due = self.known.values().filter(|it| it.due_ms <= now_ms);
        let mut due: Vec<BucketId> = due.map(|it| it.bucket.id).collect();
        due.sort_unstable();
        self.due = due.into();
    }

    /// Adds up the rows of some buckets, and publishes the result.
    async fn add_up(&mut self) -> Result<StepProgress> {
        let mut buckets = Vec::with_capacity(BUCKETS_A_STEP);
        while let Some(id) = self.due.pop_front() {
            buckets.extend(self.known.get(&id).map(|known| known.bucket.clone()));
            if buckets.len() == BUCKETS_A_STEP {
                break;
            }
        }
        let began_ms = self.clock.now_ms();
        let usages = self.counter.add_up(&buckets).await?;
        let mut progress = StepProgress { items: buckets.len() as u64, ..StepProgress::default() };
        let added_ms = self.clock.now_ms().saturating_sub(began_ms);
        let share_ms = added_ms / (buckets.len() as u64).max(1);
        let mut counts = Vec::new();
        for (bucket, usage) in buckets.into_iter().zip(usages) {
            match usage {
                Some(usage) => counts.push(Count::done(bucket, began_ms, usage)),
                None if bucket.limited => self.unkept.push_back(bucket.id),
                None => progress.kept += 1,
            }
        }
        let (mut news, same): (Vec<Count>, Vec<Count>) = counts.into_iter().partition(is_news);
        news.extend(self.read_again(same, share_ms, &mut progress).await);
        let counter = self.counter.clone();
        let reports = news.into_iter().map(|count| {
            let (counter, clock) = (counter.clone(), self.clock.clone());
            async move {
                let began_ms = clock.now_ms();
                let outcome = counter.report(&count).await;
                (outcome, share_ms + clock.now_ms().saturating_sub(began_ms), count)
            }
        });
        let reports: Vec<_> = reports.collect();
        let mut reports = futures::stream::iter(reports).buffer_unordered(REPORTS_AT_ONCE);
        while let Some((outcome, took_ms, count)) = reports.next().await {
            self.end(&count, took_ms, outcome, &mut progress);
        }
        Ok(progress)
    }

    /// Reads the last published counts of buckets whose usage seems unchanged: another worker may have
    /// published one since the look. Returns the counts that differ.
    async fn read_again(
        &mut self,
        same: Vec<Count>,
        share_ms: u64,
        progress: &mut StepProgress,
    ) -> Vec<Count> {
        let counter = self.counter.clone();
        let reads = same.into_iter().map(|count| {
            let counter = counter.clone();
            async move { (counter.last_count(&count.bucket).await, count) }
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(REPORTS_AT_ONCE);
        let mut news = Vec::new();
        while let Some((last, mut count)) = reads.next().await {
            match last {
                Ok(last) => {
                    count.bucket.counted = last;
                    if is_news(&count) {
                        news.push(count);
                    } else {
                        self.note(&count, share_ms, false);
                    }
                }
                Err(error) => self.end(&count, share_ms, Err(error), progress),
            }
        }
        news
    }

    /// Notes a count, which was published or equals the published one. Its duration `took_ms` is its
    /// share of the duration of a step, with that of its publication.
    fn note(&mut self, count: &Count, took_ms: u64, is_published: bool) {
        let (usage, began_ms) = (count.usage, count.began_ms);
        let last = Counted { usage, began_ms, took_ms };
        let due_ms = self.due_ms(&count.bucket, last);
        if let Some(known) = self.known.get_mut(&count.bucket.id) {
            known.due_ms = due_ms;
            if is_published {
                known.bucket.counted = Some(last);
            }
        }
    }

    fn end(
        &mut self,
        count: &Count,
        took_ms: u64,
        outcome: Result<()>,
        progress: &mut StepProgress,
    ) {
        match outcome {
            Ok(()) => {
                progress.done += 1;
                self.note(count, took_ms, true);
            }
            Err(error) => {
                let bucket = &count.bucket.name;
                tracing::debug!(bucket, %error, "leaving a count for a later pass");
                progress.kept += 1;
            }
        }
    }

    /// Lists the next part of the current bucket, and publishes a completed count.
    async fn resume(&mut self, mut count: Count) -> StepProgress {
        let mut progress = StepProgress::default();
        let outcome = self.counter.count(&mut count).await;
        progress.items = count.seen;
        match outcome {
            Ok(()) if count.at != CountAt::Done => self.current = Some(count),
            Ok(()) => {
                let outcome = self.counter.report(&count).await;
                let took_ms = self.clock.now_ms().saturating_sub(count.began_ms);
                self.end(&count, took_ms, outcome, &mut progress);
            }
            Err(error) => self.end(&count, 0, Err(error), &mut progress),
        }
        progress
    }

    fn next_unkept(&mut self) -> Option<Count> {
        let now_ms = self.clock.now_ms();
        self.current.take().or_else(|| {
            let next = self.unkept.pop_front().and_then(|id| self.known.get(&id));
            next.map(|known| Count::begin(known.bucket.clone(), now_ms))
        })
    }
}

/// Shards of the list of buckets of one worker.
struct WorkerShards {
    /// Shards whose first answering primary with a vote is in scope.
    own: BTreeSet<Shard>,
    /// Other shards with a primary in scope, whose buckets are counted only if they are late.
    later: BTreeSet<Shard>,
}

/// Returns the shards of the list of buckets with a primary in scope. Only primaries before the
/// scope's own are asked.
async fn shards_of(cluster: &StepTopology, scope: &DeviceScope) -> WorkerShards {
    let mine = cluster.index_devices_of(scope);
    let primaries =
        |shard| cluster.holders(index_placement(BucketId::ROOT, shard)).primaries.into_iter();
    let mut earlier: BTreeMap<Shard, Vec<DeviceId>> = BTreeMap::new();
    for shard in (0..INDEX_SHARDS_DEFAULT).map(Shard) {
        if primaries(shard).any(|device| mine.contains(&device)) {
            let before = primaries(shard).take_while(|device| !mine.contains(device));
            earlier.insert(shard, before.collect());
        }
    }
    let asked: BTreeSet<DeviceId> = earlier.values().flatten().copied().collect();
    let statuses = cluster.statuses_of(asked).await;
    let answers = |device: &DeviceId| statuses.get(device).is_some_and(|status| status.voting);
    let (later, own): (Vec<_>, Vec<_>) =
        earlier.into_iter().partition(|(_, before)| before.iter().any(answers));
    let shards = |of: Vec<(Shard, Vec<DeviceId>)>| of.into_iter().map(|(shard, _)| shard).collect();
    WorkerShards { own: shards(own), later: shards(later) }
}

/// Returns true if a count is to be published: its proxies add what they wrote since its begin.
fn is_news(count: &Count) -> bool {
    count.bucket.limited
        || count.bucket.counted.is_none_or(|last| {
            let is_old = last.began_ms.saturating_add(UNCHANGED_MS) <= count.began_ms;
            is_old || last.usage != count.usage
        })
}

#[async_trait]
impl Worker for CountUsage {
    fn name(&self) -> &'static str {
        "usage"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.min(Duration::from_millis(self.period_ms))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let now_ms = self.clock.now_ms();
        let mut progress = if let Some(count) = self.next_unkept() {
            self.resume(count).await
        } else if !self.due.is_empty() {
            self.add_up().await?
        } else if now_ms >= self.look_at_ms {
            let cluster = StepTopology::of(&self.topology);
            self.look(&cluster).await?;
            self.find_due_buckets();
            StepProgress::default()
        } else {
            if now_ms >= self.search_at_ms {
                self.find_due_buckets();
            }
            StepProgress::default()
        };
        progress.ahead = (self.due.len() + self.unkept.len()) as u64;
        progress.idle = self.current.is_none() && progress.ahead == 0;
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
