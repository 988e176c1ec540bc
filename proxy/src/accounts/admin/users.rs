//! Users of tenants: creation, reads, changes and deletion.

use martlet_protocol::id::random_bytes;

use super::client::Accounts;
use crate::accounts::documents::missing;
use crate::accounts::page::Page;
use crate::accounts::records::{Key, Role, User, check_name};
use crate::error::{Error, Result};

/// Parameters of a new user.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// Tenant that owns the user.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its role, which bounds its permissions.
    pub role: Role,
}

/// Users of tenants.
#[derive(Clone, Copy, Debug)]
pub struct Users<'a> {
    accounts: &'a Accounts,
}

impl Accounts {
    /// Users of tenants.
    pub fn users(&self) -> Users<'_> {
        Users { accounts: self }
    }
}

impl Users<'_> {
    /// Creates a user.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] without its tenant; [`Error::AccountConflict`] if the name is
    /// taken; [`Error::InvalidArgument`] for a malformed name or the tenant's own.
    pub async fn create(self, new: NewUser) -> Result<User> {
        check_name("user", &new.name)?;
        let tenant = self.accounts.tenants().get(&new.tenant).await?;
        if new.name == tenant.name {
            let taken =
                "a user can't have its tenant's name, which stands for the tenant's own keys";
            return Err(Error::InvalidArgument(taken.into()));
        }
        let user = User {
            tenant: tenant.name,
            tenant_id: tenant.canonical_id,
            name: new.name,
            id: hex::encode(random_bytes::<16>()),
            created_ms: self.accounts.now_ms(),
            role: new.role,
            policy: None,
            disabled: false,
        };
        self.accounts.documents().create_document(&user).await?;
        Ok(user)
    }

    /// Reads a user of a tenant.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn get(self, tenant: &str, name: &str) -> Result<User> {
        let path = format!("{tenant}/{name}");
        self.accounts.documents().document(&path).await?.ok_or_else(|| missing::<User>(&path))
    }

    /// Users of a tenant by name, above `after`.
    pub async fn list(self, tenant: &str, after: Option<&str>, limit: usize) -> Result<Page<User>> {
        let below = format!("{tenant}/");
        let after = after.map(|after| format!("{below}{after}"));
        self.accounts.documents().list_documents(&below, after.as_deref(), limit, |_| true).await
    }

    /// Enables or disables a user, or changes its role.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change(
        self,
        tenant: &str,
        name: &str,
        disabled: Option<bool>,
        role: Option<Role>,
    ) -> Result<User> {
        let change = |user: &mut User| {
            user.disabled = disabled.unwrap_or(user.disabled);
            user.role = role.unwrap_or(user.role);
            Ok(())
        };
        self.accounts.documents().change_document(&format!("{tenant}/{name}"), change).await
    }

    /// Replaces the policy of a user, or removes it.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn set_policy(
        self,
        tenant: &str,
        name: &str,
        policy: Option<String>,
    ) -> Result<User> {
        let change = |user: &mut User| {
            user.policy.clone_from(&policy);
            Ok(())
        };
        self.accounts.documents().change_document(&format!("{tenant}/{name}"), change).await
    }

    /// Deletes a user that has no keys.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::AccountConflict`], which names a key of the user.
    pub async fn delete(self, tenant: &str, name: &str) -> Result<()> {
        let user = self.get(tenant, name).await?;
        let is_its = |key: &Key| key.user.as_ref().is_some_and(|of| of.id == user.id);
        let keys = self.accounts.documents().list_documents("", None, 1, is_its).await?;
        if let Some(key) = keys.items.first() {
            let access_key = &key.access_key;
            return Err(Error::AccountConflict(format!(
                "the user {tenant}/{name} still has the access key {access_key}"
            )));
        }
        self.accounts.documents().delete_document::<User>(&format!("{tenant}/{name}")).await?;
        self.accounts.forget_keys_of(&user).await
    }
}
