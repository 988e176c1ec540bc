//! Who may come in: tenants, their users, and access keys.
//!
//! ```text
//! tenant/NAME ◀── tenant-id/CANONICAL-ID      whose a bucket is, told by its id
//!   ▲   ▲
//!   │   └── user/TENANT/NAME                  less than the whole tenant
//!   │          ▲
//! key/ACCESS-KEY                              the secret, sealed
//! role/TENANT/NAME                            what somebody may be for a while
//! ```
//!
//! Each is a document in a register of its own in the root bucket, replicated as every register is,
//! changed by compare-and-set and read from a quorum. They name each other by name, and by an id that is
//! drawn anew at each creation: what was left behind by a tenant or user of the same name opens nothing.
//!
//! * [`records`]: the documents; [`documents`]: how they are kept; [`desk`]: what operators ask for.
//! * [`holder`]: whom an access key speaks for; [`cache`]: those who asked of late; [`roles`]: what they may be.
//! * [`vault`]: how secrets lie in the registers.
//! * [`usage`]: how much the buckets of an owner held when they were counted.
//!
//! Invariants:
//! * A key opens something only while it, its tenant and its user, if it has one, are there and enabled.
//! * What a proxy knows of a key is at most [`account_cache_ms`](crate::StoreOptions::account_cache_ms) old
//!   while a quorum answers, and [`account_outage_ms`](crate::StoreOptions::account_outage_ms) when none does.
//! * Secrets are never printed.

mod cache;
mod desk;
mod documents;
mod holder;
mod records;
mod roles;
mod usage;
mod vault;

pub use cache::{KeyCache, Known};
pub use desk::{Accounts, Listed, NewKey, NewRole, NewUser, RoleChange};
pub(crate) use holder::Owners;
pub use holder::{AccountOf, Holder};
pub use records::{Key, ROOT, Rate, Role, Tenant, User};
pub use roles::{RoleOf, SESSION_S, SESSION_S_DEFAULT, SessionRole};
pub use usage::BucketUsage;
pub use vault::{MasterKey, Vault};
