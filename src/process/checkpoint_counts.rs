//! Counts of checkpoint sets for metrics, as the worker meets them.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::Result;
use martlet_protocol::checkpoints::{BucketWithSets, SetCounts, SetUpkeep};
use parking_lot::Mutex;

/// Upkeep of checkpoint sets that keeps the counts of each bucket's last whole visit.
///
/// A bucket that the worker left out in its last pass, because it is gone or another worker's, has no
/// counts.
pub(crate) struct CountedSets {
    upkeep: Arc<dyn SetUpkeep>,
    counts: CheckpointCounts,
}

/// Counts of the buckets that this process looks after. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckpointCounts(Arc<Mutex<HashMap<String, BucketCounts>>>);

#[derive(Clone, Copy, Debug, Default)]
struct BucketCounts {
    /// Counts of the visit that runs.
    running: SetCounts,
    /// Counts of the last whole visit.
    whole: Option<SetCounts>,
    /// True if the bucket was visited in this pass.
    is_visited: bool,
}

impl CountedSets {
    pub(crate) fn new(upkeep: Arc<dyn SetUpkeep>, counts: CheckpointCounts) -> Self {
        Self { upkeep, counts }
    }
}

impl CheckpointCounts {
    /// Sum over all buckets.
    pub(crate) fn sum(&self) -> SetCounts {
        let mut sum = SetCounts::default();
        for counts in self.0.lock().values().filter_map(|it| it.whole) {
            sum.add(&counts);
        }
        sum
    }

    /// Begins a pass: forgets what the last one didn't visit.
    fn begin(&self) {
        let mut buckets = self.0.lock();
        buckets.retain(|_, counts| std::mem::take(&mut counts.is_visited));
    }

    fn visited(&self, companion: &str, is_first: bool, counts: &SetCounts, is_last: bool) {
        let mut buckets = self.0.lock();
        let bucket = buckets.entry(companion.to_owned()).or_default();
        bucket.is_visited = true;
        if is_first {
            bucket.running = SetCounts::default();
        }
        bucket.running.add(counts);
        if is_last {
            bucket.whole = Some(bucket.running);
        }
    }
}

#[async_trait]
impl SetUpkeep for CountedSets {
    async fn buckets_with_sets(&self) -> Result<Vec<BucketWithSets>> {
        let buckets = self.upkeep.buckets_with_sets().await?;
        self.counts.begin();
        Ok(buckets)
    }

    async fn look_after(
        &self,
        companion: &str,
        after: Option<&str>,
    ) -> Result<(SetCounts, Option<String>)> {
        let (counts, next) = self.upkeep.look_after(companion, after).await?;
        self.counts.visited(companion, after.is_none(), &counts, next.is_none());
        Ok((counts, next))
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Error;

    use super::*;

    /// Buckets in two runs each, of which one may fail.
    struct TwoRuns {
        failing: Mutex<Option<&'static str>>,
    }

    #[async_trait]
    impl SetUpkeep for TwoRuns {
        async fn buckets_with_sets(&self) -> Result<Vec<BucketWithSets>> {
            Ok(Vec::new())
        }

        async fn look_after(
            &self,
            companion: &str,
            after: Option<&str>,
        ) -> Result<(SetCounts, Option<String>)> {
            if *self.failing.lock() == Some(companion) {
                return Err(Error::unavailable("no quorum"));
            }
            let oldest_pending_ms = if after.is_none() { 9 } else { 5 };
            let counts =
                SetCounts { pending: 1, committed: 2, oldest_pending_ms, ..SetCounts::default() };
            Ok((counts, after.is_none().then(|| "last".to_owned())))
        }
    }

    async fn pass(sets: &CountedSets, buckets: &[&str]) {
        sets.buckets_with_sets().await.unwrap();
        for bucket in buckets {
            for after in [None, Some("last")] {
                let _ = sets.look_after(bucket, after).await;
            }
        }
    }

    #[tokio::test]
    async fn whole_visits_count_and_other_buckets_are_forgotten() {
        let (counts, runs) = (CheckpointCounts::default(), TwoRuns { failing: Mutex::default() });
        let runs = Arc::new(runs);
        let sets = CountedSets::new(runs.clone(), counts.clone());
        sets.look_after("a", None).await.unwrap();
        assert_eq!(counts.sum(), SetCounts::default(), "half of a bucket is not counted");
        pass(&sets, &["a", "b"]).await;
        let sum = counts.sum();
        assert_eq!((sum.pending, sum.committed, sum.oldest_pending_ms), (4, 8, 9));
        pass(&sets, &["a", "b"]).await;
        assert_eq!(counts.sum(), sum, "no visit counts twice");
        *runs.failing.lock() = Some("a");
        pass(&sets, &["a", "b"]).await;
        assert_eq!(counts.sum(), sum, "a failed visit keeps the last counts for a pass");
        pass(&sets, &["b"]).await;
        assert_eq!(counts.sum().pending, 2);
    }
}
