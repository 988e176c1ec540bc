//! Verification of registers. Each run is summed up again from its entries and compared with the
//! stored sums (rule H1). On the way inline bytes are verified against their checksums, and usage
//! is counted again.
//!
//! A run and its sums are read from one snapshot, so no concurrent write causes a difference. The
//! repair adds the difference to the sums, so that later writes are not lost.
//!
//! Runs that have entries come first, in the order of their keys. Then come runs that have only
//! sums.
//!
//! A call ends after a limit of registers, bytes or time, even in the middle of a run. The reading
//! thread keeps its snapshot and its partial sums ([`audit_sessions`](super::audit_sessions)), and
//! continues at the next call. A run whose thread has ended is begun anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use martlet_protocol::backend::AuditResult;
use martlet_protocol::entry::{Body, Entry};
use martlet_protocol::id::{BucketId, Shard};
use martlet_protocol::run_usage::{Run, RunUsage};
use martlet_protocol::tree::{BinKey, Sum, TreeKey};
use martlet_protocol::{Error, Result};
use rocksdb::{DBRawIterator, Snapshot};

use super::audit_page::{AuditFindings, SUMS_ALONE, WITH_ENTRIES, WITHIN};
use super::audit_sessions::WaitingCalls;
use super::build::{self, Sums};
use super::counting::{self, Counting};
use super::database::Database;
use super::family::Family;
use super::rows::{self, LAST_KEY};
use super::tree::{self, LAST_ROW, RowKey};

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditLimits {
    /// Registers.
    pub(super) registers: u64,
    /// Bytes of rows and inline bytes.
    pub(super) bytes: u64,
    /// Time: shorter than callers' timeouts.
    pub(super) time: Duration,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self { registers: 20_000, bytes: 32 * 1024 * 1024, time: Duration::from_secs(2) }
    }
}

/// Number of runs after which a page ends.
const RUNS_MAX: usize = 1000;
/// Verifies runs above `after` on a thread of its own, which sends a page to each of `calls`. The
/// thread drops the database before it sends the last page, so that the caller may close and reopen
/// the index.
pub(super) fn run(
    database: Arc<Database>,
    counting: &Counting,
    secret: TreeKey,
    slice: AuditLimits,
    after: Option<BinKey>,
    calls: WaitingCalls<AuditFindings>,
) {
    let last = pages(&database, counting, &secret, after, slice, calls);
    drop(database);
    if let Some((calls, page)) = last {
        let _ = calls.send(page);
    }
}

/// Sends all pages but the last. Returns the last page with its call, or none if no call waits.
fn pages(
    database: &Database,
    counting: &Counting,
    secret: &TreeKey,
    after: Option<BinKey>,
    slice: AuditLimits,
    calls: WaitingCalls<AuditFindings>,
) -> Option<(WaitingCalls<AuditFindings>, Result<AuditFindings>)> {
    // Before the snapshot: corrections made after it are not in it.
    let usage_after = counting.is_complete().then(|| counting.corrections());
    let snapshot = database.snapshot();
    let (found, began) = (AuditFindings::default(), Instant::now());
    let mut audit = Audit {
        database,
        secret,
        snapshot: &snapshot,
        usage_after,
        found,
        slice,
        began,
        calls: Some(calls),
    };
    let outcome = match after {
        Some(bin) if bin.bin == SUMS_ALONE => {
            audit.sums_alone(tree::run_rows(bin.bucket, bin.shard)[1])
        }
        Some(bin) if bin.bin == WITHIN => {
            audit.entries(tree::run_prefix(bin.bucket, bin.shard).to_vec())
        }
        Some(bin) => audit.entries(tree::above_run(bin.bucket, bin.shard)),
        None => audit.entries(Vec::new()),
    };
    // Without calls the audit was abandoned.
    let calls = audit.calls?;
    // A row with a valid checksum that can't be decoded is damage too.
    let outcome = outcome.inspect_err(|error| database.note_damage(error));
    Some((calls, outcome.map(|()| audit.found)))
}

