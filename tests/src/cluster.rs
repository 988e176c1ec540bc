//! A cluster of real processes: storage nodes, proxies and replicators, with their settings files
//! and rings.
//!
//! * [`ClusterPlan`] holds the number of members of each role. Members share the loopback device or
//!   run on hosts of their own with cables to cut
//!   ([`BridgeNetwork`](crate::network::BridgeNetwork)). Nodes may have disks of their own, to fill
//!   up and to cut the power of ([`Image`](crate::image::Image)).
//! * [`ClusterMember`] is one process, which a test kills, pauses and restarts.
//! * [`rings`]: the first rings and later epochs.
//! * [`census`]: an independent count of registers, extents and hints against the rings.
//! * [`fragments`]: the fragments of an extent under an erasure code; `stripes`: checks of stored
//!   fragments.
//! * `held`: entries and extents of devices, read from the nodes themselves.
//! * [`internal`]: requests to an internal port, signed by the test itself.
//! * [`certificates`]: certificates for TLS between members.
//!
//! Addresses belong to this test process alone: a block of 127.0.0.0/8, or a subnet. Dropping a
//! [`TestCluster`] kills its processes and removes its folders. When a test panics, the last lines
//! of the members' logs are printed.

mod build;
pub mod census;
pub mod certificates;
pub mod fragments;
mod held;
pub mod internal;
mod member;
mod plan;
mod ring_files;
pub mod rings;
mod running;
mod settings_text;
mod stripes;

pub use internal::CLUSTER_KEY;
pub use member::{ClusterMember, ProcessRole};
pub use plan::ClusterPlan;
pub use running::TestCluster;
pub use stripes::StoredPiece;
