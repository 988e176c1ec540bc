//! The index of one device: registers in RocksDB, written by one thread.
//!
//! ```text
//! callers ──encode──▶ Queue ──▶ Committer ──one synced batch──▶ Database
//!    ▲                             │ reads, judges, stages          │
//!    └────────── oneshot ──────────┘                                │
//! callers ◀──────────── Reader, list (memory first) ────────────────┘
//! ```
//!
//! * [`queue`]: waiting operations; [`group`]: operations that are judged and become durable
//!   together; [`committer`]: the thread between them. While one batch syncs, the next group
//!   gathers: sixteen writers share a sync, without a timer.
//! * [`read`] and [`list`]: reads never wait for the committer. RocksDB shows a batch only once it
//!   is synced, so a reader can't see data that a power cut could remove (rule R2).
//! * [`fences`]: writes that each bucket accepts (rule M2); [`voting`]: votes and floor of the
//!   device (rules G1, G2); [`hints`]: writes kept for other devices (rule A2), [`kept_hints`]:
//!   their number and arrivals, and [`hint_calls`]. A group changes each by a module of its own.
//! * [`log_tail`]: RocksDB's logs after a power cut.
//! * [`mod@prepare`]: encoding of a write before it is queued; [`purge`]: removal of a bucket;
//!   `group::eviction`: removal of single registers (rule T1).
//! * [`tree`]: sums of the registers (rule H1), [`build`]: rebuilding of sums, [`walk`]: registers
//!   in a span of the ring; [`audit`]: verification of registers, and [`audit_sessions`]: audits
//!   over many calls; [`upkeep`]: calls of background workers; [`garbage`] and [`aged`]: walks over
//!   garbage and over old tombstones.
//! * [`usage`]: usage of runs, [`plain_runs`]: those whose changes read nothing, and [`counting`]:
//!   the count of an index of an earlier version; [`old_list`]: tombstones and promises by time, and
//!   [`old_pages`]: pages of them.
//! * [`rows`]: encoding of rows; [`database`], [`family`] and [`options`]: RocksDB;
//!   [`background`]: its threads.
//! * [`bulk`]: loading of many rows into an index of its own.
//! * [`extent_table`]: the extent store's rows, [`places`]: the disk space that they use, [`marks`]:
//!   deletes of extents, and [`unsettled`]: places without rows.
//! * [`origin`]: the formatting that an index belongs to, and [`opening_row`]: the opening.
//!
//! Invariants:
//! * only the committer writes registers, so reading, judging and writing a register is a single
//!   step;
//! * no reply is sent before the batch is on disk, refusals included;
//! * an entry that is replaced leaves its extents in `garbage` in the same batch;
//! * sums, usage and lists change in the batch that changes the entry.

mod aged;
mod audit;
mod audit_page;
mod audit_sessions;
mod background;
mod build;
mod bulk;
mod committer;
mod counting;
mod database;
mod extent_table;
mod family;
mod fences;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod garbage;
mod group;
pub(crate) mod hint_calls;
mod hints;
mod kept_hints;
mod list;
mod log_tail;
mod marks;
mod old_list;
mod old_pages;
mod opening_row;
mod options;
mod origin;
mod places;
mod plain_runs;
mod prepare;
mod purge;
mod queue;
mod read;
mod rows;
mod tree;
mod unsettled;
mod upkeep;
mod usage;
mod voting;
mod walk;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use martlet_protocol::backend::{
    BucketFence, EntryWrite, Garbage, GarbageId, ListReply, ListRequest, PromiseReply,
    RegisterView, RowSelection, Want, WriteReply,
};
use martlet_protocol::opening::Uuid;
use martlet_protocol::trace::{self, SpanKind};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, DeviceIdentity, Error, RegisterKey, Result, Stamp, Term};
use tokio::sync::oneshot;

