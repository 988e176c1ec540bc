//! The total order of writes: a hybrid logical clock with a writer id that breaks ties.
//!
//! ```text
//! bits  127..80        79..64    63..0
//!       milliseconds   counter   writer
//! ```
//!
//! Laws: a source never issues the same stamp twice; every stamp it issues is above every stamp
//! that it issued or observed before; two sources never issue the same stamp.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::id::random_bytes;

const COUNTER_BITS: u32 = 16;

/// A point in the total order of writes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Milliseconds since 1970 in the upper 48 bits, a counter in the lower 16.
    pub time: u64,
    /// Who issued it.
    pub writer: WriterId,
}

/// Names the process that issues stamps: random, new at each start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WriterId(pub u64);

impl Stamp {
    /// Below every stamp that a source issues: the order of a register that holds nothing.
    pub const ZERO: Self = Self { time: 0, writer: WriterId(0) };
    /// Bytes of an encoded stamp.
    pub const BYTES: usize = 16;

    /// The lowest stamp of a millisecond.
    pub const fn at_ms(ms: u64) -> Self {
        Self { time: ms << COUNTER_BITS, writer: WriterId(0) }
    }

    /// The stamp's physical part, in milliseconds since 1970.
    pub fn time_ms(self) -> u64 {
        self.time >> COUNTER_BITS
    }

    /// Big-endian, so that encoded stamps sort as stamps do.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.time.to_be_bytes());
        bytes[8..].copy_from_slice(&self.writer.0.to_be_bytes());
        bytes
    }

    /// The inverse of [`Stamp::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_be_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the writer")]
        Self { time: (number >> 64) as u64, writer: WriterId(number as u64) }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.time, self.writer.0)
    }
}

/// Issues stamps for one process.
#[derive(Debug)]
pub struct StampSource {
    clock: Arc<dyn Clock>,
    writer: WriterId,
    last: Mutex<u64>,
}

impl StampSource {
    /// A source with a writer id of its own.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_writer(clock, WriterId(u64::from_be_bytes(random_bytes())))
    }

    /// A source with a given writer id, for tests that need to repeat a run.
    pub fn with_writer(clock: Arc<dyn Clock>, writer: WriterId) -> Self {
        Self { clock, writer, last: Mutex::new(0) }
    }

    /// The next stamp.
    pub fn issue(&self) -> Stamp {
        let now = self.clock.now_ms() << COUNTER_BITS;
        let mut last = self.last.lock();
        *last = now.max(*last + 1);
        Stamp { time: *last, writer: self.writer }
    }

    /// Puts every later stamp above `seen`.
    pub fn observe(&self, seen: Stamp) {
        let mut last = self.last.lock();
        *last = (*last).max(seen.time);
    }

    /// The clock below.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn stamps_rise_while_the_clock_stands_still_or_goes_back() {
        let clock = Arc::new(ManualClock::at(1000));
        let source = StampSource::with_writer(clock.clone(), WriterId(7));
        let first = source.issue();
        assert_eq!(first.time_ms(), 1000);
        let second = source.issue();
        assert!(second > first);
        clock.set_ms(10);
        assert!(source.issue() > second);
    }

    #[test]
    fn stamps_lie_above_what_was_observed() {
        let source = StampSource::with_writer(Arc::new(ManualClock::at(1)), WriterId(7));
        let seen = Stamp { time: 99 << COUNTER_BITS, writer: WriterId(u64::MAX) };
        source.observe(seen);
        assert!(source.issue() > seen);
    }

    #[test]
    fn bytes_sort_as_stamps_do() {
        let low = Stamp { time: 1, writer: WriterId(u64::MAX) };
        let high = Stamp { time: 2, writer: WriterId(0) };
        assert!(low < high && low.to_bytes() < high.to_bytes());
        assert_eq!(Stamp::from_bytes(high.to_bytes()), high);
        assert_eq!(Stamp::from_bytes(low.to_bytes()), low);
    }
}
