//! What every process that serves has: settings, a folder of its own, logs, connections, signals,
//! and an address for operators.
//!
//! ```text
//! settings ─ flags, environment, file     folder ─ what is remembered, and that one process uses it
//! listen, linger, door ─ clients  measure, metrics ─ what is counted
//! operator, tell, objects, policies, buckets, accounts, token ─ what operators may ask   workers, upkeep ─ background work
//! hearers ─ who is told of requests: events, access_log     logging, signals, clock, runtime
//! ```
//!
//! Nothing here knows which role is played; the roles ([`server`](crate::server) and its peers) know
//! nothing of each other.

pub(crate) mod access_log;
pub(crate) mod accounts;
pub(crate) mod buckets;
pub(crate) mod certificate;
pub(crate) mod clock;
mod converse;
pub(crate) mod door;
pub(crate) mod events;
pub(crate) mod folder;
pub(crate) mod hearers;
mod linger;
pub(crate) mod listen;
pub(crate) mod logging;
pub(crate) mod measure;
pub(crate) mod metrics;
pub(crate) mod objects;
pub(crate) mod operator;
mod places;
pub(crate) mod policies;
pub(crate) mod quotas;
pub(crate) mod runtime;
pub(crate) mod settings;
pub(crate) mod signals;
mod sips;
mod streams;
pub(crate) mod tell;
pub(crate) mod token;
pub(crate) mod token_key;
pub(crate) mod upkeep;
pub(crate) mod vault;
pub(crate) mod workers;
