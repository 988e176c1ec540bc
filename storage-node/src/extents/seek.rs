//! Search for many extents at once: their records, or their absence.

use martlet_protocol::backend::Sought;
use martlet_protocol::{ExtentId, Result};

use super::ExtentStore;
use super::row::RowLocation;
use super::store::StoreState;

impl ExtentStore {
    /// Returns the record of each extent that is here; quarantined extents are missing.
    pub async fn seek(&self, ids: &[ExtentId]) -> Result<Vec<Sought>> {
        let (store, ids) = (self.0.clone(), ids.to_vec());
        let look = move || ids.iter().map(|id| store.seek(*id)).collect();
        self.0.threads.run(look).await
    }
}

impl StoreState {
    fn seek(&self, id: ExtentId) -> Result<Sought> {
        let row = self.table.get(id)?.filter(|row| row.place != RowLocation::Quarantined);
        Ok(match row {
            Some(row) => Sought::Here(Box::new(row.record)),
            None if self.table.is_marked(id)? => Sought::Deleted,
            None => Sought::Missing,
        })
    }
}
