//! The thread that writes packed extents: it takes all records and deletes that wait, writes them,
//! syncs each volume once, and answers them all.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Error, ErrorKind, ExtentId, Result};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use super::buffer::{ALIGN, Pooled};
use super::record::{self, Run};
use super::row::{Place, Row};
use super::seal::Head;
use super::state::{Counters, FaultOfPanic, Suspect};
use super::table::Table;
use super::volumes::{Volume, Volumes};
use crate::device::pulse::{Part, Pulse};

/// Most records in one sync: beyond, waiting for the rest costs more than another sync.
const GROUP_MAX: usize = 256;

/// Bytes that may wait: beyond, writers hear that there are too many of them. A disk that hangs takes
/// none, and would have them pile up.
const WAITING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Records from this length on are written past the page cache, which takes half of the CPU time;
/// shorter ones stay in it for whoever reads them next.
const DIRECT_BYTES_MIN: usize = 128 * 1024;

/// A record on its way: 4 KiB left for the header, then the data, padded.
pub(super) struct Packed {
    pub(super) buffer: Pooled,
    pub(super) header: (Head, Vec<u8>),
    pub(super) record: ExtentRecord,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are writes")]
enum Job {
    Write(Packed, Reply),
    Destroy(Vec<(ExtentId, Run)>, Reply),
}

type Reply = oneshot::Sender<Result<()>>;

impl Job {
    /// Bytes that it holds in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Write(packed, _) => packed.buffer.capacity(),
            Self::Destroy(records, _) => size_of_val(records.as_slice()),
        }
    }
}

/// Hands records to the thread.
pub(super) struct Committer {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Bytes of the jobs that the thread has not taken yet.
    waiting_bytes: Arc<AtomicUsize>,
    pulse: Arc<Pulse>,
}

/// What the thread works on.
pub(super) struct Ledger {
    pub(super) volumes: Arc<Volumes>,
    pub(super) table: Table,
    /// Held for reading while rows are put, for writing while marks are set.
    pub(super) gate: Arc<RwLock<()>>,
    pub(super) counters: Arc<Counters>,
    pub(super) suspect: Arc<Suspect>,
    pub(super) pulse: Arc<Pulse>,
}

impl Committer {
    pub(super) fn start(ledger: Ledger) -> Result<Self> {
        let (jobs, queue) = channel();
        let (pulse, waiting_bytes) = (ledger.pulse.clone(), Arc::<AtomicUsize>::default());
        let waiting = waiting_bytes.clone();
        let thread = std::thread::Builder::new()
            .name("extent-commit".into())
            .spawn(move || {
                let _fault = FaultOfPanic(ledger.suspect.clone());
                ledger.run(&queue, &waiting);
            })
            .map_err(|error| Error::unavailable("can't start a thread").with_source(error))?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok(Self { jobs, thread, waiting_bytes, pulse })
    }

    /// Writes a record, durably. `Unavailable` at once if too much waits already, or if the disk hangs.
    pub(super) async fn write(&self, packed: Packed) -> Result<()> {
        self.pulse.check(Part::Packed)?;
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        if waiting + packed.buffer.capacity() > WAITING_BYTES_MAX {
            return Err(Error::unavailable("too many writes wait for the disk"));
        }
        self.pulse.wait(self.ask(|reply| Job::Write(packed, reply))).await?
    }

    /// Destroys the headers of deleted records, durably, and frees their space.
    pub(super) async fn destroy(&self, records: Vec<(ExtentId, Run)>) -> Result<()> {
        self.ask(|reply| Job::Destroy(records, reply)).await
    }

    async fn ask(&self, job: impl FnOnce(Reply) -> Job) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::unavailable("the extent store was closed");
        let jobs = self.jobs.lock().clone().ok_or_else(closed)?;
        let job = job(reply);
        self.waiting_bytes.fetch_add(job.bytes(), Ordering::Relaxed);
        jobs.send(job).map_err(|_| closed())?;
        drop(jobs);
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Ends the thread once it has done what it was given.
    pub(super) fn close(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // One that panicked has made the device suspect.
            let _ = thread.join();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // What the thread holds must be let go of by the time that whoever held this opens it again.
        self.close();
    }
}

/// What one volume gets in one group.
#[derive(Default)]
struct Batch {
    writes: Vec<Placed>,
    destroys: Vec<(ExtentId, Run)>,
}

struct Placed {
    packed: Packed,
    run: Run,
    reply: Reply,
}

