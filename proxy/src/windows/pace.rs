//! Pace of readers in company: those in front wait for those behind, within a bound of time.
//!
//! Windows are dropped by last use. A reader that falls behind by more than the cache holds finds
//! its windows dropped, and nodes send their bytes once more. Readers of one body therefore stay
//! within half of the cache: by last use, windows that the last reader has taken are dropped after
//! those that it needs next.
//!
//! Readers of one body have company in it before they meet in an extent: the first one of a herd
//! is some extents ahead when the others begin.
//!
//! The cost is for each window of a body that the cache can't hold: one lock, and a scan of the
//! body's readers. There are no more readers than concurrent requests.

use std::collections::HashMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use martlet_protocol::ExtentId;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use super::table::WINDOW_BYTES;

/// Interval at which a waiting reader looks for those behind.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait without a pause. A reader whose client has stalled costs the others no more.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Milliseconds after which a reader that has taken nothing is not waited for, nor company.
const STALLED_MS: u64 = WAIT_MAX.as_secs() * 1000;
/// Least distance of readers that is worth a wait.
const SPREAD_BYTES_MIN: u64 = 4 * WINDOW_BYTES;

/// Reads that pass over more bytes than the cache holds, by body.
pub(super) struct Herds {
    begun: Instant,
    /// Memory of the cache of windows.
    cache_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Reads of each body. A body without one takes no memory.
    bodies: HashMap<ExtentId, Vec<Arc<Position>>>,
    /// Bodies with more than one read: they share the cache.
    shared: u64,
}

/// Progress of one read.
struct Position {
    /// Offset in the body of the next byte.
    at: AtomicU64,
    /// Time at which the offset changed, in milliseconds of the herds.
    moved_ms: AtomicU64,
    end: u64,
}

/// Pace of one read, until it is dropped.
pub(crate) struct Pace {
    herds: Arc<Herds>,
    body: ExtentId,
    position: Arc<Position>,
    /// Offset up to which the read goes on without a look at the others.
    free_until: u64,
    is_in_company: bool,
    waiting: Option<Pin<Box<Sleep>>>,
    credit: Credit,
}

/// Place of a read among the others of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Windows that the read takes are of no use to another.
    Alone,
    /// The cache holds what lies between this read and another.
    InCompany,
    /// Others are a little farther behind than that.
    Ahead,
}

/// Time that a read may still wait. It grows as fast as the read's time without waits.
struct Credit {
    left: Duration,
    since: Instant,
}

