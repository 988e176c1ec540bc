//! Usage: what the buckets hold that a quota speaks of, counted over and over.
//!
//! ```text
//! look ──▶ buckets with a quota, due ──▶ a stretch of one in each step ──▶ told when it is whole
//! ```
//!
//! What there is to count, and how, is the object layer's to know ([`UsageCounter`]). Of each bucket one
//! worker takes care, whose scope has the first primary of its first shard; where two do, the one that
//! comes later finds that it was counted. A count that is cut off is begun anew.
//!
//! Whatever takes long is done seldom: what took some time is not due again for ten times as long, so
//! that no more than a tenth of one worker's time goes into any of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::key::index_placement;
use martlet_protocol::usage::{Count, CountAt, Countable, UsageCounter};
use martlet_protocol::{Clock, Result, Shard};

use crate::cluster::{Cluster, Scope, SharedCluster};
use crate::worker::{Progress, Worker};

/// How many times as long as a count took the next one is waited for.
const REST_TIMES: u64 = 10;

/// The worker.
pub struct CountUsage {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    scope: Scope,
    counter: Arc<dyn UsageCounter>,
    /// Between two counts of one bucket, at least.
    period_ms: u64,
    /// When to look for buckets again.
    look_at_ms: u64,
    left: VecDeque<Countable>,
    current: Option<Count>,
}

impl CountUsage {
    /// A worker for the buckets of `scope`, each of which is counted once in `period` at most.
    pub fn new(
        cluster: impl Into<SharedCluster>,
        clock: Arc<dyn Clock>,
        scope: Scope,
        counter: Arc<dyn UsageCounter>,
        period: Duration,
    ) -> Self {
        let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let (cluster, left) = (cluster.into(), VecDeque::new());
        Self { cluster, clock, scope, counter, period_ms, look_at_ms: 0, left, current: None }
    }

    /// How long to wait for what took so long.
    fn rest_ms(&self, took_ms: u64) -> u64 {
        took_ms.saturating_mul(REST_TIMES).max(self.period_ms)
    }

    /// Finds out what is to be counted by now.
    async fn look(&mut self, cluster: &Cluster) -> Result<()> {
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

    /// Counts a stretch more of the current bucket, and tells of it in the end.
    async fn go_on(&mut self, mut count: Count) -> Progress {
        let mut progress = Progress::default();
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
                tracing::debug!(bucket, %error, "a count is left for a later pass");
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

    async fn step(&mut self) -> Result<Progress> {
        let next = self.current.take().or_else(|| {
            self.left.pop_front().map(|bucket| Count::begin(bucket, self.clock.now_ms()))
        });
        let mut progress = match next {
            Some(count) => self.go_on(count).await,
            None if self.clock.now_ms() < self.look_at_ms => Progress::default(),
            None => {
                let cluster = self.cluster.get();
                self.look(&cluster).await?;
                Progress::default()
            }
        };
        progress.ahead = self.left.len() as u64;
        progress.idle = self.current.is_none() && self.left.is_empty();
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
