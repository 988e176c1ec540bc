//! Shared windows: the table, and a task for each fetch.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::{ExtentId, Result, trace};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::pace::{Herds, Pace};
use super::readers::{Readers, Seat};
use super::source::StoredBytes;
use super::table::{FetchNumber, WINDOW_BYTES, Window, WindowBuilder, WindowKey};

/// Shortest range that windows are fetched for.
const RANGE_BYTES_MIN: u64 = 64 * 1024;
/// Least part of its windows that a range must cover, as a divisor.
const PART_MIN: u64 = 4;
/// Time after which an unused window is dropped.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// Interval of the check for unused windows, while any is kept.
const IDLE_EVERY: Duration = Duration::from_secs(2);

type Table = super::table::Table<WeakFlight>;

/// Windows that the readers of a store share.
pub(crate) struct Windows {
    /// Zero turns sharing off.
    bytes_max: u64,
    table: Mutex<Table>,
    readers: Arc<Readers>,
    herds: Arc<Herds>,
    counters: Counters,
    /// True while a task checks for unused windows.
    is_checked: AtomicBool,
}

#[derive(Default)]
struct Counters {
    fetched: AtomicU64,
    served: AtomicU64,
    failed: AtomicU64,
    read_bytes: AtomicU64,
}

/// Counters of shared windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowFigures {
    /// Windows that were fetched from nodes.
    pub fetched: u64,
    /// Windows that readers took, each counted once for each reader.
    pub served: u64,
    /// Fetches that failed.
    pub failed: u64,
    /// Bytes of windows in memory.
    pub kept_bytes: u64,
    /// Bytes of extents that nodes sent, for windows and for readers without company.
    pub read_bytes: u64,
}

/// Result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Running,
    Kept,
    Failed,
}

/// A running fetch. It ends when the last one is dropped.
#[derive(Clone)]
pub(super) struct Flight {
    outcome: watch::Receiver<Outcome>,
    interest: Arc<Interest>,
}

/// A running fetch as the table names it.
struct WeakFlight {
    outcome: watch::Receiver<Outcome>,
    interest: Weak<Interest>,
}

/// The readers' common interest in a fetch.
struct Interest {
    windows: Weak<Windows>,
    key: WindowKey,
    number: FetchNumber,
    task: AbortHandle,
}

/// A window as a reader finds it.
pub(super) enum Lookup {
    Kept(Window),
    Awaited(Flight),
    /// All memory is taken by other fetches.
    Full,
}

