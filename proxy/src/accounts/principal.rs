//! Principals of access keys.

use super::records::{Key, Tenant, User};

/// An account as principals in policies name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountOf {
    /// Its name.
    pub name: String,
    /// Drawn at its creation; never used again.
    pub canonical_id: String,
}

/// A valid access key and its principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The key.
    pub key: Key,
    /// Tenant that owns the key.
    pub tenant: Tenant,
    /// User that the key acts as; none for the whole tenant.
    pub user: Option<User>,
}

impl Holder {
    /// The principal of a key, if the key, its tenant and its user are enabled. Their ids must
    /// match: a later tenant or user of an equal name doesn't count.
    pub(super) fn of(key: Key, tenant: Option<Tenant>, user: Option<User>) -> Option<Self> {
        let tenant = tenant.filter(|it| !it.disabled && it.canonical_id == key.tenant_id)?;
        let user = match &key.user {
            None => None,
            Some(of) => Some(
                user.filter(|it| !it.disabled && it.id == of.id && it.tenant_id == key.tenant_id)?,
            ),
        };
        (!key.disabled).then_some(Self { key, tenant, user })
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::{DefaultView, Rate, Role, UserOf};
    use super::*;
    use crate::keyring::Vault;

    fn tenant() -> Tenant {
        Tenant {
            name: "t".into(),
            canonical_id: "c1".into(),
            display_name: "T".into(),
            created_ms: 1,
            disabled: false,
            networks: Vec::new(),
            quota: martlet_protocol::Quota::default(),
            rate: Rate::default(),
        }
    }

    fn user() -> User {
        User {
            tenant: "t".into(),
            tenant_id: "c1".into(),
            name: "u".into(),
            id: "u1".into(),
            created_ms: 1,
            role: Role::ReadOnly,
            policy: None,
            disabled: false,
        }
    }

    fn key(user: Option<&str>) -> Key {
        Key {
            access_key: "AKID".into(),
            secret: Vault::default().seal("secret", "x"),
            tenant: "t".into(),
            tenant_id: "c1".into(),
            user: user.map(|id| UserOf { name: "u".into(), id: id.into() }),
            created_ms: 1,
            rotated_ms: 1,
            disabled: false,
            networks: Vec::new(),
            rate: Rate::default(),
            view: DefaultView::default(),
        }
    }

    #[test]
    fn an_admin_key_is_limited_to_its_tenant() {
        assert!(Holder::of(key(None), Some(tenant()), None).is_some());
        let holder = Holder::of(key(Some("u1")), Some(tenant()), Some(user())).unwrap();
        assert_eq!(holder.user, Some(user()));
        assert!(Holder::of(key(None), None, None).is_none());
        assert!(Holder::of(key(Some("u1")), Some(tenant()), None).is_none());
        let another = Tenant { canonical_id: "c2".into(), ..tenant() };
        assert!(Holder::of(key(None), Some(another), None).is_none(), "it has the name alone");
        assert!(Holder::of(key(Some("u0")), Some(tenant()), Some(user())).is_none(), "so does he");
        let left = User { tenant_id: "c0".into(), ..user() };
        assert!(Holder::of(key(Some("u1")), Some(tenant()), Some(left)).is_none(), "another's");
    }

    #[test]
    fn disabled_principals_are_denied() {
        let off = Key { disabled: true, ..key(None) };
        assert!(Holder::of(off, Some(tenant()), None).is_none());
        let off = Tenant { disabled: true, ..tenant() };
        assert!(Holder::of(key(None), Some(off), None).is_none());
        let off = User { disabled: true, ..user() };
        assert!(Holder::of(key(Some("u1")), Some(tenant()), Some(off)).is_none());
    }
}
