//! Public keys of a provider that are fetched from it, and kept.
//!
//! Invariants:
//! * At most one fetch is under way. A fetch runs to its end, although its request may leave.
//! * After a fetch the next one is a minute later at the earliest, and after a failure 5 seconds later,
//!   whatever keys tokens name. So strangers can't make this process ask the provider often.
//! * Keys that were fetched longer than six hours ago verify nothing.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::jwks::{KeySet, TokenKey};

/// Age at which keys are fetched again, in milliseconds.
const FRESH_MS: u64 = 60 * 60 * 1000;
/// Age up to which keys verify tokens while the provider is silent, in milliseconds.
const USABLE_MS: u64 = 6 * 60 * 60 * 1000;
/// Time between two fetches, in milliseconds.
const PAUSE_MS: u64 = 60 * 1000;
/// Time between a failed fetch and the next one, in milliseconds.
const FAILURE_PAUSE_MS: u64 = 5 * 1000;

/// Source of a provider's keys.
pub trait JwksSource: std::fmt::Debug + Send + Sync {
    /// Fetches the JWKS document, with bounds on its time and its bytes. Fails with a sentence.
    fn fetch(&self) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// Keys of a provider, with the state of their fetches. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FetchedKeys {
    source: Arc<dyn JwksSource>,
    known: Arc<Mutex<Known>>,
    /// Held by the fetch that is under way.
    flight: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Known {
    keys: Option<(Arc<KeySet>, u64)>,
    /// Time of the last fetch, and its error.
    tried: Option<(u64, Option<String>)>,
}

impl Known {
    /// Keys younger than `age_ms`.
    fn younger(&self, age_ms: u64, now_ms: u64) -> Option<&Arc<KeySet>> {
        let (keys, at_ms) = self.keys.as_ref()?;
        (now_ms.saturating_sub(*at_ms) < age_ms).then_some(keys)
    }

    /// Returns true if the next fetch may begin.
    fn may_fetch(&self, now_ms: u64) -> bool {
        self.tried.as_ref().is_none_or(|(at_ms, error)| {
            let pause_ms = if error.is_some() { FAILURE_PAUSE_MS } else { PAUSE_MS };
            now_ms.saturating_sub(*at_ms) >= pause_ms
        })
    }

    fn usable(&self, now_ms: u64) -> Result<Arc<KeySet>, String> {
        self.younger(USABLE_MS, now_ms).cloned().ok_or_else(|| {
            let error = self.tried.as_ref().and_then(|(_, error)| error.clone());
            error.unwrap_or_else(|| "the keys of the identity provider are not known".to_owned())
        })
    }
}

impl FetchedKeys {
    pub(crate) fn new(source: Arc<dyn JwksSource>) -> Self {
        Self { source, known: Arc::default(), flight: Arc::default() }
    }

    /// Returns the provider's keys. Fetches them if they are old, or if none is the `wanted` one.
    ///
    /// # Errors
    /// A sentence, if there are no usable keys.
    pub(crate) async fn keys(&self, wanted: &TokenKey, now_ms: u64) -> Result<Arc<KeySet>, String> {
        if let Some(keys) = self.without_fetch(wanted, now_ms) {
            return keys;
        }
        let flight = if let Ok(flight) = self.flight.clone().try_lock_owned() {
            flight
        } else {
            // Old keys still verify what they can while another request fetches.
            let old = self.known.lock().usable(now_ms).ok();
            if let Some(old) = old.filter(|old| old.has(wanted)) {
                return Ok(old);
            }
            self.flight.clone().lock_owned().await
        };
        if let Some(keys) = self.without_fetch(wanted, now_ms) {
            return keys;
        }
        let this = self.clone();
        let fetch = tokio::spawn(async move {
            this.fetch(now_ms).await;
            drop(flight);
        });
        // A panic of the source leaves the keys as they are.
        let _ = fetch.await;
        self.known.lock().usable(now_ms)
    }

    /// Returns the outcome if nothing is to be fetched.
    fn without_fetch(&self, wanted: &TokenKey, now_ms: u64) -> Option<Result<Arc<KeySet>, String>> {
        let known = self.known.lock();
        if let Some(keys) = known.younger(FRESH_MS, now_ms).filter(|keys| keys.has(wanted)) {
            return Some(Ok(keys.clone()));
        }
        (!known.may_fetch(now_ms)).then(|| known.usable(now_ms))
    }

