//! Count of all extents after an opening that read their places alone: sums (rule X7), number and
//! bytes.
//!
//! The thread walks over the rows of the moment of the opening, and adds each to the counters. Changes
//! since that moment are added and taken out by those who make them; the order doesn't matter. Until
//! the walk ends, the store has no sums.
//!
//! Cost: 16 GB of rows and some two minutes of CPU time at 10⁸ extents. After each step the thread
//! rests four times as long as the step took, so that it takes a fifth of a disk and of a core.
//!
//! The walk also checks that no row's blocks are free. A device with such a row refuses writes, and is
//! opened again by its rows.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;

use super::committer::CommitterState;
use super::record::BlockRun;
use super::row::{Row, RowHead, RowLocation};
use super::seal::SealLocation;
use super::state::FaultOfPanic;

/// Rows between two looks at the clock.
const ROWS: u32 = 512;
/// Time of a step between two rests.
const STEP: Duration = Duration::from_millis(20);
/// Length of a rest, in steps.
const REST_STEPS: u32 = 4;

/// The thread, if extents are counted.
#[derive(Default)]
pub(super) struct CountThread(Mutex<Option<(Sender<()>, JoinHandle<()>)>>);

impl CountThread {
    /// Begins to count the rows of this moment. Nothing may change rows before this returns.
    pub(super) fn start(of: &CommitterState) -> Result<Self> {
        let (close, closed) = channel();
        let (begin, begun) = channel();
        let count = Count { of: of.clone(), closed };
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

    /// Ends the thread at its next row.
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
    closed: Receiver<()>,
}

impl Count {
    fn run(&self, begun: impl FnOnce()) {
        let _fault = FaultOfPanic(self.of.suspect.clone());
        let began = Instant::now();
        let (mut rows, mut step) = (0_u64, Instant::now());
        let walked = self.of.table.each(None, begun, |row| {
            self.add(row)?;
            rows += 1;
            if rows.is_multiple_of(ROWS.into()) {
                self.rest(&mut step)?;
            }
            Ok(())
        });
        match walked {
            Ok(()) => {
                self.of.counters.end_count();
                tracing::info!(rows, seconds = began.elapsed().as_secs(), "extents counted");
            }
            Err(_) if self.is_closed() => {}
            Err(error) => {
                tracing::error!(%error, "the extents can't be counted");
                self.of.suspect.set(&error);
            }
        }
    }

    /// Counts the extent of a row.
    fn add(&self, row: &[u8]) -> Result<()> {
        let RowHead { place, extent, layout } = RowHead::decode(row)?;
        match place {
            RowLocation::Quarantined => return Ok(()),
            RowLocation::File => {}
            RowLocation::Record(volume, offset) => {
                let spot = SealLocation { volume, offset };
                self.check_used(row, BlockRun::of_record(spot, extent.length.into()))?;
            }
        }
        self.of.counters.added(extent, layout);
        Ok(())
    }

    /// Returns an error if blocks of a row are free, and if the row is still the same.
    fn check_used(&self, row: &[u8], run: BlockRun) -> Result<()> {
        if !self.of.volumes.is_free(run) {
            return Ok(());
        }
        let row = Row::decode(row)?;
        // A removal holds the gate until the row is gone, and frees the blocks afterwards.
        let _gate = self.of.gate.write();
        if self.of.table.get(row.record.extent.id)?.as_ref() != Some(&row) {
            return Ok(());
        }
        self.of.table.distrust_places()?;
        Err(Error::internal(format!("the blocks of {} are free", row.record.extent.id)))
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
