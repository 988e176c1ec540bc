//! The object layer: S3's operations in terms of registers and extents.
//!
//! A request is one of the types of [`api`]. It is placed by the ring and becomes calls of
//! [`Backend`](martlet_protocol::Backend). This crate has no HTTP code and no disk code.
//!
//! ```text
//! backup · accounts · lifecycle · rewrite · set_upkeep   operators and workers: clients of the store
//!                  │
//!   store (ObjectStore, Session)                objects; hands out the parts; context of a request
//!                  │
//!         multipart (Uploads)                   uploads and their parts
//!         checkpoints (Checkpoints)             sets of objects that become visible together
//!                  │
//! put · copy · read · delete · versions (Versions) · listing
//!       │                     │
//!       │          bucket (Buckets) · quota     bucket catalog, fences; accounts' documents
//!       ▼                     ▼
//! upload · bodies        walk ── merge          bodies in, bodies out; ordered names
//!       │    windows          │                 bytes that concurrent readers share
//!       ▼                     ▼
//!   extents                 index               extents; registers: reads, writes, ballots
//!       └──────────┬──────────┘
//!       martlet_topology · context              rings, term, nodes; parameters of a request
//! ```
//!
//! `ObjectStore` reads and writes objects. Its other operations belong to its parts:
//! [`ObjectStore::buckets`], [`ObjectStore::uploads`], [`ObjectStore::versions`],
//! [`ObjectStore::checkpoints`], [`ObjectStore::directory`] and [`ObjectStore::data_keys`]. A part borrows the clients that it
//! calls, and the context of the session.
//!
//! Arrows point to the layers that a layer may call. Each client owns its state, is built once with
//! the store, and receives the [`RequestContext`](context::RequestContext) of an operation.
//!
//! A request body arrives in chunks. `upload` hashes each chunk and passes it on, by reference,
//! through a `channel` for each device; `extents` places copies, and `coded` the fragments of an
//! erasure code. `encryption` stands between `upload` or `bodies` and the extents: plain bytes
//! above, stored bytes below.
//!
//! An operation takes its storage policies from the rings of its start. Registers and extents are
//! placed by the current rings and term. While replicas of the index move, previous and next
//! holders decide together. A term that rises during an operation doesn't end it. A [`Session`]
//! sets the level of its operations, and records the consistency that they got.
//!
//! Every write ends in one entry. Before it is written, its extents are durable and the body is
//! verified against the request. If it is never written, `orphan_guard` deletes its extents.
//!
//! `examples/embedded.rs` in the root of the repository opens a store inside another program.

mod accounts;
pub mod api;
mod backup;
mod backup_record;
mod bodies;
mod bucket;
mod channel;
mod checkpoint_outcome;
mod checkpoints;
mod chunk_queue;
mod coded;
mod conditions;
mod consistency;
mod context;
mod copy;
mod delete;
mod digest;
mod encryption;
pub mod error;
mod extents;
mod guard;
mod hashing;
mod health;
mod in_place;
mod index;
mod keyring;
mod latch;
mod lifecycle;
mod listing;
mod located;
mod lock;
mod manifests;
mod md5;
mod merge;
mod multipart;
mod options;
mod orphan_guard;
mod policy;
mod put;
pub mod quorum;
mod quota;
mod range;
mod read;
mod rebuild;
mod rewrap;
mod rewrite;
mod session;
mod set_upkeep;
mod shared_loads;
mod store;
#[cfg(test)]
mod tests;
mod upload;
mod versions;
mod walk;
mod windows;

pub use accounts::{
    AccessKeys, AccountOf, Accounts, AdminKey, AdminKeys, BucketUsage, CachedPrincipal,
    DefaultView, Directory, EndedSession, Holder, Key, KeyCache, NewAdminKey, NewKey, NewRole,
    NewUser, OWN_KEYS_MAX, OwnKeys, Page, ROOT, Rate, Role, RoleChange, RoleOf, Roles, SESSION_S,
    SESSION_S_DEFAULT, SessionRole, Tenant, TenantName, Tenants, User, Users,
};
pub use api::*;
pub use backup::{Backups, RecordPage};
pub use backup_record::{BackupRecord, RecordKind, RecordState};
pub use bucket::{
    Buckets, LostVersioning, adopt_bucket, lock_from_the_beginning, set_etag_kind,
    settings_of_adopted,
};
pub use checkpoint_outcome::CheckpointOutcome;
pub use checkpoints::{
    CheckpointRules, Checkpoints, Generation, GenerationState, NamedObject, NewCommit,
    PlannedWithdrawal, SetState, ViewedObject, is_companion,
};
pub use chunk_queue::ChunkQueue;
pub use consistency::{ConsistencyOptions, ReadAfter};
pub use digest::checksum_of;
pub use encryption::{CustomerKey, Encrypted, Keys};
pub use error::{Error, Result};
pub use guard::Guard;
pub use in_place::InPlace;
pub use keyring::{MasterKey, Vault};
pub use lifecycle::{Expired, Witness, WitnessedExpiry};
pub use listing::is_within_prefix;
pub use located::{
    LOCATED_EXTENTS_MAX, LOCATED_PIECES_MAX, Located, LocatedCode, LocatedExtent, LocatedExtents,
    LocatedPiece, NotDirect, PieceHolder,
};
// Parameters of the store's constructors.
pub use martlet_topology::{Cluster, Topology};
pub use multipart::{UNDRIVEN_MS_MAX, Uploads};
pub use options::StoreOptions;
pub use quorum::{Progress, QuorumTally};
pub use quota::{CountProgress, Exceeded, Whose, is_of_tenant};
pub use rebuild::{
    HoldCheck, KeyOutcome, NotRebuilt, REBUILT, Rebuild, RebuildConsent, RefusedBody,
};
pub use rewrap::{DataKeys, Rewrap, RewrapOptions, RewrapProgress};
pub use rewrite::{ClientsWait, Rewrite, RewriteOptions, RewriteProgress};
pub use session::Session;
pub use store::ObjectStore;
pub use versions::Versions;
pub use windows::WindowFigures;
