//! Count of registers whose usage isn't recorded yet: on an index of an earlier version.
//!
//! ```text
//! snapshot ──▶ some runs: entries − row ──▶ added to the row, with the position, in one batch
//!     ▲                                                            │
//!     └── rest, four times as long as it took ◀────────────────────┘
//! ```
//!
//! Each write changes the row of its run from the first opening on. So a row that was never counted
//! holds the changes alone, and what it lacks is the difference of entries and row in one snapshot.
//! The thread also lists the tombstones and promises that no list has. A crash loses the work on a
//! few runs. A run of many registers is read under one snapshot, in slices, with rests between.
//!
//! ```text
//! meta      'u'           → 'c': every run is counted
//!                           'r' | bucket (16) | shard (2): runs up to this one are counted
//! ```
//!
//! The audit finds wrong rows in the same way. Two corrections of one difference would be one too
//! many. So a correction names the number of corrections before its snapshot, and is refused after
//! another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use martlet_protocol::id::{BucketId, Shard};
use martlet_protocol::run_usage::{Run, RunUsage, head_of, version_in};
use martlet_protocol::{Error, ErrorKind, RegisterKey, Result};
use parking_lot::{Condvar, Mutex};
use rocksdb::{Snapshot, WriteBatch};
use tokio::sync::oneshot;

use super::database::Database;
use super::family::Family;
use super::plain_runs::PlainRuns;
use super::queue::{IndexOp, Queue, ReplySender};
use super::rows::{LAST_KEY, RegisterRow};
use super::usage::{self, LAST_USAGE, UsageKey, UsageMends};
use super::{old_list, tree};

/// Key of the position in `meta`.
const POSITION_KEY: &[u8] = b"u";
const COMPLETE: u8 = b'c';
const RUNS: u8 = b'r';
/// Registers between two rests, and in one correction beside a single run.
const SLICE_REGISTERS: usize = 4096;
/// Runs in one correction.
const SLICE_RUNS: usize = 256;
/// Rows in one batch of a list.
const LISTED_ROWS: usize = 1024;
/// Rest after a slice, as a multiple of its duration, and its maximum.
const REST_TIMES: u32 = 4;
const REST_MAX: Duration = Duration::from_secs(5);

/// State of the usage rows, shared by the committer and the threads that count.
#[derive(Default)]
pub(super) struct Counting {
    pub(super) plain: PlainRuns,
    complete: AtomicBool,
    /// Number of corrections: raised before one is staged, and after it is on disk.
    corrections: AtomicU64,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl Counting {
    /// Loads the state. An empty index is complete.
    pub(super) fn load(database: &Database) -> Result<Self> {
        let counting = Self::default();
        let position = database.get(Family::Meta, POSITION_KEY)?;
        let is_complete = position.as_deref() == Some(&[COMPLETE]);
        let families = [Family::Entries, Family::Usage, Family::Old];
        let is_new = position.is_none() && is_empty(database, &families)?;
        if is_new {
            // Without the log: RocksDB would allocate log space on a device that holds only extents.
            let mut batch = WriteBatch::default();
            batch.put_cf(database.family(Family::Meta), POSITION_KEY, [COMPLETE]);
            database.write_unlogged(batch)?;
            database.flush_family(Family::Meta)?;
        }
        counting.complete.store(is_complete || is_new, Ordering::Release);
        Ok(counting)
    }

    /// Returns true if every register is counted and listed.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Returns `Unavailable` until every register is counted and listed.
    pub(super) fn check_complete(&self, device: &str) -> Result<()> {
        if self.is_complete() {
            return Ok(());
        }
        Err(Error::unavailable(format!("device {device} is still counting its registers")))
    }

    /// Returns the number of corrections; to be read before a snapshot.
    pub(super) fn corrections(&self) -> u64 {
        self.corrections.load(Ordering::Acquire)
    }

    /// Invalidates the snapshots of others. Called before a correction or a removal of rows is
    /// staged, and again after it is on disk.
    pub(super) fn corrected(&self) {
        self.corrections.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a position is on disk.
    pub(super) fn reached(&self, position: &[u8]) {
        if position == [COMPLETE] {
            self.complete.store(true, Ordering::Release);
        }
    }

    /// Ends the threads that count.
    pub(super) fn stop(&self) {
        *self.stopped.lock() = true;
        self.stop.notify_all();
    }

    /// Returns true once threads that count must end.
    pub(super) fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }

    /// Rests after a slice that took so long, unless the thread must end.
    pub(super) fn rest(&self, took: Duration) {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.stop.wait_for(&mut stopped, REST_MAX.min(took * REST_TIMES));
        }
    }
}

