//! Client of operators for accounts.

use martlet_protocol::Network;

use crate::accounts::documents::Documents;
use crate::error::{Error, Result};
use crate::keyring::Vault;
use crate::store::ObjectStore;

/// Maximum number of networks of one tenant or key.
const NETWORKS_MAX: usize = 64;

/// The tenants, users and keys of a store, and the keys that decrypt their secrets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub(crate) store: ObjectStore,
    pub(crate) vault: Vault,
}

pub(super) fn check_networks(networks: &[Network]) -> Result<()> {
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

    pub(super) fn now_ms(&self) -> u64 {
        self.store.services.registers.stamps.now_ms()
    }

    pub(super) fn documents(&self) -> &Documents {
        &self.store.services.directory.documents
    }
}
