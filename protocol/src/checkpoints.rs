//! Upkeep of checkpoint sets: the trait between the worker that goes through buckets and the object
//! layer, which completes, withdraws and removes generations.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::BucketId;

/// A bucket with checkpoint sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketWithSets {
    /// Id of the bucket that holds the records of its sets.
    pub id: BucketId,
    /// Name of that bucket.
    pub companion: String,
}

/// Counts of a run over sets, or of many runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounts {
    /// Sets visited.
    pub sets: u64,
    /// Generations that are pending, or being pinned.
    pub pending: u64,
    /// Committed generations.
    pub committed: u64,
    /// Withdrawn generations that are not removed yet.
    pub removing: u64,
    /// Age of the oldest pending generation, in milliseconds.
    pub oldest_pending_ms: u64,
    /// Bytes of committed and withdrawn generations; versions that several share count for each.
    pub pinned_bytes: u64,
    /// Generations that the run committed, withdrew or removed.
    pub done: u64,
    /// Generations that stay as they are, because too few nodes answered.
    pub kept: u64,
}

impl SetCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.sets += other.sets;
        self.pending += other.pending;
        self.committed += other.committed;
        self.removing += other.removing;
        self.oldest_pending_ms = self.oldest_pending_ms.max(other.oldest_pending_ms);
        self.pinned_bytes = self.pinned_bytes.saturating_add(other.pinned_bytes);
        self.done += other.done;
        self.kept += other.kept;
    }
}

/// Looks after the checkpoint sets of buckets. Any number of workers may run at once: each change is
/// a compare-and-set on the set's record.
#[async_trait]
pub trait SetUpkeep: Send + Sync {
    /// All buckets with sets.
    ///
    /// # Errors
    /// When too few nodes answer.
    async fn buckets_with_sets(&self) -> Result<Vec<BucketWithSets>>;

    /// Does what is due for a run of sets after `after`, in order of name, and for the series that
    /// begin in it. Returns the counts, and the name of the last set if more follow.
    ///
    /// # Errors
    /// When the sets can't be listed or the rules can't be read.
    async fn look_after(
        &self,
        companion: &str,
        after: Option<&str>,
    ) -> Result<(SetCounts, Option<String>)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_the_oldest_stays() {
        let one = SetCounts {
            sets: 1,
            pending: 1,
            committed: 2,
            removing: 3,
            oldest_pending_ms: 50,
            pinned_bytes: u64::MAX - 1,
            done: 4,
            kept: 5,
        };
        let mut sum = SetCounts { oldest_pending_ms: 70, ..one };
        sum.add(&one);
        assert_eq!((sum.sets, sum.pending, sum.committed, sum.removing), (2, 2, 4, 6));
        assert_eq!((sum.oldest_pending_ms, sum.pinned_bytes), (70, u64::MAX));
        assert_eq!((sum.done, sum.kept), (8, 10));
    }
}
