//! Keys where writers met lately. A guess for the sake of speed: nothing depends on it being right.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use martlet_protocol::RegisterKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Keys share this many marks.
const MARKS: usize = 1024;
/// How long a mark lasts.
const MARKED_FOR: Duration = Duration::from_secs(10);

/// Marks on keys.
pub(crate) struct Contended {
    until: Mutex<Vec<Option<Instant>>>,
}

impl Contended {
    pub(crate) fn new() -> Self {
        Self { until: Mutex::new(vec![None; MARKS]) }
    }

    /// Marks a key for a while.
    pub(super) fn mark(&self, key: &RegisterKey) {
        self.until.lock()[at(key)] = Some(Instant::now() + MARKED_FOR);
    }

    /// Whether a key was marked lately, or another that shares its mark.
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
