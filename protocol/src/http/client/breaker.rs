//! Circuit breaker: calls to an unreachable node fail at once for a short, growing time, instead of
//! each waiting for its timeout.
//!
//! ```text
//! closed ──can't connect, or no reply in time───▶ open, 200 ms
//!    ▲                                              │ time is over: one call may probe
//!    └──any reply───── probing ◀────────────────────┘
//!                         └──again no reply──▶ open, twice as long, up to 2 s
//! ```
//!
//! Any reply, errors included, shows that the node is reachable. A failed call doesn't count if the
//! node answered another call since the failed one began.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;

const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A call that its caller dropped after this time without a reply counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(1);

/// Breaker state of one node.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    /// Time until which calls are refused; none while the node answers.
    until: Option<Instant>,
    wait: Duration,
    probing: bool,
    answered_at: Option<Instant>,
}

/// Permission for one call. The call's outcome sets the breaker's state; a call that is dropped
/// before `PATIENCE` has no outcome.
#[derive(Debug)]
pub(super) struct CallPermit<'a> {
    breaker: &'a Breaker,
    began: Instant,
    probe: bool,
    settled: bool,
}

impl Breaker {
    /// Returns permission for a call, or an error while the breaker is open.
    pub(super) fn pass(&self, address: &str) -> Result<CallPermit<'_>, Error> {
        let now = Instant::now();
        let mut state = self.0.lock();
        let probe = state.until.is_some();
        if state.probing || state.until.is_some_and(|until| now < until) {
            let message = format!("the node at {address} was unreachable a moment ago");
            return Err(Error::unreached(message, "retry after a pause"));
        }
        state.probing = probe;
        Ok(CallPermit { breaker: self, began: now, probe, settled: false })
    }

    /// Closes the breaker after a reply.
    fn close(&self) {
        *self.0.lock() =
            BreakerState { answered_at: Some(Instant::now()), ..BreakerState::default() };
    }

    /// Opens the breaker after an unanswered call. Returns true if the node answered no other call
    /// since `began`.
    pub(super) fn open(&self, began: Instant) -> bool {
        let now = Instant::now();
        let mut state = self.0.lock();
        if state.answered_at.is_some_and(|at| at > began) {
            return false;
        }
        // Calls in flight at the same time count as one failure.
        if state.until.is_some_and(|until| now < until) {
            return true;
        }
        let longer = if state.until.is_some() { state.wait * 2 } else { WAIT_MIN };
        state.wait = longer.clamp(WAIT_MIN, WAIT_MAX);
        state.until = Some(now + state.wait);
        state.probing = false;
        true
    }
}

impl CallPermit<'_> {
    /// Records a reply, success or error.
    pub(super) fn answered(mut self) {
        self.settled = true;
        self.breaker.close();
    }

    /// Records a failed connection or a timeout. Returns true if no other call was answered since
    /// this one began.
    pub(super) fn unanswered(mut self) -> bool {
        self.settled = true;
        self.breaker.open(self.began)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if self.began.elapsed() >= PATIENCE {
            self.breaker.open(self.began);
        } else if self.probe {
            self.breaker.0.lock().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn later(ms: u64) {
        tokio::time::advance(Duration::from_millis(ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_for_a_growing_while_with_single_probes() {
        let breaker = Breaker::default();
        breaker.pass("n1").unwrap().unanswered();
        for wait_ms in [200, 400, 800, 1600, 2000, 2000] {
            later(wait_ms - 1).await;
            let refused = breaker.pass("n1").unwrap_err();
            assert!(refused.had_no_effect(), "{refused}");
            later(1).await;
            let probe = breaker.pass("n1").expect("one may try");
            assert!(breaker.pass("n1").is_err(), "one at a time");
            probe.unanswered();
        }
        later(2000).await;
        breaker.pass("n1").unwrap().answered();
        breaker.pass("n1").unwrap().unanswered();
        later(200).await;
        assert!(breaker.pass("n1").is_ok(), "an answer makes it begin anew");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_together_are_one_failure() {
        let breaker = Breaker::default();
        let passes: Vec<_> = (0..10).map(|_| breaker.pass("n1").unwrap()).collect();
        assert!(passes.into_iter().all(CallPermit::unanswered));
        later(200).await;
        assert!(breaker.pass("n1").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_beside_a_success_does_not_count() {
        let breaker = Breaker::default();
        let (slow, quick) = (breaker.pass("n1").unwrap(), breaker.pass("n1").unwrap());
        later(500).await;
        quick.answered();
        later(500).await;
        assert!(!slow.unanswered());
        let later_one = breaker.pass("n1").expect("the node answers");
        assert!(later_one.unanswered(), "nobody was answered since it began");
        assert!(breaker.pass("n1").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_cancelled_early_does_not_count() {
        let breaker = Breaker::default();
        drop(breaker.pass("n1").unwrap());
        breaker.pass("n1").unwrap().unanswered();
        later(200).await;
        drop(breaker.pass("n1").unwrap());
        let probe = breaker.pass("n1").expect("the probe before told nothing");
        later(1000).await;
        drop(probe);
        assert!(breaker.pass("n1").is_err(), "a second without an answer tells something");
    }
}
