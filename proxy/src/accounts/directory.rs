//! Accounts by name, id or key, and display names of bucket owners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::admin_keys::AdminKey;
use super::documents::Documents;
use super::principal::{AccountOf, Holder};
use super::records::{Key, ROOT, Tenant, TenantOf, User};
use super::roles::{RoleOf, SessionRole};
use crate::error::Result;

/// Accounts by name, id or key, and usage of their buckets.
pub struct Directory {
    pub(super) documents: Documents,
    owners: Owners,
}

impl Directory {
    pub(crate) fn new(documents: Documents) -> Self {
        Self { documents, owners: Owners::default() }
    }

    /// Reads the principal of an access key from a quorum; none if the key, its tenant or its user
    /// is missing or disabled.
    pub(crate) async fn holder(&self, access_key: &str) -> Result<Option<Holder>> {
        let key: Option<Key> = self.documents.document(access_key).await?;
        let Some(key) = key.filter(|key| !key.disabled) else { return Ok(None) };
        let user = async {
            let Some(of) = &key.user else { return Ok(None) };
            self.documents.document::<User>(&format!("{}/{}", key.tenant, of.name)).await
        };
        let (tenant, user) = try_join(self.documents.document::<Tenant>(&key.tenant), user).await?;
        Ok(Holder::of(key, tenant, user))
    }

    /// Display name of the bucket owner with a canonical id; the id itself if the owner is unknown.
    /// The name never changes during an owner's life, so it may be cached for one minute.
    pub async fn owner_name(&self, canonical_id: &str) -> Arc<str> {
        if canonical_id == ROOT {
            return ROOT.into();
        }
        if let Some(name) = self.owners.get(canonical_id) {
            return name;
        }
        let name = match self.documents.document::<TenantOf>(canonical_id).await {
            Ok(Some(of)) => of.display_name.into(),
            Ok(None) => canonical_id.into(),
            Err(_) => return canonical_id.into(),
        };
        self.owners.put(canonical_id, &name);
        name
    }

    /// Returns true if a tenant has this canonical id, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn has_owner(&self, canonical_id: &str) -> Result<bool> {
        if !is_name(canonical_id) {
            return Ok(false);
        }
        Ok(self.documents.document::<TenantOf>(canonical_id).await?.is_some())
    }

    /// The account with this name or canonical id, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn account_called(&self, text: &str) -> Result<Option<AccountOf>> {
        if text == ROOT {
            return Ok(Some(AccountOf { name: ROOT.into(), canonical_id: ROOT.into() }));
        }
        if !is_name(text) {
            return Ok(None);
        }
        if let Some(Tenant { name, canonical_id, .. }) = self.documents.document(text).await? {
            return Ok(Some(AccountOf { name, canonical_id }));
        }
        let of = self.documents.document::<TenantOf>(text).await?;
        Ok(of.map(|of| AccountOf { name: of.tenant, canonical_id: of.canonical_id }))
    }

    /// The id of an account's user, read from a quorum; none if no user has this name, or if it
    /// belongs to a former tenant.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn user_id(&self, of: &AccountOf, name: &str) -> Result<Option<String>> {
        if !is_name(name) {
            return Ok(None);
        }
        let user: Option<User> = self.documents.document(&format!("{}/{name}", of.name)).await?;
        Ok(user.filter(|user| user.tenant_id == of.canonical_id).map(|user| user.id))
    }

    /// The id of an account's role, read from a quorum; none if no role has this name, or if it
    /// belongs to a former tenant.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn role_id(&self, of: &AccountOf, name: &str) -> Result<Option<String>> {
        if !is_name(name) {
            return Ok(None);
        }
        let role: Option<SessionRole> =
            self.documents.document(&format!("{}/{name}", of.name)).await?;
        Ok(role.filter(|role| role.tenant_id == of.canonical_id).map(|role| role.id))
    }

    /// The canonical id of the tenant whose name is this e-mail address, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn owner_called(&self, address: &str) -> Result<Option<String>> {
        if !is_name(address) || !address.contains('@') {
            return Ok(None);
        }
        let tenant: Option<Tenant> = self.documents.document(address).await?;
        Ok(tenant.map(|tenant| tenant.canonical_id))
    }

    /// Reads a key of the admin API from a quorum; none if the key is missing, or its tenant is
    /// missing or disabled.
    pub(crate) async fn admin_key(&self, id: &str) -> Result<Option<AdminKey>> {
        let Some(key) = self.documents.document::<AdminKey>(id).await? else { return Ok(None) };
        let tenant = match &key.tenant {
            None => None,
            Some(of) => self.documents.document::<Tenant>(&of.name).await?,
        };
        Ok(key.under(tenant.as_ref()))
    }

    /// Reads a session role from a quorum; none if the role or its tenant is missing or disabled.
    pub(crate) async fn role(&self, name: &str) -> Result<Option<RoleOf>> {
        let tenant = name.split('/').next().unwrap_or_default();
        let documents = &self.documents;
        let found =
            try_join(documents.document::<SessionRole>(name), documents.document::<Tenant>(tenant));
        let (role, tenant) = found.await?;
        Ok(role.and_then(|role| RoleOf::of(role, tenant)))
    }
}

/// Returns true if `text` could be a name or an id. Other texts are never looked up.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    (1..=128).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Maximum number of cached owners.
const OWNERS_MAX: usize = 10_000;
const OWNERS_KEPT_FOR: Duration = Duration::from_mins(1);

/// Cache of the display names of bucket owners.
#[derive(Default)]
struct Owners(RwLock<HashMap<String, (Instant, Arc<str>)>>);

impl Owners {
    fn get(&self, canonical_id: &str) -> Option<Arc<str>> {
        let names = self.0.read();
        let (since, name) = names.get(canonical_id)?;
        (since.elapsed() < OWNERS_KEPT_FOR).then(|| name.clone())
    }

    fn put(&self, canonical_id: &str, name: &Arc<str>) {
        let mut names = self.0.write();
        if names.len() >= OWNERS_MAX {
            names.clear();
        }
        names.insert(canonical_id.to_owned(), (Instant::now(), name.clone()));
    }
}
