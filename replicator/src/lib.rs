//! Background work: what keeps the data whole and the disks free while clients are served.
//!
//! ```text
//! Runner ── paces, stops, measures ──▶ Worker::step() ── one bounded unit of work
//!                         ├─ SyncDevices         gives a device that forgot its votes back
//!                         ├─ RingChange          brings a change of the index ring to its end
//!                         ├─ Update              delivers what handoffs keep for primaries
//!                         ├─ ReplicateRegisters  compares what replicas hold, and brings what differs
//!                         ├─ ReplicateExtents    brings extents to where they belong
//!                         ├─ Reconstruct         makes lost fragments of others
//!                         ├─ Expire              uploads that ended or were given up, and what rules take
//!                         ├─ Collect             tombstones that nobody needs any more
//!                         ├─ Reclaim             extents of superseded entries, after a grace time
//!                         ├─ Sweep               extents that no entry ever came to own
//!                         ├─ Audit               reads everything, and takes out what is corrupt
//!                         └─ CountUsage          counts what buckets hold that a quota speaks of
//! ```
//!
//! A [`Worker`] knows what to do next, and nothing of time between steps; the [`Runner`] knows when,
//! and nothing of what. So a test drives a worker step by step, a server or a replicator runs it for
//! ever at the pace that [`Foreground`] leaves it (when clients wait longer than their budget,
//! background work yields), and [`run_all_once`] takes a set of them to the end of what they can do
//! now.
//!
//! [`Standard`] is the set that every role runs, in one place. Rings travel and nodes move while they
//! work: each step looks anew at what [`SharedCluster`] holds.
//!
//! Two sentences hold for all of them. Silence means keep: what somebody who must agree has not
//! confirmed stays as it is (rules A2, G2, X3). And promises are obeyed: what one refuses is settled
//! by an identity round, under the write's own id (rule R6).

mod audit;
mod census;
mod change;
mod cluster;
mod coded;
mod collect;
mod copying;
mod cursors;
mod expire;
mod foreground;
mod identity;
mod known;
mod manifest;
mod pages;
mod reclaim;
mod reconstruct;
mod replicate;
mod runner;
mod standard;
mod sweep;
mod sync;
mod update;
mod usage;
mod wanted;
mod worker;

pub use audit::{Audit, AuditOptions};
pub use census::{CensusOptions, CensusProgress, CensusReport, Tally, census};
pub use change::{ChangeProgress, RingChange};
pub use cluster::{Cluster, Scope, SharedCluster};
pub use collect::{Collect, CollectOptions};
pub use cursors::{Cursors, FileCursors, MemoryCursors};
pub use expire::{Expire, ExpireOptions};
pub use foreground::Foreground;
pub use known::{KnownTerm, Spread};
pub use reclaim::{Reclaim, ReclaimOptions};
pub use reconstruct::Reconstruct;
pub use replicate::{ReplicateExtents, ReplicateOptions, ReplicateRegisters};
pub use runner::{Pace, Runner, WorkerStatus, run_once};
pub use standard::{OnceReport, Standard, UpkeepOptions, run_all_once};
pub use sweep::{Sweep, SweepOptions};
pub use sync::SyncDevices;
pub use update::Update;
pub use usage::CountUsage;
pub use worker::{Progress, Worker};

#[cfg(test)]
mod testing;
