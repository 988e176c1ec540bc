//! Operations of operators on accounts: create, read, change and delete tenants, users, roles and
//! keys.
//!
//! A tenant's canonical id is registered before the tenant, and deleted after it. So the owner of
//! every bucket has a name.

mod admin_keys;
mod backup;
mod client;
mod keys;
mod limits;
mod own_keys;
mod roles;
mod tenants;
mod users;

pub use admin_keys::{AdminKeys, NewAdminKey};
pub use client::Accounts;
pub(super) use keys::belonging;
pub use keys::{AccessKeys, NewKey};
pub use own_keys::{OWN_KEYS_MAX, OwnKeys};
pub use roles::{NewRole, RoleChange, Roles};
pub use tenants::Tenants;
pub use users::{NewUser, Users};
