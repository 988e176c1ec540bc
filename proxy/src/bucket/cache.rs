//! Cache of bucket metadata.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::AchievedLevel;
use martlet_protocol::entry::Bucket;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::latch::{Turn, Turns};

/// Maximum number of cached buckets.
const CACHED_MAX: usize = 10_000;
/// Maximum bytes of the documents of cached buckets. Their parsed forms take some five times as many,
/// and up to thirty times.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Cached buckets, each with the consistency of its read.
///
/// Invariant: a lookup that began before a bucket was forgotten is never cached.
pub(crate) struct BucketCache {
    kept_for: Duration,
    buckets: RwLock<CachedBuckets>,
    lookups: Turns,
}

/// A cached bucket.
struct CachedBucket {
    /// Start of its lookup.
    since: Instant,
    bucket: Arc<Bucket>,
    /// Consistency of the lookup.
    given: AchievedLevel,
}

/// Buckets by name, and the times at which names were forgotten.
#[derive(Default)]
struct CachedBuckets {
    by_name: HashMap<String, CachedBucket>,
    /// Bytes of the documents of all buckets.
    document_bytes: usize,
    /// Time of the last [`BucketCache::forget`] of a name. Only names of existing buckets get here.
    forgotten: HashMap<String, Instant>,
    /// Time at which all names were forgotten last, to bound the map above.
    all_forgotten: Option<Instant>,
}

impl CachedBuckets {
    /// Inserts a bucket. Returns all buckets before if there is no room for more.
    fn insert(&mut self, name: &str, cached: CachedBucket) -> HashMap<String, CachedBucket> {
        let bytes = cached.bucket.settings.document_bytes();
        self.remove(name);
        let is_full =
            self.by_name.len() >= CACHED_MAX || self.document_bytes + bytes > DOCUMENT_BYTES_MAX;
        let evicted = if is_full { std::mem::take(&mut self.by_name) } else { HashMap::new() };
        self.document_bytes = if is_full { bytes } else { self.document_bytes + bytes };
        self.by_name.insert(name.to_owned(), cached);
        evicted
    }

    fn remove(&mut self, name: &str) {
        if let Some(cached) = self.by_name.remove(name) {
            self.document_bytes -= cached.bucket.settings.document_bytes();
        }
    }

    /// Returns true if a name was forgotten after `since`.
    fn was_forgotten(&self, name: &str, since: Instant) -> bool {
        self.all_forgotten.is_some_and(|at| at > since)
            || self.forgotten.get(name).is_some_and(|at| *at > since)
    }
}

impl BucketCache {
    pub(crate) fn new(kept_ms: u64) -> Self {
        Self {
            kept_for: Duration::from_millis(kept_ms),
            buckets: RwLock::default(),
            lookups: Turns::new(),
        }
    }

