//! Wiring that several roles share, between the library crates.
//!
//! ```text
//! s3_port, master_keys ─ S3 service and its keys     measure, metrics ─ metrics of requests,
//! observers ─ observers of requests: events, logs      devices and workers
//! upkeep, workers ─ background work                  admin_status ─ status for operators
//! sources ─ state of devices and workers             memory ─ split of the memory
//! admin_access ─ principals of the admin API, and its audit log
//! checkpoint_counts ─ counts of checkpoint sets    host ─ a process of its own, or a machine's
//! direct ─ descriptors of extents for local processes
//! data_port ─ port for reads in place                args ─ flags that roles share
//! identity ─ identity provider: keys, and logins of the console
//! console ─ settings and port of the console        event_routes ─ parked messages of event targets
//! ```
//!
//! These modules do not depend on the role. The roles ([`server`](crate::server) and its peers) do
//! not depend on each other.

pub(crate) mod admin_access;
pub(crate) mod admin_status;
pub(crate) mod args;
pub(crate) mod checkpoint_counts;
pub(crate) mod console;
pub(crate) mod data_port;
pub(crate) mod direct;
pub(crate) mod event_routes;
pub(crate) mod host;
pub(crate) mod identity;
pub(crate) mod master_keys;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod observers;
pub(crate) mod s3_port;
pub(crate) mod sources;
pub(crate) mod upkeep;
pub(crate) mod workers;