use self::audit_sessions::AuditSessions;
use self::committer::Committer;
use self::counting::{Counting, CountingThread};
use self::database::Database;
use self::family::Family;
use self::fences::Fences;
use self::kept_hints::HintCounter;
use self::list::ListSource;
use self::prepare::prepare;
use self::purge::PurgePositions;
use self::queue::{IndexOp, PromiseOp, PromiseOutcome, Queue, ReplySender};
use self::read::RegisterReader;
use self::voting::VotingState;
use crate::device::ballast::Ballast;
use crate::device::pool::Pool;
use crate::device::pulse::DevicePart;
use crate::metrics::IndexCounters;

pub(crate) use self::bulk::BulkIndex;
pub use self::extent_table::{ExtentTable, PlacedRow};
pub(crate) use self::opening_row::IndexAge;
pub use self::options::Caches;
pub use self::places::{DiskPlace, UsedPlace};
pub use self::unsettled::{RecordPlace, UnsettledPlaces};
pub(crate) use self::voting::VotingSnapshot;

/// State that an index shares with its device.
#[derive(Clone)]
pub(crate) struct IndexContext {
    /// Name of the device, for its thread and messages.
    pub(crate) name: String,
    /// Formatting of the device, which the index belongs to.
    pub(crate) device: Uuid,
    /// True if it has votes where the index doesn't record any.
    pub(crate) votes: bool,
    /// True if it may use its votes without confirmation by peers.
    pub(crate) confirmed: bool,
    /// True if other devices hold copies of its registers.
    pub(crate) peers: bool,
    /// Secret of the cluster that keys the sums.
    pub(crate) secret: TreeKey,
    pub(crate) caches: Caches,
    pub(crate) ballast: Arc<Ballast>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<IndexCounters>,
    /// Threads on which calls wait for the disk.
    pub(crate) threads: Arc<Pool>,
}

/// The index of one device.
pub(crate) struct Index {
    name: String,
    reader: RegisterReader,
    fences: Arc<Fences>,
    voting_state: Arc<VotingState>,
    counting: Arc<Counting>,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    secret: TreeKey,
    audits: AuditSessions,
    purges: PurgePositions,
    /// Bounds of one call of an audit.
    slice: audit::AuditLimits,
    committer: Option<JoinHandle<()>>,
    counter: Option<JoinHandle<()>>,
    hint_counter: Option<JoinHandle<()>>,
}

impl Index {
    /// Opens or creates the index in `folder`. Blocks.
    pub(crate) fn open(folder: &Path, with: IndexContext) -> Result<Self> {
        let database = Arc::new(Database::open(folder, &with.caches)?);
        let is_bound = origin::check(&database, with.device)?;
        let is_durable = build::ensure(&database, &with.secret)
            .inspect_err(|error| database.note_damage(error))?;
        if is_bound && !is_durable {
            database.flush()?;
        }
        let counting = Counting::load(&database);
        let counting = Arc::new(counting.inspect_err(|error| database.note_damage(error))?);
        let queue = Arc::new(Queue::default());
        let fences = Arc::new(Fences::load(&database)?);
        let opened_ms = with.clock.now_ms();
        let voting_state = VotingState::load(&database, with.votes, with.confirmed, opened_ms)?;
        let voting_state = Arc::new(voting_state);
        let hint_counter = HintCounter {
            name: with.name.clone(),
            database: database.clone(),
            voting_state: voting_state.clone(),
            counting: counting.clone(),
        };
        let hint_counter = hint_counter.spawn()?;
        let committer = Committer {
            name: with.name.clone(),
            identity: DeviceIdentity(with.device.0),
            fences: fences.clone(),
            voting_state: voting_state.clone(),
            counting: counting.clone(),
            database: database.clone(),
            queue: queue.clone(),
            ballast: with.ballast,
            clock: with.clock.clone(),
            counters: with.counters.clone(),
            secret: with.secret,
            peers: with.peers,
            pulse: with.threads.pulse().clone(),
        };
        let committer = Some(committer.spawn().inspect_err(|_| counting.stop())?);
        let IndexContext { name, clock, secret, counters, threads, .. } = with;
        let counter = CountingThread {
            name: name.clone(),
            database: database.clone(),
            queue: queue.clone(),
            counting: counting.clone(),
        };
        let reader =
            RegisterReader { database, voting_state: voting_state.clone(), counters, threads };
        let (audits, slice) = (AuditSessions::default(), audit::AuditLimits::default());
        let mut index = Self {
            name,
            reader,
            fences,
            voting_state,
            counting,
            queue,
            clock,
            secret,
            audits,
            purges: PurgePositions::default(),
            slice,
            committer,
            counter: None,
            hint_counter,
        };
        index.counter = counter.spawn()?;
        Ok(index)
    }

