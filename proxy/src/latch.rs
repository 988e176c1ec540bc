//! Latches on names, so that racers of one process take turns instead of outbidding each other.
//! They are a courtesy, not a safeguard: what makes a conditional write exact is its ballot.

use std::hash::{DefaultHasher, Hash, Hasher};

use martlet_protocol::id::random_bytes;
use tokio::sync::{Mutex, MutexGuard};

/// Names share this many latches.
const STRIPES: usize = 256;

/// Latches on names of one sort. Whoever holds one takes no second one of the same sort.
pub(crate) struct Latches {
    stripes: Vec<Mutex<()>>,
    /// So that nobody outside can tell which names share a latch.
    secret: [u8; 16],
}

impl Latches {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { stripes, secret: random_bytes() }
    }

    /// Waits for the latch on `name`, and holds it until the guard is dropped.
    pub(crate) async fn lock(&self, name: impl Hash) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (self.secret, name).hash(&mut hasher);
        let stripe = usize::try_from(hasher.finish() % STRIPES as u64).expect("a small number");
        self.stripes[stripe].lock().await
    }
}
