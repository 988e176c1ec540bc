//! What is known of the index ring besides its bytes: the highest term that was heard of, by whomever of
//! the process (rule P1), and whether the ring has spread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::{Error, Term};

/// A term that only rises, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct KnownTerm(Arc<AtomicU64>);

impl KnownTerm {
    /// The highest term so far.
    pub fn get(&self) -> Term {
        Term(self.0.load(Ordering::SeqCst))
    }

    /// Takes notice of a term. Nobody is at [`Term::ANY`]: that one is left aside.
    pub fn raise(&self, heard: Term) {
        if heard < Term::ANY {
            self.0.fetch_max(heard.0, Ordering::SeqCst);
        }
    }

    /// Takes notice of the term that a refusal names.
    pub(crate) fn learn(&self, error: &Error) {
        if let Some(newer) = error.newer_term() {
            self.raise(newer);
        }
    }
}

/// Whether most nodes of the index ring have it, shared by all clones. A ring change that begins before
/// leaves those without the ring behind: nobody would take their word.
#[derive(Clone, Debug)]
pub struct Spread(Arc<AtomicBool>);

impl Spread {
    /// Whether it has.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes notice of how it is.
    pub fn set(&self, has_spread: bool) {
        self.0.store(has_spread, Ordering::SeqCst);
    }
}

impl Default for Spread {
    /// It has: so it is where all roles are one process.
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
