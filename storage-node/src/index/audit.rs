//! Registers that are verified: each run is summed up again from its entries, whose inline bytes meet
//! their checksums on the way, and compared with the sums that were kept (rule H1).
//!
//! A run and its sums are read from one snapshot, so what differs is no write that came between, and
//! is mended by what it differs by, so that no write that came since is lost.
//!
//! The runs that have entries come first, in the order of their keys; then those that have nothing
//! but sums.

use martlet_protocol::backend::Audited;
use martlet_protocol::entry::{Body, Entry};
use martlet_protocol::id::{BucketId, Shard};
use martlet_protocol::tree::{Bin, BinKey, Sum, TreeKey};
use martlet_protocol::{Error, Result};
use rocksdb::{DBRawIterator, Snapshot};

use super::build::{self, Sums};
use super::database::{Database, Family};
use super::rows::{self, LAST_KEY};
use super::tree::{self, LAST_ROW, RowKey};

/// Registers after which a page ends with its run.
const REGISTERS_MAX: u64 = 20_000;
/// Bytes after which it does.
const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Runs after which it does.
const RUNS_MAX: usize = 1000;
/// Where a page goes on whose last run had entries: no bin has this number.
const WITH_ENTRIES: Bin = Bin(u16::MAX);
/// Where a page goes on whose last run may have none.
const SUMS_ALONE: Bin = Bin(u16::MAX - 1);

/// What was found, and what brings the sums back to what the entries say.
#[derive(Default)]
pub(super) struct Found {
    pub(super) audited: Audited<BinKey>,
    pub(super) mends: Vec<(RowKey, Sum)>,
}

/// Verifies some runs above `after`. Blocks.
pub(super) fn page(database: &Database, secret: &TreeKey, after: Option<BinKey>) -> Result<Found> {
    let snapshot = database.snapshot();
    let mut audit = Audit { database, secret, snapshot: &snapshot, found: Found::default() };
    let outcome = match after {
        Some(bin) if bin.bin == SUMS_ALONE => {
            audit.sums_alone(tree::run_rows(bin.bucket, bin.shard)[1])
        }
        Some(bin) => audit.entries(tree::above_run(bin.bucket, bin.shard)),
        None => audit.entries(Vec::new()),
    };
    // A row that RocksDB vouches for and that can't be read is damage all the same.
    outcome.inspect_err(|error| database.note_damage(error))?;
    Ok(audit.found)
}

struct Audit<'a> {
    database: &'a Database,
    secret: &'a TreeKey,
    snapshot: &'a Snapshot<'a>,
    found: Found,
}

