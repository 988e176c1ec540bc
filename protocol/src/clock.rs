//! The time source. Production code reads the system clock only here, so that tests control time.
//!
//! [`BootInstant`] measures spans on which a safety rule rests. `std::time::Instant` and the runtime's timers
//! stand still while the host sleeps, so they pace work and bound waits only.

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

/// A point in time by the machine's counter since its start (`CLOCK_BOOTTIME`). The counter is never set, and goes
/// on while the host sleeps. It stands still while a virtual machine is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// Returns the present.
    pub fn now() -> Self {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
        Self(Duration::new(seconds, u32::try_from(since.tv_nsec).unwrap_or(0)))
    }

    /// Returns the time since this instant, with the time in which the host slept.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Prints the counter in a namespace where it is a day ahead, as after a day of sleep.
    const ASLEEP: [&str; 6] = ["--user", "--map-root-user", "--time", "--boottime", "86400", "--"];

    #[test]
    fn the_counter_is_that_which_goes_on_in_sleep() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime_s: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let now_s = BootInstant::now().0.as_secs_f64();
        assert!((now_s - uptime_s).abs() < 5.0, "{now_s} {uptime_s}");
        if std::env::var_os("MARTLET_TEST_ASLEEP").is_some() {
            println!("counter {now_s}");
            return;
        }
        let test = "clock::tests::the_counter_is_that_which_goes_on_in_sleep";
        let own = std::env::current_exe().unwrap();
        let output = Command::new("unshare")
            .args(ASLEEP)
            .arg(own)
            .args(["--exact", test, "--nocapture"])
            .env("MARTLET_TEST_ASLEEP", "1")
            .output();
        let Ok(output) = output else {
            return eprintln!("no unshare: the difference was not seen");
        };
        if String::from_utf8_lossy(&output.stderr).starts_with("unshare:") {
            return eprintln!("no time namespace: the difference was not seen");
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|it| it.split("counter ").nth(1));
        let there_s: f64 = line.expect(&text).trim().parse().unwrap();
        assert!(there_s - now_s > 86_399.0, "{there_s} {now_s}");
    }

    #[test]
    fn an_instant_returns_the_time_since_it() {
        let begun = BootInstant::now();
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert!(BootInstant::now() >= begun);
    }
}
