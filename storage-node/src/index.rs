//! The index of one device: registers in RocksDB, written by one thread.
//!
//! ```text
//! callers ──encode──▶ Queue ──▶ Committer ──one synced batch──▶ Database
//!    ▲                             │ reads, judges, stages          │
//!    └────────── oneshot ──────────┘                                │
//! callers ◀──────────── Reader, list (memory first) ────────────────┘
//! ```
//!
//! * [`queue`]: what waits; [`group`]: what is judged and becomes durable together; [`committer`]:
//!   the thread between them. While one batch syncs, the next group gathers: sixteen writers share a
//!   sync, and nobody waits for a timer.
//! * [`read`] and [`list`]: never wait for the committer. RocksDB shows a batch only once it is
//!   synced, so a reader can't see what a power cut could take back (rule R2).
//! * [`fences`]: what each bucket takes (rule M2); [`standing`]: votes and floor of the device (rules
//!   G1, G2); [`hints`]: what it keeps for others (rule A2).
//! * [`log_tail`]: what a power cut leaves of RocksDB's logs.
//! * [`mod@prepare`]: a write before it waits; [`purge`]: the end of a bucket; [`letting_go`]: the end
//!   of single registers (rule T1).
//! * [`tree`]: what the registers sum up to (rule H1), [`build`]: those sums made anew, [`walk`]: what
//!   lies in a span of the ring; [`audit`]: whether it is all as it was written, and [`sessions`]:
//!   over many calls; [`upkeep`]: the calls of those who ask.
//! * [`rows`]: the bytes; [`database`] and [`options`]: RocksDB; [`background`]: its threads.
//! * [`extent_table`]: the extent store's rows, in column families of their own.
//!
//! Invariants:
//! * only the committer writes registers, so reading, judging and writing one is a single step;
//! * nothing is answered before it is on disk, refusals included;
//! * an entry that is replaced leaves its extents in `garbage` in the same batch;
//! * the sums change in the batch that changes the entry.

mod audit;
mod background;
mod build;
mod committer;
mod database;
mod extent_table;
mod fences;
mod group;
mod hints;
mod letting_go;
mod list;
mod log_tail;
mod options;
mod prepare;
mod purge;
mod queue;
mod read;
mod rows;
mod sessions;
mod standing;
mod tree;
mod upkeep;
mod walk;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use martlet_protocol::backend::{
    BucketFence, EntryWrite, Garbage, GarbageId, Hint, ListReply, ListRequest, PromiseReply,
    RegisterView, Want, WriteReply,
};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, Error, RegisterKey, Result, Stamp, Term};
use tokio::sync::oneshot;

use self::committer::Committer;
use self::database::{Database, Family};
use self::fences::Fences;
use self::list::Source;
use self::prepare::prepare;
use self::queue::{Op, PromiseOp, Promised, Queue, Reply};
use self::read::Reader;
use self::sessions::Sessions;
use self::standing::Standing;
use crate::device::ballast::Ballast;
use crate::device::pool::Pool;
use crate::device::pulse::Part;
use crate::metrics::IndexCounters;

pub use self::extent_table::ExtentTable;
pub use self::options::Caches;
pub(crate) use self::standing::StandingNow;

/// What an index shares with its device.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// The device, for its thread and its sentences.
    pub(crate) name: String,
    /// Whether it has votes if it was never told.
    pub(crate) votes: bool,
    /// True when it may use its votes without being confirmed by peers.
    pub(crate) confirmed: bool,
    /// Whether other devices hold what this one holds.
    pub(crate) peers: bool,
    /// The secret of the cluster that sums are keyed with.
    pub(crate) secret: TreeKey,
    pub(crate) caches: Caches,
    pub(crate) ballast: Arc<Ballast>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<IndexCounters>,
    /// Where calls wait for the disk.
    pub(crate) threads: Arc<Pool>,
}

/// The index of one device.
pub(crate) struct Index {
    name: String,
    reader: Reader,
    fences: Arc<Fences>,
    standing: Arc<Standing>,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    secret: TreeKey,
    audits: Sessions,
    /// How much a call of an audit reads.
    slice: audit::Slice,
    committer: Option<JoinHandle<()>>,
}

impl Index {
    /// Opens the index in `folder`, or makes it. Blocks.
    pub(crate) fn open(folder: &Path, with: Surroundings) -> Result<Self> {
        let database = Arc::new(Database::open(folder, &with.caches)?);
        build::ensure(&database, &with.secret).inspect_err(|error| database.note_damage(error))?;
        let queue = Arc::new(Queue::default());
        let fences = Arc::new(Fences::load(&database)?);
        let standing = Arc::new(Standing::load(&database, with.votes, with.confirmed)?);
        let committer = Committer {
            name: with.name.clone(),
            fences: fences.clone(),
            standing: standing.clone(),
            database: database.clone(),
            queue: queue.clone(),
            ballast: with.ballast,
            clock: with.clock.clone(),
            counters: with.counters.clone(),
            secret: with.secret,
            peers: with.peers,
            pulse: with.threads.pulse().clone(),
        };
        let committer = Some(committer.spawn()?);
        let Surroundings { name, clock, secret, counters, threads, .. } = with;
        let reader = Reader { database, standing: standing.clone(), counters, threads };
        let (audits, slice) = (Sessions::default(), audit::Slice::default());
        Ok(Self { name, reader, fences, standing, queue, clock, secret, audits, slice, committer })
    }

    /// The table of the device's extents.
    pub(crate) fn extent_table(&self) -> ExtentTable {
        ExtentTable::new(self.reader.database.clone())
    }

    /// Why it takes no more writes, if something failed.
    pub(crate) fn fault(&self) -> Option<String> {
        self.reader.database.fault()
    }

