//! Lookups of principals by the cache.

use super::admin::belonging;
use super::admin_keys::AdminKey;
use super::cache::CachedPrincipal;
use super::principal::Holder;
use super::records::is_access_key;
use super::roles::RoleOf;
use crate::error::Result;
use crate::keyring::Vault;
use crate::store::ObjectStore;

#[async_trait::async_trait]
impl CachedPrincipal for Holder {
    fn is_name(name: &str) -> bool {
        is_access_key(name)
    }

    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>> {
        store.services.directory.holder(name).await
    }

    fn secret(&self, vault: &Vault) -> Result<String, String> {
        let key = &self.key;
        vault.open(&key.secret, &belonging(&key.access_key, &key.tenant_id)).inspect_err(|why| {
            tracing::error!(access_key = key.access_key, why, "could not decrypt a secret");
        })
    }
}

#[async_trait::async_trait]
impl CachedPrincipal for RoleOf {
    fn is_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        name.split('/').count() == 2 && name.len() <= 128 && name.bytes().all(is_plain)
    }

    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>> {
        store.services.directory.role(name).await
    }

    fn secret(&self, _vault: &Vault) -> Result<String, String> {
        Ok(String::new())
    }
}

#[async_trait::async_trait]
impl CachedPrincipal for AdminKey {
    fn is_name(name: &str) -> bool {
        is_access_key(name)
    }

    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>> {
        store.services.directory.admin_key(name).await
    }

    fn secret(&self, _vault: &Vault) -> Result<String, String> {
        // The secret is derived from the id, and never stored.
        Ok(String::new())
    }
}
