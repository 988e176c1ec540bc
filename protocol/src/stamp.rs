//! The total order of writes: a hybrid logical clock with a writer id that breaks ties.
//!
//! ```text
//! bits  127..80        79..64    63..0
//!       milliseconds   counter   writer
//! ```
//!
//! Laws: no stamp is issued twice, by one source or by two. A stamp issued above another is higher.
//! Stamps rise as long as the clock doesn't step back by more than half of the tolerated skew.
//! After a larger step the source follows the clock, since a source that stays ahead would be
//! refused by every node until the clock catches up. Registers that hold stamps from before the
//! step refuse lower ones, and are then written just above their floor.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::id::{WriteId, random_bytes};
use crate::limits::CLOCK_SKEW_MS_MAX;

const COUNTER_BITS: u32 = 16;

/// A point in the total order of writes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Milliseconds since 1970 in the upper 48 bits, a counter in the lower 16.
    pub time: u64,
    /// Writer that issued the stamp.
    pub writer: WriterId,
}

/// Id of a process that issues stamps: random, new at each start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WriterId(pub u64);

impl WriterId {
    /// Returns a new id of a write by this writer: half of it is random, then comes the writer.
    pub fn write_id(self) -> WriteId {
        let mut id = WriteId::random();
        id.0[8..].copy_from_slice(&self.0.to_be_bytes());
        id
    }

    /// Returns true if a write id was made by this writer. For other ids chance is negligible.
    pub fn wrote(self, id: WriteId) -> bool {
        id.0[8..] == self.0.to_be_bytes()
    }
}

impl Stamp {
    /// Below every issued stamp: the order of an empty register.
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

    /// Encodes the stamp big-endian, so that encoded stamps sort as stamps do.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.time.to_be_bytes());
        bytes[8..].copy_from_slice(&self.writer.0.to_be_bytes());
        bytes
    }

    /// Decodes the bytes of [`Stamp::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_be_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the writer")]
        Self { time: (number >> 64) as u64, writer: WriterId(number as u64) }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every reply of the S3 port has a stamp: all digits are written at once.
        let mut text = [b'-'; 33];
        let digits =
            |number: u64, into: &mut [u8]| hex::encode_to_slice(number.to_be_bytes(), into);
        digits(self.time, &mut text[..16]).map_err(|_| fmt::Error)?;
        digits(self.writer.0, &mut text[17..]).map_err(|_| fmt::Error)?;
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Longest time that the source follows stamps ahead of the clock, in milliseconds.
const AHEAD_MS_MAX: u64 = CLOCK_SKEW_MS_MAX / 2;

/// Issues stamps for one process.
#[derive(Debug)]
pub struct StampSource {
    clock: Arc<dyn Clock>,
    last: Mutex<Stamp>,
}

fn random_writer() -> WriterId {
    WriterId(u64::from_be_bytes(random_bytes()))
}

impl StampSource {
    /// Creates a source with a random writer id.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_writer(clock, random_writer())
    }

    /// Creates a source with a given writer id, for reproducible tests.
    pub fn with_writer(clock: Arc<dyn Clock>, writer: WriterId) -> Self {
        Self { clock, last: Mutex::new(Stamp { time: 0, writer }) }
    }

    /// Issues the next stamp.
    pub fn issue(&self) -> Stamp {
        self.issue_above(Stamp::ZERO)
    }

    /// Issues the next stamp above `floor`.
    ///
    /// A floor far ahead of the clock is exceeded once, under a new writer id, and doesn't move the
    /// source: a single register with a stamp from a fast clock must not spoil all others.
    pub fn issue_above(&self, floor: Stamp) -> Stamp {
        let now = Stamp::at_ms(self.clock.now_ms());
        let is_far = |stamp: Stamp| stamp.time_ms() > now.time_ms() + AHEAD_MS_MAX;
        if is_far(floor) {
            return Stamp { time: floor.time + 1, writer: random_writer() };
        }
        let mut last = self.last.lock();
        if is_far(*last) {
            *last = Stamp { time: now.time, writer: random_writer() };
        }
        last.time = now.time.max(last.time + 1).max(floor.time + 1);
        *last
    }

    /// Writer of the source's stamps. It changes when the clock steps back by much.
    pub fn writer(&self) -> WriterId {
        self.last.lock().writer
    }

    /// Time of the source's clock, in milliseconds since 1970.
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
    fn stamps_lie_above_a_floor_that_is_near_and_so_do_those_that_follow() {
        let source = StampSource::with_writer(Arc::new(ManualClock::at(1)), WriterId(7));
        let seen = Stamp { time: 99 << COUNTER_BITS, writer: WriterId(u64::MAX) };
        let above = source.issue_above(seen);
        assert!(above > seen && source.issue() > above);
    }

    #[test]
    fn a_floor_that_is_far_ahead_is_stepped_over_and_left_behind() {
        let source = StampSource::with_writer(Arc::new(ManualClock::at(1000)), WriterId(7));
        let far = Stamp::at_ms(1000 + CLOCK_SKEW_MS_MAX);
        let above = [source.issue_above(far), source.issue_above(far)];
        assert!(above.iter().all(|stamp| *stamp > far && stamp.time_ms() <= far.time_ms() + 1));
        assert_ne!(above[0], above[1]);
        assert_eq!(source.issue().time_ms(), 1000);
    }

    #[test]
    fn a_source_follows_a_clock_that_steps_back_under_another_name() {
        let clock = Arc::new(ManualClock::at(10 * CLOCK_SKEW_MS_MAX));
        let source = StampSource::with_writer(clock.clone(), WriterId(7));
        let before = source.issue();
        clock.set_ms(before.time_ms() - AHEAD_MS_MAX);
        assert!(source.issue() > before, "a small step is waited out");
        clock.set_ms(CLOCK_SKEW_MS_MAX);
        let after = source.issue();
        assert_eq!(after.time_ms(), CLOCK_SKEW_MS_MAX);
        assert_ne!(after.writer, before.writer);
        assert!(source.issue() > after);
    }

    #[test]
    fn write_ids_name_their_writer() {
        let source = StampSource::new(Arc::new(ManualClock::at(1000)));
        let (id, other) = (source.writer().write_id(), source.writer().write_id());
        assert_ne!(id, other);
        assert_eq!(source.issue().writer, source.writer());
        assert!(source.writer().wrote(id) && source.writer().wrote(other));
        assert!(!random_writer().wrote(id) && !source.writer().wrote(WriteId::random()));
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