    /// What of it was found corrupt.
    pub(crate) fn damage(&self) -> Option<String> {
        self.reader.database.damage()
    }

    /// An error of a read that the disk failed, if there was one since this was asked last.
    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.reader.database.take_unreadable()
    }

    /// Finds out whether something failed in the background. Blocks.
    pub(crate) fn probe(&self) {
        self.reader.database.probe();
    }

    pub(crate) async fn read(
        &self,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.standing.check_votes(&self.name)?;
        self.standing.check_term(term)?;
        self.reader.read(key.encode(), want).await
    }

    pub(crate) async fn write(&self, write: EntryWrite) -> Result<WriteReply> {
        let write = prepare(&write, &self.secret)?;
        self.submit(|reply| Op::Write(write, reply)).await
    }

    pub(crate) async fn promise(
        &self,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        let key = key.encode();
        let promise = PromiseOp { key: key.clone(), ballot, term };
        match self.submit(|reply| Op::Promise(promise, reply)).await? {
            Promised::Behind(floor) => Ok(PromiseReply::Behind(floor)),
            Promised::Granted(row) => {
                let entry = row.entry()?;
                // Whoever finishes a write that it found needs its bytes. If another has replaced
                // them meanwhile, this ballot has lost, and its accept will hear so.
                let inline = match &entry {
                    Some(entry) => self.reader.inline_of(key, entry).await?,
                    None => None,
                };
                Ok(PromiseReply::Promised(RegisterView { promise: ballot, entry, inline }))
            }
        }
    }

    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.standing.check_votes(&self.name)?;
        self.standing.check_term(request.term)?;
        self.list_of(Source::Registers, request).await
    }

    async fn list_of(&self, source: Source, request: &ListRequest) -> Result<ListReply> {
        let Reader { database, counters, threads, .. } = self.reader.clone();
        let request = request.clone();
        let listed = move || {
            let (reply, looked_at) = list::list(&database, source, &request)?;
            counters.listed(looked_at);
            Ok(reply)
        };
        threads.run(listed).await
    }

    /// Keeps a write for the primaries of its register (rule A2).
    pub(crate) async fn keep_hint(&self, write: EntryWrite) -> Result<WriteReply> {
        let write = prepare(&write, &self.secret)?;
        let reply = self.submit(|reply| Op::KeepHint(write, reply)).await?;
        if reply == WriteReply::Stored {
            self.reader.counters.hint_kept();
        }
        Ok(reply)
    }

    pub(crate) async fn read_hint(&self, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        if self.standing.hints() == 0 {
            return Ok(RegisterView::default());
        }
        hints::read(&self.reader, key, want).await
    }

    pub(crate) async fn list_hints(&self, request: &ListRequest) -> Result<ListReply> {
        if self.standing.hints() == 0 {
            return Ok(ListReply::default());
        }
        self.list_of(Source::Hints, request).await
    }

    pub(crate) async fn hints(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        let (database, after) = (self.reader.database.clone(), after.cloned());
        self.run(move || hints::page(&database, after.as_ref(), limit)).await
    }

    pub(crate) async fn forget_hint(&self, key: &RegisterKey, order: Stamp) -> Result<()> {
        let key = key.encode();
        self.submit(|reply| Op::ForgetHint(key, order, reply)).await
    }

    pub(crate) async fn registers(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let (reader, after) = (self.reader.clone(), after.cloned());
        self.run(move || reader.registers(after.as_ref(), limit)).await
    }

    pub(crate) fn fences(&self) -> Vec<BucketFence> {
        self.fences.all()
    }

    /// Promises nothing below `floor` from now on (rule G2).
    pub(crate) async fn raise_floor(&self, floor: Stamp) -> Result<()> {
        self.submit(|reply| Op::RaiseFloor(floor, reply)).await
    }

    /// Gives the device its votes, or takes them away (rule G1).
    pub(crate) async fn set_voting(&self, voting: bool) -> Result<()> {
        self.submit(|reply| Op::SetVoting(voting, reply)).await
    }

    /// Lets the device use the votes that it has, or keeps it from that (rule G1). Not kept on disk.
    pub(crate) fn set_confirmed(&self, confirmed: bool) {
        self.standing.set_confirmed(confirmed);
    }

    /// Returns true when it holds nothing that anybody else could have told it.
    pub(crate) async fn is_empty(&self) -> Result<bool> {
        let standing = self.standing();
        if standing.has_votes || standing.hints > 0 || !self.fences().is_empty() {
            return Ok(false);
        }
        Ok(self.registers(None, 1).await?.is_empty())
    }

    /// What holds for the device as a whole.
    pub(crate) fn standing(&self) -> StandingNow {
        self.standing.now()
    }

    pub(crate) async fn fence(&self, fence: BucketFence) -> Result<()> {
        self.submit(|reply| Op::Fence(fence, reply)).await
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
        self.submit(|reply| Op::Forget(garbage, reply)).await
    }

    /// Puts everything on disk, so that the next opening has nothing to recover. Blocks.
    pub(crate) fn close(mut self) -> Result<()> {
        self.stop();
        self.reader.database.healthy()?;
        self.reader.database.flush()
    }

    /// Runs what may wait for the disk.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.reader.threads.run(work).await
    }

    async fn submit<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T> {
        self.reader.threads.pulse().check(Part::Index)?;
        let (reply, answer) = oneshot::channel();
        self.queue.push(op(reply))?;
        let answer = self.reader.threads.pulse().wait(answer).await?;
        answer.unwrap_or_else(|_| Err(Error::unavailable("the index was closed")))
    }

    fn stop(&mut self) {
        self.queue.close();
        if let Some(committer) = self.committer.take()
            && committer.join().is_err()
        {
            tracing::error!("the committer panicked");
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.stop();
    }
}
