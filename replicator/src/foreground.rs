//! Latency of client requests, to which background work yields.

use std::fmt;
use std::time::Duration;

use martlet_protocol::Latency;

/// Returns the latency of clients of other processes; zero without known clients.
type RemoteLatency = Box<dyn Fn() -> Duration + Send + Sync>;

/// Time to first byte of client requests, in this process and in others.
#[derive(Default)]
pub struct Foreground {
    here: Latency,
    elsewhere: Option<RemoteLatency>,
}

impl fmt::Debug for Foreground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreground").field("latency", &self.latency()).finish_non_exhaustive()
    }
}

impl Foreground {
    /// Includes clients of other processes: `latency` returns the current latency of the slowest
    /// node, and zero without clients. `latency` is called before every step of every worker.
    pub fn elsewhere(latency: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { elsewhere: Some(Box::new(latency)), ..Self::default() }
    }

    /// Records the latency of one request.
    pub fn observe(&self, latency: Duration) {
        self.here.observe(latency);
    }

    /// Current latency of clients; zero without clients.
    pub fn latency(&self) -> Duration {
        let elsewhere = self.elsewhere.as_ref().map_or(Duration::ZERO, |latency| latency());
        self.here.get().max(elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_here_and_elsewhere_counts() {
        assert_eq!(Foreground::default().latency(), Duration::ZERO);
        let foreground = Foreground::elsewhere(|| Duration::from_millis(30));
        assert_eq!(foreground.latency(), Duration::from_millis(30));
        for _ in 0..200 {
            foreground.observe(Duration::from_millis(80));
        }
        assert!(foreground.latency() > Duration::from_millis(70));
    }
}