impl Herds {
    pub(super) fn new(cache_bytes: u64) -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), cache_bytes, state: Mutex::default() })
    }

    /// Registers a read of `range` of a body, named by its first extent. None if the cache can
    /// hold all of the range.
    pub(super) fn join(self: &Arc<Self>, body: ExtentId, range: Range<u64>) -> Option<Pace> {
        let bytes = range.end.saturating_sub(range.start);
        if self.cache_bytes == 0 || bytes <= self.cache_bytes / 2 {
            return None;
        }
        let (at, moved_ms) = (range.start.into(), self.now_ms().into());
        let position = Arc::new(Position { at, moved_ms, end: range.end });
        let mut state = self.state.lock();
        let reads = state.bodies.entry(body).or_default();
        reads.push(position.clone());
        let is_second = reads.len() == 2;
        state.shared += u64::from(is_second);
        drop(state);
        let credit = Credit { left: WAIT_MAX, since: Instant::now() };
        Some(Pace {
            herds: self.clone(),
            body,
            position,
            free_until: 0,
            is_in_company: false,
            waiting: None,
            credit,
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the place of a read that is at `offset`. Reads that have stalled don't count.
    fn place(&self, body: ExtentId, read: &Arc<Position>, offset: u64) -> Place {
        let state = self.state.lock();
        let spread = self.cache_bytes / 2 / state.shared.max(1);
        let reads = state.bodies.get(&body).map_or(&[][..], |reads| reads.as_slice());
        if reads.len() < 2 || spread < SPREAD_BYTES_MIN {
            return Place::Alone;
        }
        // At least the step of looks, or a read in front would pass over it.
        let reach = spread + (spread / 8).max(WINDOW_BYTES);
        let stalled_ms = self.now_ms().saturating_sub(STALLED_MS);
        let mut place = Place::Alone;
        for other in reads.iter().filter(|other| !Arc::ptr_eq(other, read)) {
            let at = other.at.load(Ordering::Relaxed);
            let moved_ms = other.moved_ms.load(Ordering::Relaxed);
            if at.max(offset) >= other.end.min(read.end) || moved_ms < stalled_ms {
                continue;
            }
            match offset.checked_sub(at) {
                Some(behind) if behind >= spread && behind <= reach => return Place::Ahead,
                _ if at.abs_diff(offset) < spread => place = Place::InCompany,
                _ => {}
            }
        }
        place
    }
}

impl Pace {
    /// Waits while the read is too far in front of its company, before it takes the byte at
    /// `offset`. Returns true if others need the same windows.
    pub(crate) fn poll_turn(&mut self, offset: u64, context: &mut Context<'_>) -> Poll<bool> {
        while offset >= self.free_until {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(context));
                self.waiting = None;
                self.credit.spend();
            }
            if self.position.at.swap(offset, Ordering::Relaxed) != offset {
                self.position.moved_ms.store(self.herds.now_ms(), Ordering::Relaxed);
            }
            let place = self.herds.place(self.body, &self.position, offset);
            if place == Place::Ahead && self.is_in_company && self.credit.has_left() {
                self.waiting = Some(Box::pin(sleep(LOOK_EVERY)));
                continue;
            }
            self.is_in_company = match place {
                Place::Alone => false,
                Place::InCompany => true,
                Place::Ahead => self.is_in_company,
            };
            self.free_until = (offset / WINDOW_BYTES + 1) * WINDOW_BYTES;
        }
        Poll::Ready(self.is_in_company)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        let mut state = self.herds.state.lock();
        let Some(reads) = state.bodies.get_mut(&self.body) else { return };
        reads.retain(|read| !Arc::ptr_eq(read, &self.position));
        match reads.len() {
            0 => drop(state.bodies.remove(&self.body)),
            1 => state.shared -= 1,
            _ => {}
        }
    }
}

impl Credit {
    /// Returns true if a wait is left, after the time since the last look was added.
    fn has_left(&mut self) -> bool {
        let now = Instant::now();
        self.left = WAIT_MAX.min(self.left + now.duration_since(self.since));
        self.since = now;
        self.left >= LOOK_EVERY
    }

