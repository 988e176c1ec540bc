//! Tenants, users and access keys, as the admin address and `martlet admin` speak of them.
//!
//! Requests that carry a secret carry it in their body, and are never printed.

use martlet_protocol::Network;
use serde::{Deserialize, Serialize};

use super::limits::{RateChange, RateLine};

/// Where tenants are listed, and made by POST.
pub(crate) const TENANTS: &str = "/admin/v1/tenants";
/// Where one is shown, changed by PUT, and deleted.
pub(crate) const TENANT: &str = "/admin/v1/tenant";
/// Where users are listed and made.
pub(crate) const USERS: &str = "/admin/v1/users";
/// Where one is shown, changed and deleted.
pub(crate) const USER: &str = "/admin/v1/user";
/// Where keys are listed and made.
pub(crate) const KEYS: &str = "/admin/v1/keys";
/// Where one is shown, changed and deleted.
pub(crate) const KEY: &str = "/admin/v1/key";
/// Where one gets another secret.
pub(crate) const ROTATE: &str = "/admin/v1/key/rotate";

/// Some of many, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// What to ask for the next ones with; none if these were all.
    pub(crate) next: Option<String>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantLine {
    pub(crate) tenant: String,
    pub(crate) canonical_id: String,
    pub(crate) display_name: String,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
    /// Where its requests may come from; from anywhere, if none is named.
    pub(crate) networks: Vec<Network>,
    /// How fast they may come.
    #[serde(default)]
    pub(crate) rate: RateLine,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserLine {
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// As bucket policies name it.
    pub(crate) arn: String,
    pub(crate) role: String,
    /// Whether it has a policy of its own.
    pub(crate) has_policy: bool,
    pub(crate) created_ms: u64,
    pub(crate) enabled: bool,
}

/// An access key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyLine {
    pub(crate) access_key: String,
    /// Told when it is made or changed, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_key: Option<String>,
    pub(crate) tenant: String,
    pub(crate) user: Option<String>,
    pub(crate) canonical_id: String,
    pub(crate) display_name: String,
    pub(crate) created_ms: u64,
    /// When its secret was made.
    pub(crate) rotated_ms: u64,
    pub(crate) enabled: bool,
    pub(crate) networks: Vec<Network>,
    /// How fast its requests may come.
    #[serde(default)]
    pub(crate) rate: RateLine,
    /// Whether its secret lies sealed by a master key.
    pub(crate) sealed: bool,
}

/// A tenant to be made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TenantAsked {
    pub(crate) tenant: String,
    pub(crate) display_name: Option<String>,
    pub(crate) networks: Vec<Network>,
}

/// What becomes of a tenant; what isn't said stays.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TenantChange {
    pub(crate) tenant: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) networks: Option<Vec<Network>>,
    #[serde(default)]
    pub(crate) rate: RateChange,
}

/// A user to be made, or what becomes of one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UserAsked {
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) role: Option<String>,
    pub(crate) enabled: Option<bool>,
}

/// A key to be made.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeyAsked {
    pub(crate) tenant: String,
    pub(crate) user: Option<String>,
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) networks: Vec<Network>,
}

/// What becomes of a key; what isn't said stays.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeyChange {
    pub(crate) access_key: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) networks: Option<Vec<Network>>,
    #[serde(default)]
    pub(crate) rate: RateChange,
}

/// Another secret for a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Rotation {
    pub(crate) access_key: String,
    pub(crate) secret_key: Option<String>,
}

/// What is no more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Deleted {
    pub(crate) deleted: String,
}
