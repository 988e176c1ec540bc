//! Fences in a group, and the removal of a bucket's rows (rule M2).

use martlet_protocol::backend::BucketFence;
use martlet_protocol::{BucketId, Result};

use super::{Group, StateChange};
use crate::index::family::Family;
use crate::index::rows;

impl Group<'_> {
    /// Stages a fence, if it changes the stored fence.
    pub(super) fn set_fence(&mut self, fence: BucketFence) {
        if self.conditions.fences.is_news(&fence) {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, rows::fence_key(fence.bucket), rows::fence_row(&fence));
            self.change = Some(StateChange::Fence(fence));
        }
    }

    /// Stages the removal of all rows of a closed bucket. Its fence stays closed for good. Without
    /// a fence, a write that began before the bucket's deletion would be accepted (rule M2).
    pub(super) fn purge(&mut self, bucket: BucketId) -> Result<()> {
        self.conditions.fences.check_closed(bucket)?;
        let database = self.conditions.database;
        let [lower, upper] = rows::bucket_keys(bucket);
        // The bucket is deleted, so no primary needs its hints.
        database.scan(Family::Hints, &lower, &upper, usize::MAX, |_, _| {
            self.hints_more -= 1;
            Ok(())
        })?;
        self.purge_sums(bucket)?;
        self.purge_usage(bucket)?;
        for family in [Family::Entries, Family::Inline, Family::Hints] {
            self.batch.delete_range_cf(database.family(family), &lower, &upper);
        }
        self.set_fence(BucketFence::of_deleted(bucket));
        Ok(())
    }
}