    /// Waits for the turn to look a name up, until a deadline. Callers that waited find the bucket in the
    /// cache. Correctness doesn't depend on turns.
    pub(super) async fn turn(&self, name: &str, deadline: Instant) -> Turn<'_> {
        self.lookups.wait(name, deadline).await
    }

    pub(super) fn get(&self, name: &str) -> Option<(Arc<Bucket>, AchievedLevel)> {
        if self.kept_for.is_zero() {
            return None;
        }
        let buckets = self.buckets.read();
        let cached = buckets.by_name.get(name)?;
        (cached.since.elapsed() < self.kept_for).then(|| (cached.bucket.clone(), cached.given))
    }

    /// A bucket whose lookup began after `since`, of any age.
    pub(super) fn get_after(
        &self,
        name: &str,
        since: Instant,
    ) -> Option<(Arc<Bucket>, AchievedLevel)> {
        let buckets = self.buckets.read();
        let cached = buckets.by_name.get(name)?;
        (cached.since > since).then(|| (cached.bucket.clone(), cached.given))
    }

    /// A cached bucket of any age.
    pub(crate) fn get_old(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.read().by_name.get(name).map(|cached| cached.bucket.clone())
    }

    /// Caches the result of a lookup that began at `since`, and returns the bucket. An unchanged
    /// bucket stays the value that is cached, with its parsed documents.
    ///
    /// The result is not cached if the name was forgotten meanwhile, if the cache holds a later
    /// generation of the bucket, or if a newer lookup found another bucket.
    pub(super) fn put(
        &self,
        name: &str,
        since: Instant,
        bucket: Bucket,
        given: AchievedLevel,
    ) -> Arc<Bucket> {
        let mut buckets = self.buckets.write();
        let known = buckets.by_name.get(name).filter(|cached| *cached.bucket == bucket);
        let bucket = known.map_or_else(|| Arc::new(bucket), |cached| cached.bucket.clone());
        let is_overtaken = buckets.by_name.get(name).is_some_and(|cached| {
            if cached.bucket.id == bucket.id {
                cached.bucket.generation > bucket.generation
            } else {
                cached.since > since
            }
        });
        if is_overtaken || buckets.was_forgotten(name, since) {
            return bucket;
        }
        let evicted = buckets.insert(name, CachedBucket { since, bucket: bucket.clone(), given });
        // Freed without the lock: many parsed documents take long.
        drop(buckets);
        drop(evicted);
        bucket
    }

    /// Forgets a bucket that was changed, or whose cached state may be too old. Lookups that are in
    /// flight are not cached either.
    pub(crate) fn forget(&self, name: &str) {
        let mut buckets = self.buckets.write();
        buckets.remove(name);
        if buckets.forgotten.len() >= CACHED_MAX {
            buckets.forgotten.clear();
            buckets.all_forgotten = Some(Instant::now());
        }
        buckets.forgotten.insert(name.to_owned(), Instant::now());
    }

    /// Removes a name for which a quorum read found no bucket.
    pub(super) fn remove(&self, name: &str) {
        self.buckets.write().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use martlet_protocol::entry::BucketState;
    use martlet_protocol::{BucketId, Level, PolicyId, Setting, Settings};

    use super::*;

    fn bucket(id: u8, generation: u64) -> Bucket {
        Bucket {
            id: BucketId([id; 16]),
            created_ms: 0,
            generation,
            state: BucketState::Open,
            index_shards: 1,
            policy: PolicyId(0),
            owner: "me".into(),
            consistency: Level::default(),
            settings: Settings::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_is_as_old_as_the_look_up_that_found_it() {
        let cache = BucketCache::new(1000);
        let since = Instant::now();
        tokio::time::advance(Duration::from_millis(600)).await;
        cache.put("b", since, bucket(1, 1), AchievedLevel::Quorum);
        assert!(cache.get("b").is_some());
        tokio::time::advance(Duration::from_millis(399)).await;
        assert!(cache.get("b").is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(cache.get("b").is_none());
        assert!(cache.get_old("b").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_other_names_never_wait() {
        let cache = &BucketCache::new(1000);
        let soon = || Instant::now() + Duration::from_secs(5);
        let names: Vec<String> = (0..100).map(|name| format!("bucket {name}")).collect();
        let turns = names.iter().map(|name| cache.turn(name, soon()).now_or_never());
        assert!(turns.collect::<Vec<_>>().iter().all(Option::is_some));
        let first = cache.turn("b", soon()).await;
        let mut second = Box::pin(cache.turn("b", soon()));
        assert!(second.as_mut().now_or_never().is_none(), "look-ups of one name take turns");
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_look_up_that_was_overtaken_takes_nothing_back() {
        let cache = BucketCache::new(60_000);
        let put = |bucket| cache.put("b", Instant::now(), bucket, AchievedLevel::Quorum);
        let known = || cache.get("b").map(|(bucket, _)| (bucket.id.0[0], bucket.generation));
        put(bucket(1, 2));
        put(bucket(1, 1));
        assert_eq!(known(), Some((1, 2)));
        put(bucket(1, 3));
        assert_eq!(known(), Some((1, 3)));
        put(bucket(2, 1));
        assert_eq!(known(), Some((2, 1)), "another bucket of that name");
        cache.forget("b");
        assert_eq!(known(), None);
    }

    #[tokio::test]
    async fn an_unchanged_bucket_keeps_its_parsed_documents() {
        let cache = BucketCache::new(60_000);
        let put = |bucket| cache.put("b", Instant::now(), bucket, AchievedLevel::Quorum);
        let first = put(bucket(1, 1));
        assert!(Arc::ptr_eq(&first, &put(bucket(1, 1))));
        assert!(!Arc::ptr_eq(&first, &put(bucket(1, 2))), "another generation");
        let (cached, _) = cache.get("b").unwrap();
        assert_eq!(cached.generation, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_from_before_a_change_is_not_cached_after_it() {
        let cache = BucketCache::new(60_000);
        let before = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        cache.forget("b");
        cache.put("b", before, bucket(1, 1), AchievedLevel::Quorum);
        assert!(cache.get("b").is_none());
        cache.put("c", before, bucket(2, 1), AchievedLevel::Quorum);
        assert!(cache.get("c").is_some(), "other names are not concerned");
        tokio::time::advance(Duration::from_millis(1)).await;
        cache.put("b", Instant::now(), bucket(1, 2), AchievedLevel::Quorum);
        assert!(cache.get("b").is_some());
    }

    #[tokio::test]
    async fn documents_of_cached_buckets_are_bounded() {
        let cache = BucketCache::new(60_000);
        let put = |name: &str, bytes: usize| {
            let mut bucket = bucket(1, 1);
            bucket.settings.set(Setting::Cors, vec![b' '; bytes]).unwrap();
            cache.put(name, Instant::now(), bucket, AchievedLevel::Quorum);
        };
        // Somewhat more than fit at once.
        for at in 0..1_000 {
            put(&at.to_string(), 20_000);
        }
        let buckets = cache.buckets.read();
        assert!(buckets.document_bytes <= DOCUMENT_BYTES_MAX && buckets.by_name.len() > 1);
        let sum = |sum, cached: &CachedBucket| sum + cached.bucket.settings.document_bytes();
        assert_eq!(buckets.by_name.values().fold(0, sum), buckets.document_bytes);
        drop(buckets);
        put("0", 1);
        cache.forget("0");
        assert!(cache.get("0").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn many_forgotten_names_are_bounded() {
        let cache = BucketCache::new(60_000);
        let before = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        for at in 0..=CACHED_MAX {
            cache.forget(&at.to_string());
        }
        assert!(cache.buckets.read().forgotten.len() <= CACHED_MAX);
        cache.put("0", before, bucket(1, 1), AchievedLevel::Quorum);
        assert!(cache.get("0").is_none(), "a bounded map forgets no change");
    }
}
