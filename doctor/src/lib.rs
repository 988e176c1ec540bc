//! Checks of a machine and of its cluster, for operators: `martlet doctor`.
//!
//! ```text
//! settings ─▶ target ─┬─▶ filesystem, sync_probe   devices and data folders
//!                     ├─▶ limits, ports            this machine
//!                     ├─▶ rings, certificates      files
//!                     └─▶ peers ─▶ clock, versions, rings of other nodes
//!                              observation ─▶ finding ─▶ report
//! ```
//!
//! Each check has two halves: an observation of the machine, and a pure function that turns the
//! observation into [`Finding`]s. A finding has a verdict, the observed facts, and advice unless all
//! is well.
//!
//! Nothing is changed. The probe of syncs writes a file of its own beside the data and removes it;
//! a port is bound for a moment without listening. So the checks run beside serving processes, and
//! before their first start.
//!
//! Bounds: 1,000 nodes are asked 64 at once for at most 5 s each; a device is probed for at most
//! [`PROBE_TIME_MAX`](sync_probe::PROBE_TIME_MAX), all devices at once; a check names 16 problems of
//! one kind at most, and counts the others.

mod certificates;
mod clock;
mod filesystem;
mod finding;
mod limits;
mod mounts;
mod peers;
mod ports;
mod rings;
mod run;
mod sync_probe;
mod target;
mod versions;

pub use finding::{Finding, Report, Verdict};
pub use ports::is_listener;
pub use run::{ExamineStage, examine};
pub use target::{CertificateFiles, DeviceTarget, ListenAddress, MemberTarget, PeerView, Target};
