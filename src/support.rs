//! Archive for support: the state of all reachable processes, without secrets.
//!
//! ```text
//! martlet admin support-bundle ─┐  source: requests over HTTP, doctor, logs of the machine
//!                               ├─▶ collect ─▶ archive: index.json and a file for each part
//! POST support-bundle ──────────┘  source: routes of this process, other processes over HTTP
//! ```
//!
//! * [`collect`]: the parts, and the trait of their source; [`metrics`]: metrics without names.
//! * [`archive`]: bounds in bytes and time, the index, and the file.
//! * [`directory`]: the processes of a cluster, with their addresses or the reasons for none.
//! * [`relay`]: replies of one process, read by another for its principals; [`relayed_routes`]: the routes
//!   and types of these replies; [`permits`]: bounds on the requests under way.
//! * [`route`]: the archive as a reply of the admin API.
//!
//! Values are in the archive because their kind is allowed, never because they look harmless:
//! replies are decoded into their types and encoded again, settings have a list of those that are
//! shown, and metrics have a list of labels. Names of tenants, buckets, objects and access keys are
//! left out. Only logs are copied as they are, if the operator names their files.
//!
//! The index lists each part, and the reason for each part that is missing.

pub(crate) mod archive;
pub(crate) mod collect;
pub(crate) mod directory;
mod metrics;
mod permits;
mod relay;
mod relayed_routes;
pub(crate) mod route;
