//! Operations of operators on accounts: create, read, change and delete tenants, users, roles and
//! keys.
//!
//! A tenant's canonical id is registered before the tenant, and deleted after it. So the owner of
//! every bucket has a name.

mod keys;
mod limits;
mod roles;
mod tenants;
mod users;

pub use keys::NewKey;
pub(super) use keys::belonging;
use martlet_protocol::Network;
pub use roles::{NewRole, RoleChange};
pub use users::NewUser;

use super::vault::Vault;
use crate::error::{Error, Result};
use crate::store::ObjectStore;

/// Maximum number of networks of one tenant or key.
const NETWORKS_MAX: usize = 64;

/// A page of documents, and true if more follow.
pub type Listed<T> = (Vec<T>, bool);

/// The tenants, users and keys of a store, and the keys that decrypt their secrets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub(super) store: ObjectStore,
    pub(super) vault: Vault,
}

fn check_networks(networks: &[Network]) -> Result<()> {
    if networks.len() <= NETWORKS_MAX {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("at most {NETWORKS_MAX} networks are allowed")))
}

impl Accounts {
    /// Accounts of `store`, with the master keys of this process.
    pub fn new(store: ObjectStore, vault: Vault) -> Self {
        Self { store, vault }
    }

    fn now_ms(&self) -> u64 {
        self.store.inner().stamps.now_ms()
    }
}
