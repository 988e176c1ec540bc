//! Messages of Martlet's operator interfaces, as values that serialize to JSON.
//!
//! ```text
//! martlet admin ──HTTP, JSON──▶ admin port of a process ──▶ values of this crate ──▶ the role
//! process ──report, each round──▶ storage nodes ──────────▶ ProcessReport
//! martlet cluster ──a line of JSON──▶ control port of `martlet cluster up`
//! ```
//!
//! Both ends of each message use the type of this crate. So a field that one end renames does not
//! compile at the other end.
//!
//! * `status`: [`ServerStatus`], a process's status and its view of the cluster; [`ProcessReport`],
//!   a process's report about itself; [`ProcessWorkers`], the workers of a process.
//! * `store`: storage policies, settings of buckets, extents of objects.
//! * [`buckets`]: the list of buckets, in pages.
//! * [`accounts`], [`roles`]: tenants, users, access keys, roles of tenants and policies of users.
//! * [`backup`]: records of accounts and buckets, rings, and comparisons with them.
//! * [`principals`], [`audit`]: keys and sessions of the admin API, and the records of changes.
//! * [`limits`]: quotas, rates, and usage of buckets.
//! * [`checkpoints`]: checkpoint rules and sets of buckets.
//! * [`jobs`]: long work of one process; [`index`]: acceptance and rebuild of lost index partitions.
//! * [`processes`]: the processes of a cluster, and what one of them reads of the others.
//! * [`profile`]: profiles of processor time and memory; [`quarantine`]: items in quarantine of a device.
//! * [`ring_builder`]: steps on builders of rings, plans, and the builders that result.
//! * [`ring_push`]: answers of nodes to rings that operators push.
//! * [`events`]: event targets, and messages that they refused.
//! * [`rewrap`], [`rewrite`]: progress of passes over all objects of a bucket.
//! * [`forecast`]: forecast of device fullness; balance and dispersion of the rings.
//! * [`control`]: messages at the control port of a cluster on one machine.
//!
//! Processes of different versions exchange reports. So a new field has a default, and readers
//! ignore fields that they don't know. Numbers are sent as they are, units last in their names;
//! formats for people belong to the commands.
//!
//! The crate holds values, paths and small rules about values. It contains no I/O, no parsing of
//! arguments and no printing.

pub mod accounts;
pub mod audit;
pub mod backup;
pub mod buckets;
pub mod checkpoints;
pub mod control;
pub mod events;
pub mod forecast;
pub mod index;
pub mod jobs;
pub mod limits;
pub mod principals;
pub mod processes;
pub mod profile;
pub mod quarantine;
pub mod rewrap;
pub mod rewrite;
pub mod ring_builder;
pub mod ring_push;
pub mod roles;
mod status;
mod store;

pub use status::{
    CAPACITY, ChangeLine, DISPERSION, DOCUMENT, DeviceLine, FINALIZE, FinalizeReply, MemberLine,
    MemoryLine, MovesLine, NodeLine, ProcessReport, ProcessWorkers, ReleaseLine, RingLine,
    SETTINGS, STATUS, SUPPORT_BUNDLE, ServerStatus, SettingsReply, WORKERS, WorkerLine,
};
pub use store::{
    BUCKET, BucketLine, EXTENTS, ErrorReply, ExtentLine, ObjectExtents, POLICIES, PolicyLine,
};
