//! Count of all extents after an opening that read their places alone: sums (rule X7), number and
//! bytes.
//!
//! The thread walks over the rows of the moment of the opening, and adds each to the sums. Changes since
//! that moment are added and taken out by those who make them; the order doesn't matter. Until the walk
//! ends, the store has no sums.
//!
//! Cost: 16 GB of rows and some two minutes of CPU time at 10⁸ extents. After each step the thread rests
//! twice as long as the step took. Its iterator keeps the tables of its beginning until it ends.
//!
//! The walk also checks the places: the blocks of a row must not be free, and there are as many places as
//! rows. A device with free blocks in a row refuses writes, and is opened again by its rows. One with
//! another number of places is read by rows at its next opening.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;

use super::committer::CommitterState;
use super::record::BlockRun;
use super::recovery_report::RecoveryReport;
use super::row::{Row, RowHead, RowLocation};
use super::seal::SealLocation;
use super::state::{ExtentCount, FaultOfPanic};

/// Rows between two looks at the clock.
const ROWS: u64 = 512;
/// Time of a step between two rests.
const STEP: Duration = Duration::from_millis(20);
/// Length of a rest, in steps.
const REST_STEPS: u32 = 2;

/// The thread, if extents are counted.
#[derive(Default)]
pub(super) struct CountThread(Mutex<Option<(Sender<()>, JoinHandle<()>)>>);

impl CountThread {
    /// Begins to count the rows of this moment, if the opening did not count them. Nothing may change
    /// rows before this returns.
    pub(super) fn after(report: &RecoveryReport, of: &CommitterState) -> Result<Self> {
        if report.extents.is_some() {
            return Ok(Self::default());
        }
        let (close, closed) = channel();
        let (begin, begun) = channel();
        let expected = of.counters.count();
        let count = Count { of: of.clone(), expected, closed };
        let thread = std::thread::Builder::new()
            .name("extent-count".into())
            .spawn(move || {
                count.run(move || {
                    let _ = begin.send(());
                });
            })
            .map_err(|error| Error::unavailable("a thread can't be started").with_source(error))?;
        // A thread that could not begin has made the device suspect.
        let _ = begun.recv();
        Ok(Self(Mutex::new(Some((close, thread)))))
    }

    /// Ends the thread at its next rest.
    pub(super) fn close(&self) {
        if let Some((close, thread)) = self.0.lock().take() {
            drop(close);
            // A panic leaves the store without sums, as a thread that was ended.
            let _ = thread.join();
        }
    }
}

impl Drop for CountThread {
    fn drop(&mut self) {
        // The thread must release the table before the device can be opened again.
        self.close();
    }
}

struct Count {
    of: CommitterState,
    /// Count of the extents by their places.
    expected: ExtentCount,
    closed: Receiver<()>,
}

impl Count {
    fn run(&self, begun: impl FnOnce()) {
        let _fault = FaultOfPanic(self.of.suspect.clone());
        let (began, mut step) = (Instant::now(), Instant::now());
        let (mut found, mut rows) = (ExtentCount::default(), 0_u64);
        let walked = self.of.table.each(None, begun, |row| {
            if let Some(bytes) = self.add(row)? {
                found.extents += 1;
                found.bytes += bytes;
            }
            rows += 1;
            if rows.is_multiple_of(ROWS) { self.rest(&mut step) } else { Ok(()) }
        });
        match walked {
            Ok(()) => {
                self.of.counters.end_count(self.expected, found);
                let (extents, seconds) = (found.extents, began.elapsed().as_secs());
                tracing::info!(extents, seconds, "extents counted");
                self.check_number(found);
            }
            Err(_) if self.is_closed() => {}
            // The device goes on without sums: its workers leave it until it is opened again.
            Err(error) => tracing::error!(%error, "the extents can't be counted"),
        }
    }

    /// Adds the extent of a row to the sums; returns its bytes. None if it is in quarantine.
    fn add(&self, row: &[u8]) -> Result<Option<u64>> {
        let RowHead { place, extent, layout } = RowHead::decode(row)?;
        let bytes = u64::from(extent.length);
        match place {
            RowLocation::Quarantined => return Ok(None),
            RowLocation::File => {}
            RowLocation::Record(volume, offset) => {
                self.check_used(row, BlockRun::of_record(SealLocation { volume, offset }, bytes))?;
            }
        }
        self.of.counters.sums.lock().add(extent.id, layout);
        Ok(Some(bytes))
    }

    /// Makes the device suspect if blocks of a row are free, and if the row is still the same.
    fn check_used(&self, row: &[u8], run: BlockRun) -> Result<()> {
        if !self.of.volumes.is_free(run) {
            return Ok(());
        }
        let row = Row::decode(row)?;
        let id = row.record.extent.id;
        // Most such rows were removed since: these wait for no gate.
        if self.of.table.get(id)?.as_ref() != Some(&row) {
            return Ok(());
        }
        // A removal holds the gate until the row is gone, and frees the blocks afterwards.
        let _gate = self.of.gate.write();
        if self.of.volumes.is_free(run) && self.of.table.get(id)?.as_ref() == Some(&row) {
            let error = Error::internal(format!("blocks of extent {id} are free"));
            self.of.suspect.set(&error);
            self.of.table.distrust_places()?;
            return Err(error);
        }
        Ok(())
    }

    fn check_number(&self, found: ExtentCount) {
        if found.extents == self.expected.extents {
            return;
        }
        let (rows, places) = (found.extents, self.expected.extents);
        tracing::error!(rows, places, "rows and places differ: the next opening reads all rows");
        if let Err(error) = self.of.table.distrust_places() {
            tracing::warn!(%error, "could not record that places are wrong");
        }
    }

    /// Rests after a step. An error once the store is being closed.
    fn rest(&self, step: &mut Instant) -> Result<()> {
        let took = step.elapsed();
        if took < STEP {
            return Ok(());
        }
        let closed = self.closed.recv_timeout(took * REST_STEPS);
        *step = Instant::now();
        if closed == Err(RecvTimeoutError::Timeout) {
            Ok(())
        } else {
            Err(Error::unavailable("closed"))
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.try_recv() == Err(TryRecvError::Disconnected)
    }
}