    /// Returns the table of the device's extents.
    pub(crate) fn extent_table(&self) -> Result<ExtentTable> {
        ExtentTable::new(self.reader.database.clone())
    }

    /// Returns the reason if the index accepts no more writes.
    pub(crate) fn fault(&self) -> Option<String> {
        self.reader.database.fault()
    }

    /// Returns the corruption that was found in the index, if any.
    pub(crate) fn damage(&self) -> Option<String> {
        self.reader.database.damage()
    }

    /// Returns the last read error of the disk since the previous call, if any.
    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.reader.database.take_unreadable()
    }

    /// Detects failures of RocksDB's background work. Blocks.
    pub(crate) fn probe(&self) {
        self.reader.database.probe();
    }

    pub(crate) async fn read(
        &self,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.voting_state.check_votes(&self.name)?;
        self.voting_state.check_term(term)?;
        self.reader.read(key.encode(), want).await
    }

    pub(crate) async fn write(&self, entry_write: EntryWrite) -> Result<WriteReply> {
        let write = prepare(&entry_write, &self.secret)?;
        self.read_ahead(&write.key).await?;
        self.read_beside(&entry_write, &write.key).await?;
        self.submit(|reply| IndexOp::Write(write, reply)).await
    }

    pub(crate) async fn promise(
        &self,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        let key = key.encode();
        self.read_ahead(&key).await?;
        let promise = PromiseOp { key: key.clone(), ballot, term };
        match self.submit(|reply| IndexOp::Promise(promise, reply)).await? {
            PromiseOutcome::Behind(floor) => Ok(PromiseReply::Behind(floor)),
            PromiseOutcome::Granted(row) => {
                let entry = row.entry()?;
                // A proxy that completes a found write needs its bytes. If another write has
                // replaced these bytes, this ballot has lost, and its accept will fail.
                let inline = match &entry {
                    Some(entry) => self.reader.inline_of(key, entry).await?,
                    None => None,
                };
                Ok(PromiseReply::Promised(RegisterView { promise: ballot, entry, inline }))
            }
        }
    }

    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.list_rows(request, RowSelection::EVERYTHING).await
    }

    pub(crate) async fn list_rows(
        &self,
        request: &ListRequest,
        rows: RowSelection,
    ) -> Result<ListReply> {
        self.voting_state.check_votes(&self.name)?;
        self.voting_state.check_term(request.term)?;
        self.list_of(ListSource::Registers, request, rows).await
    }

    async fn list_of(
        &self,
        source: ListSource,
        request: &ListRequest,
        rows: RowSelection,
    ) -> Result<ListReply> {
        let RegisterReader { database, counters, threads, .. } = self.reader.clone();
        let request = request.clone();
        let listed = move || {
            let (reply, looked_at) = list::list(&database, source, &request, rows)?;
            counters.listed(looked_at);
            Ok(reply)
        };
        threads.run(listed).await
    }

    pub(crate) async fn registers(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let (reader, after) = (self.reader.clone(), after.cloned());
        self.run(move || reader.registers(after.as_ref(), limit)).await
    }

    /// Returns the writes that each bucket accepts (rule M2).
    pub(crate) fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Raises the floor: no promise lies below `floor` from now on (rule G2).
    pub(crate) async fn raise_floor(&self, floor: Stamp) -> Result<()> {
        self.submit(|reply| IndexOp::RaiseFloor(floor, reply)).await
    }

    /// Gives or withdraws the device's votes, durably (rule G1).
    pub(crate) async fn set_voting(&self, voting: bool) -> Result<()> {
        self.submit(|reply| IndexOp::SetVoting(voting, reply)).await
    }

    /// Allows or forbids the use of the device's votes (rule G1). Not stored on disk.
    pub(crate) fn set_confirmed(&self, confirmed: bool) {
        self.voting_state.set_confirmed(confirmed);
    }

    /// Returns true if the device has no votes, hints, fences or registers.
    pub(crate) async fn is_empty(&self) -> Result<bool> {
        let snapshot = self.voting_snapshot();
        if snapshot.has_votes || snapshot.hints > 0 || !self.fences.all().is_empty() {
            return Ok(false);
        }
        Ok(self.registers(None, 1).await?.is_empty())
    }

    /// Returns the state of the device as a whole.
    pub(crate) fn voting_snapshot(&self) -> VotingSnapshot {
        self.voting_state.now()
    }

    pub(crate) async fn fence(&self, fence: BucketFence) -> Result<()> {
        self.submit(|reply| IndexOp::Fence(fence, reply)).await
    }

    pub(crate) async fn garbage(&self, before_ms: u64, limit: usize) -> Result<Vec<Garbage>> {
        let database = self.reader.database.clone();
        self.run(move || {
            let upper = before_ms.saturating_add(1).to_be_bytes();
            let mut garbage = Vec::new();
            database.scan(Family::Garbage, &[], &upper, limit, |id, row| {
                garbage.push(rows::decode_garbage(id, row)?);
                Ok(())
            })?;
            Ok(garbage)
        })
        .await
    }

    pub(crate) async fn forget_garbage(&self, garbage: &[GarbageId]) -> Result<()> {
        let garbage = garbage.to_vec();
        self.submit(|reply| IndexOp::Forget(garbage, reply)).await
    }

    /// Writes everything to disk, so that the next opening has nothing to recover. Blocks.
    pub(crate) fn close(mut self) -> Result<()> {
        self.stop();
        self.reader.database.healthy()?;
        self.reader.database.flush()
    }

    /// Runs a call that may wait for the disk.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.reader.threads.run(work).await
    }

    /// Reads the row of a register, so that the committer doesn't wait for the disk.
    async fn read_ahead(&self, key: &[u8]) -> Result<()> {
        self.reader.threads.pulse().check(DevicePart::Index)?;
        self.reader.read_ahead(key).await
    }

    /// Reads the registers whose contribution to usage depends on a write, for the same reason.
    async fn read_beside(&self, write: &EntryWrite, key: &[u8]) -> Result<()> {
        if usage::is_head(key) {
            if self.counting.plain.needs_search(key) {
                let (database, counting) = (self.reader.database.clone(), self.counting.clone());
                let key = key.to_vec();
                self.run(move || counting.plain.search(&database, &key)).await?;
            }
            if self.counting.plain.has(key) {
                return Ok(());
            }
        }
        match usage::beside_of(write) {
            Some(beside) => self.reader.read_ahead(&beside).await,
            None => Ok(()),
        }
    }

    async fn submit<T>(&self, op: impl FnOnce(ReplySender<T>) -> IndexOp) -> Result<T> {
        self.reader.threads.pulse().check(DevicePart::Index)?;
        // From the queue to the synced batch.
        let _span = trace::child(SpanKind::Internal, "commit of the index");
        let (reply, answer) = oneshot::channel();
        self.queue.push(op(reply))?;
        let answer = self.reader.threads.pulse().wait(answer).await?;
        answer.unwrap_or_else(|_| Err(Error::unavailable("the index was closed")))
    }

    fn stop(&mut self) {
        self.queue.close();
        self.counting.stop();
        if let Some(committer) = self.committer.take()
            && committer.join().is_err()
        {
            tracing::error!("the committer panicked");
        }
        for counter in [self.counter.take(), self.hint_counter.take()].into_iter().flatten() {
            if counter.join().is_err() {
                tracing::error!("a count of the index's rows panicked");
            }
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.stop();
    }
}
