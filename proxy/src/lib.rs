//! The object layer: S3's operations in terms of registers and extents.
//!
//! A request is one of the types of [`api`]. It is placed by the ring and becomes calls of
//! [`Backend`](martlet_protocol::Backend). This crate has no HTTP code and no disk code.
//!
//! ```text
//! put, change, read, listing, bucket, multipart, versions     operations; `accounts`: principals;
//!   │          │            │                                 `lifecycle`: actions of bucket rules
//!   │          │            │
//!   ▼          ▼            ▼
//! ingest     bodies       walk ── merge             bodies in, bodies out, ordered names
//!   │          │            │
//!   └──────────┴─── index ──┘                       registers: quorum reads, writes, ballots
//!                     │
//!                  cluster                          rings, and the node of each device
//! ```
//!
//! An operation uses the rings of its start, at the level of its [`Session`], and records there the
//! consistency that it got. Registers are placed by the current rings and term. While replicas of
//! the index move, previous and next holders decide together. A term that rises during an operation
//! doesn't end it.
//!
//! Encrypted bodies pass `encryption` between `ingest` or `bodies` and the extents: plain bytes
//! above, stored bytes below.
//!
//! Every write ends in one entry. Before it is written, its extents are durable and the body is
//! verified against the request. If it is never written, its extents are deleted.

mod accounts;
pub mod api;
mod bodies;
mod bucket;
mod change;
mod cluster;
mod coded;
mod conditions;
mod digest;
mod encryption;
pub mod error;
mod extents;
mod guard;
mod hashing;
mod index;
mod ingest;
mod latch;
mod lifecycle;
mod listing;
mod lock;
mod manifests;
mod marks;
mod md5;
mod merge;
mod multipart;
mod options;
mod pieces;
mod pipe;
mod policy;
mod put;
pub mod quorum;
mod quota;
mod range;
mod read;
mod rewrite;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod unclaimed;
mod versions;
mod walk;

pub use accounts::{
    AccountOf, Accounts, BucketUsage, Holder, Key, KeyCache, Known, Listed, MasterKey, NewKey,
    NewRole, NewUser, ROOT, Rate, Role, RoleChange, RoleOf, SESSION_S, SESSION_S_DEFAULT,
    SessionRole, Tenant, User, Vault,
};
pub use api::*;
pub use bucket::lock_from_the_beginning;
pub use cluster::Cluster;
pub use digest::checksum_of;
pub use encryption::{CustomerKey, Encrypted, Keys, Rewrapped};
pub use error::{Error, Result};
pub use guard::Guard;
pub use lifecycle::{Expired, Witness, WitnessedExpiry};
pub use options::StoreOptions;
pub use pieces::Pieces;
pub use policy::is_same_policy;
pub use quorum::{Progress, QuorumTally};
pub use quota::{Exceeded, Whose, is_of_tenant};
pub use rewrite::{ClientsWait, Rewrite, RewriteOptions, RewriteProgress};
pub use session::{Ask, ReadAfter, Session};
pub use store::ObjectStore;
