//! Fences in a group, and the removal of a bucket's rows (rule M2).

use martlet_protocol::backend::BucketFence;
use martlet_protocol::{BucketId, Result, Shard};

use super::Group;
use crate::index::family::Family;
use crate::index::fences::replaces;
use crate::index::{rows, tree};

impl Group<'_> {
    /// Stages a fence, if it changes the fence after the group's operations so far.
    pub(super) fn set_fence(&mut self, fence: BucketFence) {
        let is_news = match self.fences.get(&fence.bucket) {
            Some(staged) => replaces(&fence, staged),
            None => self.conditions.fences.is_news(&fence),
        };
        if is_news {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, rows::fence_key(fence.bucket), rows::fence_row(&fence));
            self.fences.insert(fence.bucket, fence);
        }
    }

    /// Stages the removal of all rows of a closed bucket. Its fence stays closed for good. Without
    /// a fence, a write that began before the bucket's deletion would be accepted (rule M2).
    pub(super) fn purge(&mut self, bucket: BucketId) -> Result<()> {
        self.conditions.fences.check_closed(bucket)?;
        let database = self.conditions.database;
        let [lower, upper] = rows::bucket_keys(bucket);
        // All reads come before the first change: the group is written even if one of them fails.
        let mut hints = 0;
        database.scan(Family::Hints, &lower, &upper, usize::MAX, |_, _| {
            hints += 1;
            Ok(())
        })?;
        let shards = self.shards_with_registers(bucket)?;
        // The bucket is deleted, so no primary needs its hints.
        self.hints_more -= hints;
        self.purge_sums(bucket, &shards);
        self.purge_usage(bucket, &shards);
        for family in [Family::Entries, Family::Inline, Family::Hints] {
            self.batch.delete_range_cf(database.family(family), &lower, &upper);
        }
        self.set_fence(BucketFence::of_deleted(bucket));
        Ok(())
    }

    /// Returns the shards of a bucket of which the device holds registers, by one seek for each.
    fn shards_with_registers(&self, bucket: BucketId) -> Result<Vec<Shard>> {
        let database = self.conditions.database;
        let [lower, upper] = rows::bucket_keys(bucket);
        let mut shards = Vec::new();
        let mut registers = database.iterate(Family::Entries, &upper);
        registers.seek(lower);
        while let Some(key) = registers.key() {
            let (bucket, shard) = tree::run_of(key)?;
            shards.push(shard);
            registers.seek(tree::above_run(bucket, shard));
        }
        database.ended_well(&registers)?;
        Ok(shards)
    }
}
