//! Upkeep of checkpoint sets: goes through all sets, again and again.
//!
//! ```text
//! look ──▶ buckets with sets ──▶ a run of sets in each step ──▶ the next bucket ──▶ a pause
//! ```
//!
//! The object layer ([`SetUpkeep`]) decides what is due for a set and does it. One worker handles
//! each bucket: the worker whose scope has the first primary of its first shard. If two workers do,
//! the later one finds nothing left to do. An interrupted pass is begun anew.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::checkpoints::{BucketWithSets, SetCounts, SetUpkeep};
use martlet_protocol::key::index_placement;
use martlet_protocol::{Clock, Result, Shard};
use martlet_topology::Topology;

use crate::cluster::{DeviceScope, StepTopology};
use crate::worker::{StepProgress, Worker};

/// Minimum milliseconds between the starts of two passes.
const PERIOD_MS: u64 = 10_000;
/// Wait after a pass, as a multiple of its duration: passes take at most a sixth of the time.
const REST_TIMES: u64 = 5;

/// The worker.
pub struct KeepCheckpoints {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    upkeep: Arc<dyn SetUpkeep>,
    /// Time of the next pass, and start of this one.
    look_at_ms: u64,
    began_ms: u64,
    left: VecDeque<BucketWithSets>,
    /// Last set that was visited in the first bucket.
    after: Option<String>,
    /// Counts of this pass so far.
    counts: SetCounts,
}

impl KeepCheckpoints {
    /// Creates a worker for the buckets of `scope`.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        scope: DeviceScope,
        upkeep: Arc<dyn SetUpkeep>,
    ) -> Self {
        Self {
            topology: topology.into(),
            clock,
            scope,
            upkeep,
            look_at_ms: 0,
            began_ms: 0,
            left: VecDeque::new(),
            after: None,
            counts: SetCounts::default(),
        }
    }

    /// Finds the buckets of a new pass.
    async fn begin(&mut self) -> Result<()> {
        let now_ms = self.clock.now_ms();
        (self.began_ms, self.look_at_ms) = (now_ms, now_ms.saturating_add(PERIOD_MS));
        self.counts = SetCounts::default();
        let buckets = self.upkeep.buckets_with_sets().await?;
        let cluster = StepTopology::of(&self.topology);
        let mine = cluster.index_devices_of(&self.scope);
        let is_mine = |bucket: &BucketWithSets| {
            let holders = cluster.holders(index_placement(bucket.id, Shard(0)));
            holders.primaries.first().is_some_and(|first| mine.contains(first))
        };
        self.left = buckets.into_iter().filter(is_mine).collect();
        Ok(())
    }

    /// Visits the next run of sets.
    async fn visit(&mut self, bucket: BucketWithSets) -> SetCounts {
        let after = self.after.take();
        match self.upkeep.look_after(&bucket.companion, after.as_deref()).await {
            Ok((counts, next)) => {
                if next.is_some() {
                    self.after = next;
                    self.left.push_front(bucket);
                }
                counts
            }
            Err(error) => {
                let bucket = bucket.companion;
                tracing::debug!(bucket, %error, "leaving checkpoint sets for a later pass");
                SetCounts { kept: 1, ..SetCounts::default() }
            }
        }
    }

    fn rest(&mut self) {
        let now_ms = self.clock.now_ms();
        let took_ms = now_ms.saturating_sub(self.began_ms);
        let rest_ms = took_ms.saturating_mul(REST_TIMES);
        self.look_at_ms = self.look_at_ms.max(now_ms.saturating_add(rest_ms));
    }
}

