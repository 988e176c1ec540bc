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
//! * [`fences`]: what each bucket takes (rule M2).
//! * [`log_tail`]: what a power cut leaves of RocksDB's logs.
//! * [`rows`]: the bytes; [`database`] and [`options`]: RocksDB.
//! * [`extent_table`]: the extent store's rows, in column families of their own.
//!
//! Invariants:
//! * only the committer writes registers, so reading, judging and writing one is a single step;
//! * nothing is answered before it is on disk, refusals included;
//! * an entry that is replaced leaves its extents in `garbage` in the same batch.

mod committer;
mod database;
mod extent_table;
mod fences;
mod group;
mod list;
mod log_tail;
mod options;
mod queue;
mod read;
mod rows;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use martlet_protocol::backend::{
    BucketFence, EntryWrite, Garbage, GarbageId, ListReply, ListRequest, PromiseReply,
    RegisterView, Want, WriteReply,
};
use martlet_protocol::entry::Body;
use martlet_protocol::{BucketId, Clock, Error, RegisterKey, Result, Stamp};
use tokio::sync::oneshot;

use self::committer::Committer;
use self::database::{Database, Family};
use self::fences::Fences;
use self::queue::{Op, PromiseOp, Promised, Queue, Reply, WriteOp};
use self::read::Reader;
use self::rows::RegisterRow;
use crate::device::ballast::Ballast;
use crate::metrics::IndexCounters;

pub use self::extent_table::ExtentTable;
pub use self::options::Caches;

/// Garbage rows that a purge writes at once.
const PURGE_ROWS: usize = 256;

/// What an index shares with its device.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// Names the committer's thread.
    pub(crate) name: String,
    pub(crate) caches: Caches,
    pub(crate) ballast: Arc<Ballast>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<IndexCounters>,
}

/// The index of one device.
pub(crate) struct Index {
    reader: Reader,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    committer: Option<JoinHandle<()>>,
}

impl Index {
    /// Opens the index in `folder`, or makes it. Blocks.
    pub(crate) fn open(folder: &Path, with: Surroundings) -> Result<Self> {
        let database = Arc::new(Database::open(folder, &with.caches)?);
        let queue = Arc::new(Queue::default());
        let committer = Committer {
            fences: Fences::load(&database)?,
            database: database.clone(),
            queue: queue.clone(),
            ballast: with.ballast,
            clock: with.clock.clone(),
            counters: with.counters.clone(),
        };
        let committer = Some(committer.spawn(&with.name)?);
        let reader = Reader { database, counters: with.counters };
        Ok(Self { reader, queue, clock: with.clock, committer })
    }

    /// The table of the device's extents.
    pub(crate) fn extent_table(&self) -> ExtentTable {
        ExtentTable::new(self.reader.database.clone())
    }

    /// Why it takes no more writes, if something failed.
    pub(crate) fn fault(&self) -> Option<String> {
        self.reader.database.fault()
    }

    pub(crate) async fn read(&self, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        self.reader.read(key.encode(), want).await
    }

    pub(crate) async fn write(&self, write: EntryWrite) -> Result<WriteReply> {
        let write = prepare(&write)?;
        self.submit(|reply| Op::Write(write, reply)).await
    }

    pub(crate) async fn promise(&self, key: &RegisterKey, ballot: Stamp) -> Result<PromiseReply> {
        let key = key.encode();
        let promise = PromiseOp { key: key.clone(), ballot };
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
        let Reader { database, counters } = self.reader.clone();
        let request = request.clone();
        blocking(move || {
            let (reply, looked_at) = list::list(&database, &request)?;
            counters.listed(looked_at);
            Ok(reply)
        })
        .await
    }

    pub(crate) async fn fence(&self, fence: BucketFence) -> Result<()> {
        self.submit(|reply| Op::Fence(fence, reply)).await
    }

    /// Removes a closed bucket's registers; what they hold in extents becomes garbage.
    pub(crate) async fn purge(&self, bucket: BucketId) -> Result<()> {
        // Closed stays closed unless the same proxy reopens it; the purge itself checks again.
        self.submit(|reply| Op::CheckClosed(bucket, reply)).await?;
        let [mut from, upper] = rows::bucket_keys(bucket).map(Vec::from);
        loop {
            let database = self.reader.database.clone();
            let now_ms = self.clock.now_ms();
            let (lower, end) = (from, upper.clone());
            let found = move || garbage_in(&database, &lower, &end, now_ms);
            let (garbage, next) = blocking(found).await?;
            if !garbage.is_empty() {
                self.submit(|reply| Op::Leave(garbage, reply)).await?;
            }
            let Some(next) = next else { break };
            from = next;
        }
        self.submit(|reply| Op::Purge(bucket, reply)).await
    }

    pub(crate) async fn garbage(&self, before_ms: u64, limit: usize) -> Result<Vec<Garbage>> {
        let database = self.reader.database.clone();
        blocking(move || {
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

    async fn submit<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(op(reply))?;
        answer.await.unwrap_or_else(|_| Err(Error::unavailable("the index was closed")))
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

/// Encodes a write on its caller's thread.
fn prepare(write: &EntryWrite) -> Result<WriteOp> {
    let EntryWrite { key, entry, inline, mode, generation, commit_by_ms, keep_body } = write;
    let crc32c = match entry.value.body() {
        Some(Body::Inline { crc32c }) => Some(*crc32c),
        _ => None,
    };
    let inline = match (inline, crc32c) {
        (Some(bytes), Some(crc32c)) if rows::crc32c(bytes) == crc32c => {
            Some(rows::inline_row(entry.write_id, bytes))
        }
        (Some(_), Some(_)) => return Err(Error::corrupt("inline bytes changed on their way")),
        (Some(_), None) => return Err(Error::invalid("bytes came with an entry that has none")),
        (None, _) => None,
    };
    Ok(WriteOp {
        key: key.encode(),
        row: RegisterRow::of(entry),
        inline,
        tombstone: entry.value.is_tombstone(),
        order: entry.order,
        write_id: entry.write_id,
        mode: *mode,
        bucket: key.bucket,
        generation: *generation,
        commit_by_ms: *commit_by_ms,
        keep_body: *keep_body,
    })
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Garbage rows for the entries with extents in `[lower, upper)`, and where to go on.
fn garbage_in(
    database: &Database,
    lower: &[u8],
    upper: &[u8],
    now_ms: u64,
) -> Result<(Rows, Option<Vec<u8>>)> {
    let mut garbage = Vec::new();
    let mut rows = database.iterate(Family::Entries, upper);
    rows.seek(lower);
    while let Some((key, row)) = rows.item() {
        if garbage.len() == PURGE_ROWS {
            return Ok((garbage, Some(key.to_vec())));
        }
        let row = RegisterRow::parse(row)?;
        if row.has_extents()
            && let Some(entry) = row.entry()?
        {
            garbage.extend(group::garbage_of(key, &entry, now_ms));
        }
        rows.next();
    }
    Database::ended_well(&rows)?;
    Ok((garbage, None))
}

/// Runs what may wait for a disk where it may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::internal("a blocking call ended early").with_source(error))
    })
}
