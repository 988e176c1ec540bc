//! The time source. Production code reads the system clock only here, so that tests control time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Source of the current time in milliseconds since 1970.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, in milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Time since 1970 by the operating system's clock, as precise as the clock is. For records that
/// decide nothing.
#[expect(clippy::disallowed_methods, reason = "the only reader of the wall clock")]
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A clock that stands still until a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Advances the clock by `by` milliseconds.
    pub fn advance_ms(&self, by: u64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the clock, forwards or backwards.
    pub fn set_ms(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
