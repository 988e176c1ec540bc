//! JSON messages about the principals of the admin API: its keys and their sessions.
//!
//! The secret of a key is in one reply alone: the one to its creation.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the list of admin keys; POST creates a key.
pub const ADMIN_KEYS: &str = "/admin/v1/admin-keys";
/// Path of an admin key; DELETE revokes it.
pub const ADMIN_KEY: &str = "/admin/v1/admin-key";
/// Path of the requester's session; POST begins one, DELETE ends one.
pub const SESSION: &str = "/admin/v1/session";
/// Length of a session that names none, in seconds.
pub const SESSION_S_DEFAULT: u64 = 3600;
/// Minimum and maximum length of a session, in seconds.
pub const SESSION_S: std::ops::RangeInclusive<u64> = 60..=12 * 3600;

/// Role of a principal of the admin API.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum AdminRole {
    /// Reads everything but secrets and audit records.
    Viewer,
    /// Reads and changes everything.
    Operator,
    /// Reads and changes users, keys, roles and buckets of its own tenant.
    TenantAdmin,
}

impl AdminRole {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::TenantAdmin];

    /// Returns the role's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::TenantAdmin => "tenant-admin",
        }
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AdminRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            format!("{text:?} is not an admin role: write viewer, operator or tenant-admin")
        })
    }
}

/// Key of the admin API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdminKeyLine {
    /// Id of the key.
    pub key: String,
    /// Secret of the key, returned only when the key is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Name for people.
    pub name: String,
    /// `viewer`, `operator` or `tenant-admin`.
    pub role: String,
    /// Name of the tenant of a tenant admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time from which the key is refused, in milliseconds since 1970. `None` for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

/// Request to create an admin key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdminKeyRequest {
    /// Role of the key.
    pub role: AdminRole,
    /// Name of the tenant; required for tenant admins, refused for other roles.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Name for people, in lists and audit records.
    #[serde(default)]
    pub name: Option<String>,
    /// Lifetime in seconds. `None` for no end.
    #[serde(default)]
    pub expires_in_s: Option<u64>,
}

/// Request to begin a session.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionRequest {
    /// Length of the session in seconds, 60 to 43200. Default: 3600.
    #[serde(default)]
    pub seconds: Option<u64>,
}

/// Session that has begun.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReply {
    /// Bearer token of the session.
    pub token: String,
    /// Principal of the session.
    pub principal: PrincipalLine,
}

/// Principal of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrincipalLine {
    /// `token`, `key` or `session`.
    pub kind: String,
    /// Id of the admin key. `None` for the token of the cluster's key or root secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name of the admin key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `viewer`, `operator` or `tenant-admin`.
    pub role: String,
    /// Name of the tenant of a tenant admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// End of the session or key, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_written_as_they_are_read() {
        for role in AdminRole::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        let refusal = "root".parse::<AdminRole>().unwrap_err();
        assert!(refusal.contains("viewer, operator or tenant-admin"), "{refusal}");
    }
}
