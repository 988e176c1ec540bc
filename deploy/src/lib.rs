//! A cluster from one file: `cluster.toml` names machines, disks and policies, and this crate
//! computes everything else.
//!
//! ```text
//! cluster.toml ─▶ spec ─┬─▶ secrets       keys, made once
//!                       ├─▶ certificates  an authority, a certificate for each machine
//!                       ├─▶ rings         builders that follow the file     ─▶ plan ─▶ apply
//!                       └─▶ machine       settings, unit, install script
//! running nodes ─ reach ─▶ usage of devices, epochs of rings ◀─ push
//! ```
//!
//! [`ClusterPlan::make`] reads the file and the output folder and touches nothing. The plan holds
//! the bytes of every file that differs; [`ClusterPlan::write`] writes these and no others. A
//! second plan after that is empty. An apply holds [`LockedOutput`] from before its plan until its
//! end.

mod certificates;
mod files;
mod machine;
mod made;
mod names;
mod plan;
mod print;
mod reach;
mod rings;
mod secrets;
mod spec;

pub use files::LockedOutput;
pub use plan::{ClusterPlan, PlanOptions, RingStep};
pub use reach::{Credentials, NodeSurvey, push, survey};
pub use spec::{ClusterSpec, NodeRole};
