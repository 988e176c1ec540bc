//! What operators ask for: tenants, users, roles and keys, made, shown, changed and deleted.
//!
//! A tenant's id is registered before the tenant is, and forgotten after it: so whoever owns a bucket can
//! always be named.

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

/// Networks of one tenant or key.
const NETWORKS_MAX: usize = 64;

/// A page of documents, and whether there are more.
pub type Listed<T> = (Vec<T>, bool);

/// The tenants, users and keys of a store, and what opens their secrets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub(super) store: ObjectStore,
    pub(super) vault: Vault,
}

fn check_networks(networks: &[Network]) -> Result<()> {
    if networks.len() <= NETWORKS_MAX {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("name {NETWORKS_MAX} networks at most")))
}

impl Accounts {
    /// Those of a store, with the master keys of this process.
    pub fn new(store: ObjectStore, vault: Vault) -> Self {
        Self { store, vault }
    }

    fn now_ms(&self) -> u64 {
        self.store.inner().stamps.now_ms()
    }
}
