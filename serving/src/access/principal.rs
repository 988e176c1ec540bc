//! Principals of requests, and the source of their keys.

use std::sync::Arc;

use async_trait::async_trait;
use martlet_admin_api::principals::{AdminRole, PrincipalLine};

use super::secret::SessionClaims;

/// Tenant, by name and by the id that is never used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantName {
    /// Name of the tenant.
    pub name: String,
    /// Canonical id of the tenant.
    pub canonical_id: String,
}

/// Stored state of an admin key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminKeyState {
    /// Name for people.
    pub name: String,
    /// Role of the key.
    pub role: AdminRole,
    /// Tenant of a tenant admin.
    pub tenant: Option<TenantName>,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time from which the key is refused, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// Sessions that began earlier are refused, in milliseconds since 1970.
    pub sessions_from_ms: u64,
    /// Ids of the sessions that ended before their time.
    pub ended: Vec<String>,
}

/// Item that leads to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantTarget {
    /// Name of a tenant.
    Tenant(String),
    /// Name of a bucket.
    Bucket(String),
    /// Access key.
    AccessKey(String),
}

/// Accounts of a process that knows them.
#[async_trait]
pub trait AdminDirectory: Send + Sync {
    /// Returns a key that may be used, at most a second old while a quorum replies; none if the key
    /// was revoked.
    ///
    /// # Errors
    /// A sentence, if no quorum replies.
    async fn key(&self, id: &str) -> Result<Option<Arc<AdminKeyState>>, String>;

    /// Returns the canonical id of the tenant that owns an item; none if the item doesn't exist.
    ///
    /// # Errors
    /// A sentence, if no quorum replies.
    async fn owner(&self, target: &TenantTarget) -> Result<Option<String>, String>;
}

/// Authenticated requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Means of authentication.
    pub kind: PrincipalKind,
    /// Id of the key; none for the token of a secret.
    pub key: Option<String>,
    /// Name of the key.
    pub name: Option<String>,
    /// Role.
    pub role: AdminRole,
    /// Tenant of a tenant admin.
    pub tenant: Option<TenantName>,
    /// Id of the session.
    pub session: Option<String>,
    /// End of the session or key, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// Time from which a tenant admin may read audit records, in milliseconds since 1970.
    pub(crate) since_ms: u64,
}

/// Means of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrincipalKind {
    /// Token of the root secret or of the cluster's key.
    Token,
    /// Request signed by a key.
    Key,
    /// Token of a session.
    Session,
}

impl PrincipalKind {
    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Session => "session",
        }
    }
}

impl Principal {
    /// Holder of the token of a secret: an operator.
    pub(crate) fn of_token() -> Self {
        Self {
            kind: PrincipalKind::Token,
            key: None,
            name: None,
            role: AdminRole::Operator,
            tenant: None,
            session: None,
            expires_ms: None,
            since_ms: 0,
        }
    }

    /// Holder of a key.
    pub(crate) fn of_key(id: &str, key: &AdminKeyState) -> Self {
        Self {
            kind: PrincipalKind::Key,
            key: Some(id.to_owned()),
            name: Some(key.name.clone()),
            role: key.role,
            tenant: key.tenant.clone(),
            session: None,
            expires_ms: key.expires_ms,
            since_ms: key.tenant.as_ref().map_or(0, |_| key.created_ms),
        }
    }

    /// Holder of a session. `key` is the key that began the session, in processes that know it.
    pub(crate) fn of_session(claims: SessionClaims, key: Option<&AdminKeyState>) -> Self {
        let tenant = claims.tenant.zip(claims.tenant_id);
        let tenant = tenant.map(|(name, canonical_id)| TenantName { name, canonical_id });
        Self {
            kind: PrincipalKind::Session,
            since_ms: tenant.as_ref().and(key).map_or(0, |key| key.created_ms),
            key: Some(claims.key),
            name: key.map(|key| key.name.clone()),
            role: claims.role,
            tenant,
            session: Some(claims.id),
            expires_ms: Some(claims.expires_ms),
        }
    }

    /// Returns the principal as a message.
    pub fn line(&self) -> PrincipalLine {
        PrincipalLine {
            kind: self.kind.name().to_owned(),
            key: self.key.clone(),
            name: self.name.clone(),
            role: self.role.to_string(),
            tenant: self.tenant.as_ref().map(|tenant| tenant.name.clone()),
            session: self.session.clone(),
            expires_ms: self.expires_ms,
        }
    }
}
