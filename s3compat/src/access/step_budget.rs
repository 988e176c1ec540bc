//! Bound on the steps that policies may cost a request.
//!
//! Values of a request stand in patterns, and patterns meet values of a request, so that one short
//! document and one long header could cost seconds. A request whose steps are spent is denied: a Deny
//! that was not evaluated is never skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of steps of a request: comparisons, and bytes of patterns and values.
pub(super) const STEPS_MAX: usize = 5_000_000;
/// Steps that each key of a request with many keys adds.
pub(super) const STEPS_PER_KEY: usize = 20_000;

/// Steps that are left to a request. Clones share one count.
#[derive(Clone, Debug)]
pub(super) struct StepBudget(Arc<AtomicUsize>);

impl Default for StepBudget {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(STEPS_MAX)))
    }
}

/// Contexts are compared by their values alone.
impl PartialEq for StepBudget {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl StepBudget {
    /// Number of steps that are left.
    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes steps. Returns false if no step is left afterwards; then no later call returns true.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.left();
        if left == 0 {
            return false;
        }
        // One task at a time judges a request, so no step is lost between load and store.
        self.0.store(left.saturating_sub(steps), Ordering::Relaxed);
        left > steps
    }

    /// Adds the steps of so many keys, unless all steps are spent.
    pub(super) fn add_keys(&self, keys: usize) {
        let left = self.left();
        if left > 0 {
            let more = keys.saturating_mul(STEPS_PER_KEY);
            self.0.store(left.saturating_add(more), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_steps_and_what_is_spent_stays_spent() {
        let budget = StepBudget::default();
        let clone = budget.clone();
        assert!(clone.spend(STEPS_MAX - 1) && budget.left() == 1);
        budget.add_keys(2);
        assert_eq!(clone.left(), 1 + 2 * STEPS_PER_KEY);
        assert!(!budget.spend(usize::MAX) && !clone.spend(0));
        clone.add_keys(1000);
        assert!(!budget.spend(0), "a request that was denied gets no more steps");
    }
}
