//! Account documents: tenants, users and access keys. Stored as JSON, so that a later version may
//! add fields.

use std::fmt;
use std::str::FromStr;

use martlet_protocol::{Network, Quota};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::keyring::Sealed;

/// The account of the root key, which has no document.
pub const ROOT: &str = "root";

/// A tenant: an account in S3's sense. Its buckets refer to it by its canonical id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name, as principals in policies use it.
    pub name: String,
    /// Id drawn at its creation, stored with everything that the tenant owns.
    pub canonical_id: String,
    /// S3's `DisplayName`.
    pub display_name: String,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// True if its keys are refused.
    #[serde(default)]
    pub disabled: bool,
    /// Networks that its requests may come from; all if empty.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// Quota of its buckets together.
    #[serde(default)]
    pub quota: Quota,
    /// Rate limit of its requests, at each proxy.
    #[serde(default)]
    pub rate: Rate,
}

/// Limits on the rate of requests and of the bytes in their bodies. None is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests in a second.
    pub requests: Option<u64>,
    /// Bytes of request and response bodies together, in a second.
    pub bytes: Option<u64>,
}

/// A user of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name of its tenant.
    pub tenant: String,
    /// The tenant's canonical id.
    pub tenant_id: String,
    /// Its name within the tenant.
    pub name: String,
    /// Id drawn at its creation.
    pub id: String,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its role, which bounds its permissions.
    pub role: Role,
    /// Policy without principals that restricts it further. None grants all that the role does.
    #[serde(default)]
    pub policy: Option<String>,
    /// True if its keys are refused.
    #[serde(default)]
    pub disabled: bool,
}

/// Upper bound of a user's permissions, within those of its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// All of the tenant's permissions.
    #[default]
    Admin,
    /// Reads objects, writes and deletes them; can't change buckets.
    ReadWrite,
    /// Reads only.
    ReadOnly,
}

/// An access key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The access key id that requests carry.
    pub access_key: String,
    /// Its secret, as stored in the register.
    pub secret: Sealed,
    /// Name of its tenant.
    pub tenant: String,
    /// The tenant's canonical id.
    pub tenant_id: String,
    /// User that the key acts as; none for the whole tenant.
    pub user: Option<UserOf>,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of the last change of the secret, in milliseconds since 1970.
    pub rotated_ms: u64,
    /// True if the key is refused.
    #[serde(default)]
    pub disabled: bool,
    /// Networks that its requests may come from; all if empty.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// Rate limit of its requests, at each proxy.
    #[serde(default)]
    pub rate: Rate,
    /// View of buckets with checkpoint rules that its requests get by default.
    #[serde(default)]
    pub view: DefaultView,
}

/// View of a bucket with checkpoint rules that a key's requests get unless they name another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultView {
    /// The bucket itself.
    #[default]
    Bucket,
    /// The view of complete checkpoints.
    Committed,
}

/// The user of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserOf {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
}

/// Maps a canonical id to its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TenantOf {
    pub(super) canonical_id: String,
    pub(super) tenant: String,
    pub(super) display_name: String,
}

/// A document that is stored in a register.
pub(super) trait Kept:
    Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync
{
    /// Name of the kind, for messages.
    const KIND: &'static str;
    /// Prefix of the names of its registers.
    const FOLDER: &'static str;

    /// Its name after that prefix.
    fn path(&self) -> String;
}

impl Kept for Tenant {
    const KIND: &'static str = "tenant";
    const FOLDER: &'static str = "tenant/";

    fn path(&self) -> String {
        self.name.clone()
    }
}

impl Kept for User {
    const KIND: &'static str = "user";
    const FOLDER: &'static str = "user/";

    fn path(&self) -> String {
        format!("{}/{}", self.tenant, self.name)
    }
}

impl Kept for Key {
    const KIND: &'static str = "access key";
    const FOLDER: &'static str = "key/";

    fn path(&self) -> String {
        self.access_key.clone()
    }
}

