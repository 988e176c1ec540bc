//! Principals of access keys, and display names of bucket owners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::cache::Known;
use super::desk::belonging;
use super::records::{Key, ROOT, Tenant, TenantOf, User, is_access_key};
use super::roles::SessionRole;
use super::vault::Vault;
use crate::error::Result;
use crate::store::ObjectStore;

/// An account as principals in policies name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountOf {
    /// Its name.
    pub name: String,
    /// Drawn at its creation; never used again.
    pub canonical_id: String,
}

/// A valid access key and its principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The key.
    pub key: Key,
    /// Tenant that owns the key.
    pub tenant: Tenant,
    /// User that the key acts as; none for the whole tenant.
    pub user: Option<User>,
}

impl Holder {
    /// The principal of a key, if the key, its tenant and its user are enabled. Their ids must
    /// match: a later tenant or user of an equal name doesn't count.
    fn of(key: Key, tenant: Option<Tenant>, user: Option<User>) -> Option<Self> {
        let tenant = tenant.filter(|it| !it.disabled && it.canonical_id == key.tenant_id)?;
        let user = match &key.user {
            None => None,
            Some(of) => Some(
                user.filter(|it| !it.disabled && it.id == of.id && it.tenant_id == key.tenant_id)?,
            ),
        };
        (!key.disabled).then_some(Self { key, tenant, user })
    }
}

#[async_trait::async_trait]
impl Known for Holder {
    fn is_name(name: &str) -> bool {
        is_access_key(name)
    }

    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>> {
        store.holder(name).await
    }

    fn secret(&self, vault: &Vault) -> Result<String, String> {
        let key = &self.key;
        vault.open(&key.secret, &belonging(&key.access_key, &key.tenant_id)).inspect_err(|why| {
            tracing::error!(access_key = key.access_key, why, "could not decrypt a secret");
        })
    }
}

impl ObjectStore {
    /// Reads the principal of an access key from a quorum; none if the key, its tenant or its user
    /// is missing or disabled.
    pub(super) async fn holder(&self, access_key: &str) -> Result<Option<Holder>> {
        let key: Option<Key> = self.document(access_key).await?;
        let Some(key) = key.filter(|key| !key.disabled) else { return Ok(None) };
        let user = async {
            let Some(of) = &key.user else { return Ok(None) };
            self.document::<User>(&format!("{}/{}", key.tenant, of.name)).await
        };
        let (tenant, user) = try_join(self.document::<Tenant>(&key.tenant), user).await?;
        Ok(Holder::of(key, tenant, user))
    }

    /// Display name of the bucket owner with a canonical id; the id itself if the owner is unknown.
    /// The name never changes during an owner's life, so it may be cached for one minute.
    pub async fn owner_name(&self, canonical_id: &str) -> Arc<str> {
        if canonical_id == ROOT {
            return ROOT.into();
        }
        let inner = self.inner();
        if let Some(name) = inner.owners.get(canonical_id) {
            return name;
        }
        let name = match self.document::<TenantOf>(canonical_id).await {
            Ok(Some(of)) => of.display_name.into(),
            Ok(None) => canonical_id.into(),
            Err(_) => return canonical_id.into(),
        };
        inner.owners.put(canonical_id, &name);
        name
    }
}

impl ObjectStore {
    /// Returns true if a tenant has this canonical id, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn has_owner(&self, canonical_id: &str) -> Result<bool> {
        if !is_name(canonical_id) {
            return Ok(false);
        }
        Ok(self.document::<TenantOf>(canonical_id).await?.is_some())
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
        if let Some(Tenant { name, canonical_id, .. }) = self.document(text).await? {
            return Ok(Some(AccountOf { name, canonical_id }));
        }
        let of = self.document::<TenantOf>(text).await?;
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
        let user: Option<User> = self.document(&format!("{}/{name}", of.name)).await?;
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
        let role: Option<SessionRole> = self.document(&format!("{}/{name}", of.name)).await?;
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
        let tenant: Option<Tenant> = self.document(address).await?;
        Ok(tenant.map(|tenant| tenant.canonical_id))
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
pub(crate) struct Owners(RwLock<HashMap<String, (Instant, Arc<str>)>>);

impl Owners {
    fn get(&self, canonical_id: &str) -> Option<Arc<str>> {
        let known = self.0.read();
        let (since, name) = known.get(canonical_id)?;
        (since.elapsed() < OWNERS_KEPT_FOR).then(|| name.clone())
    }

    fn put(&self, canonical_id: &str, name: &Arc<str>) {
        let mut known = self.0.write();
        if known.len() >= OWNERS_MAX {
            known.clear();
        }
        known.insert(canonical_id.to_owned(), (Instant::now(), name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::{Rate, Role, UserOf};
    use super::super::vault::Vault;
    use super::*;

    fn tenant() -> Tenant {
        Tenant {
            name: "t".into(),
            canonical_id: "c1".into(),
            display_name: "T".into(),
            created_ms: 1,
            disabled: false,
            networks: Vec::new(),
            quota: martlet_protocol::Quota::default(),
            rate: Rate::default(),
        }
    }

    fn user() -> User {
        User {
            tenant: "t".into(),
            tenant_id: "c1".into(),
            name: "u".into(),
            id: "u1".into(),
            created_ms: 1,
            role: Role::ReadOnly,
            policy: None,
            disabled: false,
        }
    }

    fn key(user: Option<&str>) -> Key {
        Key {
            access_key: "AKID".into(),
            secret: Vault::default().seal("secret", "x"),
            tenant: "t".into(),
            tenant_id: "c1".into(),
            user: user.map(|id| UserOf { name: "u".into(), id: id.into() }),
            created_ms: 1,
            rotated_ms: 1,
            disabled: false,
            networks: Vec::new(),
            rate: Rate::default(),
        }
    }

    #[test]
    fn a_key_speaks_for_those_that_it_was_made_for() {
        assert!(Holder::of(key(None), Some(tenant()), None).is_some());
        let holder = Holder::of(key(Some("u1")), Some(tenant()), Some(user())).unwrap();
        assert_eq!(holder.user, Some(user()));
        assert!(Holder::of(key(None), None, None).is_none());
        assert!(Holder::of(key(Some("u1")), Some(tenant()), None).is_none());
        let another = Tenant { canonical_id: "c2".into(), ..tenant() };
        assert!(Holder::of(key(None), Some(another), None).is_none(), "it has the name alone");
        assert!(Holder::of(key(Some("u0")), Some(tenant()), Some(user())).is_none(), "so does he");
        let left = User { tenant_id: "c0".into(), ..user() };
        assert!(Holder::of(key(Some("u1")), Some(tenant()), Some(left)).is_none(), "another's");
    }

    #[test]
    fn whatever_is_disabled_opens_nothing() {
        let off = Key { disabled: true, ..key(None) };
        assert!(Holder::of(off, Some(tenant()), None).is_none());
        let off = Tenant { disabled: true, ..tenant() };
        assert!(Holder::of(key(None), Some(off), None).is_none());
        let off = User { disabled: true, ..user() };
        assert!(Holder::of(key(Some("u1")), Some(tenant()), Some(off)).is_none());
    }
}
