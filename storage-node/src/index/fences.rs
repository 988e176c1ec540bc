//! Fences: the writes that each bucket accepts (rule M2). Kept in memory, because every write needs
//! them, and in the order of buckets, for pages.

use std::collections::BTreeMap;
use std::ops::Bound;

use martlet_protocol::backend::BucketFence;
use martlet_protocol::{BucketId, Error, Result};
use parking_lot::RwLock;

use super::database::Database;
use super::family::Family;
use super::rows::{self, FENCE_KEYS};

/// Fences of an index, as stored on disk.
#[derive(Default)]
pub(crate) struct Fences {
    by_bucket: RwLock<BTreeMap<BucketId, BucketFence>>,
}

impl Fences {
    pub(super) fn load(database: &Database) -> Result<Self> {
        let mut by_bucket = BTreeMap::new();
        let [lower, upper] = FENCE_KEYS;
        database.scan(Family::Meta, lower, upper, usize::MAX, |key, row| {
            let fence = rows::decode_fence(key, row)?;
            by_bucket.insert(fence.bucket, fence);
            Ok(())
        })?;
        Ok(Self { by_bucket: RwLock::new(by_bucket) })
    }

    /// Returns true if a first-hand write of `generation` is accepted. A bucket without fence
    /// accepts all writes.
    pub(super) fn admits(&self, bucket: BucketId, generation: u64) -> bool {
        let by_bucket = self.by_bucket.read();
        by_bucket.get(&bucket).is_none_or(|fence| fence.open && generation >= fence.generation)
    }

    /// Returns true if a fence changes the stored fence; a fence of a lower generation doesn't.
    pub(super) fn is_news(&self, fence: &BucketFence) -> bool {
        self.by_bucket.read().get(&fence.bucket).is_none_or(|held| replaces(fence, held))
    }

    /// Returns the generation of a closed bucket. `Conflict` unless the bucket is closed.
    pub(super) fn closed_generation(&self, bucket: BucketId) -> Result<u64> {
        match self.by_bucket.read().get(&bucket) {
            Some(fence) if !fence.open => Ok(fence.generation),
            _ => Err(Error::conflict(format!("bucket {bucket} is not closed"))),
        }
    }

    /// Returns an error unless the bucket is closed.
    pub(super) fn check_closed(&self, bucket: BucketId) -> Result<()> {
        self.closed_generation(bucket).map(|_| ())
    }

    /// Returns all fences, in the order of their buckets.
    pub(crate) fn all(&self) -> Vec<BucketFence> {
        self.page(None, usize::MAX)
    }

    /// Returns at most `limit` fences of buckets above `after`, in the order of the buckets.
    pub(crate) fn page(&self, after: Option<BucketId>, limit: usize) -> Vec<BucketFence> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_bucket = self.by_bucket.read();
        by_bucket.range((above, Bound::Unbounded)).take(limit).map(|(_, fence)| *fence).collect()
    }

    /// Returns the fences of some buckets, in the order of `buckets`, without those that have none.
    pub(crate) fn of(&self, buckets: &[BucketId]) -> Vec<BucketFence> {
        let by_bucket = self.by_bucket.read();
        buckets.iter().filter_map(|bucket| by_bucket.get(bucket).copied()).collect()
    }

    /// Applies a fence that is on disk.
    pub(super) fn apply(&self, fence: BucketFence) {
        self.by_bucket.write().insert(fence.bucket, fence);
    }
}

/// Returns true if a fence replaces another one of its bucket.
pub(super) fn replaces(fence: &BucketFence, held: &BucketFence) -> bool {
    fence.generation >= held.generation && fence != held
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: BucketId = BucketId([7; 16]);

    fn fence(generation: u64, open: bool) -> BucketFence {
        BucketFence { bucket: BUCKET, generation, open }
    }

    #[test]
    fn a_bucket_without_fence_takes_all_and_one_with_takes_its_generation() {
        let fences = Fences::default();
        assert!(fences.admits(BUCKET, 0));
        fences.apply(fence(3, true));
        assert!(!fences.admits(BUCKET, 2) && fences.admits(BUCKET, 3) && fences.admits(BUCKET, 4));
        fences.apply(fence(4, false));
        assert!(!fences.admits(BUCKET, 9));
    }

    #[test]
    fn a_later_fence_is_never_talked_back() {
        let fences = Fences::default();
        fences.apply(fence(3, true));
        assert!(!fences.is_news(&fence(2, false)) && !fences.is_news(&fence(3, true)));
        assert!(fences.is_news(&fence(3, false)) && fences.is_news(&fence(4, true)));
        assert!(fences.check_closed(BUCKET).is_err());
        fences.apply(fence(4, false));
        assert!(fences.check_closed(BUCKET).is_ok());
        let last = BucketFence::of_deleted(BUCKET);
        assert!(fences.is_news(&last));
        fences.apply(last);
        assert!(!fences.is_news(&last) && !fences.is_news(&fence(u64::MAX - 1, true)));
        assert!(!fences.admits(BUCKET, u64::MAX) && fences.check_closed(BUCKET).is_ok());
    }
}
