//! Background work: what keeps the data whole and the disks free while clients are served.
//!
//! ```text
//! Runner ── paces, stops, measures ──▶ Worker::step() ── one bounded unit of work
//!                                        ├─ Reclaim  extents of superseded entries, after a grace time
//!                                        └─ Sweep    extents that no entry ever came to own
//! ```
//!
//! A [`Worker`] knows what to do next, and nothing of time between steps; the [`Runner`] knows when,
//! and nothing of what. So a test drives a worker step by step, a command runs it once to its end
//! ([`run_once`]), and a server runs it for ever at the pace that [`Foreground`] leaves it: when
//! clients wait longer than their budget, background work yields.
//!
//! Both workers delete only what the whole index disowns (rule X3): every device of the index ring
//! is asked, and silence, an error or a manifest that can't be read means keep.

mod cluster;
mod foreground;
mod manifest;
mod reclaim;
mod runner;
mod sweep;
mod wanted;
mod worker;

pub use cluster::Cluster;
pub use foreground::Foreground;
pub use reclaim::{Reclaim, ReclaimOptions};
pub use runner::{Pace, Runner, WorkerStatus, run_once};
pub use sweep::{Sweep, SweepOptions};
pub use worker::{Progress, Worker};

#[cfg(test)]
mod testing;
