//! Parts that all serving processes share: settings, data folder, logs, connections, signals and
//! the admin address.
//!
//! ```text
//! flags, environment, file ─▶ settings        folder ─ data folder and its lock
//! clients ─▶ listen ─ limiter ─ connection ─▶ service of the role
//! operators ─▶ listen ─ connection ─▶ operator ─▶ health, metrics, routes of the role
//! ```
//!
//! * [`settings`]: settings of a process, from all their sources; [`Size`] and [`parse_span`] read
//!   bytes and time spans as people write them. [`nearest()`] finds the name that a misspelt one meant.
//! * [`disclosure`]: the values of settings that may leave the process.
//! * [`key_file`]: files with an access key and its secret.
//! * [`folder`]: [`DataFolder`](folder::DataFolder), locked by one process; its files are replaced
//!   atomically.
//! * [`listen`]: a port and its end. `limits` and `connection_limiter` bound connections, keyless
//!   ones first; `connection` speaks HTTP/1.1 and HTTP/2, in clear or over TLS with a
//!   [`Certificate`] that is read again when it changes; `small_reads` and `streams` bound the
//!   memory and time of silent clients. [`DrainedBody`] reads the rest of a refused body.
//! * [`operator`]: the admin address: health and metrics for any client, all other routes behind the
//!   gate of [`access`], which [`audit`] records. `admin_port` binds it, over TLS or on loopback.
//! * [`api`]: routes of the admin API with their description, and the OpenAPI document made of both.
//! * [`places`]: a bound on the requests under way of each key, user or process.
//! * [`client_config`]: authorities by which clients verify servers.
//! * [`metrics`]: the registry of metrics. Each crate brings the collectors of its own subject.
//! * `profile`: profiles of processor time and memory, for operators.
//! * [`traces`]: sampling of requests, and the export of their spans.
//! * [`runtime`], [`Signals`], [`logging`]: the process itself. `service_manager` reports its start,
//!   its condition and its end to systemd.
//! * [`Failure`]: the reason for the end of a command, as a sentence and an exit code.
//!
//! Bounds come before work: a connection, a head, a body and a reply each have a limit in bytes and
//! a limit in time, so that silent or slow clients hold a known amount of memory.
//!
//! These modules don't depend on a role, on S3 or on disks. A role gives its service to
//! [`listen::serve`], and its health, metrics and admin routes to
//! [`Operator::open`](operator::Operator::open).

pub mod access;
mod admin_port;
pub mod api;
pub mod audit;
mod body_drain;
mod certificate;
mod connection;
mod connection_limiter;
pub mod disclosure;
mod failure;
pub mod folder;
pub mod key_file;
mod limits;
pub mod listen;
pub mod logging;
pub mod metrics;
mod nearest;
pub mod operator;
pub mod places;
mod profile;
mod refusal;
pub mod runtime;
mod service_manager;
pub mod settings;
mod settings_file;
mod signals;
mod small_reads;
mod stop;
mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod token;
pub mod traces;
mod trust;
mod units;

pub use body_drain::DrainedBody;
pub use certificate::Certificate;
pub use failure::Failure;
pub use nearest::nearest;
pub use signals::Signals;
pub use stop::wait_for_stop;
pub use token::AdminToken;
pub use trust::client_config;
pub use units::{Size, parse_span};
