//! Thread that writes packed extents. It takes all waiting records and deletes, writes them, syncs
//! each volume once, and answers all of them.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::trace::{self, SpanKind};
use martlet_protocol::{Error, ErrorKind, ExtentId, Result};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use super::buffer::{ALIGN, PooledBuffer};
use super::open_volumes::{OpenVolumes, RecentVolumes};
use super::record::{self, BlockRun, RecordHeader};
use super::row::{Row, RowLocation};
use super::seal::SealLocation;
use super::space::Backing;
use super::state::{Counters, FaultOfPanic, Headroom, Suspect};
use super::table::Table;
use super::volumes::{Volume, Volumes};
use crate::device::pulse::{DevicePart, Pulse};
use crate::index::RecordPlace;

/// Maximum number of records in one sync. Above it, waiting costs more than another sync.
const GROUP_MAX: usize = 256;

/// Maximum bytes that may wait; further writes get `Unavailable`. Otherwise writes would pile up on
/// a disk that hangs.
const WAITING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Length in bytes from which on records bypass the page cache, which takes half of the CPU time.
/// Shorter records stay in it for their next readers.
const DIRECT_BYTES_MIN: usize = 128 * 1024;

/// A record to write: 4 KiB for the header, then the data, padded.
pub(super) struct PackedWrite {
    pub(super) buffer: PooledBuffer,
    pub(super) header: RecordHeader,
    pub(super) record: ExtentRecord,
}

#[expect(clippy::large_enum_variant, reason = "nearly all commands are writes")]
enum CommitJob {
    Write(PackedWrite, JobReply),
    Destroy(Vec<(ExtentId, BlockRun)>, JobReply),
}

type JobReply = oneshot::Sender<Result<()>>;

impl CommitJob {
    /// Memory of the job in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Write(packed, _) => packed.buffer.capacity(),
            Self::Destroy(records, _) => size_of_val(records.as_slice()),
        }
    }
}

/// Sends records to the thread.
pub(super) struct Committer {
    jobs: Mutex<Option<Sender<CommitJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Bytes of jobs that are still queued.
    waiting_bytes: Arc<AtomicUsize>,
    pulse: Arc<Pulse>,
}

/// State that the thread uses.
#[derive(Clone)]
pub(super) struct CommitterState {
    pub(super) volumes: Arc<Volumes>,
    pub(super) open_volumes: Arc<OpenVolumes>,
    pub(super) table: Table,
    /// Read-locked while rows are put, write-locked while marks are set.
    pub(super) gate: Arc<RwLock<()>>,
    pub(super) counters: Arc<Counters>,
    pub(super) suspect: Arc<Suspect>,
    pub(super) headroom: Arc<Headroom>,
    pub(super) pulse: Arc<Pulse>,
}

impl Committer {
    pub(super) fn start(ledger: CommitterState) -> Result<Self> {
        let (jobs, queue) = channel();
        let (pulse, waiting_bytes) = (ledger.pulse.clone(), Arc::<AtomicUsize>::default());
        let waiting = waiting_bytes.clone();
        let thread = std::thread::Builder::new()
            .name("extent-commit".into())
            .spawn(move || {
                let _fault = FaultOfPanic(ledger.suspect.clone());
                ledger.run(&queue, &waiting);
            })
            .map_err(|error| Error::unavailable("a thread can't be started").with_source(error))?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok(Self { jobs, thread, waiting_bytes, pulse })
    }

    /// Writes a record, durably. `Unavailable` at once if too many bytes wait, or if the disk
    /// hangs.
    pub(super) async fn write(&self, packed: PackedWrite) -> Result<()> {
        self.pulse.check(DevicePart::Packed)?;
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        if waiting + packed.buffer.capacity() > WAITING_BYTES_MAX {
            return Err(Error::unavailable("too many writes wait for the disk"));
        }
        // From the queue to the synced volume.
        let _span = trace::child(SpanKind::Internal, "commit of a volume");
        self.pulse.wait(self.submit(|reply| CommitJob::Write(packed, reply))).await?
    }

    /// Zeroes the headers of deleted records, durably, and frees their space.
    pub(super) async fn destroy(&self, records: Vec<(ExtentId, BlockRun)>) -> Result<()> {
        self.submit(|reply| CommitJob::Destroy(records, reply)).await
    }

    async fn submit(&self, job: impl FnOnce(JobReply) -> CommitJob) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::unavailable("the extent store was closed");
        let jobs = self.jobs.lock().clone().ok_or_else(closed)?;
        let job = job(reply);
        self.waiting_bytes.fetch_add(job.bytes(), Ordering::Relaxed);
        jobs.send(job).map_err(|_| closed())?;
        drop(jobs);
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Ends the thread after its queued jobs.
    pub(super) fn close(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has made the device suspect already.
            let _ = thread.join();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // The thread must release its references before the device can be opened again.
        self.close();
    }
}

