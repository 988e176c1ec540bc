//! A time that a clock has not been behind for an hour.
//!
//! A node's clock may be wrong when it starts, until a majority of the nodes has been heard. What is
//! deleted by its age, all at once, is judged by the lowest reading of the past hour.

use std::time::{Duration, Instant};

/// Length of a window in which readings are compared.
const WINDOW: Duration = Duration::from_hours(1);

/// Lowest readings of a clock, in windows of an hour.
#[derive(Debug, Default)]
pub(super) struct SteadyTime {
    /// Lowest reading of the window before, 0 without one.
    before_ms: u64,
    /// Beginning of the window, and its lowest reading.
    window: Option<(Instant, u64)>,
}

impl SteadyTime {
    /// Adds a reading. Returns the lowest reading of at least one hour, 0 until an hour has passed.
    pub(super) fn add(&mut self, at: Instant, now_ms: u64) -> u64 {
        let (began, lowest_ms) = self.window.get_or_insert((at, now_ms));
        *lowest_ms = now_ms.min(*lowest_ms);
        if at.duration_since(*began) >= WINDOW {
            self.before_ms = *lowest_ms;
            self.window = Some((at, now_ms));
        }
        self.before_ms.min(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_after_an_hour_and_never_beyond_its_lowest_reading() {
        let (mut time, start) = (SteadyTime::default(), Instant::now());
        let at = |minutes: u64| start + Duration::from_mins(minutes);
        // Months ahead for half an hour, then right.
        assert_eq!(time.add(at(0), 9_000_000), 0);
        assert_eq!(time.add(at(29), 9_000_029), 0);
        assert_eq!(time.add(at(30), 1000), 0);
        assert_eq!(time.add(at(60), 1030), 1000);
        assert_eq!(time.add(at(90), 1060), 1000);
        assert_eq!(time.add(at(120), 1090), 1030);
        // Behind: believed at once.
        assert_eq!(time.add(at(121), 7), 7);
        assert_eq!(time.add(at(180), 1150), 7);
    }
}
