//! Moments that pace work: a clock that was set back delays nothing.
//!
//! Cluster time stands still or goes back while a clock is corrected, for hours perhaps. A monotonic
//! time goes on meanwhile, but not while the host sleeps. So a time has passed if either clock says
//! so.

use std::time::{Duration, Instant};

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Cluster time in milliseconds since 1970.
    clock_ms: u64,
    steady: Instant,
}

impl Moment {
    /// Returns this moment, at which the cluster time is `clock_ms`.
    pub(crate) fn now(clock_ms: u64) -> Self {
        Self { clock_ms, steady: Instant::now() }
    }

    /// Returns true if `ms` have passed since an earlier moment.
    pub(crate) fn is_after(self, earlier: Self, ms: u64) -> bool {
        self.clock_ms >= earlier.clock_ms.saturating_add(ms)
            || self.steady.saturating_duration_since(earlier.steady) >= Duration::from_millis(ms)
    }

    #[cfg(test)]
    pub(crate) fn later(self, clock_ms: u64, steady_ms: u64) -> Self {
        let steady = self.steady + Duration::from_millis(steady_ms);
        Self { clock_ms: self.clock_ms + clock_ms, steady }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_clock_shows_that_a_time_has_passed() {
        let start = Moment::now(1_000_000);
        assert!(!start.is_after(start, 1) && start.is_after(start, 0));
        assert!(!start.later(9, 9).is_after(start, 10));
        assert!(start.later(10, 0).is_after(start, 10), "the host slept");
        assert!(start.later(0, 10).is_after(start, 10), "the clock stood still");
        let set_back = Moment { clock_ms: 0, ..start.later(0, 10) };
        assert!(set_back.is_after(start, 10) && !set_back.is_after(start, 11));
    }
}
