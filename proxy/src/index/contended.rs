//! Keys with recent write conflicts. A heuristic for speed; correctness doesn't depend on it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use martlet_protocol::RegisterKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of marks, shared by hash of the key.
const MARKS: usize = 1024;
/// Lifetime of a mark.
const MARKED_FOR: Duration = Duration::from_secs(10);

/// Marks of contended keys.
pub(super) struct Contended {
    until: Mutex<Vec<Option<Instant>>>,
}

impl Contended {
    pub(super) fn new() -> Self {
        Self { until: Mutex::new(vec![None; MARKS]) }
    }

    /// Marks a key for [`MARKED_FOR`].
    pub(super) fn mark(&self, key: &RegisterKey) {
        self.until.lock()[at(key)] = Some(Instant::now() + MARKED_FOR);
    }

    /// Returns true if a key, or another with its hash, is marked.
    pub(super) fn is_marked(&self, key: &RegisterKey) -> bool {
        let mut marks = self.until.lock();
        let mark = &mut marks[at(key)];
        *mark = mark.filter(|until| *until > Instant::now());
        mark.is_some()
    }
}

fn at(key: &RegisterKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % MARKS as u64).expect("a small number")
}

#[cfg(test)]
mod tests {
    use martlet_protocol::BucketId;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_fades() {
        let contended = Contended::new();
        let key = RegisterKey::object(BucketId([1; 16]), 8, "key");
        assert!(!contended.is_marked(&key));
        contended.mark(&key);
        advance(MARKED_FOR / 2).await;
        assert!(contended.is_marked(&key));
        assert!(!contended.is_marked(&RegisterKey::object(BucketId([1; 16]), 8, "another")));
        advance(MARKED_FOR).await;
        assert!(!contended.is_marked(&key));
    }
}
