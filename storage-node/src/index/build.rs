//! Rebuilding of sums from the entries: for an index without sums, and after a change of the secret
//! that keys the leaves (rule H1).
//!
//! `meta` names the secret that keys the sums on disk. The name is removed first and written last.
//! After a crash in between, the next opening rebuilds the sums.

use std::collections::BTreeMap;

use martlet_protocol::tree::{BinKey, Sum, TreeKey};
use martlet_protocol::{RegisterKey, Result};
use rocksdb::WriteBatch;

use super::database::Database;
use super::family::Family;
use super::rows::{self, LAST_KEY};
use super::tree::{self, LAST_ROW, RowKey};

/// Key in `meta` of the secret's fingerprint.
const SECRET_KEY: &[u8] = b"h";
/// Bytes of rows in one batch.
const BATCH_BYTES: usize = 1024 * 1024;

/// Sums of bins, by row key.
pub(super) type Sums = BTreeMap<RowKey, Sum>;

/// Builds the sums of an index, unless they exist. Returns true if all that was written before is durable.
/// Blocks.
pub(super) fn ensure(database: &Database, secret: &TreeKey) -> Result<bool> {
    let fingerprint = tree::fingerprint(secret);
    if database.get(Family::Meta, SECRET_KEY)?.is_some_and(|held| held == fingerprint) {
        return Ok(false);
    }
    let (meta, sums) = (database.family(Family::Meta), database.family(Family::Tree));
    let mut batch = WriteBatch::default();
    if database.is_empty(Family::Entries)? && database.is_empty(Family::Tree)? {
        // Without the log: RocksDB would allocate log space on a device that holds only extents.
        batch.put_cf(meta, SECRET_KEY, fingerprint);
        database.write_unlogged(batch)?;
        return database.flush().map(|()| true);
    }
    batch.delete_cf(meta, SECRET_KEY);
    batch.delete_range_cf(sums, &[][..], &LAST_ROW[..]);
    database.write_synced(batch)?;
    let registers = build(database, secret)?;
    let mut batch = WriteBatch::default();
    batch.put_cf(meta, SECRET_KEY, fingerprint);
    database.write_synced(batch)?;
    if registers > 0 {
        tracing::info!(registers, "computed the hash tree of the device's registers");
    }
    Ok(false)
}

/// Writes the sums of all registers, a run at a time; returns the number of registers.
fn build(database: &Database, secret: &TreeKey) -> Result<u64> {
    let (mut registers, mut batch) = (0, WriteBatch::default());
    let mut write = |sums: &mut Sums, batch_bytes_min: usize| -> Result<()> {
        for (at, sum) in std::mem::take(sums) {
            batch.put_cf(database.family(Family::Tree), at, tree::encode_sum(sum));
        }
        if batch.size_in_bytes() >= batch_bytes_min && !batch.is_empty() {
            database.write_synced(std::mem::take(&mut batch))?;
        }
        Ok(())
    };
    let (mut run, mut sums) = (None, Sums::new());
    let mut rows = database.iterate(Family::Entries, &LAST_KEY);
    rows.seek([]);
    while let Some((key, row)) = rows.item() {
        let here = tree::run_of(key)?;
        if run.is_some_and(|run| run != here) {
            write(&mut sums, BATCH_BYTES)?;
        }
        run = Some(here);
        add(&mut sums, secret, key, row)?;
        registers += 1;
        rows.next();
    }
    database.ended_well(&rows)?;
    write(&mut sums, 0)?;
    Ok(registers)
}

/// Adds the leaf of a row of `entries` to the sums.
pub(super) fn add(sums: &mut Sums, secret: &TreeKey, key: &[u8], row: &[u8]) -> Result<()> {
    if let Some((order, write_id)) = rows::counted(row)? {
        let key = RegisterKey::decode(key)?;
        let leaf = Sum::leaf(secret, &key, order, write_id);
        *sums.entry(tree::row_key(&BinKey::of(&key))).or_default() += leaf;
    }
    Ok(())
}
