//! Accounts, as the gate of the admin API needs them.

use std::sync::Arc;

use async_trait::async_trait;
use martlet_proxy::{Accounts, AdminKey, Error, KeyCache, ObjectStore};
use martlet_serving::access::{AdminDirectory, AdminKeyState, TenantName, TenantTarget};

/// Admin keys, and the tenants that own items.
pub struct AccountDirectory {
    accounts: Accounts,
    store: ObjectStore,
    keys: KeyCache<Option<Arc<AdminKeyState>>, AdminKey>,
}

impl AccountDirectory {
    /// Makes the directory of a store's accounts.
    pub fn new(accounts: Accounts, store: ObjectStore) -> Self {
        let keys = KeyCache::new(accounts.clone(), |key: &AdminKey, _: &str| state_of(key));
        Self { accounts, store, keys }
    }
}

/// Returns the state of a key; none if its role is one of a later version.
fn state_of(key: &AdminKey) -> Option<Arc<AdminKeyState>> {
    let role = key.role.parse().inspect_err(|error| {
        tracing::error!(key = key.id, error, "refusing an admin key with an unknown role");
    });
    let tenant = key.tenant.as_ref().map(|tenant| TenantName {
        name: tenant.name.clone(),
        canonical_id: tenant.canonical_id.clone(),
    });
    Some(Arc::new(AdminKeyState {
        name: key.name.clone(),
        role: role.ok()?,
        tenant,
        created_ms: key.created_ms,
        expires_ms: key.expires_ms,
        sessions_from_ms: key.sessions_from_ms,
        ended: key.ended.iter().map(|session| session.id.clone()).collect(),
    }))
}

/// Turns the absence of an item into `None`.
fn found<T>(outcome: Result<T, Error>) -> Result<Option<T>, String> {
    match outcome {
        Ok(item) => Ok(Some(item)),
        Err(Error::NoSuchAccount(_) | Error::NoSuchBucket | Error::InvalidArgument(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[async_trait]
impl AdminDirectory for AccountDirectory {
    async fn key(&self, id: &str) -> Result<Option<Arc<AdminKeyState>>, String> {
        let found = self.keys.find(id).await.map_err(|error| error.to_string())?;
        Ok(found.and_then(|state| Option::clone(&state)))
    }

    async fn owner(&self, target: &TenantTarget) -> Result<Option<String>, String> {
        match target {
            TenantTarget::Tenant(name) => {
                let tenant = found(self.accounts.tenants().get(name).await)?;
                Ok(tenant.map(|tenant| tenant.canonical_id))
            }
            TenantTarget::Bucket(name) => {
                let bucket = found(self.store.bucket(name).await)?;
                Ok(bucket.map(|bucket| bucket.owner.clone()))
            }
            TenantTarget::AccessKey(key) => {
                let key = found(self.accounts.keys().get(key).await)?;
                Ok(key.map(|key| key.tenant_id))
            }
        }
    }
}
