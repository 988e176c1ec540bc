//! Loading of many new registers and extents into an index that nothing else uses.
//!
//! Rows are those that the committer writes, in batches without a log, and all are flushed at the
//! end. A crash before it leaves an index to be thrown away.

use std::path::Path;
use std::sync::Arc;

use martlet_protocol::entry::Entry;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{ExtentId, RegisterKey, Result};
use rocksdb::WriteBatch;

use super::build::{self, Sums};
use super::database::Database;
use super::family::Family;
use super::options::Caches;
use super::rows::RegisterRow;
use super::tree;

/// Bytes of rows in one batch.
const BATCH_BYTES: usize = 1024 * 1024;

/// An index that is being loaded.
pub(crate) struct BulkIndex {
    database: Arc<Database>,
    secret: TreeKey,
    batch: WriteBatch,
    sums: Sums,
}

impl BulkIndex {
    /// Opens the index in `folder`. Blocks.
    pub(crate) fn open(folder: &Path, secret: TreeKey, caches: &Caches) -> Result<Self> {
        let database = Arc::new(Database::open(folder, caches)?);
        build::ensure(&database, &secret)?;
        Ok(Self { database, secret, batch: WriteBatch::default(), sums: Sums::default() })
    }

    /// Adds an entry to a register that is empty.
    pub(crate) fn add(&mut self, key: &RegisterKey, entry: &Entry) -> Result<()> {
        let (key, row) = (key.encode(), RegisterRow::of(entry));
        build::add(&mut self.sums, &self.secret, &key, row.bytes())?;
        self.batch.put_cf(self.database.family(Family::Entries), key, row.bytes());
        self.write(BATCH_BYTES)
    }

    /// Adds the row of an extent.
    pub(crate) fn add_extent(&mut self, id: ExtentId, row: &[u8]) -> Result<()> {
        self.batch.put_cf(self.database.family(Family::Extents), id.0, row);
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
        self.database.write_unlogged(std::mem::take(&mut self.batch))
    }
}
