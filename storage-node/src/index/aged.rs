//! Walk over all registers for a collector of tombstones: it returns what has aged, and reads no
//! inline bytes. A call visits [`AgedPage::VISITED_MAX`] rows at most. Once the device has
//! [lists](super::old_list), only its buckets are walked.

use martlet_protocol::backend::{AgedBucket, AgedPage, AgedWalk, HeldBuckets};
use martlet_protocol::{BucketId, Entry, RegisterKey, Result, Stamp};

use super::Index;
use super::database::Database;
use super::family::Family;
use super::rows::{self, LAST_KEY, RegisterRow};
use super::tree;

/// Registers of a bucket that are searched for an old entry. Registers of a deleted bucket grow
/// old, so a later call finds one.
const SEARCHED_MAX: usize = 64;

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

    /// Returns buckets above `after` with an entry below `before`.
    pub(crate) async fn held_buckets(
        &self,
        before: Stamp,
        after: Option<BucketId>,
        limit: usize,
    ) -> Result<HeldBuckets> {
        let database = self.reader.database.clone();
        self.run(move || held_buckets(&database, before, after, limit)).await
    }
}

/// Looks at `limit` buckets: a seek each, and some rows where the first ones are young.
fn held_buckets(
    database: &Database,
    before: Stamp,
    after: Option<BucketId>,
    limit: usize,
) -> Result<HeldBuckets> {
    let mut held = HeldBuckets::default();
    let mut rows = database.iterate(Family::Entries, &LAST_KEY);
    rows.seek(after.map_or_else(Vec::new, |bucket| rows::successor(&bucket.0)));
    for looked_at in 1..=limit.max(1) {
        let Some((bucket, _)) = rows.key().map(tree::run_of).transpose()? else { break };
        for _ in 0..SEARCHED_MAX {
            let Some((_, row)) = rows.item().filter(|(key, _)| key.starts_with(&bucket.0)) else {
                break;
            };
            let entry = rows::entry_bytes(row)?;
            if !entry.is_empty() && Entry::peek(entry)?.0 < before {
                let order = Entry::peek(entry)?.0;
                held.buckets.push(AgedBucket { bucket, order, entries: 1 });
                break;
            }
            rows.next();
        }
        if looked_at == limit.max(1) {
            held.next = Some(bucket);
            break;
        }
        let above = rows::successor(&bucket.0);
        if above.is_empty() {
            break;
        }
        rows.seek(above);
    }
    database.ended_well(&rows)?;
    Ok(held)
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
