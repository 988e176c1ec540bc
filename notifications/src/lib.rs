//! Deliveries after a reply: events to the targets of buckets' rules, and lines of the access log.
//!
//! ```text
//! request ─▶ reply to the client
//!     └─▶ s3compat's observers ─┬─ EventSink ──▶ Events ──▶ lane ──▶ spool ──▶ webhook, file or broker
//!                               └─ AccessLog ──▶ LogFile ─▶ queue ─────────▶ file
//! ```
//!
//! S3 decides about the messages: s3compat writes records of events and lines of logs, and offers
//! them to [`EventSink`](martlet_s3compat::EventSink) and [`AccessLog`](martlet_s3compat::AccessLog).
//! This crate delivers them.
//!
//! * `events`: [`Events`], the targets of a process. Each tenant's messages to a target have a
//!   bounded queue in memory and a bounded spool on disk. Tasks deliver what is in the spool, in
//!   order, until the target acknowledges. [`EventSettings`] names the targets.
//! * `access_log`: [`LogFile`], the process's own access log, with one line for each request.
//! * `metrics`: counters of both, as [`ObserverFigures`].
//!
//! Rules of all deliveries:
//! * No request waits: an offer takes place in memory or is lost, and losses are counted.
//! * Every queue, spool and number of lanes is bounded. A slow target harms its own messages only.
//! * Messages in a spool survive a crash, and are delivered at least once. Access logs are best
//!   effort (ADR 61, ADR 62).
//!
//! Tasks run in the [`TaskSet`] of the process. They end when the process stops, after all accepted
//! messages are written.

mod access_log;
mod events;
mod metrics;

pub use access_log::{LogFile, LogWriter};
pub use events::{EventSettings, Events, TaskSet};
pub use metrics::{LogCollector, ObserverFigures, ObserverSource, TargetCollector, TargetFigures};
