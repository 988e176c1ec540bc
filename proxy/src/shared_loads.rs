//! Loads that requests at a time share: one request loads a value, and the others wait for the result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Loads under way, by key. A load ends with its last request, so nothing is cached here.
pub(crate) struct SharedLoads<K, V>(Mutex<HashMap<K, Weak<OnceCell<V>>>>);

impl<K, V> Default for SharedLoads<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> SharedLoads<K, V> {
    /// Returns the result of the load of a key that is under way, or runs `load`. If a load fails, or its
    /// request is cancelled, one of the waiting requests runs its own.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) async fn join<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let shared = self.under_way(key);
        shared.get_or_try_init(|| load).await.cloned()
    }

    /// Load of a key that is under way, or a new one.
    fn under_way(&self, key: K) -> Arc<OnceCell<V>> {
        let mut loads = self.0.lock();
        if let Some(load) = loads.get(&key).and_then(Weak::upgrade) {
            return load;
        }
        loads.retain(|_, load| load.strong_count() > 0);
        let load = Arc::new(OnceCell::new());
        loads.insert(key, Arc::downgrade(&load));
        load
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    type Loads = SharedLoads<&'static str, u8>;

    #[tokio::test(start_paused = true)]
    async fn requests_at_a_time_share_a_load() {
        let (shared, loads) = (Loads::default(), AtomicUsize::new(0));
        let read = |number: usize| {
            let loads = &loads;
            shared.join("a", async move {
                loads.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
                if number == 0 { Err("the first load fails") } else { Ok(9) }
            })
        };
        let read = join_all((0..100).map(read)).await;
        assert!(read[0].is_err() && read[1..].iter().all(|it| *it == Ok(9)));
        assert_eq!(loads.load(Ordering::Relaxed), 2, "one failed, and another one was shared");
        assert_eq!(shared.join("a", async { Ok::<_, ()>(1) }).await, Ok(1), "nothing is cached");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_leaves_the_load_to_others() {
        let shared = Loads::default();
        let patience = Duration::from_millis(10);
        assert!(timeout(patience, shared.join("a", pending::<Result<_, ()>>())).await.is_err());
        assert_eq!(shared.join("a", async { Ok::<_, ()>(1) }).await, Ok(1));
    }

    #[tokio::test]
    async fn loads_of_other_keys_wait_for_none_and_leave_nothing_behind() {
        const KEYS: [&str; 4] = ["b", "c", "d", "e"];
        let shared = Loads::default();
        let slow = shared.join("a", pending::<Result<_, ()>>());
        tokio::pin!(slow);
        assert!(futures::poll!(slow.as_mut()).is_pending());
        for key in KEYS {
            assert_eq!(shared.join(key, async { Ok::<_, ()>(1) }).await, Ok(1));
        }
        assert_eq!(shared.0.lock().len(), 2, "the load under way and the last one");
    }
}
