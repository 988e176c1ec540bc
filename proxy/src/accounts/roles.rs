//! Session roles: permissions for a limited time, and the principals that may assume them.
//!
//! Policies are stored as text. The layer that authorizes requests evaluates them.

use serde::{Deserialize, Serialize};

use super::records::{Kept, Tenant};
use crate::error::{Error, Result};

/// Allowed session lengths, in seconds.
pub const SESSION_S: std::ops::RangeInclusive<u32> = 900..=43_200;
/// Session length of requests that name none, in seconds.
pub const SESSION_S_DEFAULT: u32 = 3600;

/// A role of a tenant that principals assume for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRole {
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
    /// Policy without principals that defines its permissions.
    pub policy: String,
    /// Trust policy: principals that may assume the role; none for the tenant's own keys only.
    #[serde(default)]
    pub trust: Option<String>,
    /// Ids of the principals that the trust policy names, as of the time when it was set.
    #[serde(default)]
    pub trust_ids: Option<String>,
    /// Maximum length of a session, in seconds.
    pub session_s_max: u32,
    /// True if the role and its open sessions are refused.
    #[serde(default)]
    pub disabled: bool,
}

impl Kept for SessionRole {
    const KIND: &'static str = "role";
    const FOLDER: &'static str = "role/";

    fn path(&self) -> String {
        format!("{}/{}", self.tenant, self.name)
    }
}

/// An enabled role and its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleOf {
    /// The role.
    pub role: SessionRole,
    /// Its tenant.
    pub tenant: Tenant,
}

impl RoleOf {
    /// Returns the role if it and the tenant that created it are enabled.
    pub(super) fn of(role: SessionRole, tenant: Option<Tenant>) -> Option<Self> {
        let tenant = tenant.filter(|it| !it.disabled && it.canonical_id == role.tenant_id)?;
        (!role.disabled).then_some(Self { role, tenant })
    }
}

/// Refuses maximum session lengths outside [`SESSION_S`].
pub(super) fn check_session(session_s_max: u32) -> Result<()> {
    if SESSION_S.contains(&session_s_max) {
        return Ok(());
    }
    let (least, most) = (SESSION_S.start(), SESSION_S.end());
    Err(Error::InvalidArgument(format!(
        "the maximum session duration of a role must be {least} to {most} seconds"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::cache::CachedPrincipal;

    fn role() -> SessionRole {
        SessionRole {
            tenant: "t".into(),
            tenant_id: "c1".into(),
            name: "r".into(),
            id: "r1".into(),
            created_ms: 1,
            policy: "{}".into(),
            trust: None,
            trust_ids: None,
            session_s_max: SESSION_S_DEFAULT,
            disabled: false,
        }
    }

    fn tenant(canonical_id: &str, disabled: bool) -> Tenant {
        Tenant {
            name: "t".into(),
            canonical_id: canonical_id.into(),
            display_name: "T".into(),
            created_ms: 1,
            disabled,
            networks: Vec::new(),
            quota: martlet_protocol::Quota::default(),
            rate: crate::Rate::default(),
        }
    }

    #[test]
    fn a_role_is_its_own_tenants_while_both_are_enabled() {
        assert!(RoleOf::of(role(), Some(tenant("c1", false))).is_some());
        assert!(RoleOf::of(role(), None).is_none());
        assert!(RoleOf::of(role(), Some(tenant("c1", true))).is_none());
        assert!(RoleOf::of(role(), Some(tenant("c2", false))).is_none(), "it has the name alone");
        let off = SessionRole { disabled: true, ..role() };
        assert!(RoleOf::of(off, Some(tenant("c1", false))).is_none());
    }

    #[test]
    fn impossible_role_names_need_no_read() {
        assert!(RoleOf::is_name("t/r") && !RoleOf::is_name("t") && !RoleOf::is_name("t/r/s"));
        assert!(!RoleOf::is_name("t/ r") && !RoleOf::is_name(&format!("t/{}", "r".repeat(200))));
        assert!(check_session(900).is_ok() && check_session(899).is_err());
        assert!(check_session(43_200).is_ok() && check_session(43_201).is_err());
    }
}
