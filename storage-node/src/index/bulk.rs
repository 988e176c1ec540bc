//! Loading of many new registers and extents into an index that nothing else uses.
//!
//! Rows are those that the committer writes, in batches without a log, and all are flushed at the
//! end. A crash before it leaves an index to be thrown away.

use std::path::Path;
use std::sync::Arc;

use martlet_protocol::entry::Entry;
use martlet_protocol::run_usage::Run;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{RegisterKey, Result};
use rocksdb::WriteBatch;

use super::build::{self, Sums};
use super::counting::Counting;
use super::database::Database;
use super::extent_table::PlacedRow;
use super::family::Family;
use super::options::Caches;
use super::rows::RegisterRow;
use super::usage::{UsageDeltas, contribution, usage_key};
use super::{old_list, places, tree};

/// Bytes of rows in one batch.
const BATCH_BYTES: usize = 1024 * 1024;

/// An index that is being loaded.
pub(crate) struct BulkIndex {
    database: Arc<Database>,
    secret: TreeKey,
    batch: WriteBatch,
    sums: Sums,
    usage: UsageDeltas,
}

impl BulkIndex {
    /// Opens the index in `folder`. Blocks.
    pub(crate) fn open(folder: &Path, secret: TreeKey, caches: &Caches) -> Result<Self> {
        let database = Arc::new(Database::open(folder, caches)?);
        build::ensure(&database, &secret)?;
        Counting::load(&database)?;
        let (batch, sums, usage) = (WriteBatch::default(), Sums::default(), UsageDeltas::default());
        Ok(Self { database, secret, batch, sums, usage })
    }

    /// Adds an entry to a register that is empty. Registers beside heads have other versions than
    /// their heads.
    pub(crate) fn add(&mut self, key: &RegisterKey, entry: &Entry) -> Result<()> {
        let at = usage_key(Run { bucket: key.bucket, shard: key.shard });
        let (key, row) = (key.encode(), RegisterRow::of(entry));
        self.usage.add(at, contribution(&key, row.entry_bytes())?);
        if let Some(listed) = old_list::row_of(&key, &row)? {
            self.batch.put_cf(self.database.family(Family::Old), listed, []);
        }
        build::add(&mut self.sums, &self.secret, &key, row.bytes())?;
        self.batch.put_cf(self.database.family(Family::Entries), key, row.bytes());
        self.write(BATCH_BYTES)
    }

    /// Adds the row of an extent, and its place.
    pub(crate) fn add_extent(&mut self, row: &PlacedRow) -> Result<()> {
        self.batch.put_cf(self.database.family(Family::Extents), row.id.0, &row.row);
        if let Some(place) = &row.place {
            places::put(&self.database, &mut self.batch, place)?;
        }
        self.write(BATCH_BYTES)
    }

    /// Makes all rows durable. Blocks.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.write(0)?;
        self.database.flush()
    }

    fn write(&mut self, batch_bytes_min: usize) -> Result<()> {
        if self.batch.size_in_bytes() < batch_bytes_min {
            return Ok(());
        }
        for (at, sum) in std::mem::take(&mut self.sums) {
            let family = self.database.family(Family::Tree);
            self.batch.merge_cf(family, at, tree::encode_sum(sum));
        }
        let usage = std::mem::take(&mut self.usage);
        usage.stage(self.database.family(Family::Usage), &mut self.batch);
        self.database.write_unlogged(std::mem::take(&mut self.batch))
    }
}
