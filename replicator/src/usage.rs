//! Usage: counts the contents of buckets with quotas, again and again.
//!
//! ```text
//! look ──▶ buckets with a quota, due ──▶ a part of one in each step ──▶ reported when it is whole
//! ```
//!
//! The object layer defines the count ([`UsageCounter`]). One worker handles each bucket: the
//! worker whose scope has the first primary of its first shard. If two workers do, the later one
//! finds the bucket counted already. An interrupted count is begun anew.
//!
//! Slow work is done rarely: after some work, its next run waits ten times as long as it took. So
//! each kind of work takes at most a tenth of one worker's time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::key::index_placement;
use martlet_protocol::usage::{Count, CountAt, Countable, UsageCounter};
use martlet_protocol::{Clock, Result, Shard};
use martlet_topology::Topology;

use crate::cluster::{DeviceScope, StepTopology};
use crate::worker::{StepProgress, Worker};

/// Wait before the next count, as a multiple of the last count's duration.
const REST_TIMES: u64 = 10;

/// The worker.
pub struct CountUsage {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    counter: Arc<dyn UsageCounter>,
    /// Minimum milliseconds between two counts of one bucket.
    period_ms: u64,
    /// Time of the next look for buckets.
    look_at_ms: u64,
    left: VecDeque<Countable>,
    current: Option<Count>,
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
        let (topology, left) = (topology.into(), VecDeque::new());
        Self { topology, clock, scope, counter, period_ms, look_at_ms: 0, left, current: None }
    }

    /// Returns the wait after work that took `took_ms`.
    fn rest_ms(&self, took_ms: u64) -> u64 {
        took_ms.saturating_mul(REST_TIMES).max(self.period_ms)
    }

    /// Finds the buckets that are due.
    async fn find_due_buckets(&mut self, cluster: &StepTopology) -> Result<()> {
        let began_ms = self.clock.now_ms();
        let countable = self.counter.countable().await?;
        let now_ms = self.clock.now_ms();
        self.look_at_ms = now_ms.saturating_add(self.rest_ms(now_ms.saturating_sub(began_ms)));
        let mine = cluster.index_devices_of(&self.scope);
        let is_mine = |bucket: &Countable| {
            let holders = cluster.holders(index_placement(bucket.id, Shard(0)));
            holders.primaries.first().is_some_and(|first| mine.contains(first))
        };
        let is_due = |bucket: &Countable| match bucket.counted {
            None => true,
            Some((began_ms, took_ms)) => {
                began_ms.saturating_add(took_ms).saturating_add(self.rest_ms(took_ms)) <= now_ms
            }
        };
        self.left = countable.into_iter().filter(|it| is_mine(it) && is_due(it)).collect();
        Ok(())
    }

    /// Counts the next part of the current bucket, and reports a completed count.
    async fn resume(&mut self, mut count: Count) -> StepProgress {
        let mut progress = StepProgress::default();
        let outcome = match self.counter.count(&mut count).await {
            Ok(()) if count.at == CountAt::Done => {
                progress.done = 1;
                self.counter.report(&count).await
            }
            outcome => outcome,
        };
        progress.items = count.seen;
        match outcome {
            Ok(()) if count.at != CountAt::Done => self.current = Some(count),
            Ok(()) => {}
            Err(error) => {
                let bucket = &count.bucket.name;
                tracing::debug!(bucket, %error, "leaving a count for a later pass");
                (progress.done, progress.kept) = (0, 1);
            }
        }
        progress
    }
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
        let next = self.current.take().or_else(|| {
            self.left.pop_front().map(|bucket| Count::begin(bucket, self.clock.now_ms()))
        });
        let mut progress = match next {
            Some(count) => self.resume(count).await,
            None if self.clock.now_ms() < self.look_at_ms => StepProgress::default(),
            None => {
                let cluster = StepTopology::of(&self.topology);
                self.find_due_buckets(&cluster).await?;
                StepProgress::default()
            }
        };
        progress.ahead = self.left.len() as u64;
        progress.idle = self.current.is_none() && self.left.is_empty();
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
