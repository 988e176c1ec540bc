//! Tenants: creation, reads, network limits, disabling and deletion.

use martlet_protocol::id::random_bytes;
use martlet_protocol::{Network, Quota};

use super::client::{Accounts, check_networks};
use crate::accounts::documents::missing;
use crate::accounts::page::Page;
use crate::accounts::records::{Rate, Tenant, TenantOf, check_name};
use crate::error::{Error, Result};

/// Buckets on one page.
const BUCKETS_PAGE: usize = 1000;
const DISPLAY_NAME_BYTES_MAX: usize = 128;

/// Tenants of a store.
#[derive(Clone, Copy, Debug)]
pub struct Tenants<'a> {
    pub(super) accounts: &'a Accounts,
}

impl Accounts {
    /// Tenants.
    pub fn tenants(&self) -> Tenants<'_> {
        Tenants { accounts: self }
    }
}

impl Tenants<'_> {
    /// Creates a tenant. Its display name defaults to its name.
    ///
    /// # Errors
    /// [`Error::AccountConflict`] if the name is taken; [`Error::InvalidArgument`] for a name,
    /// display name or networks outside their limits.
    pub async fn create(
        self,
        name: &str,
        display_name: Option<&str>,
        networks: Vec<Network>,
    ) -> Result<Tenant> {
        check_name("tenant", name)?;
        check_networks(&networks)?;
        let display_name = display_name.unwrap_or(name).to_owned();
        let is_right = (1..=DISPLAY_NAME_BYTES_MAX).contains(&display_name.len());
        if !is_right || display_name.chars().any(char::is_control) {
            return Err(Error::InvalidArgument(format!(
                "a display name must have 1 to {DISPLAY_NAME_BYTES_MAX} bytes, without control \
                 characters"
            )));
        }
        let canonical_id = hex::encode(random_bytes::<32>());
        let tenant = Tenant {
            name: name.to_owned(),
            canonical_id: canonical_id.clone(),
            display_name: display_name.clone(),
            created_ms: self.accounts.now_ms(),
            disabled: false,
            networks,
            quota: Quota::default(),
            rate: Rate::default(),
        };
        let of = TenantOf { canonical_id, tenant: name.to_owned(), display_name };
        self.accounts.documents().create_document(&of).await?;
        let made = self.accounts.documents().create_document(&tenant).await;
        if let Err(Error::AccountConflict(_)) = &made {
            self.accounts.documents().delete_document::<TenantOf>(&of.canonical_id).await?;
        }
        made.map(|()| tenant)
    }

    /// Reads a tenant by name.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn get(self, name: &str) -> Result<Tenant> {
        self.accounts.documents().document(name).await?.ok_or_else(|| missing::<Tenant>(name))
    }

    /// Tenants by name, above `after`.
    pub async fn list(self, after: Option<&str>, limit: usize) -> Result<Page<Tenant>> {
        self.accounts.documents().list_documents("", after, limit, |_| true).await
    }

    /// Enables or disables a tenant, or sets the networks that its requests may come from.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change(
        self,
        name: &str,
        disabled: Option<bool>,
        networks: Option<Vec<Network>>,
    ) -> Result<Tenant> {
        check_networks(networks.as_deref().unwrap_or_default())?;
        let change = |tenant: &mut Tenant| {
            tenant.disabled = disabled.unwrap_or(tenant.disabled);
            if let Some(networks) = &networks {
                tenant.networks.clone_from(networks);
            }
            Ok(())
        };
        self.accounts.documents().change_document(name, change).await
    }

    /// Deletes a tenant that has no users, roles, keys and buckets.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::AccountConflict`], which names the first of these.
    pub async fn delete(self, name: &str) -> Result<()> {
        let tenant = self.get(name).await?;
        let has = |what: &str, first: &str| {
            Error::AccountConflict(format!("the tenant {name} still has the {what} {first}"))
        };
        if let Some(user) = self.accounts.users().list(name, None, 1).await?.items.first() {
            return Err(has("user", &user.name));
        }
        if let Some(role) = self.accounts.roles().list(name, None, 1).await?.items.first() {
            return Err(has("role", &role.name));
        }
        if let Some(key) = self.accounts.keys().list(Some(name), None, 1).await?.items.first() {
            return Err(has("access key", &key.access_key));
        }
        if let Some(bucket) = self.bucket_of(&tenant).await? {
            return Err(has("bucket", &bucket));
        }
        self.accounts.documents().delete_document::<Tenant>(name).await?;
        self.accounts.documents().delete_document::<TenantOf>(&tenant.canonical_id).await
    }

    /// The first bucket that a tenant owns.
    async fn bucket_of(self, tenant: &Tenant) -> Result<Option<String>> {
        let mut after: Option<String> = None;
        loop {
            let (page, more) =
                self.accounts.store.buckets().list("", after.as_deref(), BUCKETS_PAGE).await?;
            let owned = page.iter().find(|named| named.bucket.owner == tenant.canonical_id);
            if let Some(owned) = owned {
                return Ok(Some(owned.name.clone()));
            }
            after = page.into_iter().last().map(|named| named.name);
            if !more || after.is_none() {
                return Ok(None);
            }
        }
    }
}
