//! Turns of concurrent requests, and the shares of accounts.
//!
//! While at least an eighth of the turns is free, every request gets one. The last eighth is for
//! accounts below their share. A share is all turns, divided by the accounts that have some, plus
//! one for an account still to come. So no account holds all turns, and turns beyond a share pass
//! to others as their requests end.
//!
//! Anonymous requests have a bound of their own at all times, so that they can't block requests
//! with a key.
//!
//! Invariants:
//! * A request counts for its account until its reply was sent or abandoned.
//! * An account without a turn gets one while any of the last eighth is free.
//! * Anonymous requests hold no more turns than their bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::meter::Meters;

/// Divisor for the part of the turns that is reserved for accounts below their share.
const KEPT: usize = 8;

/// Turns of an HTTP service. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyLimiter(Arc<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    all: usize,
    /// Bound of anonymous requests.
    anonymous_max: usize,
    free: Arc<Semaphore>,
    /// Number of accounts that have a turn.
    accounts: AtomicUsize,
    /// Meters of all anonymous requests.
    anonymous: Meters,
}

/// A turn that counts for an account.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    shared: Arc<LimiterState>,
    meters: Meters,
}

impl ConcurrencyLimiter {
    /// Creates `all` turns. Anonymous requests get `anonymous_max` of them at a time, and at least
    /// one.
    pub(crate) fn new(all: usize, anonymous_max: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(all));
        let (accounts, anonymous) = (AtomicUsize::new(0), Meters::default());
        let anonymous_max = anonymous_max.max(1);
        Self(Arc::new(LimiterState { all, anonymous_max, free, accounts, anonymous }))
    }

    /// Takes a free turn for a request that isn't authenticated yet.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.free.clone().try_acquire_owned().ok()
    }

    /// Counts a taken turn for an account. Returns `None` if other accounts need the turn more, or
    /// if anonymous requests have reached their bound.
    pub(crate) fn count(&self, whose: Option<&Meters>) -> Option<RequestPermit> {
        let shared = self.0.clone();
        let meters = whose.unwrap_or(&shared.anonymous).clone();
        let turns = meters.account.turns.fetch_add(1, Ordering::AcqRel);
        if turns == 0 {
            shared.accounts.fetch_add(1, Ordering::AcqRel);
        }
        let turn = RequestPermit { shared, meters };
        let bound = if whose.is_some() { usize::MAX } else { turn.shared.anonymous_max };
        (turns < turn.shared.share().min(bound)).then_some(turn)
    }
}

impl LimiterState {
    /// Number of turns below which an account may take one more.
    fn share(&self) -> usize {
        if self.free.available_permits() >= self.all / KEPT {
            return usize::MAX;
        }
        (self.all / (self.accounts.load(Ordering::Acquire) + 1)).max(1)
    }
}

impl RequestPermit {
    /// Meters of the principal that the turn counts for.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if self.meters.account.turns.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.accounts.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Held = (OwnedSemaphorePermit, RequestPermit);

    fn try_acquire(turns: &ConcurrencyLimiter, whose: &Meters) -> Option<Held> {
        let permit = turns.take()?;
        Some((permit, turns.count(Some(whose))?))
    }

    /// Takes turns for an account until one is refused.
    fn grab(turns: &ConcurrencyLimiter, whose: &Meters) -> Vec<Held> {
        std::iter::from_fn(|| try_acquire(turns, whose)).collect()
    }

    #[test]
    fn one_who_comes_alone_leaves_an_eighth() {
        let turns = ConcurrencyLimiter::new(80, 80);
        assert_eq!(grab(&turns, &Meters::default()).len(), 70);
        let few = ConcurrencyLimiter::new(3, 3);
        assert_eq!(grab(&few, &Meters::default()).len(), 3);
        let one = ConcurrencyLimiter::new(1, 1);
        let held = grab(&one, &Meters::default());
        assert_eq!(held.len(), 1);
        drop(held);
        assert!(try_acquire(&one, &Meters::default()).is_some());
    }

    #[test]
    fn whoever_holds_most_makes_way_for_others() {
        let turns = ConcurrencyLimiter::new(80, 80);
        let (greedy, modest) = (Meters::default(), Meters::default());
        let mut most = grab(&turns, &greedy);
        let few = grab(&turns, &modest);
        assert_eq!(few.len(), 10, "all that was left");
        for _ in 0..40 {
            most.pop();
            assert!(
                try_acquire(&turns, &greedy).is_none() || turns.0.free.available_permits() >= 10
            );
        }
        let more = grab(&turns, &modest);
        assert!(few.len() + more.len() >= 26, "its third: {}", few.len() + more.len());
    }

    #[test]
    fn newcomers_get_a_turn_though_two_hold_all_that_they_may() {
        let turns = ConcurrencyLimiter::new(80, 80);
        let (a, b) = (Meters::default(), Meters::default());
        let (_a, _b) = (grab(&turns, &a), try_acquire(&turns, &b));
        for _ in 0..5 {
            let newcomer = Meters::default();
            let held = try_acquire(&turns, &newcomer);
            assert!(held.is_some() && try_acquire(&turns, &a).is_none());
        }
    }

    #[test]
    fn anonymous_requests_have_a_bound_and_keys_have_none() {
        let turns = ConcurrencyLimiter::new(80, 10);
        let take_both = || Some((turns.take()?, turns.count(None)?));
        let anonymous: Vec<_> = std::iter::from_fn(take_both).collect();
        assert_eq!(anonymous.len(), 10);
        assert_eq!(grab(&turns, &Meters::default()).len(), 60, "all but the last eighth");
        drop(anonymous);
        assert!(take_both().is_some());
    }

    #[test]
    fn turns_are_given_back() {
        let turns = ConcurrencyLimiter::new(80, 80);
        let meters = Meters::default();
        for _ in 0..3 {
            assert_eq!(grab(&turns, &meters).len(), 70);
            assert_eq!(turns.0.accounts.load(Ordering::Acquire), 0);
        }
        let anonymous = turns.count(None);
        assert!(anonymous.is_some());
        assert_eq!(turns.0.accounts.load(Ordering::Acquire), 1);
    }
}
