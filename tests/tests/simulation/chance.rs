//! Random numbers that depend on the seed alone, on every machine and version: `SplitMix64`.

use std::sync::Arc;

use parking_lot::Mutex;

/// A generator of numbers, shared by its clones.
#[derive(Clone, Debug)]
pub(crate) struct SharedRng(Arc<Mutex<u64>>);

impl SharedRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Returns a new generator, independent of later draws from this one.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.number())
    }

    fn number(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = *state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns an index below `length`.
    pub(crate) fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }

    /// Returns true with a probability of `times` in a thousand.
    pub(crate) fn per_mille(&self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// Returns one of the choices.
    pub(crate) fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}