fn is_empty(database: &Database, families: &[Family]) -> Result<bool> {
    for family in families {
        if !database.is_empty(*family)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stages a position.
pub(super) fn stage_position(database: &Database, batch: &mut WriteBatch, position: &[u8]) {
    batch.put_cf(database.family(Family::Meta), POSITION_KEY, position);
}

/// Adds up the contributions of a run's registers under a snapshot.
pub(super) fn add(
    database: &Database,
    snapshot: &Snapshot<'_>,
    usage: &mut RunUsage,
    key: &[u8],
    entry: &[u8],
) -> Result<()> {
    if usage::is_beside(key)
        && let Some((head, version)) = head_of(&RegisterKey::decode(key)?)
        && let Some(row) = database.get_at(snapshot, Family::Entries, &head.encode())?
        && version_in(super::rows::entry_bytes(&row)?)? == Some(version)
    {
        return Ok(());
    }
    *usage += usage::contribution(key, entry)?;
    Ok(())
}

/// Returns what a run's row lacks under a snapshot, if anything.
pub(super) fn difference(
    database: &Database,
    snapshot: &Snapshot<'_>,
    run: Run,
    counted: RunUsage,
) -> Result<Option<(UsageKey, RunUsage)>> {
    let at = usage::usage_key(run);
    let row = database.get_at(snapshot, Family::Usage, &at)?;
    let mut difference = counted;
    difference -= usage::usage_in(row.as_deref())?;
    Ok((difference != RunUsage::default()).then_some((at, difference)))
}

/// The thread that counts.
pub(super) struct CountingThread {
    pub(super) name: String,
    pub(super) database: Arc<Database>,
    pub(super) queue: Arc<Queue>,
    pub(super) counting: Arc<Counting>,
}

/// Runs counted under one snapshot.
#[derive(Default)]
struct CountedRuns {
    mends: UsageMends,
    runs: usize,
    registers: usize,
    listed: Vec<Vec<u8>>,
    last: Option<Run>,
}

impl CountingThread {
    /// Starts the thread, unless every register is counted.
    pub(super) fn spawn(self) -> Result<Option<JoinHandle<()>>> {
        if self.counting.is_complete() {
            return Ok(None);
        }
        let thread = std::thread::Builder::new().name(format!("count {}", self.name));
        let failed =
            |error| Error::internal("the counting thread can't be started").with_source(error);
        thread.spawn(move || self.run()).map(Some).map_err(failed)
    }

    fn run(self) {
        match self.count_all() {
            Ok(()) if self.counting.is_complete() => {
                tracing::info!(device = %self.name, "counted the usage of the device's registers");
            }
            Ok(()) => {}
            Err(error) => {
                self.database.note_damage(&error);
                tracing::debug!(device = %self.name, %error, "the count of registers ended early");
            }
        }
    }

    /// Counts from the stored position on.
    fn count_all(&self) -> Result<()> {
        let mut from = self.position()?;
        while !self.counting.is_stopped() {
            let (counted, is_last) = self.count_runs(&from)?;
            let next = counted.last.map(|run| tree::above_run(run.bucket, run.shard));
            if self.counting.is_stopped() || !self.apply(counted)? {
                continue;
            }
            if is_last {
                return self.finish();
            }
            from = next.unwrap_or(from);
        }
        Ok(())
    }

    /// Returns the first key that isn't counted.
    fn position(&self) -> Result<Vec<u8>> {
        let malformed = || Error::corrupt("the position of the count is malformed");
        let Some(row) = self.database.get(Family::Meta, POSITION_KEY)? else {
            return Ok(Vec::new());
        };
        let Some((&RUNS, run)) = row.split_first() else { return Err(malformed()) };
        let (bucket, shard) = tree::run_of(run)?;
        Ok(tree::above_run(bucket, shard))
    }

    /// Counts some runs from a key on, at least one. Returns true at the end of the index.
    fn count_runs(&self, from: &[u8]) -> Result<(CountedRuns, bool)> {
        let mut counted = CountedRuns::default();
        counted.mends.after = self.counting.corrections();
        let snapshot = self.database.snapshot();
        let mut rows = self.database.iterate_at(&snapshot, Family::Entries, &LAST_KEY);
        rows.seek(from);
        let (mut usage, mut began) = (RunUsage::default(), Instant::now());
        while let Some((key, row)) = rows.item() {
            let (bucket, shard) = tree::run_of(key)?;
            let run = Run { bucket, shard };
            if counted.last != Some(run) {
                self.end_run(&snapshot, &mut counted, std::mem::take(&mut usage))?;
                if counted.registers >= SLICE_REGISTERS || counted.runs >= SLICE_RUNS {
                    return Ok((counted, false));
                }
                counted.last = Some(run);
            }
            let row = RegisterRow::parse(row)?;
            add(&self.database, &snapshot, &mut usage, key, row.entry_bytes())?;
            counted.listed.extend(old_list::row_of(key, &row)?);
            counted.registers += 1;
            if counted.registers.is_multiple_of(SLICE_REGISTERS) {
                self.counting.rest(began.elapsed());
                began = Instant::now();
                if self.counting.is_stopped() {
                    return Ok((counted, false));
                }
            }
            if counted.listed.len() >= LISTED_ROWS {
                self.list(std::mem::take(&mut counted.listed))?;
            }
            rows.next();
        }
        self.database.ended_well(&rows)?;
        self.end_run(&snapshot, &mut counted, usage)?;
        Ok((counted, true))
    }

    fn end_run(
        &self,
        snapshot: &Snapshot<'_>,
        counted: &mut CountedRuns,
        usage: RunUsage,
    ) -> Result<()> {
        let Some(run) = counted.last else { return Ok(()) };
        counted.mends.mends.extend(difference(&self.database, snapshot, run, usage)?);
        counted.runs += 1;
        Ok(())
    }

    /// Stores what was counted. Returns false if it must be counted again.
    fn apply(&self, counted: CountedRuns) -> Result<bool> {
        let CountedRuns { mut mends, listed, last, .. } = counted;
        self.list(listed)?;
        let Some(run) = last else { return Ok(true) };
        mends.position = Some([&[RUNS][..], &tree::run_prefix(run.bucket, run.shard)].concat());
        let began = Instant::now();
        let applied = self.mend(mends)?;
        self.counting.rest(began.elapsed());
        Ok(applied)
    }

    /// Corrects the rows of runs that have no registers, and completes the count.
    fn finish(&self) -> Result<()> {
        while !self.counting.is_stopped() {
            let mends = self.rows_alone()?;
            if self.mend(UsageMends { position: Some(vec![COMPLETE]), ..mends })? {
                break;
            }
        }
        Ok(())
    }

    /// Returns corrections of rows whose runs have no registers: all of them were removed after the
    /// first opening, and the row has the removals alone.
    fn rows_alone(&self) -> Result<UsageMends> {
        let mut mends = UsageMends { after: self.counting.corrections(), ..UsageMends::default() };
        let snapshot = self.database.snapshot();
        let mut rows = self.database.iterate_at(&snapshot, Family::Usage, &LAST_USAGE);
        let mut entries = self.database.iterate_at(&snapshot, Family::Entries, &LAST_KEY);
        rows.seek([]);
        while let Some((key, row)) = rows.item() {
            let (at, run) = run_in(key)?;
            let usage = RunUsage::decode(row)?;
            if usage != RunUsage::default() {
                let prefix = tree::run_prefix(run.bucket, run.shard);
                entries.seek(prefix);
                if !entries.key().is_some_and(|key| key.starts_with(&prefix)) {
                    self.database.ended_well(&entries)?;
                    mends.mends.push((at, -usage));
                }
            }
            rows.next();
        }
        self.database.ended_well(&rows)?;
        Ok(mends)
    }

    fn list(&self, listed: Vec<Vec<u8>>) -> Result<()> {
        if listed.is_empty() {
            return Ok(());
        }
        self.submit(|reply| IndexOp::ListOld(listed, reply))
    }

    /// Submits corrections. Returns false if others were made since the snapshot.
    fn mend(&self, mends: UsageMends) -> Result<bool> {
        match self.submit(|reply| IndexOp::MendUsage(mends, reply)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn submit(&self, op: impl FnOnce(ReplySender<()>) -> IndexOp) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(op(reply))?;
        let closed = |_| Err(Error::unavailable("the index was closed"));
        answer.blocking_recv().unwrap_or_else(closed)
    }
}

/// Returns key and run of a usage row.
fn run_in(key: &[u8]) -> Result<(UsageKey, Run)> {
    let malformed = || Error::corrupt("the key of a row of usage is malformed");
    let at: UsageKey = key.try_into().map_err(|_| malformed())?;
    let bucket = at[8..24].try_into().map_err(|_| malformed())?;
    let shard = Shard(u16::from_be_bytes([at[24], at[25]]));
    Ok((at, Run { bucket: BucketId(bucket), shard }))
}