impl Windows {
    /// Windows of at most `bytes_max` bytes together; zero for none.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let bytes_max = bytes_max as u64;
        Arc::new(Self {
            bytes_max,
            table: Mutex::new(Table::new(bytes_max)),
            readers: Arc::default(),
            herds: Herds::new(bytes_max),
            counters: Counters::default(),
            is_checked: AtomicBool::new(false),
        })
    }

    /// Registers a reader of a range. None if its windows are not worth sharing.
    pub(super) fn sit(&self, extent: ExtentId, length: u64, range: &Range<u64>) -> Option<Seat> {
        let bytes = range.end.saturating_sub(range.start);
        let windows = range.start / WINDOW_BYTES * WINDOW_BYTES
            ..range.end.next_multiple_of(WINDOW_BYTES).min(length);
        let is_worth = bytes >= RANGE_BYTES_MIN
            && bytes.saturating_mul(PART_MIN) >= windows.end.saturating_sub(windows.start);
        (self.bytes_max > 0 && is_worth).then(|| self.readers.sit(extent, range.clone()))
    }

    /// Registers a read of a range of a body, whose first extent is `body`. None if the reader
    /// needs no pace: the cache can hold all of the range.
    pub(crate) fn join(&self, body: ExtentId, range: Range<u64>) -> Option<Pace> {
        self.herds.join(body, range)
    }

    /// Returns a window, or the fetch that it comes with. Begins that fetch if none runs.
    pub(super) fn look_up<S: StoredBytes>(self: &Arc<Self>, source: &S, offset: u64) -> Lookup {
        let key = WindowKey::at(source.id(), offset);
        let range = key.range(source.length());
        let mut table = self.table.lock();
        if let Some(window) = table.window(key, Instant::now()) {
            return Lookup::Kept(window);
        }
        if let Some(flight) = table.flight(key).and_then(WeakFlight::upgrade) {
            return Lookup::Awaited(flight);
        }
        let mut begun = None;
        let begin = |number| {
            let flight = self.fetch(source.clone(), key, range.clone(), number);
            let (outcome, interest) = (flight.outcome.clone(), Arc::downgrade(&flight.interest));
            begun = Some(flight);
            WeakFlight { outcome, interest }
        };
        table.begin(key, range.end - range.start, begin);
        begun.map_or(Lookup::Full, Lookup::Awaited)
    }

    /// Fetches a window in a task of its own: it waits for no reader's client.
    fn fetch<S: StoredBytes>(
        self: &Arc<Self>,
        source: S,
        key: WindowKey,
        range: Range<u64>,
        number: FetchNumber,
    ) -> Flight {
        let (sender, outcome) = watch::channel(Outcome::Running);
        let windows = self.clone();
        let fetching = async move {
            let window = windows.read_window(&source, range).await;
            if let Err(error) = &window {
                tracing::debug!(extent = %key.extent, %error, "a shared window can't be read");
            }
            sender.send_replace(windows.end(key, number, window.ok()));
        };
        let (windows, task) =
            (Arc::downgrade(self), tokio::spawn(trace::carried(fetching)).abort_handle());
        let interest = Interest { windows, key, number, task };
        Flight { outcome, interest: Arc::new(interest) }
    }

    async fn read_window<S: StoredBytes>(&self, source: &S, range: Range<u64>) -> Result<Window> {
        let mut builder = WindowBuilder::new(range.end - range.start);
        let mut stream = source.open(range).await?;
        while let Some(bytes) = stream.next().await.transpose()? {
            self.count_read(bytes.len());
            builder.push(&bytes)?;
        }
        builder.finish()
    }

    fn end(
        self: &Arc<Self>,
        key: WindowKey,
        number: FetchNumber,
        window: Option<Window>,
    ) -> Outcome {
        let is_kept = window.is_some();
        let counter = if is_kept { &self.counters.fetched } else { &self.counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if !self.table.lock().end(key, number, window, Instant::now()) || !is_kept {
            return Outcome::Failed;
        }
        if !self.is_checked.swap(true, Ordering::AcqRel) {
            tokio::spawn(drop_idle(Arc::downgrade(self)));
        }
        Outcome::Kept
    }

    /// Counts bytes that a node sent.
    pub(super) fn count_read(&self, bytes: usize) {
        self.counters.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a window that a reader took.
    pub(super) fn count_served(&self) {
        self.counters.served.fetch_add(1, Ordering::Relaxed);
    }

    /// The current counters.
    pub(crate) fn figures(&self) -> WindowFigures {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { fetched, served, failed, read_bytes } = &self.counters;
        WindowFigures {
            fetched: value(fetched),
            served: value(served),
            failed: value(failed),
            kept_bytes: self.table.lock().kept_bytes(),
            read_bytes: value(read_bytes),
        }
    }

    #[cfg(test)]
    pub(super) fn extents_being_read(&self) -> usize {
        self.readers.extents()
    }
}

/// Drops unused windows until none is left.
async fn drop_idle(windows: Weak<Windows>) {
    loop {
        sleep(IDLE_EVERY).await;
        let Some(windows) = windows.upgrade() else { return };
        let mut table = windows.table.lock();
        if table.drop_idle(IDLE_MAX, Instant::now()) {
            // Under the lock: a window that comes next finds no task and starts one.
            windows.is_checked.store(false, Ordering::Release);
            return;
        }
    }
}

impl WeakFlight {
    fn upgrade(&self) -> Option<Flight> {
        let interest = self.interest.upgrade()?;
        Some(Flight { outcome: self.outcome.clone(), interest })
    }
}

impl Flight {
    /// Waits for the end of the fetch.
    pub(super) async fn end(mut self) -> Outcome {
        let ended = self.outcome.wait_for(|outcome| *outcome != Outcome::Running).await;
        // A fetch that panicked has sent nothing.
        ended.map_or(Outcome::Failed, |outcome| *outcome)
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(windows) = self.windows.upgrade() {
            windows.table.lock().end(self.key, self.number, None, Instant::now());
        }
    }
}
