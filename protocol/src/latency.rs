//! Moving average of request durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Weight of one observation in the moving average: 1 in 16.
const SMOOTHING: u64 = 16;
/// Age after which the average no longer counts.
const STALE: Duration = Duration::from_secs(1);

/// Moving average of request durations.
///
/// Concurrent observations may overwrite each other; the average tolerates lost samples.
#[derive(Debug)]
pub struct Latency {
    epoch: Instant,
    average_us: AtomicU64,
    last_ms: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { epoch: Instant::now(), average_us: AtomicU64::new(0), last_ms: AtomicU64::new(0) }
    }
}

impl Latency {
    /// Adds the duration of one request.
    pub fn observe(&self, took: Duration) {
        let sample = u64::try_from(took.as_micros()).unwrap_or(u64::MAX / SMOOTHING);
        let before = self.average_us.load(Ordering::Relaxed);
        let after = before - before / SMOOTHING + sample / SMOOTHING;
        self.average_us.store(after, Ordering::Relaxed);
        self.last_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// Returns the average duration; zero without observations in the last second.
    pub fn get(&self) -> Duration {
        let age = self.elapsed_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        if Duration::from_millis(age) > STALE {
            return Duration::ZERO;
        }
        Duration::from_micros(self.average_us.load(Ordering::Relaxed))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_what_is_observed() {
        let latency = Latency::default();
        assert_eq!(latency.get(), Duration::ZERO);
        for _ in 0..200 {
            latency.observe(Duration::from_millis(80));
        }
        assert!(latency.get() > Duration::from_millis(70));
        for _ in 0..200 {
            latency.observe(Duration::from_millis(1));
        }
        assert!(latency.get() < Duration::from_millis(2));
    }
}
