//! Walk over garbage records in the order of their times.

use martlet_protocol::Result;
use martlet_protocol::backend::{Garbage, GarbageId};

use super::family::Family;
use super::{Index, rows};

impl Index {
    /// Returns a page of the records above `after` that were left at or before `before_ms`.
    pub(crate) async fn garbage_after(
        &self,
        after: Option<GarbageId>,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        let database = self.reader.database.clone();
        self.run(move || {
            let lower = after.map_or_else(Vec::new, |GarbageId(id)| [&id[..], &[0]].concat());
            let upper = before_ms.saturating_add(1).to_be_bytes();
            let mut garbage = Vec::new();
            if lower[..] >= upper[..] {
                return Ok(garbage);
            }
            database.scan(Family::Garbage, &lower, &upper, limit, |id, row| {
                garbage.push(rows::decode_garbage(id, row)?);
                Ok(())
            })?;
            Ok(garbage)
        })
        .await
    }
}
