//! Shared state of a store's parts: counters, free space, and failures.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use martlet_protocol::extent::{ExtentRef, Layout};
use martlet_protocol::extent_sums::ExtentSums;
use martlet_protocol::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::usage::ExtentUsage;
use crate::disk::Disk;

/// Message of calls that need all extents to be counted.
const COUNTING: &str = "the device counts its extents after a crash: try again later";

/// Time for which the file system's free space is cached.
const SPACE_AGE_MAX: Duration = Duration::from_millis(200);

/// Counters of a store, and the sums of its extents (rule X7): of all rows outside of quarantine.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) bytes: AtomicU64,
    pub(super) extents: AtomicU64,
    pub(super) quarantined: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) folder_syncs: AtomicU64,
    pub(super) corrupt_reads: AtomicU64,
    pub(super) inline_reads: AtomicU64,
    pub(super) blocking_reads: AtomicU64,
    pub(super) sums: Mutex<ExtentSums>,
    left_behind: AtomicBool,
    is_counting: AtomicBool,
}

/// Number and bytes of extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtentCount {
    pub(super) extents: u64,
    pub(super) bytes: u64,
}

impl Counters {
    /// Counts an extent that has a row now.
    pub(super) fn added(&self, extent: ExtentRef, layout: Layout) {
        self.extents.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(u64::from(extent.length), Ordering::Relaxed);
        self.sums.lock().add(extent.id, layout);
    }

    /// Sets counts and sums to those of the last closing.
    pub(super) fn restore(&self, extents: u64, bytes: u64, sums: ExtentSums) {
        self.extents.store(extents, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        *self.sums.lock() = sums;
    }

    /// Begins to count the rows of this moment: sums are those of changes until the count ends. Numbers
    /// are those of places, whose bytes may be up to 4 KiB more.
    pub(super) fn begin_count(&self) {
        *self.sums.lock() = ExtentSums::default();
        self.is_counting.store(true, Ordering::Release);
    }

    /// Ends a count that found so many extents, where `expected` were counted by their places.
    pub(super) fn end_count(&self, expected: ExtentCount, found: ExtentCount) {
        // Both wrap: the order of additions and removals doesn't matter.
        self.extents.fetch_add(found.extents.wrapping_sub(expected.extents), Ordering::Relaxed);
        self.bytes.fetch_add(found.bytes.wrapping_sub(expected.bytes), Ordering::Relaxed);
        self.is_counting.store(false, Ordering::Release);
    }

    /// Returns number and bytes of extents, as far as they are known.
    pub(super) fn count(&self) -> ExtentCount {
        let usage = self.snapshot();
        ExtentCount { extents: usage.extents, bytes: usage.bytes }
    }

    /// Returns an error while extents are counted: their sums are those of a part.
    pub(super) fn check_counted(&self) -> Result<()> {
        if self.is_counting.load(Ordering::Acquire) {
            return Err(Error::conflict(COUNTING));
        }
        Ok(())
    }

    /// Counts an extent that lost its row, or went to quarantine.
    pub(super) fn removed(&self, extent: ExtentRef, layout: Layout) {
        self.extents.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(u64::from(extent.length), Ordering::Relaxed);
        self.sums.lock().remove(extent.id, layout);
    }

    /// Counts an item moved to quarantine.
    pub(super) fn set_aside(&self) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the next opening must clean up something on disk.
    pub(super) fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::Relaxed);
    }

    pub(super) fn left_behind(&self) -> bool {
        self.left_behind.load(Ordering::Relaxed)
    }

    pub(super) fn snapshot(&self) -> ExtentUsage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Places without a row may be counted until the count ends.
        let counted = |counter| Some(read(counter)).filter(|it| it >> 63 == 0).unwrap_or_default();
        ExtentUsage {
            bytes: counted(&self.bytes),
            extents: counted(&self.extents),
            is_counting: self.is_counting.load(Ordering::Acquire),
            quarantined: read(&self.quarantined),
            volume_free_bytes: 0,
            withheld_bytes: 0,
            writes: read(&self.writes),
            syncs: read(&self.syncs),
            folder_syncs: read(&self.folder_syncs),
            corrupt_reads: read(&self.corrupt_reads),
            inline_reads: read(&self.inline_reads),
            blocking_reads: read(&self.blocking_reads),
        }
    }
}

/// Reason of the first failed write or sync. After a failure the kernel's cache can't be trusted,
/// so writes are refused until the device is opened again.
#[derive(Debug, Default)]
pub(super) struct Suspect {
    why: OnceLock<String>,
    failure: Notify,
}

impl Suspect {
    pub(super) fn set(&self, error: &Error) {
        if self.why.set(error.to_string()).is_ok() {
            tracing::error!(%error, "the device refuses all writes");
            self.failure.notify_waiters();
        }
    }

    /// Records the error of a write if the device failed, but not a lack of space.
    pub(super) fn record_outcome<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if error.kind() == ErrorKind::Internal {
                self.set(error);
            }
        })
    }

    pub(super) fn why(&self) -> Option<String> {
        self.why.get().cloned()
    }

    /// Returns an error if a write or a sync failed.
    pub(super) fn check(&self) -> Result<()> {
        self.why.get().map_or(Ok(()), |why| Err(suspect(why)))
    }

    /// Waits until a write or a sync fails.
    pub(super) async fn failed(&self) -> Error {
        loop {
            let failure = self.failure.notified();
            if let Some(why) = self.why.get() {
                return suspect(why);
            }
            failure.await;
        }
    }
}

/// Makes the device suspect if the thread that holds this panics. The work that it left undone is
/// unknown, and no other thread does it.
pub(super) struct FaultOfPanic(pub(super) Arc<Suspect>);

impl Drop for FaultOfPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(&Error::internal("a thread of the extent store panicked"));
        }
    }
}

fn suspect(why: &str) -> Error {
    Error::unavailable(format!("the device is suspect: {why}"))
}

/// Free space, and the part of it reserved against extents.
#[derive(Debug)]
pub(super) struct Headroom {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    reserve_bytes: u64,
    /// Time of the last query, and the free bytes left of its result.
    seen: Mutex<Option<(Instant, u64)>>,
}

impl Headroom {
    pub(super) fn new(disk: Arc<dyn Disk>, root: PathBuf, reserve_bytes: u64) -> Self {
        Self { disk, root, reserve_bytes, seen: Mutex::new(None) }
    }

    /// Returns `Full` if `bytes` don't fit now.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        self.take(bytes, 0)
    }

    /// Reserves `bytes`, or returns `Full`.
    pub(super) fn admit(&self, bytes: u64) -> Result<()> {
        self.take(bytes, bytes)
    }

    /// Reserves `taken` bytes if `bytes` fit, or returns `Full`.
    fn take(&self, bytes: u64, taken: u64) -> Result<()> {
        let mut seen = self.seen.lock();
        let fresh = seen.filter(|(when, _)| when.elapsed() < SPACE_AGE_MAX);
        let (when, free) = match fresh {
            Some(seen) => seen,
            None => (Instant::now(), self.disk.space(&self.root)?.free_bytes),
        };
        let left = free.checked_sub(bytes).filter(|left| *left >= self.reserve_bytes);
        *seen = Some((when, if left.is_some() { free - taken } else { free }));
        left.map(drop).ok_or_else(|| Error::full("the device is above its high-water mark"))
    }
}