/// Jobs of one group for one volume.
#[derive(Default)]
struct VolumeBatch {
    writes: Vec<PlacedWrite>,
    destroys: Vec<(ExtentId, BlockRun)>,
}

struct PlacedWrite {
    packed: PackedWrite,
    run: BlockRun,
    reply: JobReply,
}

impl CommitterState {
    fn run(&self, queue: &Receiver<CommitJob>, waiting_bytes: &AtomicUsize) {
        while let Ok(first) = queue.recv() {
            let jobs = std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX);
            let jobs: Vec<_> = jobs.collect();
            waiting_bytes.fetch_sub(jobs.iter().map(CommitJob::bytes).sum(), Ordering::Relaxed);
            let _beat = self.pulse.begin(DevicePart::Packed);
            self.commit(jobs);
        }
    }

    fn commit(&self, jobs: Vec<CommitJob>) {
        let mut batches: BTreeMap<u32, VolumeBatch> = BTreeMap::new();
        let (mut destroys, mut recent) = (Vec::new(), self.open_volumes.recent());
        for job in jobs {
            match job {
                // The caller gave up before the write began.
                CommitJob::Write(_, reply) if reply.is_closed() => {}
                CommitJob::Write(packed, reply) => match self.place(&packed, &mut recent) {
                    Ok(run) => {
                        let placed = PlacedWrite { packed, run, reply };
                        batches.entry(run.volume).or_default().writes.push(placed);
                    }
                    Err(error) => answer(reply, Err(error)),
                },
                CommitJob::Destroy(records, reply) => {
                    for (id, run) in &records {
                        batches.entry(run.volume).or_default().destroys.push((*id, *run));
                    }
                    destroys.push((records, reply));
                }
            }
        }
        let failed: BTreeMap<u32, Error> = batches
            .into_iter()
            .filter_map(|(number, batch)| Some((number, self.commit_batch(number, batch).err()?)))
            .collect();
        for (records, reply) in destroys {
            let failure = records.iter().find_map(|(_, run)| failed.get(&run.volume));
            answer(reply, failure.map_or(Ok(()), |error| Err(again(error))));
        }
    }

    /// Allocates space for a record, in recently used volumes first. On a full file system, only
    /// among the blocks that the volumes have.
    fn place(&self, packed: &PackedWrite, recent: &mut RecentVolumes) -> Result<BlockRun> {
        self.suspect.check()?;
        refuse_taken(&self.table, packed.record.extent.id)?;
        let bytes = packed.buffer.filled as u64;
        let in_blocks = self.volumes.allocate_blocks(bytes, recent.numbers());
        let run = if let Some(run) = in_blocks {
            run
        } else {
            self.headroom.admit(bytes)?;
            let admits = |more| self.headroom.admit(more).is_ok();
            let found = self.volumes.allocate(bytes, recent.numbers(), admits);
            self.suspect.record_outcome(found)?
        };
        recent.add(run.volume);
        Ok(run)
    }

    /// Commits the jobs of a volume. Returns the error of its deletes: records that find no space
    /// fail alone, and keep no space of deleted ones.
    fn commit_batch(&self, number: u32, mut batch: VolumeBatch) -> Result<()> {
        let written = self.volumes.get(number).and_then(|volume| {
            self.suspect.check()?;
            self.suspect.record_outcome(zero_headers(&volume, &batch.destroys))?;
            let full = match self.begin_and_write(&volume, &mut batch.writes) {
                Err(error) if error.kind() == ErrorKind::Full && !batch.destroys.is_empty() => {
                    Some(error)
                }
                outcome => outcome.map(|()| None)?,
            };
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            volume.file.sync().inspect_err(|error| self.suspect.set(error))?;
            Ok(full)
        });
        match &written {
            Ok(None) => {
                let published = self.publish(batch.writes);
                self.open_volumes.end(number, published);
            }
            Ok(Some(error)) | Err(error) => self.fail(number, batch.writes, error),
        }
        written.map(|_| self.destroyed(batch.destroys))
    }

    /// Names the volume as unsettled, and writes records into it.
    fn begin_and_write(&self, volume: &Volume, writes: &mut [PlacedWrite]) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        self.open_volumes.begin(volume.number)?;
        self.suspect.record_outcome(write_records(volume, writes))
    }

    /// Answers the callers of records that were not written. Their space is free again if only space
    /// was lacking; it may have no blocks.
    fn fail(&self, number: u32, writes: Vec<PlacedWrite>, error: &Error) {
        self.open_volumes.end(number, false);
        for placed in writes {
            if error.kind() == ErrorKind::Full {
                self.volumes.free(placed.run, Backing::Unknown);
            } else {
                self.counters.leave_behind();
            }
            answer(placed.reply, Err(again(error)));
        }
    }

    /// Frees the space of records whose headers are durably zero.
    fn destroyed(&self, records: Vec<(ExtentId, BlockRun)>) {
        let headers: Vec<RecordPlace> = records.iter().map(|(_, run)| run.place()).collect();
        if let Err(error) = self.table.forget_headers(&headers) {
            // The next opening finds these headers zero.
            tracing::warn!(%error, "could not forget the headers of deleted records");
        }
        for (id, run) in records {
            self.volumes.leases.condemn(id, run);
        }
    }

    /// Writes the rows of durable records, and answers their callers. Returns true if each record
    /// has a row or is gone.
    fn publish(&self, writes: Vec<PlacedWrite>) -> bool {
        let gate = self.gate.read();
        let (wanted, deleted): (Vec<_>, Vec<_>) = writes.into_iter().partition(|placed| {
            !self.table.is_marked(placed.packed.record.extent.id).unwrap_or(false)
        });
        let rows: Vec<_> = wanted.iter().map(PlacedWrite::row).collect();
        let outcome = self.table.put(&rows);
        drop(gate);
        let mut in_order = outcome.is_ok();
        for PlacedWrite { packed, reply, .. } in wanted {
            if outcome.is_ok() {
                self.counters.added(packed.record.extent, packed.record.layout);
            }
            answer(reply, outcome.as_ref().copied().map_err(again));
        }
        for placed in deleted {
            let withdrawn = self.withdraw(placed.run);
            in_order &= withdrawn.is_ok();
            let refusal = refused(placed.packed.record.extent.id);
            answer(placed.reply, withdrawn.and(Err(refusal)));
        }
        in_order
    }

    /// Undoes a record whose extent was deleted during its write.
    fn withdraw(&self, run: BlockRun) -> Result<()> {
        let volume = self.volumes.get(run.volume)?;
        volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset)?;
        volume.file.sync().inspect_err(|error| self.suspect.set(error))?;
        self.volumes.release(run);
        Ok(())
    }
}

