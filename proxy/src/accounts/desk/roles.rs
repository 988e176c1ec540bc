//! Roles of tenants: made, shown, changed and deleted.

use martlet_protocol::id::random_bytes;

use super::{Accounts, Listed};
use crate::accounts::documents::missing;
use crate::accounts::records::check_name;
use crate::accounts::roles::{SessionRole, check_session};
use crate::error::Result;

/// A role to be made.
#[derive(Clone, Debug)]
pub struct NewRole {
    /// Whose it will be.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub policy: String,
    /// Who may take it on; without it, the tenant's own keys.
    pub trust: Option<String>,
    /// The ids of those whom that names.
    pub trust_ids: Option<String>,
    /// How long a session of it may be, at most.
    pub session_s_max: u32,
}

/// What becomes of a role; what isn't said stays.
#[derive(Clone, Debug, Default)]
pub struct RoleChange {
    /// Whether it opens nothing.
    pub disabled: Option<bool>,
    /// What it may do.
    pub policy: Option<String>,
    /// Who may take it on.
    pub trust: Option<String>,
    /// The ids of those whom that names; they are changed with it.
    pub trust_ids: Option<String>,
    /// How long a session of it may be, at most.
    pub session_s_max: Option<u32>,
}

impl Accounts {
    /// Makes a role.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount) without its tenant;
    /// [`Error::AccountConflict`](crate::Error::AccountConflict) where there is one of that name.
    pub async fn create_role(&self, new: NewRole) -> Result<SessionRole> {
        check_name("role", &new.name)?;
        check_session(new.session_s_max)?;
        let tenant = self.tenant(&new.tenant).await?;
        let role = SessionRole {
            tenant: tenant.name,
            tenant_id: tenant.canonical_id,
            name: new.name,
            id: hex::encode(random_bytes::<16>()),
            created_ms: self.now_ms(),
            policy: new.policy,
            trust: new.trust,
            trust_ids: new.trust_ids,
            session_s_max: new.session_s_max,
            disabled: false,
        };
        self.store.create_document(&role).await?;
        Ok(role)
    }

    /// A role of a tenant.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount).
    pub async fn role(&self, tenant: &str, name: &str) -> Result<SessionRole> {
        let path = format!("{tenant}/{name}");
        self.store.document(&path).await?.ok_or_else(|| missing::<SessionRole>(&path))
    }

    /// Roles of a tenant by name, above `after`.
    pub async fn roles(
        &self,
        tenant: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Listed<SessionRole>> {
        let below = format!("{tenant}/");
        let after = after.map(|after| format!("{below}{after}"));
        self.store.list_documents(&below, after.as_deref(), limit, |_| true).await
    }

    /// Changes a role. Its sessions are held to what it says then.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount).
    pub async fn change_role(
        &self,
        tenant: &str,
        name: &str,
        asked: RoleChange,
    ) -> Result<SessionRole> {
        if let Some(session_s_max) = asked.session_s_max {
            check_session(session_s_max)?;
        }
        let change = |role: &mut SessionRole| {
            role.disabled = asked.disabled.unwrap_or(role.disabled);
            role.session_s_max = asked.session_s_max.unwrap_or(role.session_s_max);
            if let Some(policy) = &asked.policy {
                role.policy.clone_from(policy);
            }
            if asked.trust.is_some() {
                role.trust.clone_from(&asked.trust);
                role.trust_ids.clone_from(&asked.trust_ids);
            }
            Ok(())
        };
        self.store.change_document(&format!("{tenant}/{name}"), change).await
    }

    /// Deletes a role, and ends its sessions.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`](crate::Error::NoSuchAccount).
    pub async fn delete_role(&self, tenant: &str, name: &str) -> Result<()> {
        self.store.delete_document::<SessionRole>(&format!("{tenant}/{name}")).await
    }
}
