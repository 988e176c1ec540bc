//! Buckets that were looked up lately.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::Given;
use martlet_protocol::entry::Bucket;
use parking_lot::RwLock;
use tokio::time::Instant;

/// Buckets that are remembered at once.
const CACHED_MAX: usize = 10_000;

/// Buckets that were looked up lately, and what that rested on.
pub(crate) struct BucketCache {
    kept_for: Duration,
    known: RwLock<HashMap<String, Known>>,
}

/// When a bucket was looked up, what was found, and what that rested on.
type Known = (Instant, Arc<Bucket>, Given);

impl BucketCache {
    pub(crate) fn new(kept_ms: u64) -> Self {
        Self { kept_for: Duration::from_millis(kept_ms), known: RwLock::default() }
    }

    pub(super) fn get(&self, name: &str) -> Option<(Arc<Bucket>, Given)> {
        if self.kept_for.is_zero() {
            return None;
        }
        let known = self.known.read();
        let (since, bucket, given) = known.get(name)?;
        (since.elapsed() < self.kept_for).then(|| (bucket.clone(), *given))
    }

    /// A bucket that was looked up once, however long ago.
    pub(super) fn get_old(&self, name: &str) -> Option<Arc<Bucket>> {
        self.known.read().get(name).map(|(_, bucket, _)| bucket.clone())
    }

    pub(super) fn put(&self, name: &str, bucket: Arc<Bucket>, given: Given) {
        let mut known = self.known.write();
        if known.len() >= CACHED_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), bucket, given));
    }

    pub(crate) fn forget(&self, name: &str) {
        self.known.write().remove(name);
    }
}
