//! A clock that never goes back while the process lives.
//!
//! The sweep takes extents born before the process started for those of writers that are gone. That
//! holds only if no extent of this process is ever born before its start.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::{Clock, SystemClock};

/// The system's clock, held where it was whenever it is set back.
#[derive(Debug)]
pub(crate) struct SteadyClock<C = SystemClock> {
    below: C,
    last_ms: AtomicU64,
}

impl SteadyClock {
    /// Over the system's clock.
    pub(crate) fn system() -> Self {
        Self { below: SystemClock, last_ms: AtomicU64::new(0) }
    }
}

impl<C: Clock> Clock for SteadyClock<C> {
    fn now_ms(&self) -> u64 {
        let now = self.below.now_ms();
        // Most calls fall into a millisecond that was seen already: those only read.
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
