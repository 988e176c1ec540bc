//! Roles of tenants, and policies of users, as the admin address and `martlet admin` speak of them.

use serde::{Deserialize, Serialize};

/// Where the roles of a tenant are listed, and made by POST.
pub(crate) const ROLES: &str = "/admin/v1/roles";
/// Where one is shown, changed by PUT, and deleted.
pub(crate) const ROLE: &str = "/admin/v1/role";
/// Where the policy of a user is shown, put and deleted.
pub(crate) const USER_POLICY: &str = "/admin/v1/user/policy";

/// A role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoleLine {
    pub(crate) tenant: String,
    pub(crate) role: String,
    /// As `AssumeRole` names it.
    pub(crate) arn: String,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
    /// How long its sessions are, at most.
    pub(crate) max_session_seconds: u32,
    pub(crate) policy: String,
    /// None where the tenant's own keys are trusted, and nobody else.
    pub(crate) trust: Option<String>,
}

/// A role to be made, or what becomes of one; what isn't said stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RoleAsked {
    pub(crate) tenant: String,
    pub(crate) role: String,
    pub(crate) policy: Option<String>,
    pub(crate) trust: Option<String>,
    pub(crate) max_session_seconds: Option<u32>,
    pub(crate) enabled: Option<bool>,
}

/// The policy of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserPolicy {
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// None where its role alone says what it may do.
    pub(crate) policy: Option<String>,
}
