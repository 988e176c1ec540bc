//! Background workers that keep data whole and reclaim disk space while clients are served.
//!
//! ```text
//! Runner ── paces, stops, measures ──▶ Worker::step() ── one bounded unit of work
//!                         ├─ SyncDevices         returns votes to a device that forgot
//!                         ├─ RingChange          completes a change of the index ring
//!                         ├─ Update              delivers hints from handoffs to primaries
//!                         ├─ ReplicateRegisters  compares replicas, and copies what differs
//!                         ├─ ReplicateExtents    copies extents to their primaries
//!                         ├─ Reconstruct         rebuilds lost fragments from others
//!                         ├─ Expire              ends uploads, and carries out lifecycle rules
//!                         ├─ Collect             removes tombstones that are no longer needed
//!                         ├─ Reclaim             deletes superseded extents, after a grace time
//!                         ├─ Sweep               deletes extents that no entry owns
//!                         ├─ Audit               verifies everything, and quarantines corrupt data
//!                         └─ CountUsage          counts the contents of buckets with quotas
//! ```
//!
//! A [`Worker`] decides its next step, and has no notion of time between steps. The [`Runner`]
//! decides the time of each step. So a test drives a worker step by step. A server or a replicator
//! runs it forever at the pace that [`Foreground`] allows: background work yields when clients wait
//! longer than their budget. [`run_all_once`] runs a set of workers until none has work left.
//!
//! [`StandardWorkers`] is the set that every role runs. Rings change and nodes move during the
//! work, so each step reads the cluster of its [`Topology`](martlet_topology::Topology) again.
//!
//! Two rules hold for all workers. Silence means keep: without confirmation by every device that
//! must agree, nothing changes (rules A2, G2, X3). And promises are obeyed: a write that a promise
//! refuses is settled by an identity round, under the write's own id (rule R6).

mod audit;
mod census;
mod change;
mod checkpoints;
mod cluster;
mod coded;
mod collect;
mod copying;
mod cursors;
mod differences;
mod expire;
mod fences;
mod foreground;
mod identity;
mod manifest;
mod needed_extents;
mod owners;
mod pages;
mod partitions;
mod rebuild;
mod reclaim;
mod reconstruct;
mod replicate;
mod runner;
mod sent_copies;
mod standard_workers;
mod sweep;
mod sync;
mod transfer_timeout;
mod update;
mod usage;
mod worker;

pub use audit::{Audit, AuditOptions};
pub use census::{CensusOptions, CensusProgress, CensusReport, KindCounts, census};
pub use change::RingChange;
pub use checkpoints::KeepCheckpoints;
pub use cluster::DeviceScope;
pub use collect::{Collect, CollectOptions};
pub use cursors::{Cursors, FileCursors, MemoryCursors};
pub use expire::{Expire, ExpireOptions};
pub use foreground::Foreground;
pub use rebuild::{
    AcceptStage, AcceptedLoss, HOLD_SETTLES_MS, IndexLoss, LostKeys, LostPartitions, ScanFigures,
    ScanScope, UnknownBucket, accept_loss, preview_loss,
};
pub use reclaim::{Reclaim, ReclaimOptions};
pub use reconstruct::Reconstruct;
pub use replicate::{ReplicateExtents, ReplicateOptions, ReplicateRegisters};
pub use runner::{Runner, WorkerPace, WorkerStatus, run_once};
pub use standard_workers::{OnceReport, StandardWorkers, UpkeepOptions, run_all_once};
pub use sweep::{Sweep, SweepOptions};
pub use sync::SyncDevices;
pub use update::Update;
pub use usage::CountUsage;
pub use worker::{StepProgress, Worker};

#[cfg(test)]
mod testing;
