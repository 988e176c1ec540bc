//! Clock that never goes back while the process lives.
//!
//! The sweep assumes that the writers of extents older than the process are gone. So no extent of
//! this process may carry a time before its start.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::{Clock, SystemClock};

/// System clock that stands still when it is set back.
#[derive(Debug)]
pub(crate) struct SteadyClock<C = SystemClock> {
    below: C,
    last_ms: AtomicU64,
}

impl SteadyClock {
    /// Makes a clock over the system clock.
    pub(crate) fn system() -> Self {
        Self { below: SystemClock, last_ms: AtomicU64::new(0) }
    }
}

impl<C: Clock> Clock for SteadyClock<C> {
    fn now_ms(&self) -> u64 {
        let now = self.below.now_ms();
        // Most calls fall into a millisecond already seen, and only load.
        let last = self.last_ms.load(Ordering::Relaxed);
        if now > last { now.max(self.last_ms.fetch_max(now, Ordering::Relaxed)) } else { last }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ManualClock;

    use super::*;

    #[test]
    fn it_stands_still_rather_than_go_back() {
        let clock = SteadyClock { below: ManualClock::at(100), last_ms: AtomicU64::new(0) };
        assert_eq!(clock.now_ms(), 100);
        clock.below.set_ms(50);
        assert_eq!(clock.now_ms(), 100);
        clock.below.set_ms(101);
        assert_eq!(clock.now_ms(), 101);
    }
}
