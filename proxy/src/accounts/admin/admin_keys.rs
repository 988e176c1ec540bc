//! Keys of the admin API: creation, reads, revocation, and the end of sessions.

use super::client::Accounts;
use crate::accounts::admin_keys::{AdminKey, EndedSession, TenantName};
use crate::accounts::documents::missing;
use crate::accounts::page::Page;
use crate::error::{Error, Result};

const NAME_BYTES_MAX: usize = 128;

/// Parameters of a new admin key.
#[derive(Clone, Debug)]
pub struct NewAdminKey {
    /// Its id, random.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Its role, as text.
    pub role: String,
    /// Name of the tenant of a tenant admin.
    pub tenant: Option<String>,
    /// Lifetime in milliseconds; none for no end.
    pub expires_in_ms: Option<u64>,
}

/// Keys of the admin API.
#[derive(Clone, Copy, Debug)]
pub struct AdminKeys<'a> {
    accounts: &'a Accounts,
}

impl Accounts {
    /// Keys of the admin API.
    pub fn admin_keys(&self) -> AdminKeys<'_> {
        AdminKeys { accounts: self }
    }
}

impl AdminKeys<'_> {
    /// Creates a key.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] without its tenant; [`Error::InvalidArgument`] for a long name or
    /// one with control characters; [`Error::AccountConflict`] if the id exists.
    pub async fn create(self, new: NewAdminKey) -> Result<AdminKey> {
        if new.name.len() > NAME_BYTES_MAX || new.name.chars().any(char::is_control) {
            return Err(Error::InvalidArgument(format!(
                "the name of an admin key must have at most {NAME_BYTES_MAX} bytes, without \
                 control characters"
            )));
        }
        let tenant = match &new.tenant {
            None => None,
            Some(name) => {
                let tenant = self.accounts.tenants().get(name).await?;
                Some(TenantName { name: tenant.name, canonical_id: tenant.canonical_id })
            }
        };
        let now_ms = self.accounts.now_ms();
        let key = AdminKey {
            id: new.id,
            name: new.name,
            role: new.role,
            tenant,
            created_ms: now_ms,
            expires_ms: new.expires_in_ms.map(|span| now_ms.saturating_add(span)),
            sessions_from_ms: 0,
            ended: Vec::new(),
        };
        self.accounts.documents().create_document(&key).await?;
        Ok(key)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn get(self, id: &str) -> Result<AdminKey> {
        self.accounts.documents().document(id).await?.ok_or_else(|| missing::<AdminKey>(id))
    }

    /// Keys in order of id, above `after`.
    pub async fn list(self, after: Option<&str>, limit: usize) -> Result<Page<AdminKey>> {
        self.accounts.documents().list_documents("", after, limit, |_| true).await
    }

    /// Ends a session of a key before its time.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn end_session(self, id: &str, session: &EndedSession) -> Result<AdminKey> {
        let now_ms = self.accounts.now_ms();
        let change = |key: &mut AdminKey| {
            key.end_session(session, now_ms);
            Ok(())
        };
        self.accounts.documents().change_document(id, change).await
    }

    /// Deletes a key, which ends its sessions.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn revoke(self, id: &str) -> Result<()> {
        self.accounts.documents().delete_document::<AdminKey>(id).await
    }
}
