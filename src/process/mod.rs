//! Parts that all serving processes share: settings, data folder, logs, connections, signals and
//! the admin address.
//!
//! ```text
//! settings ─ flags, environment, file     folder ─ data folder and its lock
//! listen, body_drain, s3_port ─ clients    measure, metrics ─ metrics
//! operator, admin_status, objects, policies, buckets, accounts, token ─ admin API
//! workers, upkeep ─ background work       logging, signals, clock, runtime
//! observers ─ observers of requests: events, access_log
//! ```
//!
//! These modules do not depend on the role. The roles ([`server`](crate::server) and its peers) do
//! not depend on each other.

pub(crate) mod access_log;
pub(crate) mod accounts;
pub(crate) mod admin_status;
mod body_drain;
pub(crate) mod buckets;
pub(crate) mod certificate;
pub(crate) mod clock;
mod connection;
mod connection_limiter;
pub(crate) mod events;
pub(crate) mod folder;
pub(crate) mod listen;
pub(crate) mod logging;
pub(crate) mod master_keys;
pub(crate) mod measure;
pub(crate) mod metrics;
pub(crate) mod objects;
pub(crate) mod observers;
pub(crate) mod operator;
pub(crate) mod policies;
pub(crate) mod quotas;
pub(crate) mod runtime;
pub(crate) mod s3_port;
pub(crate) mod settings;
pub(crate) mod signals;
mod small_reads;
mod streams;
pub(crate) mod token;
pub(crate) mod token_key;
pub(crate) mod upkeep;
pub(crate) mod workers;
