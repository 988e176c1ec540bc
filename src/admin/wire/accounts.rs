//! JSON messages about tenants, users and access keys.
//!
//! Secrets are sent in the bodies of requests, and those requests are never printed.

use martlet_protocol::Network;
use serde::{Deserialize, Serialize};

use super::limits::{RateChange, RateLine};

/// Path of the list of tenants; POST creates a tenant.
pub(crate) const TENANTS: &str = "/admin/v1/tenants";
/// Path of a tenant; PUT changes it, DELETE deletes it.
pub(crate) const TENANT: &str = "/admin/v1/tenant";
/// Path of the list of users; POST creates a user.
pub(crate) const USERS: &str = "/admin/v1/users";
/// Path of a user; PUT changes it, DELETE deletes it.
pub(crate) const USER: &str = "/admin/v1/user";
/// Path of the list of keys; POST creates a key.
pub(crate) const KEYS: &str = "/admin/v1/keys";
/// Path of a key; PUT changes it, DELETE deletes it.
pub(crate) const KEY: &str = "/admin/v1/key";
/// Path for a new secret of a key, by POST.
pub(crate) const ROTATE: &str = "/admin/v1/key/rotate";

/// Page of a list.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListPage<T> {
    pub(crate) items: Vec<T>,
    /// Cursor for the next page; `None` on the last page.
    pub(crate) next: Option<String>,
}

/// Tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantLine {
    pub(crate) tenant: String,
    pub(crate) canonical_id: String,
    pub(crate) display_name: String,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
    /// Networks that its requests may come from; empty for any network.
    pub(crate) networks: Vec<Network>,
    /// Limits on the rate of its requests.
    #[serde(default)]
    pub(crate) rate: RateLine,
}

/// User of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserLine {
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// ARN of the user in bucket policies.
    pub(crate) arn: String,
    pub(crate) role: String,
    /// True if the user has its own policy.
    pub(crate) has_policy: bool,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
}

/// Access key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyLine {
    pub(crate) access_key: String,
    /// Secret key, returned only when it is created or rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_key: Option<String>,
    pub(crate) tenant: String,
    pub(crate) user: Option<String>,
    pub(crate) canonical_id: String,
    pub(crate) display_name: String,
    pub(crate) created_ms: u64,
    /// Time at which the secret was made, in milliseconds since 1970.
    pub(crate) rotated_ms: u64,
    pub(crate) enabled: bool,
    pub(crate) networks: Vec<Network>,
    /// Limits on the rate of its requests.
    #[serde(default)]
    pub(crate) rate: RateLine,
    /// True if the stored secret is sealed by a master key.
    pub(crate) sealed: bool,
}

/// Request to create a tenant.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TenantRequest {
    pub(crate) tenant: String,
    pub(crate) display_name: Option<String>,
    pub(crate) networks: Vec<Network>,
}

/// Request to change a tenant. `None` leaves a value unchanged.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TenantChange {
    pub(crate) tenant: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) networks: Option<Vec<Network>>,
    #[serde(default)]
    pub(crate) rate: RateChange,
}

/// Request to create or change a user.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UserRequest {
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) role: Option<String>,
    pub(crate) enabled: Option<bool>,
}

/// Request to create an access key.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeyRequest {
    pub(crate) tenant: String,
    pub(crate) user: Option<String>,
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) networks: Vec<Network>,
}

/// Request to change an access key. `None` leaves a value unchanged.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeyChange {
    pub(crate) access_key: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) networks: Option<Vec<Network>>,
    #[serde(default)]
    pub(crate) rate: RateChange,
}

/// Request for a new secret of a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Rotation {
    pub(crate) access_key: String,
    pub(crate) secret_key: Option<String>,
}

/// Name of the deleted item.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeletedLine {
    pub(crate) deleted: String,
}
