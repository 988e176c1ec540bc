//! Removal of registers: marks of collectable tombstones, drops (rule T1), and the sums of purged
//! buckets. Also repair of wrong sums (rule H1).
//!
//! Invariant: the sums change in the same batch. No garbage arises here: the caller has checked
//! that other devices hold the register's extents, or that no entry needs them.

use martlet_protocol::backend::StrayCondition;
use martlet_protocol::entry::Value;
use martlet_protocol::tree::{BinKey, Sum};
use martlet_protocol::{BucketId, RegisterKey, Result, Shard, Stamp};

use super::Group;
use crate::index::family::Family;
use crate::index::queue::DropOp;
use crate::index::rows::RegisterRow;
use crate::index::tree::{self, RowKey};
use crate::index::usage::usage_key_of;

impl Group<'_> {
    /// Stages marks of tombstones whose order has not changed.
    pub(super) fn mark_collectable(&mut self, marks: Vec<(Vec<u8>, Stamp)>) -> Result<()> {
        for (key, order) in marks {
            let mut row = self.row(&key)?;
            if row.is_collectable() || row.register()?.order() != order {
                continue;
            }
            let is_tombstone = |entry: martlet_protocol::Entry| entry.value == Value::Tombstone;
            if !row.entry()?.is_some_and(is_tombstone) {
                continue;
            }
            self.uncount(&key, &row)?;
            row.set_collectable();
            let family = self.conditions.database.family(Family::Entries);
            self.batch.put_cf(family, &key, row.bytes());
            self.rows.insert(key, row);
        }
        Ok(())
    }

    /// Stages the removal of registers whose floor is not above `up_to`. A condition is that the device
    /// has the caller's term, and that the time is not over (rules P1, P3).
    pub(super) fn drop_registers(
        &mut self,
        condition: Option<StrayCondition>,
        drops: Vec<DropOp>,
    ) -> Result<()> {
        if let Some(condition) = condition {
            condition.check(self.conditions.voting_state.term(), self.conditions.now_ms)?;
        }
        for DropOp { key, up_to, collectable } in drops {
            let row = self.row(&key)?;
            if row.register()?.floor() > up_to || (collectable && !row.is_collectable()) {
                continue;
            }
            let bin = tree::row_key(&BinKey::of(&RegisterKey::decode(&key)?));
            let kept = self.kept_rows(usage_key_of(&bin), &key, &row, &RegisterRow::empty())?;
            self.uncount(&key, &row)?;
            self.stage_kept(kept);
            let database = self.conditions.database;
            if row.has_inline() {
                self.batch.delete_cf(database.family(Family::Inline), &key);
            }
            self.batch.delete_cf(database.family(Family::Entries), &key);
            self.rows.insert(key, RegisterRow::empty());
        }
        Ok(())
    }

    /// Subtracts a row's leaf from the sums.
    fn uncount(&mut self, key: &[u8], row: &RegisterRow) -> Result<()> {
        if let Some(sum) = self.leaf(key, row)? {
            let bin = BinKey::of(&RegisterKey::decode(key)?);
            self.sums.take(tree::row_key(&bin), sum);
        }
        Ok(())
    }

    /// Stages the removal of a bucket's sums: the rows of these shards on disk, and the changes
    /// staged in the group.
    pub(super) fn purge_sums(&mut self, bucket: BucketId, shards: &[Shard]) {
        self.sums.forget(bucket);
        let family = self.conditions.database.family(Family::Tree);
        for shard in shards {
            let [first, above] = tree::run_rows(bucket, *shard);
            self.batch.delete_range_cf(family, first, above);
        }
    }

    /// Stages corrections of sums. On a device with peers this also withdraws its votes: an index
    /// with wrong sums may have lost entries too (rules H1, G1).
    pub(super) fn repair_sums(&mut self, sums: Vec<(RowKey, Sum)>) {
        for (at, sum) in sums {
            self.sums.add(at, sum);
        }
        if self.conditions.peers {
            self.set_voting(false);
        }
    }
}
