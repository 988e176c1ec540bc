//! The current cluster of a process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use martlet_protocol::{DataPort, Error, Term};
use martlet_ring::Ring;
use parking_lot::RwLock;

use crate::cluster::Cluster;
use crate::known_term::KnownTerm;

/// Source of the nodes' data ports, by the name of the node.
pub type DataPorts = Arc<dyn Fn(&str) -> Option<DataPort> + Send + Sync>;

/// The current cluster, the highest known term, the spread of the index ring, and the nodes' data
/// ports. Clones share all four.
#[derive(Clone)]
pub struct Topology {
    cluster: Arc<RwLock<Arc<Cluster>>>,
    term: KnownTerm,
    spread: Arc<AtomicU64>,
    data_ports: Arc<OnceLock<DataPorts>>,
}

/// Spread of a process that runs all roles: each index ring has spread.
const ALWAYS: u64 = u64::MAX;
/// Spread before an index ring is with most nodes. No ring reaches this epoch.
const NEVER: u64 = u64::MAX - 1;

impl Topology {
    /// The topology of a process that hears of terms in refusals and statuses alone.
    pub fn new(cluster: Cluster) -> Self {
        Self::with_term(cluster, KnownTerm::default())
    }

    /// The topology of a process whose membership raises `term` too.
    pub fn with_term(cluster: Cluster, term: KnownTerm) -> Self {
        let cluster = Arc::new(RwLock::new(Arc::new(cluster)));
        Self { cluster, term, spread: Arc::new(AtomicU64::new(ALWAYS)), data_ports: Arc::default() }
    }

    /// The current cluster.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.cluster.read().clone()
    }

    /// Replaces the cluster. Running operations keep that of their start. The highest known term
    /// stays.
    pub fn set_cluster(&self, cluster: Cluster) {
        *self.cluster.write() = Arc::new(cluster);
    }

    /// Sets the source of the nodes' data ports. Only the first call has an effect.
    pub fn set_data_ports(&self, data_ports: DataPorts) {
        // A process has one source, which it sets at its start.
        let _ = self.data_ports.set(data_ports);
    }

    /// Current data port of a node; none if it has none, or doesn't answer.
    pub fn data_port(&self, node: &str) -> Option<DataPort> {
        self.data_ports.get().and_then(|source| source(node))
    }

    /// Highest known term.
    pub fn term(&self) -> Term {
        self.term.get()
    }

    /// Raises the highest known term; it never falls.
    pub fn raise_term(&self, term: Term) {
        self.term.raise(term);
    }

    /// Records the term that a refusal carries.
    pub fn learn(&self, refusal: &Error) {
        self.term.learn(refusal);
    }

    /// Returns true if most nodes of this index ring have the ring. A ring change that began earlier
    /// would exclude nodes without the ring, because their replies would not count.
    pub fn has_spread(&self, index: &Ring) -> bool {
        let epoch = self.spread.load(Ordering::Acquire);
        epoch == ALWAYS || epoch == index.epoch()
    }

    /// Records if most nodes of this index ring have the ring. From then on, another ring has not
    /// spread until its own record replaces this one.
    pub fn set_spread(&self, index: &Ring, has_spread: bool) {
        self.spread.store(if has_spread { index.epoch() } else { NEVER }, Ordering::Release);
    }
}

impl From<Cluster> for Topology {
    fn from(cluster: Cluster) -> Self {
        Self::new(cluster)
    }
}
