//! How clients fare, so that background work can step back.

use std::fmt;
use std::time::Duration;

use martlet_protocol::Latency;

/// Returns how long clients wait elsewhere; zero when nobody knows of any.
type Elsewhere = Box<dyn Fn() -> Duration + Send + Sync>;

/// The time to the first byte of client requests, here and elsewhere.
#[derive(Default)]
pub struct Foreground {
    here: Latency,
    elsewhere: Option<Elsewhere>,
}

impl fmt::Debug for Foreground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreground").field("latency", &self.latency()).finish_non_exhaustive()
    }
}

impl Foreground {
    /// Clients of other processes: `ask` returns how long those of the slowest node wait at present,
    /// and zero when there are none. It is called before every step of every worker.
    pub fn elsewhere(ask: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { elsewhere: Some(Box::new(ask)), ..Self::default() }
    }

    /// Takes note of one request.
    pub fn observe(&self, latency: Duration) {
        self.here.observe(latency);
    }

    /// How long clients wait at present; zero when there are none.
    pub fn latency(&self) -> Duration {
        let elsewhere = self.elsewhere.as_ref().map_or(Duration::ZERO, |ask| ask());
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
