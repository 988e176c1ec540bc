//! The object layer: what S3's operations mean, in terms of registers and extents.
//!
//! A request comes in as one of the types of [`api`], is placed by the ring, and goes out as calls
//! of [`Backend`](martlet_protocol::Backend). Nothing here knows HTTP, and nothing here knows disks.
//!
//! ```text
//! put, change, read, listing, bucket, multipart, versions     what clients ask for; `accounts`: who they are;
//!   │          │            │                                 `lifecycle`: what the rules of buckets take
//!   │          │            │
//!   ▼          ▼            ▼
//! ingest     bodies       walk ── merge             bytes in, bytes out, names in order
//!   │          │            │
//!   └──────────┴─── index ──┘                       registers: quorum reads, writes, ballots
//!                     │
//!                  cluster                          rings, and the node behind each device
//! ```
//!
//! An operation works on the rings as they are when it begins, at the level that its [`Session`]
//! asks for, and notes there what it could be given. Registers are placed by the rings and the term
//! of the moment: while replicas of the index move, those before and those after decide together, and
//! a term that rises in the middle of an operation does not end it.
//!
//! Bodies that are encrypted pass `encryption` between `ingest` or `bodies` and the extents: all above
//! speaks of plain bytes, all below of what is stored.
//!
//! Every write ends in one entry. Its extents are on disk and everything the client said about its
//! body has been checked before the entry is written; if it never is, they are deleted again.

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
