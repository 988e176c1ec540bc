//! Removal of a bucket. First the extents of its registers become garbage, a bounded batch at a
//! time. Then its registers are removed in one batch.
//!
//! A caller may give up before a long search for garbage ends. So the index remembers the position of
//! each search, and the next call goes on there. Registers that a repair adds before the position
//! leave no garbage: the sweep finds their extents by the fence of the deleted bucket.

use std::collections::HashMap;

use martlet_protocol::{BucketId, Result};
use parking_lot::Mutex;

use super::database::Database;
use super::family::Family;
use super::queue::IndexOp;
use super::rows::{self, RegisterRow};
use super::{Index, group};

/// Garbage rows that a purge writes in one batch.
const GARBAGE_ROWS_MAX: usize = 256;
/// Rows that a purge reads at a time.
const READ_ROWS_MAX: usize = 64 * 1024;

/// Positions of unfinished searches for garbage, one for each bucket, with the generation of its
/// fence: a bucket that was open in between is searched anew.
#[derive(Default)]
pub(super) struct PurgePositions(Mutex<HashMap<BucketId, (u64, Vec<u8>)>>);

impl PurgePositions {
    pub(super) fn get(&self, bucket: BucketId, generation: u64) -> Option<Vec<u8>> {
        let positions = self.0.lock();
        let (at, key) = positions.get(&bucket)?;
        (*at == generation).then(|| key.clone())
    }

    pub(super) fn set(&self, bucket: BucketId, generation: u64, key: Vec<u8>) {
        self.0.lock().insert(bucket, (generation, key));
    }

    fn forget(&self, bucket: BucketId) {
        self.0.lock().remove(&bucket);
    }
}

/// Rows of garbage: keys and values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

impl Index {
    /// Removes a closed bucket's registers; their extents become garbage. After a call that ended
    /// early, the next one reads at most [`READ_ROWS_MAX`] rows again.
    pub(crate) async fn purge(&self, bucket: BucketId) -> Result<()> {
        // A closed bucket can be reopened only by the proxy that closed it; the purge checks again.
        self.submit(|reply| IndexOp::CheckClosed(bucket, reply)).await?;
        let generation = self.fences.closed_generation(bucket)?;
        let [lower, upper] = rows::bucket_keys(bucket).map(Vec::from);
        let mut from = self.purges.get(bucket, generation).unwrap_or(lower);
        loop {
            let database = self.reader.database.clone();
            let now_ms = self.clock.now_ms();
            let (lower, end) = (from, upper.clone());
            let found = move || garbage_in(&database, &lower, &end, READ_ROWS_MAX, now_ms);
            let (garbage, next) = self.run(found).await?;
            if !garbage.is_empty() {
                self.submit(|reply| IndexOp::Leave(garbage, reply)).await?;
            }
            let Some(next) = next else { break };
            self.purges.set(bucket, generation, next.clone());
            from = next;
        }
        self.submit(|reply| IndexOp::Purge(bucket, reply)).await?;
        self.purges.forget(bucket);
        Ok(())
    }
}

/// Returns garbage rows for the entries with extents among the first `rows_max` in `[lower, upper)`,
/// and the key to continue at.
pub(super) fn garbage_in(
    database: &Database,
    lower: &[u8],
    upper: &[u8],
    rows_max: usize,
    now_ms: u64,
) -> Result<(Rows, Option<Vec<u8>>)> {
    let mut garbage = Vec::new();
    let mut rows = database.iterate(Family::Entries, upper);
    rows.seek(lower);
    let mut read = 0;
    while let Some((key, row)) = rows.item() {
        if garbage.len() == GARBAGE_ROWS_MAX || read == rows_max {
            return Ok((garbage, Some(key.to_vec())));
        }
        read += 1;
        let row = RegisterRow::parse(row)?;
        if row.has_extents()
            && let Some(entry) = row.entry()?
        {
            garbage.extend(group::garbage_of(key, &entry, now_ms));
        }
        rows.next();
    }
    database.ended_well(&rows)?;
    Ok((garbage, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_holds_for_one_generation_of_a_bucket() {
        let (bucket, other) = (BucketId([1; 16]), BucketId([2; 16]));
        let positions = PurgePositions::default();
        positions.set(bucket, 4, vec![7]);
        assert_eq!(positions.get(bucket, 4), Some(vec![7]));
        assert_eq!((positions.get(bucket, 6), positions.get(other, 4)), (None, None));
        positions.set(bucket, 6, vec![3]);
        assert_eq!(positions.get(bucket, 6), Some(vec![3]));
        positions.forget(bucket);
        assert_eq!(positions.get(bucket, 6), None);
    }
}
