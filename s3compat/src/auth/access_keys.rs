//! Access keys without sessions: fixed ones, and those of tenants.

use std::collections::HashMap;
use std::sync::Arc;

use martlet_proxy::{Accounts, Holder, KeyCache};

use super::credential::{Credential, SecretKey};
use crate::access::{AccountIdentity, Identity};
use crate::limits::meter::Registry;
use crate::refusal::Refusal;

/// Access keys: fixed ones, and those of a directory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessKeys {
    fixed: Arc<HashMap<String, Arc<Credential>>>,
    directory: Option<KeyCache<Credential>>,
    /// Recent use of tenants and keys.
    meters: Arc<Registry>,
}

impl AccessKeys {
    /// Access keys with their secrets and identities.
    pub(super) fn new(keys: impl IntoIterator<Item = (String, SecretKey, Identity)>) -> Self {
        let credentials = keys.into_iter().map(|(access_key, secret, identity)| {
            let credential = Credential::new(&access_key, secret, identity);
            (access_key, Arc::new(credential))
        });
        let fixed = Arc::new(credentials.collect());
        Self { fixed, directory: None, meters: Arc::default() }
    }

    /// Adds the keys of tenants. Fixed keys take precedence.
    pub(super) fn with_accounts(self, accounts: Accounts) -> Self {
        let meters = self.meters.clone();
        let directory = KeyCache::new(accounts, move |holder: &Holder, secret: &str| {
            let who = AccountIdentity { meters: meters.of(holder), ..AccountIdentity::of(holder) };
            let identity = Identity::Known(Arc::new(who));
            Credential::new(&holder.key.access_key, SecretKey::new(secret), identity)
        });
        Self { directory: Some(directory), ..self }
    }

    /// Recent use of tenants and keys.
    pub(crate) fn meters(&self) -> &Registry {
        &self.meters
    }

    /// Credential of any access key except a session's.
    pub(crate) async fn any(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        match self.lookup(access_key) {
            Some(credential) => Ok(Some(credential.clone())),
            None => self.find(access_key).await,
        }
    }

    /// Credential of a fixed access key.
    pub(crate) fn lookup(&self, access_key: &str) -> Option<&Arc<Credential>> {
        self.fixed.get(access_key)
    }

    /// Credential of an access key in the directory.
    pub(super) async fn find(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        let Some(directory) = &self.directory else { return Ok(None) };
        if let Some(credential) = directory.get(access_key) {
            return Ok(Some(credential));
        }
        // Rare, and large: boxed, so that other requests need no space for it.
        Box::pin(directory.find(access_key)).await.map_err(|_| Refusal::try_again())
    }
}
