//! Pages of the lists of old registers, each row compared with its register.

use martlet_protocol::backend::{OldList, OldPage, OldPlace, OldRegister};
use martlet_protocol::{RegisterKey, Result, Stamp};

use super::Index;
use super::database::Database;
use super::family::Family;
use super::old_list::{register_in, row_of, stamp_in, start};
use super::queue::IndexOp;
use super::rows::RegisterRow;

/// Most rows that one call visits.
const VISITED_MAX: usize = 8192;

/// Page of a list, and rows without a register.
struct FoundPage {
    page: OldPage,
    stale: Vec<Vec<u8>>,
}

fn page(
    database: &Database,
    list: OldList,
    after: Option<&OldPlace>,
    limit: usize,
) -> Result<FoundPage> {
    let mut found = FoundPage { page: OldPage::default(), stale: Vec::new() };
    let first = match after {
        None => start(list.kind, Stamp::ZERO),
        Some(OldPlace { at, key }) => [&start(list.kind, *at)[..], &key.encode(), &[0]].concat(),
    };
    let mut rows = database.iterate(Family::Old, &start(list.kind, list.before));
    rows.seek(first);
    for visited in 1..=VISITED_MAX {
        let Some(listed) = rows.key() else { break };
        let (at, key) = (stamp_in(listed)?, register_in(listed)?);
        let row = match database.get_pinned(Family::Entries, key)? {
            Some(row) => RegisterRow::parse(&row)?,
            None => RegisterRow::empty(),
        };
        let place = OldPlace { at, key: RegisterKey::decode(key)? };
        if row_of(key, &row)?.as_deref() == Some(listed) {
            let collectable = row.is_collectable();
            found.page.registers.push(OldRegister { place: place.clone(), collectable });
        } else {
            found.stale.push(listed.to_vec());
        }
        if found.page.registers.len() >= limit || visited == VISITED_MAX {
            found.page.next = Some(place);
            break;
        }
        rows.next();
    }
    database.ended_well(&rows)?;
    Ok(found)
}

impl Index {
    /// Returns a page of a list above `after`, and removes rows without a register.
    pub(crate) async fn old_registers(
        &self,
        list: OldList,
        after: Option<&OldPlace>,
        limit: usize,
    ) -> Result<OldPage> {
        self.counting.check_complete(&self.name)?;
        let (database, after) = (self.reader.database.clone(), after.cloned());
        let found = self.run(move || page(&database, list, after.as_ref(), limit)).await?;
        if !found.stale.is_empty() {
            self.submit(|reply| IndexOp::ListOld(found.stale, reply)).await?;
        }
        Ok(found.page)
    }
}
