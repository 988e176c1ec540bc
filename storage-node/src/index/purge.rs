//! Removal of a bucket. First the extents of its registers become garbage, a bounded batch at a
//! time. Then its registers are removed in one batch.

use martlet_protocol::{BucketId, Result};

use super::database::Database;
use super::family::Family;
use super::queue::IndexOp;
use super::rows::{self, RegisterRow};
use super::{Index, group};

/// Garbage rows that a purge writes in one batch.
const PURGE_ROWS: usize = 256;

impl Index {
    /// Removes a closed bucket's registers; their extents become garbage.
    pub(crate) async fn purge(&self, bucket: BucketId) -> Result<()> {
        // A closed bucket can be reopened only by the proxy that closed it; the purge checks again.
        self.submit(|reply| IndexOp::CheckClosed(bucket, reply)).await?;
        let [mut from, upper] = rows::bucket_keys(bucket).map(Vec::from);
        loop {
            let database = self.reader.database.clone();
            let now_ms = self.clock.now_ms();
            let (lower, end) = (from, upper.clone());
            let found = move || garbage_in(&database, &lower, &end, now_ms);
            let (garbage, next) = self.run(found).await?;
            if !garbage.is_empty() {
                self.submit(|reply| IndexOp::Leave(garbage, reply)).await?;
            }
            let Some(next) = next else { break };
            from = next;
        }
        self.submit(|reply| IndexOp::Purge(bucket, reply)).await
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns garbage rows for the entries with extents in `[lower, upper)`, and the key to continue
/// at.
fn garbage_in(
    database: &Database,
    lower: &[u8],
    upper: &[u8],
    now_ms: u64,
) -> Result<(Rows, Option<Vec<u8>>)> {
    let mut garbage = Vec::new();
    let mut rows = database.iterate(Family::Entries, upper);
    rows.seek(lower);
    while let Some((key, row)) = rows.item() {
        if garbage.len() == PURGE_ROWS {
            return Ok((garbage, Some(key.to_vec())));
        }
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
