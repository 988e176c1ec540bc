//! Devices that keep hints, by replies of all nodes at most once a second.
//!
//! A node reports how many hints each of its devices keeps. So a check for hints of some registers takes a call
//! for each node, and one for each device that has some. Checks at a time share the replies.
//!
//! Replies to requests from before a check miss a hint that came in between. So they serve only a check that
//! allows for their age. Others wait for replies to requests after their beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use martlet_protocol::{DeviceId, StampSource};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Least time between two requests to all nodes.
const REST: Duration = Duration::from_secs(1);

/// Devices that keep hints; or a device that doesn't answer, so that nothing is known.
pub(super) type Keepers = Result<Vec<DeviceId>, DeviceId>;

/// Replies of all nodes.
struct Replies {
    /// Number of the requests, and the times of their beginning.
    number: u64,
    asked: Instant,
    asked_ms: u64,
    keepers: Arc<Keepers>,
}

/// The last replies.
pub(super) struct HintKeepers {
    /// Source of the times by which replies age: it goes on while the host sleeps.
    stamps: Arc<StampSource>,
    /// Requests to all nodes that have begun.
    begun: AtomicU64,
    last: Mutex<Option<Replies>>,
}

impl HintKeepers {
    pub(super) fn new(stamps: Arc<StampSource>) -> Self {
        Self { stamps, begun: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Returns the devices that keep hints, as of less than `age` ago. Waits for replies under way, and runs
    /// `ask` if they are too old. A failure serves only checks that began before its requests.
    pub(super) async fn within(
        &self,
        age: Duration,
        ask: impl Future<Output = Keepers>,
    ) -> Arc<Keepers> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(replies) = &*last {
            if replies.number > before || replies.keepers.is_ok() && self.is_within(age, replies) {
                return replies.keepers.clone();
            }
            sleep_until(replies.asked + REST).await;
        }
        let (asked, asked_ms) = (Instant::now(), self.stamps.now_ms());
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let keepers = Arc::new(ask.await);
        *last = Some(Replies { number, asked, asked_ms, keepers: keepers.clone() });
        keepers
    }

    /// Returns true if the requests of some replies began less than `age` ago.
    fn is_within(&self, age: Duration, replies: &Replies) -> bool {
        let since_ms = self.stamps.now_ms().checked_sub(replies.asked_ms);
        since_ms.is_some_and(|ms| Duration::from_millis(ms) < age)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures::future::join_all;
    use martlet_protocol::ManualClock;
    use tokio::task::yield_now;

    use super::*;

    struct Fixture {
        clock: Arc<ManualClock>,
        keepers: HintKeepers,
        asked: AtomicU32,
    }

    impl Fixture {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::at(1_000_000));
            let keepers = HintKeepers::new(Arc::new(StampSource::new(clock.clone())));
            Self { clock, keepers, asked: AtomicU32::new(0) }
        }

        /// Checks, with the number of the requests as the only device that keeps hints.
        async fn check(&self, age: Duration) -> u32 {
            let ask = async {
                let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
                yield_now().await;
                Ok(vec![DeviceId(number)])
            };
            self.keepers.within(age, ask).await.as_ref().as_ref().unwrap()[0].0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checks_at_a_time_share_replies_to_requests_after_their_beginning() {
        let it = Fixture::new();
        let found = join_all((0..100).map(|_| it.check(Duration::ZERO))).await;
        // The requests of the first check had begun before the others.
        assert_eq!(found[0], 1);
        assert!(found[1..].iter().all(|number| *number == 2), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_replies_serve_checks_that_allow_for_their_age() {
        let it = Fixture::new();
        let age = Duration::from_millis(500);
        for (later_ms, age, number) in [
            (0, age, 1),
            (0, Duration::ZERO, 2),
            (499, age, 2),
            (1, age, 3),
            (499, age, 3),
            (0, Duration::ZERO, 4),
        ] {
            it.clock.advance_ms(later_ms);
            assert_eq!(it.check(age).await, number, "after {later_ms} ms within {age:?}");
        }
        it.clock.set_ms(5);
        assert_eq!(it.check(age).await, 5, "of a time ahead of the clock nothing is known");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_asked_once_a_second() {
        let it = Fixture::new();
        let began = Instant::now();
        for _ in 0..5 {
            it.check(Duration::ZERO).await;
        }
        assert!(began.elapsed() >= REST * 4, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_serves_no_later_check() {
        let it = Fixture::new();
        let hour = Duration::from_hours(1);
        let failed = it.keepers.within(hour, async { Err(DeviceId(9)) }).await;
        assert_eq!(*failed, Err(DeviceId(9)));
        assert_eq!(it.check(hour).await, 1);
    }
}
