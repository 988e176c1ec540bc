//! Repeatable randomness: while a thread is seeded, its ids are drawn from the seed, so that a
//! simulation on one thread can be repeated.

use std::cell::RefCell;

use blake3::OutputReader;

thread_local! {
    static SOURCE: RefCell<Option<OutputReader>> = const { RefCell::new(None) };
}

/// Seeds the ids of this thread until dropped.
#[derive(Debug)]
pub struct SeededIds(());

impl SeededIds {
    /// Seeds this thread.
    pub fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("martlet simulated randomness");
        hasher.update(&seed.to_be_bytes());
        SOURCE.set(Some(hasher.finalize_xof()));
        Self(())
    }
}

impl Drop for SeededIds {
    fn drop(&mut self) {
        SOURCE.set(None);
    }
}

/// Fills `bytes` and returns true if this thread is seeded.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    SOURCE.with_borrow_mut(|source| source.as_mut().map(|source| source.fill(bytes)).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ExtentId;

    #[test]
    fn ids_repeat_with_their_seed_and_only_then() {
        let three = |seed| {
            let _seeded = SeededIds::new(seed);
            [ExtentId::random(), ExtentId::random(), ExtentId::random()]
        };
        assert_eq!(three(1), three(1));
        assert_ne!(three(1), three(2));
        assert_ne!(ExtentId::random(), three(1)[0]);
    }
}
