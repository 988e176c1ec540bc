//! Estimate of the end of a census.
//!
//! A census counts all registers, then all extents. Devices store how many extents they have, so the
//! second half has a known amount. The number of registers is stored nowhere: it is that of the last
//! complete census of this process. Without one there is no estimate until the extents are reached.

use std::time::{Duration, Instant};

use martlet_replicator::CensusProgress;

/// Amounts and times of a complete census.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastCensus {
    registers: u64,
    counted_copies: u64,
    /// Time that the extents took.
    extents_took: Duration,
}

/// Begin of the halves of a running census.
#[derive(Clone, Copy, Debug)]
pub(super) struct CensusPace {
    began: Instant,
    /// Last progress before the extents.
    registers_until: Instant,
    has_extents: bool,
}

impl CensusPace {
    /// Pace of a census that begins.
    pub(super) fn starting(now: Instant) -> Self {
        Self { began: now, registers_until: now, has_extents: false }
    }

    /// Notes progress.
    pub(super) fn note(&mut self, progress: &CensusProgress, now: Instant) {
        self.has_extents |= progress.counted_copies > 0;
        if !self.has_extents {
            self.registers_until = now;
        }
    }

    /// Returns the figures of a census that has ended.
    pub(super) fn end(&self, progress: &CensusProgress, now: Instant) -> PastCensus {
        PastCensus {
            registers: progress.registers,
            counted_copies: progress.counted_copies,
            extents_took: now.saturating_duration_since(self.registers_until),
        }
    }

    /// Returns the number of all registers; none if the number is unknown.
    pub(super) fn registers(
        &self,
        progress: &CensusProgress,
        past: Option<&PastCensus>,
    ) -> Option<u64> {
        if self.has_extents {
            return Some(progress.registers);
        }
        past.map(|past| past.registers.max(progress.registers))
    }

    /// Returns the estimated time until the end; none if too little is known.
    pub(super) fn left(
        &self,
        progress: &CensusProgress,
        past: Option<&PastCensus>,
        now: Instant,
    ) -> Option<Duration> {
        let CensusProgress { registers, extent_copies, counted_copies, .. } = *progress;
        if self.has_extents {
            let took = now.saturating_duration_since(self.registers_until);
            return scaled(took, extent_copies.saturating_sub(counted_copies), counted_copies);
        }
        let past = past?;
        let took = now.saturating_duration_since(self.began);
        let of_registers = scaled(took, past.registers.saturating_sub(registers), registers)?;
        // Without extents in the past their time is unknown, unless there are none now either.
        let of_extents = match extent_copies {
            0 => Duration::ZERO,
            copies => scaled(past.extents_took, copies, past.counted_copies)?,
        };
        Some(of_registers + of_extents)
    }
}

/// Time for `left` items, if `done` items took this long; none without items that are done.
pub(super) fn scaled(took: Duration, left: u64, done: u64) -> Option<Duration> {
    let ms = (took.as_millis() * u128::from(left)).checked_div(u128::from(done))?;
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn progress(registers: u64, counted_copies: u64) -> CensusProgress {
        CensusProgress {
            registers,
            counted_copies,
            extent_copies: 600,
            ..CensusProgress::default()
        }
    }

    #[test]
    fn extents_have_a_known_end_and_registers_that_of_the_last_census() {
        let began = Instant::now();
        let mut pace = CensusPace::starting(began);
        assert_eq!(pace.left(&progress(0, 0), None, began), None);
        let at = |seconds: u32| began + SECOND * seconds;
        pace.note(&progress(500, 0), at(10));
        assert_eq!(pace.left(&progress(500, 0), None, at(10)), None);
        assert_eq!(pace.registers(&progress(500, 0), None), None);
        pace.note(&progress(1000, 0), at(20));
        pace.note(&progress(1000, 200), at(30));
        assert_eq!(pace.registers(&progress(1000, 200), None), Some(1000));
        assert_eq!(pace.left(&progress(1000, 200), None, at(30)), Some(SECOND * 20));
        let past = pace.end(&progress(1000, 600), at(50));

        let mut next = CensusPace::starting(began);
        next.note(&progress(250, 0), at(5));
        assert_eq!(next.registers(&progress(250, 0), Some(&past)), Some(1000));
        // 15 s for 750 registers, and 30 s for the extents.
        assert_eq!(next.left(&progress(250, 0), Some(&past), at(5)), Some(SECOND * 45));
        let grown = progress(2000, 0);
        assert_eq!(next.registers(&grown, Some(&past)), Some(2000));
        assert_eq!(next.left(&grown, Some(&past), at(40)), Some(SECOND * 30));
    }

    #[test]
    fn a_store_without_extents_has_an_end_too() {
        let began = Instant::now();
        let empty = |registers| CensusProgress { registers, ..CensusProgress::default() };
        let past = CensusPace::starting(began).end(&empty(100), began + SECOND);
        let pace = CensusPace::starting(began);
        let left = pace.left(&empty(50), Some(&past), began + SECOND);
        assert_eq!(left, Some(SECOND));
        assert_eq!(pace.left(&progress(50, 0), Some(&past), began + SECOND), None);
    }
}
