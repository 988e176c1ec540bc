//! JSON messages about tenants, users and access keys.
//!
//! Secrets are sent in the bodies of requests, and those requests are never printed.

use martlet_protocol::Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{RateChange, RateLine};

/// Path of the list of tenants; POST creates a tenant.
pub const TENANTS: &str = "/admin/v1/tenants";
/// Path of a tenant; PUT changes it, DELETE deletes it.
pub const TENANT: &str = "/admin/v1/tenant";
/// Path of the list of users; POST creates a user.
pub const USERS: &str = "/admin/v1/users";
/// Path of a user; PUT changes it, DELETE deletes it.
pub const USER: &str = "/admin/v1/user";
/// Path of the list of keys; POST creates a key.
pub const KEYS: &str = "/admin/v1/keys";
/// Path of a key; PUT changes it, DELETE deletes it.
pub const KEY: &str = "/admin/v1/key";
/// Path for a new secret of a key, by POST.
pub const ROTATE: &str = "/admin/v1/key/rotate";

/// Page of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct ListPage<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// Cursor for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantLine {
    /// Name of the tenant.
    pub tenant: String,
    /// Canonical id of the tenant, for S3's access control lists.
    pub canonical_id: String,
    /// Name for people.
    pub display_name: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// True if the tenant's keys are accepted.
    pub enabled: bool,
    /// Networks that its requests may come from; empty for any network.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<Network>,
    /// Limits on the rate of its requests.
    #[serde(default)]
    pub rate: RateLine,
}

/// User of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserLine {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user.
    pub user: String,
    /// ARN of the user in bucket policies.
    pub arn: String,
    /// Built-in role of the user.
    pub role: String,
    /// True if the user has its own policy.
    pub has_policy: bool,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// True if the user's keys are accepted.
    pub enabled: bool,
}

/// Access key.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyLine {
    /// Access key.
    pub access_key: String,
    /// Secret key, returned only when it is created or rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<String>,
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user. `None` for a key of the tenant itself.
    pub user: Option<String>,
    /// Canonical id of the key's tenant.
    pub canonical_id: String,
    /// Name for people.
    pub display_name: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time at which the secret was made, in milliseconds since 1970.
    pub rotated_ms: u64,
    /// True if the key is accepted.
    pub enabled: bool,
    /// Networks that requests may come from; empty for any network.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<Network>,
    /// Limits on the rate of its requests.
    #[serde(default)]
    pub rate: RateLine,
    /// View of buckets with checkpoint rules that its requests get by default: `bucket` or
    /// `committed`.
    #[serde(default)]
    pub view: String,
    /// True if the stored secret is sealed by a master key.
    pub sealed: bool,
}

/// Request to create a tenant.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TenantRequest {
    /// Name of the tenant.
    pub tenant: String,
    /// Name for people. `None` uses the tenant's name.
    pub display_name: Option<String>,
    /// Networks that requests may come from; empty for any network.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<Network>,
}

/// Request to change a tenant. `None` leaves a value unchanged.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TenantChange {
    /// Name of the tenant.
    pub tenant: String,
    /// True accepts the tenant's keys, false refuses them.
    pub enabled: Option<bool>,
    /// Networks that requests may come from; empty for any network.
    #[schemars(with = "Option<Vec<String>>")]
    pub networks: Option<Vec<Network>>,
    /// Limits on the rate of requests.
    #[serde(default)]
    pub rate: RateChange,
}

/// Request to create or change a user.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct UserRequest {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user.
    pub user: String,
    /// Built-in role of the user.
    pub role: Option<String>,
    /// True accepts the user's keys, false refuses them.
    pub enabled: Option<bool>,
}

/// Request to create an access key.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct KeyRequest {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user. `None` for a key of the tenant itself.
    pub user: Option<String>,
    /// Access key. `None` makes a random one.
    pub access_key: Option<String>,
    /// Secret key. `None` makes a random one.
    pub secret_key: Option<String>,
    /// Networks that requests may come from; empty for any network.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<Network>,
}

/// Request to change an access key. `None` leaves a value unchanged.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct KeyChange {
    /// Access key.
    pub access_key: String,
    /// True accepts the key, false refuses it.
    pub enabled: Option<bool>,
    /// Networks that requests may come from; empty for any network.
    #[schemars(with = "Option<Vec<String>>")]
    pub networks: Option<Vec<Network>>,
    /// Limits on the rate of requests.
    #[serde(default)]
    pub rate: RateChange,
    /// View that requests get by default: `bucket` or `committed`.
    #[serde(default)]
    pub view: Option<String>,
}

/// Request for a new secret of a key.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Rotation {
    /// Access key.
    pub access_key: String,
    /// Secret key. `None` makes a random one.
    pub secret_key: Option<String>,
}

/// Name of the deleted item.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeletedLine {
    /// Name.
    pub deleted: String,
}
