//! Accounts: tenants, their users, roles and access keys.
//!
//! ```text
//! tenant/NAME ◀── tenant-id/CANONICAL-ID      the owner of a bucket, found by its id
//!   ▲   ▲
//!   │   └── user/TENANT/NAME                  a subset of the tenant's permissions
//!   │          ▲
//! key/ACCESS-KEY                              the secret, sealed
//! own-keys/CANONICAL-ID/USER-ID               names of a user's keys
//! role/TENANT/NAME                            permissions for the length of a session
//! admin-key/ID                                a key of the admin API
//! ```
//!
//! Each is a document in a register of its own in the root bucket. It is replicated as every
//! register is, changed by compare-and-set, and read from a quorum. Documents refer to each other
//! by name and by an id that is drawn at each creation. A document that refers to a former tenant
//! or user of an equal name grants nothing.
//!
//! * [`records`]: the documents; [`documents`]: their storage; [`directory`]: accounts by name, id
//!   or key; [`admin`]: the operations of operators.
//! * [`principal`]: the principal of an access key; [`roles`]: session roles; [`admin_keys`]: keys of
//!   the admin API; [`cache`]: keys used lately, which [`lookup`] reads.
//! * [`usage`]: the last counts of the buckets of an owner.
//!
//! Invariants:
//! * A key is valid only while it, its tenant and its user, if it has one, exist and are enabled.
//! * A proxy's copy of a key is at most [`account_cache_ms`](crate::StoreOptions::account_cache_ms)
//!   old while a quorum replies, and at most
//!   [`account_outage_ms`](crate::StoreOptions::account_outage_ms) when no quorum does.
//! * Secrets are never printed.

mod admin;
mod admin_keys;
mod cache;
pub(crate) mod directory;
pub(crate) mod documents;
mod lookup;
mod page;
pub(crate) mod principal;
mod records;
mod roles;
pub(crate) mod usage;

pub use admin::{
    AccessKeys, Accounts, AdminKeys, NewAdminKey, NewKey, NewRole, NewUser, OWN_KEYS_MAX, OwnKeys,
    RoleChange, Roles, Tenants, Users,
};
pub use admin_keys::{AdminKey, EndedSession, TenantName};
pub use cache::{CachedPrincipal, KeyCache};
pub use directory::Directory;
pub use page::Page;
pub use principal::{AccountOf, Holder};
pub use records::{DefaultView, Key, ROOT, Rate, Role, Tenant, User};
pub use roles::{RoleOf, SESSION_S, SESSION_S_DEFAULT, SessionRole};
pub use usage::BucketUsage;
