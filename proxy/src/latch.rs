//! Latches on names, so that racers of one process take turns instead of outbidding each other.
//! They are a courtesy, not a safeguard: what makes a conditional write exact is its ballot.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

use tokio::sync::{Mutex, MutexGuard};

/// Names share this many latches.
const STRIPES: usize = 256;

/// Latches on names of one sort. Whoever holds one takes no second one of the same sort.
pub(crate) struct Latches {
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Latches {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { stripes, hasher: RandomState::new() }
    }

    /// Waits for the latch on `name`, and holds it until the guard is dropped.
    pub(crate) async fn lock(&self, name: impl Hash) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one(name);
        let stripe = usize::try_from(hash % STRIPES as u64).expect("a small number");
        self.stripes[stripe].lock().await
    }
}
