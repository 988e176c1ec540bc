//! Highest known term.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::{Error, Term};

/// Highest known term of a process (rule P1). It never falls. Clones share it.
///
/// Loads acquire, and a rise acquires and releases. So a reader of a term sees all writes of its
/// raiser before the rise. A rise is one atomic step on the newest value, so no rise is lost. A
/// total order with other atomics isn't needed: rings, the other half of a decision, are read and
/// replaced under locks. A reader that combines a ring and a term of different moments gets a
/// refusal, and repeats its request.
#[derive(Clone, Debug, Default)]
pub struct KnownTerm(Arc<AtomicU64>);

impl KnownTerm {
    /// Returns the highest known term.
    pub fn get(&self) -> Term {
        Term(self.0.load(Ordering::Acquire))
    }

    /// Records a term. Returns true if it is higher than the known term.
    ///
    /// [`Term::ANY`] is no real term, and is ignored. A term more than [`RING_AHEAD_MAX`] above the
    /// known term is ignored too, because few terms could follow it.
    pub fn raise(&self, term: Term) -> bool {
        if term == Term::ANY {
            return false;
        }
        if term.0.saturating_sub(self.get().0) > RING_AHEAD_MAX {
            tracing::error!(%term, "ignored a term too far above the known one");
            return false;
        }
        self.0.fetch_max(term.0, Ordering::AcqRel) < term.0
    }

    /// Records the term that a refusal carries.
    pub fn learn(&self, refusal: &Error) {
        if let Some(newer) = refusal.newer_term() {
            self.raise(newer);
        }
    }
}
