//! Walk over all registers for a collector of tombstones: it returns what has aged, and reads no
//! inline bytes. A call visits [`AgedPage::VISITED_MAX`] rows at most.

use martlet_protocol::backend::{AgedPage, AgedWalk};
use martlet_protocol::{RegisterKey, Result};

use super::Index;
use super::database::Database;
use super::family::Family;
use super::rows::{self, LAST_KEY, RegisterRow};

impl Index {
    /// Returns a page of the walk above `after`.
    pub(crate) async fn aged(
        &self,
        walk: AgedWalk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<AgedPage> {
        let (database, lower) = (self.reader.database.clone(), rows::above(after));
        self.run(move || page(&database, &walk, lower, limit)).await
    }
}

fn page(database: &Database, walk: &AgedWalk, lower: Vec<u8>, limit: usize) -> Result<AgedPage> {
    let mut page = AgedPage::default();
    let mut rows = database.iterate(Family::Entries, &LAST_KEY);
    rows.seek(lower);
    while let Some((key, row)) = rows.item() {
        let (key, row) = (RegisterKey::decode(key)?, RegisterRow::parse(row)?);
        let held = row.entry()?.map(|entry| (entry.order, entry.value.is_tombstone()));
        page.visit(walk, &key, held, row.is_collectable());
        if page.is_full(limit) {
            page.next = Some(key);
            break;
        }
        rows.next();
    }
    database.ended_well(&rows)?;
    Ok(page)
}
