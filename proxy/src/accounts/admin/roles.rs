//! Roles of tenants: creation, reads, changes and deletion.

use martlet_protocol::id::random_bytes;

use super::client::Accounts;
use crate::accounts::documents::missing;
use crate::accounts::page::Page;
use crate::accounts::records::check_name;
use crate::accounts::roles::{SessionRole, check_session};
use crate::error::Result;

/// Parameters of a new role.
#[derive(Clone, Debug)]
pub struct NewRole {
    /// Tenant that owns the role.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Policy that defines its permissions.
    pub policy: String,
    /// Trust policy: principals that may assume the role; none for the tenant's own keys only.
    pub trust: Option<String>,
    /// Ids of the principals that the trust policy names.
    pub trust_ids: Option<String>,
    /// Maximum length of a session, in seconds.
    pub session_s_max: u32,
}

/// Changes of a role. Fields without a value stay.
#[derive(Clone, Debug, Default)]
pub struct RoleChange {
    /// True to disable the role.
    pub disabled: Option<bool>,
    /// Policy that defines its permissions.
    pub policy: Option<String>,
    /// Trust policy: principals that may assume the role.
    pub trust: Option<String>,
    /// Ids of the principals that the trust policy names; replaced together with it.
    pub trust_ids: Option<String>,
    /// Maximum length of a session, in seconds.
    pub session_s_max: Option<u32>,
}

/// Roles of tenants.
#[derive(Clone, Copy, Debug)]
pub struct Roles<'a> {
    accounts: &'a Accounts,
}

impl Accounts {
    /// Roles of tenants, which principals assume for a session.
    pub fn roles(&self) -> Roles<'_> {
        Roles { accounts: self }
    }
}

impl Roles<'_> {
    /// Creates a role.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount) without its tenant;
    /// [`Error::AccountConflict`](crate::Error::AccountConflict) if the name is taken.
    pub async fn create(self, new: NewRole) -> Result<SessionRole> {
        check_name("role", &new.name)?;
        check_session(new.session_s_max)?;
        let tenant = self.accounts.tenants().get(&new.tenant).await?;
        let role = SessionRole {
            tenant: tenant.name,
            tenant_id: tenant.canonical_id,
            name: new.name,
            id: hex::encode(random_bytes::<16>()),
            created_ms: self.accounts.now_ms(),
            policy: new.policy,
            trust: new.trust,
            trust_ids: new.trust_ids,
            session_s_max: new.session_s_max,
            disabled: false,
        };
        self.accounts.documents().create_document(&role).await?;
        Ok(role)
    }

    /// Reads a role of a tenant.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount).
    pub async fn get(self, tenant: &str, name: &str) -> Result<SessionRole> {
        let path = format!("{tenant}/{name}");
        self.accounts
            .documents()
            .document(&path)
            .await?
            .ok_or_else(|| missing::<SessionRole>(&path))
    }

    /// Roles of a tenant by name, above `after`.
    pub async fn list(
        self,
        tenant: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SessionRole>> {
        let below = format!("{tenant}/");
        let after = after.map(|after| format!("{below}{after}"));
        self.accounts.documents().list_documents(&below, after.as_deref(), limit, |_| true).await
    }

    /// Changes a role. The new permissions apply to its open sessions too.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a session length outside its
    /// bounds.
    pub async fn change(
        self,
        tenant: &str,
        name: &str,
        requested: RoleChange,
    ) -> Result<SessionRole> {
        if let Some(session_s_max) = requested.session_s_max {
            check_session(session_s_max)?;
        }
        let change = |role: &mut SessionRole| {
            role.disabled = requested.disabled.unwrap_or(role.disabled);
            role.session_s_max = requested.session_s_max.unwrap_or(role.session_s_max);
            if let Some(policy) = &requested.policy {
                role.policy.clone_from(policy);
            }
            if requested.trust.is_some() {
                role.trust.clone_from(&requested.trust);
                role.trust_ids.clone_from(&requested.trust_ids);
            }
            Ok(())
        };
        self.accounts.documents().change_document(&format!("{tenant}/{name}"), change).await
    }

    /// Deletes a role and ends its sessions.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount).
    pub async fn delete(self, tenant: &str, name: &str) -> Result<()> {
        self.accounts.documents().delete_document::<SessionRole>(&format!("{tenant}/{name}")).await
    }
}