#[async_trait]
impl Worker for KeepCheckpoints {
    fn name(&self) -> &'static str {
        "checkpoints"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.min(Duration::from_millis(PERIOD_MS))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let mut progress = StepProgress::default();
        match self.left.pop_front() {
            Some(bucket) => {
                let counts = self.visit(bucket).await;
                self.counts.add(&counts);
                (progress.items, progress.done, progress.kept) =
                    (counts.sets, counts.done, counts.kept);
                if self.left.is_empty() {
                    self.rest();
                }
            }
            None if self.clock.now_ms() >= self.look_at_ms => self.begin().await?,
            None => {}
        }
        progress.backlog = self.counts.pending;
        progress.oldest_age_ms = self.counts.oldest_pending_ms;
        progress.ahead = self.left.len() as u64;
        progress.idle = self.left.is_empty();
        Ok(progress)
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{BucketId, Error, ManualClock};
    use parking_lot::Mutex;

    use super::*;
    use crate::testing::multi_node::MultiNodeWorld;

    /// Buckets whose sets come in two runs, and what was asked for.
    #[derive(Default)]
    struct Recorded {
        buckets: Vec<&'static str>,
        failing: Option<&'static str>,
        asked: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl SetUpkeep for Recorded {
        async fn buckets_with_sets(&self) -> Result<Vec<BucketWithSets>> {
            let bucket = |name: &&str| BucketWithSets {
                id: BucketId([name.as_bytes()[0]; 16]),
                companion: (*name).to_owned(),
            };
            Ok(self.buckets.iter().map(bucket).collect())
        }

        async fn look_after(
            &self,
            companion: &str,
            after: Option<&str>,
        ) -> Result<(SetCounts, Option<String>)> {
            self.asked.lock().push(format!("{companion} {}", after.unwrap_or("-")));
            if self.failing == Some(companion) {
                return Err(Error::unavailable("no quorum"));
            }
            let counts = SetCounts {
                sets: 20,
                pending: 1,
                oldest_pending_ms: 7,
                done: 2,
                ..SetCounts::default()
            };
            Ok((counts, after.is_none().then(|| "last".to_owned())))
        }
    }

    async fn pass(worker: &mut KeepCheckpoints) -> StepProgress {
        let mut sum = StepProgress::default();
        loop {
            sum.add(&worker.step().await.unwrap());
            if sum.idle {
                return sum;
            }
        }
    }

    fn worker(upkeep: &Arc<Recorded>, scope: DeviceScope) -> (KeepCheckpoints, Arc<ManualClock>) {
        let world = MultiNodeWorld::new(5);
        let clock = Arc::new(ManualClock::at(1_000_000));
        let topology = world.shared.clone();
        (KeepCheckpoints::new(topology, clock.clone(), scope, upkeep.clone()), clock)
    }

    #[tokio::test]
    async fn all_sets_of_all_buckets_are_visited() {
        let upkeep = Arc::new(Recorded { buckets: vec!["a", "b"], ..Recorded::default() });
        let (mut worker, clock) = worker(&upkeep, DeviceScope::All);
        let sum = pass(&mut worker).await;
        assert_eq!(*upkeep.asked.lock(), ["a -", "a last", "b -", "b last"]);
        assert_eq!((sum.items, sum.done, sum.backlog, sum.oldest_age_ms), (80, 8, 4, 7));
        pass(&mut worker).await;
        assert_eq!(upkeep.asked.lock().len(), 4, "it rests");
        clock.advance_ms(PERIOD_MS);
        pass(&mut worker).await;
        assert_eq!(upkeep.asked.lock().len(), 8);
    }

    #[tokio::test]
    async fn a_bucket_that_fails_stops_no_other() {
        let upkeep = Arc::new(Recorded {
            buckets: vec!["a", "b"],
            failing: Some("a"),
            ..Recorded::default()
        });
        let (mut worker, _) = worker(&upkeep, DeviceScope::All);
        assert_eq!(pass(&mut worker).await.kept, 1);
        assert_eq!(*upkeep.asked.lock(), ["a -", "b -", "b last"]);
    }

    #[tokio::test]
    async fn buckets_of_others_are_left_to_them() {
        let upkeep = Arc::new(Recorded { buckets: vec!["a", "b"], ..Recorded::default() });
        let (mut worker, _) = worker(&upkeep, DeviceScope::Nodes(vec!["nobody".into()]));
        pass(&mut worker).await;
        assert!(upkeep.asked.lock().is_empty());
    }
}
