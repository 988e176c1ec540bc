//! Devices that keep hints, by replies of all nodes at most once a second.
//!
//! A node reports how many hints each of its devices keeps. So a check for hints of some registers takes a call
//! for each node, and one for each device that has some. Checks at a time share the replies.
//!
//! Replies to requests from before a check miss a hint that came in between. So they serve only a check that
//! allows for their age. Others wait for replies to requests after their beginning.
//!
//! While a device is silent, each request takes up to the time of a call, and all fail. So checks that allow for an age
//! fail without requests for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use martlet_protocol::{DeviceId, StampSource};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Least time between two requests to all nodes, and time after a failure for which it serves checks.
const REST: Duration = Duration::from_secs(1);

/// Devices that keep hints; or a device that doesn't answer, so that nothing is known.
pub(super) type Keepers = Result<Vec<DeviceId>, DeviceId>;

/// Replies of all nodes.
struct Replies {
    /// Number of the requests, and the times of their beginning.
    number: u64,
    asked: Instant,
    asked_ms: u64,
    /// Time at which the last node had replied, or the time for it was over.
    ended: Instant,
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
    /// `ask` if they are too old. A failure also serves checks of the next second that allow for an age.
    pub(super) async fn within(
        &self,
        age: Duration,
        ask: impl Future<Output = Keepers>,
    ) -> Arc<Keepers> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(replies) = &*last {
            if replies.number > before || self.serves(age, replies) {
                return replies.keepers.clone();
            }
            sleep_until(replies.asked + REST).await;
        }
        let (asked, asked_ms) = (Instant::now(), self.stamps.now_ms());
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let keepers = Arc::new(ask.await);
        let ended = Instant::now();
        *last = Some(Replies { number, asked, asked_ms, ended, keepers: keepers.clone() });
        keepers
    }

    /// Returns true if replies serve a check that began after their requests: these were sent less than `age` ago, or failed
    /// just now. A check that allows for no age needs requests of its own.
    fn serves(&self, age: Duration, replies: &Replies) -> bool {
        match &*replies.keepers {
            Ok(_) => {
                let since_ms = self.stamps.now_ms().checked_sub(replies.asked_ms);
                since_ms.is_some_and(|ms| Duration::from_millis(ms) < age)
            }
            Err(_) => !age.is_zero() && replies.ended.elapsed() < REST,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::AtomicU32;

    use futures::future::join_all;
    use martlet_protocol::ManualClock;
    use tokio::task::yield_now;
    use tokio::time::sleep;

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

    /// A silent node lets requests run for long. Others begin a second after their end, not after their beginning.
    #[tokio::test(start_paused = true)]
    async fn a_failure_serves_checks_that_allow_for_an_age_for_a_second_from_its_end() {
        let it = Fixture::new();
        let (age, silent) = (REST, DeviceId(9));
        let fails = async {
            sleep(REST * 5).await;
            Keepers::Err(silent)
        };
        assert_eq!(*it.keepers.within(age, fails).await, Err(silent));
        for later_ms in [0, 0, 400, 500] {
            sleep(Duration::from_millis(later_ms)).await;
            let shared = it.keepers.within(age, ready(Ok(Vec::new()))).await;
            assert_eq!(*shared, Err(silent), "no requests are sent");
        }
        sleep(Duration::from_millis(200)).await;
        assert_eq!(it.check(age).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_serves_no_later_check_that_allows_for_no_age() {
        let it = Fixture::new();
        let failed = it.keepers.within(Duration::ZERO, ready(Err(DeviceId(9)))).await;
        assert_eq!(*failed, Err(DeviceId(9)));
        assert_eq!(it.check(Duration::ZERO).await, 1);
    }
}