    async fn fetch(&self, now_ms: u64) {
        let began = Instant::now();
        let fetched = self.source.fetch().await;
        // Requests that waited for this fetch take its outcome, however long it took.
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now_ms = now_ms.saturating_add(took_ms);
        let keys = fetched.and_then(|text| {
            KeySet::parse(&text).ok_or_else(|| "the provider's keys are no JWKS".to_owned())
        });
        let mut known = self.known.lock();
        match keys {
            Ok(keys) => {
                *known =
                    Known { keys: Some((Arc::new(keys), now_ms)), tried: Some((now_ms, None)) };
            }
            Err(why) => {
                tracing::warn!(why, "could not fetch the keys of an identity provider");
                known.tried = Some((now_ms, Some(why)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::FutureExt;

    use super::super::jwks::Algorithm;
    use super::*;

    const EC: &str = r#"{"kty": "EC", "crv": "P-256", "kid": "KID", "x": "AQ", "y": "Ag"}"#;
    const HOUR_MS: u64 = 60 * 60 * 1000;

    #[derive(Debug, Default)]
    struct Source {
        document: Mutex<Option<String>>,
        count: AtomicUsize,
        under_way: Arc<AtomicUsize>,
        most: AtomicUsize,
        /// Time that a fetch takes besides 20 ms.
        slowness: Mutex<Duration>,
    }

    impl Source {
        fn set(&self, kids: &[&str]) {
            let keys: Vec<String> = kids.iter().map(|kid| EC.replace("KID", kid)).collect();
            *self.document.lock() = Some(format!(r#"{{"keys": [{}]}}"#, keys.join(",")));
        }

        fn count(&self) -> usize {
            self.count.load(Ordering::SeqCst)
        }
    }

    impl JwksSource for Source {
        fn fetch(&self) -> BoxFuture<'static, Result<Bytes, String>> {
            self.count.fetch_add(1, Ordering::SeqCst);
            let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(under_way, Ordering::SeqCst);
            let (document, under_way) = (self.document.lock().clone(), self.under_way.clone());
            let slowness = *self.slowness.lock() + Duration::from_millis(20);
            async move {
                tokio::time::sleep(slowness).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
                document.map(Bytes::from).ok_or_else(|| "it is away".to_owned())
            }
            .boxed()
        }
    }

    fn key(kid: &str) -> TokenKey {
        TokenKey { kid: Some(kid.to_owned()), algorithm: Algorithm::Es256 }
    }

    fn keys() -> (FetchedKeys, Arc<Source>) {
        let source = Arc::new(Source::default());
        source.set(&["a"]);
        (FetchedKeys::new(source.clone()), source)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_one_fetch() {
        let (keys, source) = keys();
        let wanted = key("a");
        let all = (0..20).map(|_| keys.keys(&wanted, 1000));
        for outcome in futures::future::join_all(all).await {
            assert!(outcome.unwrap().has(&wanted));
        }
        assert_eq!(source.count(), 1);
        // Unknown keys of later requests, and a provider that is slow.
        *source.document.lock() = None;
        let unknown: Vec<TokenKey> = (0..20).map(|number| key(&number.to_string())).collect();
        let all = unknown.iter().map(|key| keys.keys(key, 10 * HOUR_MS));
        for outcome in futures::future::join_all(all).await {
            assert!(outcome.is_err());
        }
        assert_eq!((source.count(), source.most.load(Ordering::SeqCst)), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_waited_for_a_slow_fetch_take_its_outcome() {
        let (keys, source) = keys();
        *source.document.lock() = None;
        *source.slowness.lock() = Duration::from_secs(10);
        let (one, other) = (key("a"), key("a"));
        let early = keys.keys(&one, 0);
        // Arrives nine seconds after the first one.
        let late = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            keys.keys(&other, 9_000).await
        };
        let (early, late) = tokio::join!(early, late);
        assert!(early.is_err() && late.is_err());
        assert_eq!(source.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_key_is_looked_for_once_a_minute() {
        let (keys, source) = keys();
        let at = async |kid: &str, now_ms: u64| {
            keys.keys(&key(kid), now_ms).await.unwrap().has(&key(kid))
        };
        assert!(at("a", 0).await);
        source.set(&["a", "b"]);
        for now_ms in 0..100 {
            assert!(!at("b", now_ms).await, "a minute is not over");
        }
        assert_eq!(source.count(), 1);
        let later_ms = PAUSE_MS + 1000;
        assert!(at("b", later_ms).await && at("a", later_ms).await);
        for now_ms in later_ms..later_ms + PAUSE_MS {
            if now_ms % 1000 == 0 {
                assert!(!at("strange", now_ms).await);
            }
        }
        assert_eq!(source.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_grow_old_and_outlive_a_silence_of_hours() {
        let (keys, source) = keys();
        assert!(keys.keys(&key("a"), 0).await.is_ok());
        source.set(&["b"]);
        assert!(keys.keys(&key("a"), HOUR_MS - 1).await.unwrap().has(&key("a")));
        assert!(
            !keys.keys(&key("a"), HOUR_MS + 1000).await.unwrap().has(&key("a")),
            "it was withdrawn"
        );
        *source.document.lock() = None;
        assert!(keys.keys(&key("b"), 3 * HOUR_MS).await.unwrap().has(&key("b")));
        let error = keys.keys(&key("b"), 8 * HOUR_MS).await.unwrap_err();
        assert_eq!(error, "it is away");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_has_a_short_pause_and_a_request_that_leaves_ends_no_fetch() {
        let (keys, source) = keys();
        *source.document.lock() = None;
        for now_ms in [0, 1, FAILURE_PAUSE_MS - 1] {
            assert!(keys.keys(&key("a"), now_ms).await.is_err());
        }
        assert_eq!(source.count(), 1);
        source.set(&["a"]);
        let (wanted, later_ms) = (key("a"), FAILURE_PAUSE_MS + 1000);
        let leaving = keys.keys(&wanted, later_ms);
        let early = tokio::time::timeout(Duration::from_millis(1), leaving).await;
        assert!(early.is_err());
        assert!(keys.keys(&wanted, later_ms).await.is_ok());
        assert_eq!(source.count(), 2);
        *source.document.lock() = Some("[]".to_owned());
        let error = keys.keys(&key("a"), 10 * HOUR_MS).await.unwrap_err();
        assert!(error.contains("no JWKS"), "{error}");
    }
}