    /// Takes a wait that has just ended. It began at the last look.
    fn spend(&mut self) {
        let now = Instant::now();
        self.left = self.left.saturating_sub(now.duration_since(self.since));
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;

    use super::*;

    const A: ExtentId = ExtentId([1; 16]);
    const B: ExtentId = ExtentId([2; 16]);
    const CACHE: u64 = 64 * WINDOW_BYTES;
    const SPREAD: u64 = CACHE / 2;
    const ALL: Range<u64> = 0..10 * CACHE;

    fn join(herds: &Arc<Herds>, body: ExtentId) -> Pace {
        herds.join(body, ALL).unwrap()
    }

    async fn turn(pace: &mut Pace, offset: u64) -> bool {
        poll_fn(|context| pace.poll_turn(offset, context)).await
    }

    /// Moves a read that doesn't wait. Returns true if it has company.
    fn go(pace: &mut Pace, offset: u64) -> bool {
        turn(pace, offset).now_or_never().expect("no wait")
    }

    /// Returns the time that a read waits for its turn.
    async fn wait(pace: &mut Pace, offset: u64) -> Duration {
        let begun = Instant::now();
        turn(pace, offset).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_in_front_waits_until_the_last_one_comes_nearer() {
        let herds = Herds::new(CACHE);
        let (mut front, mut last) = (join(&herds, A), join(&herds, A));
        go(&mut last, 0);
        go(&mut front, SPREAD - 1);
        assert!(turn(&mut front, SPREAD).now_or_never().is_none(), "too far in front");
        go(&mut last, WINDOW_BYTES);
        assert!(wait(&mut front, SPREAD).await <= LOOK_EVERY);
        go(&mut last, SPREAD);
        go(&mut front, SPREAD + WINDOW_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_reader_costs_two_seconds_and_is_left_behind() {
        let herds = Herds::new(CACHE);
        let (mut front, _stalled) = (join(&herds, A), join(&herds, A));
        let begun = Instant::now();
        for offset in (0..ALL.end).step_by(usize::try_from(WINDOW_BYTES).unwrap()) {
            turn(&mut front, offset).await;
        }
        let waited = begun.elapsed();
        assert!(waited >= WAIT_MAX / 2 && waited <= WAIT_MAX + 2 * LOOK_EVERY, "{waited:?}");
        // A read that comes later waits no more for the same one.
        sleep(WAIT_MAX).await;
        let mut later = join(&herds, A);
        for offset in (0..ALL.end).step_by(usize::try_from(WINDOW_BYTES).unwrap()) {
            go(&mut later, offset);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_at_most_half_of_its_time_for_a_slow_one() {
        const STEP: Duration = Duration::from_millis(50);
        const STEPS: u32 = 200;
        let herds = Herds::new(CACHE);
        let (mut front, mut slow) = (join(&herds, A), join(&herds, A));
        // The slow one reads a third as fast.
        let follows = async {
            for step in 0..u64::MAX {
                go(&mut slow, step * WINDOW_BYTES);
                sleep(STEP * 3).await;
            }
        };
        let leads = async {
            let mut waited = Duration::ZERO;
            for step in 0..STEPS {
                sleep(STEP).await;
                waited += wait(&mut front, u64::from(step) * WINDOW_BYTES).await;
            }
            waited
        };
        let waited = tokio::select! {
            () = follows => unreachable!("it goes on for ever"),
            waited = leads => waited,
        };
        let bound = WAIT_MAX + STEP * STEPS;
        assert!(waited > WAIT_MAX / 2 && waited <= bound, "{waited:?} of {bound:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn reads_elsewhere_are_not_waited_for() {
        let herds = Herds::new(CACHE);
        let (mut front, mut other) = (join(&herds, A), join(&herds, B));
        assert!(!go(&mut other, 0) && !go(&mut front, 0), "bodies of their own");
        let begins = herds.join(A, 0..SPREAD + 5).unwrap();
        assert!(go(&mut front, WINDOW_BYTES));
        assert!(!go(&mut front, SPREAD + 5), "the other needs no more of these windows");
        drop((begins, join(&herds, A)));
        assert!(!go(&mut front, SPREAD + 2 * WINDOW_BYTES), "the others have left");
        let _far_behind = join(&herds, A);
        assert!(!go(&mut front, ALL.end - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_read_that_others_follow_has_company_and_waits_for_none_that_it_never_met() {
        let herds = Herds::new(CACHE);
        let mut first = join(&herds, A);
        assert!(!go(&mut first, 20 * WINDOW_BYTES));
        let mut second = join(&herds, A);
        assert!(go(&mut second, 0) && go(&mut first, 21 * WINDOW_BYTES));
        drop(second);
        assert!(!go(&mut first, SPREAD));
        let _third = join(&herds, A);
        assert!(!go(&mut first, SPREAD + WINDOW_BYTES));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_divide_the_cache_and_small_shares_set_no_pace() {
        let herds = Herds::new(CACHE);
        let (mut front, mut last) = (join(&herds, A), join(&herds, A));
        assert!(go(&mut front, 0));
        let mut others = vec![join(&herds, B), join(&herds, B)];
        assert!(turn(&mut front, SPREAD / 2).now_or_never().is_none(), "half of the spread");
        for number in 3..20 {
            let body = ExtentId([number; 16]);
            others.extend([join(&herds, body), join(&herds, body)]);
        }
        assert!(wait(&mut front, SPREAD / 2).await <= LOOK_EVERY);
        assert!(!go(&mut front, SPREAD), "shares of the cache are too small");
        drop(others);
        assert_eq!(herds.state.lock().shared, 1);
        go(&mut last, 2 * WINDOW_BYTES);
        assert!(go(&mut front, SPREAD + WINDOW_BYTES));
        assert!(turn(&mut front, SPREAD + 2 * WINDOW_BYTES).now_or_never().is_none());
    }

    #[test]
    fn short_reads_set_no_pace_and_ended_ones_leave_nothing() {
        let herds = Herds::new(CACHE);
        assert!(herds.join(A, 5..5 + SPREAD).is_none());
        assert!(Herds::new(0).join(A, ALL).is_none(), "windows are turned off");
        drop(vec![join(&herds, A), join(&herds, A), join(&herds, B)]);
        let state = herds.state.lock();
        assert!(state.bodies.is_empty() && state.shared == 0);
    }
}