struct Audit<'a> {
    database: &'a Database,
    secret: &'a TreeKey,
    snapshot: &'a Snapshot<'a>,
    /// Number of corrections of usage before the snapshot; none if usage isn't counted yet.
    usage_after: Option<u64>,
    found: AuditFindings,
    slice: AuditLimits,
    began: Instant,
    /// The waiting call; none once the audit is abandoned.
    calls: Option<WaitingCalls<AuditFindings>>,
}

impl<'a> Audit<'a> {
    /// Verifies runs that have entries, from a key on.
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

    /// Verifies runs that have only sums, from a row on. Runs with entries were verified before.
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
        let (AuditResult { items, bytes, .. }, slice) = (&self.found.audited, &self.slice);
        *items >= slice.registers || *bytes >= slice.bytes || self.began.elapsed() >= slice.time
    }

    /// Ends a page in the middle of a run, and waits for the next call.
    fn pause(&mut self, bucket: BucketId, shard: Shard) -> Result<()> {
        self.found.audited.next = Some(BinKey { bucket, shard, bin: WITHIN });
        let calls = self.calls.take();
        let later = calls.and_then(|calls| calls.send(Ok(std::mem::take(&mut self.found))));
        self.calls = later.and_then(WaitingCalls::next);
        self.began = Instant::now();
        match self.calls {
            Some(_) => Ok(()),
            None => Err(Error::unavailable("the audit of a run was abandoned")),
        }
    }

    /// Compares the sums of a run with its entries.
    fn run(&mut self, bucket: BucketId, shard: Shard) -> Result<()> {
        let (counted, usage) = self.count(bucket, shard)?;
        self.compare_usage(Run { bucket, shard }, usage)?;
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

    /// Compares the usage of a run with its row.
    fn compare_usage(&mut self, run: Run, usage: RunUsage) -> Result<()> {
        let Some(after) = self.usage_after else { return Ok(()) };
        let mend = counting::difference(self.database, self.snapshot, run, usage)?;
        self.found.usage.after = after;
        self.found.usage.mends.extend(mend);
        Ok(())
    }

    /// Computes the sums of a run and its usage from its entries.
    fn count(&mut self, bucket: BucketId, shard: Shard) -> Result<(Sums, RunUsage)> {
        let (mut sums, mut usage) = (Sums::new(), RunUsage::default());
        let prefix = tree::run_prefix(bucket, shard);
        let mut rows = self.registers(Family::Entries, bucket, shard);
        let mut inline = self.registers(Family::Inline, bucket, shard);
        rows.seek(prefix);
        inline.seek(prefix);
        while let Some((key, row)) = rows.item() {
            build::add(&mut sums, self.secret, key, row)?;
            let entry = rows::entry_bytes(row)?;
            counting::add(self.database, self.snapshot, &mut usage, key, entry)?;
            let (_, entry) = rows::decode_register(row)?;
            let inline_bytes = self.verify_inline(&mut inline, key, entry.as_ref())?;
            self.found.audited.items += 1;
            self.found.audited.bytes += row.len() as u64 + inline_bytes;
            rows.next();
            if rows.valid() && self.is_full() {
                self.pause(bucket, shard)?;
            }
        }
        self.database.ended_well(&rows)?;
        Ok((sums, usage))
    }

    /// Verifies the inline bytes of an entry, if any; returns their number.
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
            return Err(Error::corrupt("an entry's inline bytes are missing"));
        };
        let (write_id, bytes) = rows::split_inline(row)?;
        if write_id != entry.write_id || rows::crc32c(bytes) != *crc32c {
            return Err(Error::corrupt("an entry's inline bytes are corrupt"));
        }
        let length = bytes.len() as u64;
        rows.next();
        Ok(length)
    }

    /// Returns the stored sums of a run.
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
