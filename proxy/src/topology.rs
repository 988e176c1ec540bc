//! The current rings, and the highest known term.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::{Error, Term};
use parking_lot::RwLock;

use crate::cluster::Cluster;

/// The current rings, and the highest known term.
pub(crate) struct Topology {
    rings: RwLock<Arc<Cluster>>,
    term: AtomicU64,
}

impl Topology {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { rings: RwLock::new(Arc::new(cluster)), term: AtomicU64::new(Term::NONE.0) }
    }

    /// The current rings.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        self.rings.read().clone()
    }

    /// Replaces the rings.
    pub(crate) fn set_cluster(&self, cluster: Cluster) {
        *self.rings.write() = Arc::new(cluster);
    }

    /// Highest known term.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// Raises the highest known term; it never falls.
    pub(crate) fn raise_term(&self, term: Term) {
        if term != Term::ANY {
            self.term.fetch_max(term.0, Ordering::AcqRel);
        }
    }

    /// Stores the term that an error reports.
    pub(crate) fn learn(&self, error: &Error) {
        if let Some(newer) = error.newer_term() {
            self.raise_term(newer);
        }
    }
}