impl Ledger {
    fn run(&self, queue: &Receiver<Job>, waiting_bytes: &AtomicUsize) {
        while let Ok(first) = queue.recv() {
            let jobs = std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX);
            let jobs: Vec<_> = jobs.collect();
            waiting_bytes.fetch_sub(jobs.iter().map(Job::bytes).sum(), Ordering::Relaxed);
            let _beat = self.pulse.begin(Part::Packed);
            self.commit(jobs);
        }
    }

    fn commit(&self, jobs: Vec<Job>) {
        let mut batches: BTreeMap<u32, Batch> = BTreeMap::new();
        let mut destroys = Vec::new();
        for job in jobs {
            match job {
                // Its writer gave up before it began.
                Job::Write(_, reply) if reply.is_closed() => {}
                Job::Write(packed, reply) => match self.place(packed.record.extent.id, &packed) {
                    Ok(run) => {
                        let placed = Placed { packed, run, reply };
                        batches.entry(run.volume).or_default().writes.push(placed);
                    }
                    Err(error) => answer(reply, Err(error)),
                },
                Job::Destroy(records, reply) => {
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

    fn place(&self, id: ExtentId, packed: &Packed) -> Result<Run> {
        self.suspect.check()?;
        refuse_taken(&self.table, id)?;
        self.suspect.note(self.volumes.allocate(packed.buffer.filled as u64))
    }

    fn commit_batch(&self, number: u32, mut batch: Batch) -> Result<()> {
        let written = self.volumes.get(number).and_then(|volume| {
            self.suspect.note(self.write_batch(&volume, &mut batch))?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            volume.file.sync().inspect_err(|error| self.suspect.set(error))
        });
        match &written {
            Ok(()) => {
                self.publish(batch.writes);
                for (id, run) in batch.destroys {
                    self.volumes.leases.condemn(id, run);
                }
            }
            Err(error) => {
                for placed in batch.writes {
                    if error.kind() == ErrorKind::Full {
                        self.volumes.release(placed.run);
                    } else {
                        self.counters.leave_behind();
                    }
                    answer(placed.reply, Err(again(error)));
                }
            }
        }
        written
    }

    /// Writes headers and data, neighbours in one call, and zeros over the headers of the deleted.
    fn write_batch(&self, volume: &Volume, batch: &mut Batch) -> Result<()> {
        self.suspect.check()?;
        batch.writes.sort_by_key(|placed| placed.run.offset);
        for Placed { packed, run, .. } in &mut batch.writes {
            let header = &mut packed.buffer.all_mut()[..ALIGN];
            record::write_header(header, &volume.seal, run.spot(), &packed.header);
        }
        let together = |one: &Placed, next: &Placed| {
            one.run.end() == next.run.offset && one.is_direct() == next.is_direct()
        };
        for neighbours in batch.writes.chunk_by(together) {
            let file = if neighbours[0].is_direct() { &volume.direct } else { &volume.file };
            let slices: Vec<_> = neighbours
                .iter()
                .map(|placed| &placed.packed.buffer)
                .map(|buffer| IoSlice::new(&buffer.all()[..buffer.filled]))
                .collect();
            file.write_at(&slices, neighbours[0].run.offset)?;
        }
        for (_, run) in &batch.destroys {
            volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset)?;
        }
        Ok(())
    }

    /// Writes the rows of durable records, and answers.
    fn publish(&self, writes: Vec<Placed>) {
        let gate = self.gate.read();
        let (wanted, deleted): (Vec<_>, Vec<_>) = writes.into_iter().partition(|placed| {
            !self.table.is_marked(placed.packed.record.extent.id).unwrap_or(false)
        });
        let rows: Vec<_> = wanted.iter().map(Placed::row).collect();
        let outcome = self.table.put_many(&rows);
        drop(gate);
        for Placed { packed, reply, .. } in wanted {
            if outcome.is_ok() {
                self.counters.added(u64::from(packed.record.extent.length));
            }
            answer(reply, outcome.as_ref().copied().map_err(again));
        }
        for placed in deleted {
            answer(placed.reply, self.withdraw(placed.packed.record.extent.id, placed.run));
        }
    }

    /// Undoes a record whose extent was deleted while it was being written.
    fn withdraw(&self, id: ExtentId, run: Run) -> Result<()> {
        let volume = self.volumes.get(run.volume)?;
        volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset)?;
        volume.file.sync().inspect_err(|error| self.suspect.set(error))?;
        self.volumes.release(run);
        Err(deleted(id))
    }
}

impl Placed {
    fn is_direct(&self) -> bool {
        self.packed.buffer.filled >= DIRECT_BYTES_MIN
    }

    fn row(&self) -> Row {
        let (volume, offset) = self.run.spot();
        Row { place: Place::Record(volume, offset), record: self.packed.record.clone() }
    }
}

/// Refuses an id that was used before.
pub(super) fn refuse_taken(table: &Table, id: ExtentId) -> Result<()> {
    if table.is_marked(id)? {
        return Err(deleted(id));
    }
    match table.get(id)? {
        Some(row) if row.place != Place::Quarantined => {
            Err(Error::conflict(format!("extent {id} is there already")))
        }
        _ => Ok(()),
    }
}

pub(super) fn deleted(id: ExtentId) -> Error {
    Error::conflict(format!("extent {id} was deleted"))
}

/// The same error for another who waited.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn answer(reply: Reply, outcome: Result<()>) {
    // Whoever gave up needs no answer: the record is whole, and its owner's sweep finds it.
    let _ = reply.send(outcome);
}
