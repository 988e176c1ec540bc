//! A view that requests of a process share: collected by one request at a time, and accepted for
//! [`LIFETIME`].
//!
//! ```text
//! request ──▶ view that began within LIFETIME before the request ──▶ accepted
//!    │ none
//!    ▼
//! one request collects, the others wait ──▶ its view began after they asked: accepted
//! ```
//!
//! A request that is cancelled while it collects leaves the turn to the next one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a view is accepted, from the begin of its collection.
pub(crate) const LIFETIME: Duration = Duration::from_secs(5);

/// Last collected view, and the turn to collect the next one.
#[derive(Debug)]
pub(crate) struct SharedView<V> {
    latest: Mutex<Option<TimedView<V>>>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct TimedView<V> {
    begun: Instant,
    view: Arc<V>,
}

impl<V> Default for SharedView<V> {
    fn default() -> Self {
        Self { latest: Mutex::new(None), turn: tokio::sync::Mutex::new(()) }
    }
}

impl<V> SharedView<V> {
    /// Returns a view whose collection began at most [`LIFETIME`] before this call. Calls `collect`
    /// if none is known and no other request collects one.
    pub(crate) async fn get<F: Future<Output = V>>(&self, collect: impl FnOnce() -> F) -> Arc<V> {
        let asked_at = Instant::now();
        if let Some(view) = self.accepted(asked_at) {
            return view;
        }
        let _turn = self.turn.lock().await;
        if let Some(view) = self.accepted(asked_at) {
            return view;
        }
        let begun = Instant::now();
        let view = Arc::new(collect().await);
        *self.latest.lock() = Some(TimedView { begun, view: view.clone() });
        view
    }

    /// Returns the last view, unless it is older than promised to a request of this time.
    fn accepted(&self, asked_at: Instant) -> Option<Arc<V>> {
        let latest = self.latest.lock();
        let accepted = latest.as_ref().filter(|it| it.begun + LIFETIME >= asked_at);
        accepted.map(|it| it.view.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::{join_all, pending};
    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const TOOK: Duration = Duration::from_secs(2);

    /// Collects numbered views, each within [`TOOK`].
    #[derive(Default)]
    struct Collector {
        shared: SharedView<u64>,
        collected: AtomicU64,
    }

    impl Collector {
        async fn get(&self) -> u64 {
            let collect = || async {
                sleep(TOOK).await;
                self.collected.fetch_add(1, Ordering::SeqCst) + 1
            };
            *self.shared.get(collect).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_a_time_share_one_collection() {
        let collector = Collector::default();
        let views = join_all((0..100).map(|_| collector.get())).await;
        assert_eq!(views, [1; 100]);
        assert_eq!(collector.get().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_is_accepted_for_its_lifetime_from_the_begin_of_its_collection() {
        let collector = Collector::default();
        assert_eq!(collector.get().await, 1);
        advance(LIFETIME.checked_sub(TOOK).unwrap()).await;
        assert_eq!(collector.get().await, 1, "it began just a lifetime ago");
        advance(Duration::from_millis(2)).await;
        assert_eq!(collector.get().await, 2);
    }

    /// A request that waits for a slow collection gets its view, however long the collection takes.
    #[tokio::test(start_paused = true)]
    async fn a_collection_longer_than_the_lifetime_serves_those_that_waited_from_its_begin() {
        let shared = SharedView::default();
        let collected = AtomicU64::new(0);
        let get = || {
            let collect = || async {
                sleep(3 * LIFETIME).await;
                collected.fetch_add(1, Ordering::SeqCst) + 1
            };
            shared.get(collect)
        };
        let late = async {
            sleep(2 * LIFETIME).await;
            *get().await
        };
        let (first, second, third) = futures::join!(get(), get(), late);
        assert_eq!((*first, *second), (1, 1));
        assert_eq!(third, 2, "the first view began too long before the third request");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_collection_leaves_the_turn_to_the_next_request() {
        let collector = Collector::default();
        let hanging = collector.shared.get(pending);
        assert!(timeout(Duration::from_secs(1), hanging).await.is_err());
        assert_eq!(collector.get().await, 1);
    }
}
