//! JSON messages about roles of tenants and policies of users.

use serde::{Deserialize, Serialize};

/// Path of the list of a tenant's roles; POST creates a role.
pub(crate) const ROLES: &str = "/admin/v1/roles";
/// Path of a role; PUT changes it, DELETE deletes it.
pub(crate) const ROLE: &str = "/admin/v1/role";
/// Path of a user's policy; PUT sets it, DELETE deletes it.
pub(crate) const USER_POLICY: &str = "/admin/v1/user/policy";

/// Role of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoleLine {
    pub(crate) tenant: String,
    pub(crate) role: String,
    /// ARN of the role in `AssumeRole`.
    pub(crate) arn: String,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
    /// Maximum length of a session, in seconds.
    pub(crate) max_session_seconds: u32,
    pub(crate) policy: String,
    /// Trust document. `None` trusts the tenant's own keys only.
    pub(crate) trust: Option<String>,
}

/// Request to create or change a role. `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RoleRequest {
    pub(crate) tenant: String,
    pub(crate) role: String,
    pub(crate) policy: Option<String>,
    pub(crate) trust: Option<String>,
    pub(crate) max_session_seconds: Option<u32>,
    pub(crate) enabled: Option<bool>,
}

/// Policy of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserPolicy {
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// Policy document. `None` if only the user's role limits it.
    pub(crate) policy: Option<String>,
}