impl Kept for TenantOf {
    const KIND: &'static str = "canonical id";
    const FOLDER: &'static str = "tenant-id/";

    fn path(&self) -> String {
        self.canonical_id.clone()
    }
}

impl DefaultView {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Committed => "committed",
        }
    }
}

impl FromStr for DefaultView {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Bucket, Self::Committed]
            .into_iter()
            .find(|view| view.name() == text)
            .ok_or_else(|| format!("{text:?} is not a view: write bucket or committed"))
    }
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Admin, Self::ReadWrite, Self::ReadOnly];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| format!("{text:?} is not a role: write admin, read-write or read-only"))
    }
}

/// Maximum length of a tenant's or user's name, in bytes. Principals name accounts by name or by
/// canonical id, so every name is shorter than the 64 digits of an id.
const NAME_BYTES_MAX: usize = 63;
const ACCESS_KEY_BYTES: std::ops::RangeInclusive<usize> = 3..=128;
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 8..=256;

/// Refuses malformed names of tenants, users and roles.
pub(super) fn check_name(kind: &str, name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    let is_right = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    if !is_right {
        return Err(Error::InvalidArgument(format!(
            "{name:?} can't be the name of a {kind}: use 1 to {NAME_BYTES_MAX} letters, digits and \
             _+=,.@-"
        )));
    }
    if name == ROOT {
        let taken = format!("a {kind} can't be named {ROOT}, which stands for the root key");
        return Err(Error::InvalidArgument(taken));
    }
    Ok(())
}

/// Returns true if `text` could be an access key. Other texts are never looked up.
pub(super) fn is_access_key(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/,=".contains(&byte);
    ACCESS_KEY_BYTES.contains(&text.len()) && text.bytes().all(is_plain)
}

/// Refuses a malformed access key or secret.
pub(super) fn check_credentials(access_key: &str, secret: &str) -> Result<()> {
    if !is_access_key(access_key) {
        return Err(Error::InvalidArgument(
            "an access key must have 3 to 128 visible ASCII characters without '/', ',' and '='"
                .into(),
        ));
    }
    if !SECRET_BYTES.contains(&secret.len()) || secret.chars().any(char::is_control) {
        return Err(Error::InvalidArgument(
            "a secret key must have 8 to 256 bytes, without control characters".into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_stand_in_the_names_of_principals() {
        for name in ["a", "team-7", "123456789012", "a.b@example.com", &"x".repeat(63)] {
            check_name("tenant", name).unwrap();
        }
        for name in ["", "root", "a b", "a/b", "a:b", "ü", "*", &"0".repeat(64)] {
            let refusal = check_name("tenant", name).unwrap_err().to_string();
            assert!(refusal.contains("tenant"), "{refusal}");
        }
    }

    #[test]
    fn given_credentials_may_come_from_elsewhere() {
        for key in ["AKIAIOSFODNN7EXAMPLE", "minioadmin", "a.b-c_d~e", "abc"] {
            check_credentials(key, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").unwrap();
        }
        for key in ["", "ab", "a/c", "a,c", "a=c", "a c", "aüc", &"x".repeat(129)] {
            assert!(!is_access_key(key), "{key}");
            assert!(check_credentials(key, "12345678").is_err(), "{key}");
        }
        for secret in ["", "1234567", "12345678\n", &"x".repeat(257)] {
            assert!(check_credentials("abc", secret).is_err(), "{secret:?}");
        }
    }

    #[test]
    fn roles_are_written_as_they_are_read() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        assert!("writer".parse::<Role>().unwrap_err().contains("write admin, read-write or"));
    }

    #[test]
    fn documents_of_earlier_versions_are_read() {
        let text =
            r#"{"name": "a", "canonical_id": "c", "display_name": "d", "created_ms": 1, "new": 2}"#;
        let tenant: Tenant = serde_json::from_str(text).unwrap();
        assert!(!tenant.disabled && tenant.networks.is_empty());
        assert!(tenant.quota.is_none() && tenant.rate == Rate::default());
    }
}
