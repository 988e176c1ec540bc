//! Visits: the nodes that a process queries in a round.
//!
//! ```text
//! up to 64 nodes ─▶ all of them, in each round
//! more           ─▶ new nodes, and the next 64 in the order of this process
//!                       └─ in doubt ─▶ all others too, in the same round
//! ```
//!
//! Each process has an order of its own, so visits are spread over the nodes. The order depends on names alone: while
//! nodes come and go, a node that stays is visited once in a turn of n/64 rounds, rounded up. So the last visit of
//! a node is a turn ago at most. Rings and terms spread faster, for each node shows the newest that it knows.
//!
//! Some conclusions need all nodes. A round visits all of them:
//!
//! * while a majority of the clocks was never known, as at the start: stamps need the cluster time (rule C1);
//! * while a node's cluster time leads far: this process may have been paused, and jumps only to the time of a
//!   majority of all nodes;
//! * while at most half of the nodes answer, of those visited or of all: so readiness follows an outage, and its end,
//!   within a round.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::join_all;
use martlet_protocol::opening::Uuid;
use parking_lot::Mutex;

use super::clock::ClusterClock;
use super::nodes::PeerNode;

/// Maximum number of nodes that take their turn in a round.
const VISITS_MAX: usize = 64;

/// Place of a node on the circle of visits.
type VisitPlace = [u8; 32];

/// Order in which a process visits the nodes of its cluster.
#[derive(Debug)]
pub(crate) struct VisitOrder {
    seed: Uuid,
    /// Place of the node that took its turn last.
    last: Mutex<VisitPlace>,
}

impl VisitOrder {
    /// Makes the order of a seed.
    pub(crate) fn new(seed: Uuid) -> Self {
        Self { seed, last: Mutex::new([0; 32]) }
    }

    /// Visits the nodes of a round, and returns them. `query` queries a node, and records its outcome in the history
    /// of the node.
    pub(crate) async fn visit<F: Future<Output = ()>>(
        &self,
        nodes: &[Arc<PeerNode>],
        clock: &ClusterClock,
        query: impl Fn(Arc<PeerNode>) -> F,
    ) -> Vec<Arc<PeerNode>> {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let slice = self.next_slice(&names);
        let is_due =
            |node: &Arc<PeerNode>| node.history.is_new() || slice.contains(node.name.as_str());
        let (due, others): (Vec<_>, Vec<_>) = nodes.iter().cloned().partition(is_due);
        join_all(due.iter().map(|node| query(node.clone()))).await;
        if others.is_empty() || !is_in_doubt(clock, &due, nodes) {
            return due;
        }
        join_all(others.into_iter().map(query)).await;
        nodes.to_vec()
    }

    /// Returns the nodes whose turn it is: all of a small cluster.
    fn next_slice<'a>(&self, names: &[&'a str]) -> HashSet<&'a str> {
        if names.len() <= VISITS_MAX {
            return names.iter().copied().collect();
        }
        let places: Vec<VisitPlace> = names.iter().map(|name| self.place(name)).collect();
        let mut last = self.last.lock();
        let slice = slice_after(&last, &places);
        if let Some(at) = slice.last() {
            *last = places[*at];
        }
        slice.into_iter().map(|at| names[at]).collect()
    }

    fn place(&self, name: &str) -> VisitPlace {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.0).update(name.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// Returns the indexes of the next [`VISITS_MAX`] places after `last`, around the circle.
fn slice_after(last: &VisitPlace, places: &[VisitPlace]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_unstable_by_key(|at| (places[*at] <= *last, places[*at]));
    order.truncate(VISITS_MAX);
    order
}

/// Returns true if the replies to some visits leave the time, or the state of most nodes, in doubt.
fn is_in_doubt(clock: &ClusterClock, visited: &[Arc<PeerNode>], nodes: &[Arc<PeerNode>]) -> bool {
    clock.is_in_doubt() || few_answer(visited) || few_answer(nodes)
}

/// Returns true if at most half of the nodes answer, by their last visit or a later reply.
fn few_answer(nodes: &[Arc<PeerNode>]) -> bool {
    let answering = nodes.iter().filter(|node| node.history.answers()).count();
    answering * 2 <= nodes.len()
}

#[cfg(test)]
mod tests;
