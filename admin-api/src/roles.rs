//! JSON messages about roles of tenants and policies of users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the list of a tenant's roles; POST creates a role.
pub const ROLES: &str = "/admin/v1/roles";
/// Path of a role; PUT changes it, DELETE deletes it.
pub const ROLE: &str = "/admin/v1/role";
/// Path of a user's policy; PUT sets it, DELETE deletes it.
pub const USER_POLICY: &str = "/admin/v1/user/policy";

/// Role of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleLine {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the role.
    pub role: String,
    /// ARN of the role in `AssumeRole`.
    pub arn: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// True if the role can start sessions.
    pub enabled: bool,
    /// Maximum length of a session, in seconds.
    pub max_session_seconds: u32,
    /// Policy document of the role.
    pub policy: String,
    /// Trust document. `None` trusts the tenant's own keys only.
    pub trust: Option<String>,
}

/// Request to create or change a role. `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RoleRequest {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the role.
    pub role: String,
    /// Policy document of the role.
    pub policy: Option<String>,
    /// Trust document.
    pub trust: Option<String>,
    /// Maximum length of a session, in seconds.
    pub max_session_seconds: Option<u32>,
    /// True lets the role start sessions, false refuses sessions.
    pub enabled: Option<bool>,
}

/// Policy of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserPolicy {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user.
    pub user: String,
    /// Policy document. `None` if only the user's role limits it.
    pub policy: Option<String>,
}
