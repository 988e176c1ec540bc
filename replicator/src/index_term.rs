//! State of the index ring beside its bytes: the highest term seen by the process (rule P1), and if
//! the ring has spread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::{Error, Term};

/// Highest known term; it only rises. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownTerm(Arc<AtomicU64>);

impl KnownTerm {
    /// Returns the highest known term.
    pub fn get(&self) -> Term {
        Term(self.0.load(Ordering::SeqCst))
    }

    /// Records a term. [`Term::ANY`] is no real term, and is ignored.
    pub fn raise(&self, heard: Term) {
        if heard < Term::ANY {
            self.0.fetch_max(heard.0, Ordering::SeqCst);
        }
    }

    /// Records the term that a refusal carries.
    pub(crate) fn learn(&self, error: &Error) {
        if let Some(newer) = error.newer_term() {
            self.raise(newer);
        }
    }
}

/// True if most nodes of the index ring have it; clones share the flag. A ring change that began
/// earlier would exclude nodes without the ring, because their replies would not count.
#[derive(Clone, Debug)]
pub struct RingSpreadFlag(Arc<AtomicBool>);

impl RingSpreadFlag {
    /// Returns true if the ring has spread.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Records if the ring has spread.
    pub fn set(&self, has_spread: bool) {
        self.0.store(has_spread, Ordering::SeqCst);
    }
}

impl Default for RingSpreadFlag {
    /// True, as in a process that runs all roles.
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_term_only_rises_and_all_clones_hear_of_it() {
        let known = KnownTerm::default();
        let other = known.clone();
        other.raise(Term(7));
        other.raise(Term(5));
        other.raise(Term::ANY);
        known.learn(&Error::unavailable("out"));
        assert_eq!(known.get(), Term(7));
        known.learn(&Error::outdated(Term(9)));
        assert_eq!(other.get(), Term(9));
    }
}