impl PlacedWrite {
    fn is_direct(&self) -> bool {
        self.packed.buffer.filled >= DIRECT_BYTES_MIN
    }

    fn row(&self) -> Row {
        let SealLocation { volume, offset } = self.run.spot();
        Row { place: RowLocation::Record(volume, offset), record: self.packed.record.clone() }
    }
}

/// Zeroes the headers of deleted records. They come before records, which may find no space.
fn zero_headers(volume: &Volume, destroys: &[(ExtentId, BlockRun)]) -> Result<()> {
    let mut runs = destroys.iter().map(|(_, run)| run);
    runs.try_for_each(|run| volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset))
}

/// Writes headers and data of records, adjacent records in one call.
fn write_records(volume: &Volume, writes: &mut [PlacedWrite]) -> Result<()> {
    writes.sort_by_key(|placed| placed.run.offset);
    for PlacedWrite { packed, run, .. } in &mut *writes {
        let header = &mut packed.buffer.all_mut()[..ALIGN];
        record::write_header(header, &volume.seal, run.spot(), &packed.header);
    }
    let together = |one: &PlacedWrite, next: &PlacedWrite| {
        one.run.end() == next.run.offset && one.is_direct() == next.is_direct()
    };
    for neighbours in writes.chunk_by(together) {
        let file = if neighbours[0].is_direct() { &volume.direct } else { &volume.file };
        let slices: Vec<_> = neighbours
            .iter()
            .map(|placed| &placed.packed.buffer)
            .map(|buffer| IoSlice::new(&buffer.all()[..buffer.filled]))
            .collect();
        file.write_at(&slices, neighbours[0].run.offset)?;
    }
    Ok(())
}

/// Returns an error if an id was used before.
pub(super) fn refuse_taken(table: &Table, id: ExtentId) -> Result<()> {
    if table.is_marked(id)? {
        return Err(refused(id));
    }
    match table.get(id)? {
        Some(row) if row.place != RowLocation::Quarantined => {
            Err(Error::conflict(format!("extent {id} already exists")))
        }
        _ => Ok(()),
    }
}

/// Returns the error of a write whose extent was deleted.
pub(super) fn refused(id: ExtentId) -> Error {
    Error::conflict(format!("extent {id} was deleted"))
}

/// Copies an error for another caller.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn answer(reply: JobReply, outcome: Result<()>) {
    // The caller may have gone. The record is whole; the sweep finds it, because no entry owns it.
    let _ = reply.send(outcome);
}

#[cfg(test)]
mod tests;
