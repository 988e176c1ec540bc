//! Clocks that follow simulated time, each with the error that a fault sets.

use std::sync::atomic::{AtomicI64, Ordering};

use martlet_protocol::Clock;
use tokio::time::Instant;

/// Time of clocks at the beginning of a run, in milliseconds since 1970: late enough for errors of
/// hours.
const BEGIN_MS: i64 = 1_800_000_000_000;

/// A clock of a node or a proxy.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    begun: Instant,
    wrong_by_ms: AtomicI64,
}

impl SimulatedClock {
    /// Makes a correct clock for a run that began at `begun`.
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, wrong_by_ms: AtomicI64::new(0) }
    }

    /// Sets the error of the clock; zero corrects it.
    pub(crate) fn set_wrong_by_ms(&self, by_ms: i64) {
        self.wrong_by_ms.store(by_ms, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now_ms(&self) -> u64 {
        let since = i64::try_from(self.begun.elapsed().as_millis()).expect("runs are short");
        let now_ms = BEGIN_MS + since + self.wrong_by_ms.load(Ordering::Relaxed);
        u64::try_from(now_ms).expect("clocks are wrong by hours, not by decades")
    }
}
