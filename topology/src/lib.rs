//! Topology of the cluster: rings, nodes of devices, and the highest known term.
//!
//! ```text
//!   membership (or a server's start)
//!      │ newer rings      │ announced terms
//!      ▼                  ▼
//!  Topology ── Arc<Cluster> · KnownTerm ◀── terms of refusals
//!      │                  │
//!      ▼                  ▼
//!  object layer       workers
//! ```
//!
//! * [`Cluster`]: snapshot of the rings, with the node of each device. Immutable and pure.
//! * [`KnownTerm`]: highest known term (rule P1). Clones share the value, which only rises.
//! * [`Topology`]: the current cluster, replaceable while requests go on. Clones share the cluster,
//!   the term, and the spread of the index ring.
//! * [`is_same_policy`]: comparison of the names of storage policies.
//!
//! A process has one [`Topology`]. Its object layer and its workers hold clones, and its membership
//! holds the [`KnownTerm`]. So a term that one of them learns is known to all at once.
//!
//! An operation, or a step of a worker, keeps the cluster of its start. The term rises meanwhile:
//! the operation goes on, and requests for deciding devices name the new term (rule P2).
//!
//! This crate does no I/O and never waits.

mod cluster;
mod known_term;
mod policy;
mod shared;

pub use cluster::Cluster;
pub use known_term::KnownTerm;
pub use policy::is_same_policy;
pub use shared::{DataPorts, Topology};

#[cfg(test)]
mod tests;
