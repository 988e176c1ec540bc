//! Keys of the admin API. A key has no stored secret: the layer that authenticates derives it from
//! the key's id. Roles are stored as text, which that layer interprets.

use serde::{Deserialize, Serialize};

use super::records::{Kept, Tenant};

/// Maximum number of sessions of a key that are listed as ended. Beyond it, all sessions that began
/// earlier end.
const ENDED_MAX: usize = 64;

/// Key of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminKey {
    /// Its id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Its role, as text.
    pub role: String,
    /// Tenant of a tenant admin.
    pub tenant: Option<TenantName>,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time from which the key is refused; none for no end.
    #[serde(default)]
    pub expires_ms: Option<u64>,
    /// Sessions that began earlier are refused, in milliseconds since 1970.
    #[serde(default)]
    pub sessions_from_ms: u64,
    /// Sessions that have ended before their time.
    #[serde(default)]
    pub ended: Vec<EndedSession>,
}

/// Tenant of a key, by name and by the id that is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantName {
    /// Its name.
    pub name: String,
    /// Its canonical id.
    pub canonical_id: String,
}

/// Session that ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSession {
    /// Id of the session.
    pub id: String,
    /// Time at which the session would have ended, in milliseconds since 1970.
    pub expires_ms: u64,
}

impl AdminKey {
    /// Ends a session. Sessions whose time is over leave the list.
    pub(super) fn end_session(&mut self, session: &EndedSession, now_ms: u64) {
        self.ended.retain(|ended| ended.expires_ms > now_ms && ended.id != session.id);
        self.ended.push(session.clone());
        if self.ended.len() > ENDED_MAX {
            self.ended.clear();
            self.sessions_from_ms = now_ms.saturating_add(1);
        }
    }

    /// Returns true if a session of this key may go on.
    pub fn permits(&self, session: &str, began_ms: u64) -> bool {
        began_ms >= self.sessions_from_ms && self.ended.iter().all(|ended| ended.id != session)
    }

    /// Returns the key if the tenant that it was made for exists and is enabled.
    pub(super) fn under(self, tenant: Option<&Tenant>) -> Option<Self> {
        let Some(of) = &self.tenant else { return Some(self) };
        let is_its = |it: &Tenant| !it.disabled && it.canonical_id == of.canonical_id;
        tenant.is_some_and(is_its).then_some(self)
    }
}

impl Kept for AdminKey {
    const KIND: &'static str = "admin key";
    const FOLDER: &'static str = "admin-key/";

    fn path(&self) -> String {
        self.id.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: Option<&str>) -> AdminKey {
        let tenant = tenant.map(|id| TenantName { name: "t".into(), canonical_id: id.into() });
        AdminKey {
            id: "K1".into(),
            name: "k".into(),
            role: "viewer".into(),
            tenant,
            created_ms: 1,
            expires_ms: None,
            sessions_from_ms: 0,
            ended: Vec::new(),
        }
    }

    fn session(number: usize, expires_ms: u64) -> EndedSession {
        EndedSession { id: format!("s{number}"), expires_ms }
    }

    #[test]
    fn ended_sessions_are_listed_until_their_time_is_over() {
        let mut key = key(None);
        key.end_session(&session(1, 100), 10);
        key.end_session(&session(1, 100), 11);
        assert!(!key.permits("s1", 5) && key.permits("s2", 5));
        key.end_session(&session(2, 300), 100);
        assert_eq!(key.ended, [session(2, 300)], "the time of the first one is over");
    }

    #[test]
    fn a_long_list_ends_all_earlier_sessions() {
        let mut key = key(None);
        for number in 0..=ENDED_MAX {
            key.end_session(&session(number, 1000), 10);
        }
        assert!(key.ended.is_empty());
        assert!(!key.permits("s0", 10) && !key.permits("another", 9));
        assert!(key.permits("later", 11));
    }

    #[test]
    fn a_key_of_a_tenant_needs_the_tenant_that_it_was_made_for() {
        let tenant = |canonical_id: &str, disabled| Tenant {
            name: "t".into(),
            canonical_id: canonical_id.into(),
            display_name: "T".into(),
            created_ms: 1,
            disabled,
            networks: Vec::new(),
            quota: martlet_protocol::Quota::default(),
            rate: crate::Rate::default(),
        };
        assert!(key(None).under(None).is_some());
        assert!(key(Some("c1")).under(Some(&tenant("c1", false))).is_some());
        for other in [None, Some(tenant("c2", false)), Some(tenant("c1", true))] {
            assert!(key(Some("c1")).under(other.as_ref()).is_none());
        }
    }
}
