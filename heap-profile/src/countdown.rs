//! Choice of the samples: one in a mean number of bytes, at exponential distances, so that the chance of an
//! allocation depends on its size alone.
//!
//! An allocation of `size` bytes is a sample with probability `1 - exp(-size / interval)`, and stands for
//! as many equal allocations as the inverse of that.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of threads differ by this count.
static THREADS: AtomicU64 = AtomicU64::new(0);
/// Odd number with well-mixed bits: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes until the next sample of one thread.
#[derive(Debug)]
pub(super) struct Countdown {
    left: Cell<u64>,
    /// Interval by which `left` was drawn; 0 before the first draw.
    interval: Cell<u64>,
    /// State of the generator; 0 before the first draw.
    random: Cell<u64>,
}

impl Countdown {
    pub(super) const fn new() -> Self {
        Self { left: Cell::new(0), interval: Cell::new(0), random: Cell::new(0) }
    }

    /// Counts an allocation. True if it is a sample.
    pub(super) fn reaches_sample(&self, size: u64, interval: u64) -> bool {
        if interval == 0 {
            return false;
        }
        if self.interval.replace(interval) != interval {
            self.left.set(self.draw(interval));
        }
        let left = self.left.get();
        if size < left {
            self.left.set(left - size);
            return false;
        }
        self.left.set(self.draw(interval));
        true
    }

    /// Draws an exponential distance, of at least a byte.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "distances are below 50 intervals, which are far below 2^52"
    )]
    fn draw(&self, interval: u64) -> u64 {
        // In (0, 1]: 53 bits of the generator.
        let share = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        ((-share.ln() * interval as f64) as u64).saturating_add(1)
    }

    /// Returns the next number of an xorshift generator (Marsaglia 2003, with Vigna's multiplication).
    fn next(&self) -> u64 {
        let mut state = self.random.get();
        if state == 0 {
            state = THREADS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(MIX);
        }
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Returns the number of allocations for which a sample of this size stands.
#[expect(clippy::cast_precision_loss, reason = "sizes of blocks are far below 2^52")]
pub(super) fn weight(size: u64, interval: u64) -> f64 {
    let chance = -(-(size as f64) / interval as f64).exp_m1();
    if chance > 0.0 { 1.0 / chance } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "counts of a test are small")]
    fn samples_stand_for_all_allocations_of_their_size() {
        let interval = 4096;
        for size in [16_u64, 1000, 4096, 100_000] {
            let countdown = Countdown::new();
            let number = 400_000;
            let samples = (0..number).filter(|_| countdown.reaches_sample(size, interval)).count();
            let estimate = samples as f64 * weight(size, interval);
            let share = estimate / f64::from(number);
            assert!((0.9..1.1).contains(&share), "{samples} samples of {size} bytes: {share}");
        }
    }

    #[test]
    fn no_interval_has_no_samples_and_another_interval_draws_anew() {
        let countdown = Countdown::new();
        assert!(!countdown.reaches_sample(u64::MAX, 0));
        assert!(!countdown.reaches_sample(1, 1 << 40));
        let reached = (0..10_000).filter(|_| countdown.reaches_sample(64, 64)).count();
        assert!(reached > 3_000, "{reached}");
    }
}