impl<'a> Audit<'a> {
    /// Runs with entries, from a key on.
    fn entries(&mut self, mut from: Vec<u8>) -> Result<()> {
        for _ in 0..RUNS_MAX {
            let mut rows = self.database.iterate_at(self.snapshot, Family::Entries, &LAST_KEY);
            rows.seek(&from);
            let run = rows.key().map(tree::run_of).transpose()?;
            self.database.ended_well(&rows)?;
            let Some((bucket, shard)) = run else {
                return self.sums_alone([0; size_of::<RowKey>()]);
            };
            self.run(bucket, shard)?;
            from = tree::above_run(bucket, shard);
            self.found.audited.next = Some(BinKey { bucket, shard, bin: WITH_ENTRIES });
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    /// Runs with sums, from a row on. Those with entries were looked at before.
    fn sums_alone(&mut self, from: RowKey) -> Result<()> {
        let mut rows = self.database.iterate_at(self.snapshot, Family::Tree, &LAST_ROW);
        rows.seek(from);
        for _ in 0..RUNS_MAX {
            let Some(key) = rows.key() else {
                self.found.audited.next = None;
                return self.database.ended_well(&rows);
            };
            let (_, BinKey { bucket, shard, .. }) = tree::decode_key(key)?;
            let mut entries = self.registers(Family::Entries, bucket, shard);
            entries.seek(tree::run_prefix(bucket, shard));
            if !entries.valid() {
                self.database.ended_well(&entries)?;
                self.run(bucket, shard)?;
            }
            self.found.audited.next = Some(BinKey { bucket, shard, bin: SUMS_ALONE });
            rows.seek(tree::run_rows(bucket, shard)[1]);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.found.audited.items >= REGISTERS_MAX || self.found.audited.bytes >= BYTES_MAX
    }

    /// Compares the sums of a run with its entries.
    fn run(&mut self, bucket: BucketId, shard: Shard) -> Result<()> {
        let counted = self.count(bucket, shard)?;
        let mut differs = self.held(bucket, shard)?;
        for sum in differs.values_mut() {
            let held = std::mem::take(sum);
            *sum -= held;
        }
        for (at, sum) in counted {
            *differs.entry(at).or_default() += sum;
        }
        differs.retain(|_, sum| *sum != Sum::default());
        for (at, sum) in differs {
            self.found.audited.corrupt.push(tree::decode_key(&at)?.1);
            self.found.mends.push((at, sum));
        }
        Ok(())
    }

    fn registers(&self, family: Family, bucket: BucketId, shard: Shard) -> DBRawIterator<'a> {
        self.database.iterate_at(self.snapshot, family, &tree::above_run(bucket, shard))
    }

    /// The sums that the entries of a run come to.
    fn count(&mut self, bucket: BucketId, shard: Shard) -> Result<Sums> {
        let (mut items, mut bytes, mut sums) = (0, 0, Sums::new());
        let prefix = tree::run_prefix(bucket, shard);
        let mut rows = self.registers(Family::Entries, bucket, shard);
        let mut inline = self.registers(Family::Inline, bucket, shard);
        rows.seek(prefix);
        inline.seek(prefix);
        while let Some((key, row)) = rows.item() {
            build::add(&mut sums, self.secret, key, row)?;
            let (_, entry) = rows::decode_register(row)?;
            bytes += row.len() as u64 + self.verify_inline(&mut inline, key, entry.as_ref())?;
            items += 1;
            rows.next();
        }
        self.database.ended_well(&rows)?;
        self.found.audited.items += items;
        self.found.audited.bytes += bytes;
        Ok(sums)
    }

    /// Verifies the inline bytes of an entry, if it has any; returns how many.
    fn verify_inline(
        &self,
        rows: &mut DBRawIterator<'_>,
        key: &[u8],
        entry: Option<&Entry>,
    ) -> Result<u64> {
        let Some(entry) = entry else { return Ok(0) };
        let Some(Body::Inline { crc32c }) = entry.value.body() else { return Ok(0) };
        if rows.key() != Some(key) {
            rows.seek(key);
        }
        let Some((_, row)) = rows.item().filter(|(at, _)| *at == key) else {
            self.database.ended_well(rows)?;
            return Err(Error::corrupt("an entry's inline bytes are gone"));
        };
        let (write_id, bytes) = rows::split_inline(row)?;
        if write_id != entry.write_id || rows::crc32c(bytes) != *crc32c {
            return Err(Error::corrupt("an entry's inline bytes are not what was written"));
        }
        let length = bytes.len() as u64;
        rows.next();
        Ok(length)
    }

    /// The sums of a run as they are kept.
    fn held(&self, bucket: BucketId, shard: Shard) -> Result<Sums> {
        let [first, above] = tree::run_rows(bucket, shard);
        let mut sums = Sums::new();
        let mut rows = self.database.iterate_at(self.snapshot, Family::Tree, &above);
        rows.seek(first);
        while let Some((key, row)) = rows.item() {
            let at = key.try_into().map_err(|_| Error::corrupt("a row of sums is malformed"))?;
            sums.insert(at, tree::decode_sum(row)?);
            rows.next();
        }
        self.database.ended_well(&rows)?;
        Ok(sums)
    }
}
