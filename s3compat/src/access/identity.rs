//! Identities that signatures authenticate.

use std::net::IpAddr;
use std::sync::Arc;

use martlet_protocol::Network;
use martlet_proxy::{DefaultView, Holder, ROOT, Role};

use super::identity_policy::IdentityPolicy;
use super::subject::{SessionNames, UserNames};
use crate::limits::meter::Meters;
use crate::messages;
use crate::refusal::Refusal;

/// An account, or a user of one, with its restrictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountIdentity {
    /// Account as principals name it: a tenant's name.
    pub account: Box<str>,
    /// User within the account; the account's own name for the account itself.
    pub user: Box<str>,
    /// Id that the user got at its creation; `None` for the account itself and for sessions.
    pub(crate) user_id: Option<Box<str>>,
    /// Canonical id of the account, the owner of its buckets.
    pub canonical_id: Box<str>,
    /// Display name in S3's documents.
    pub display_name: Box<str>,
    /// Upper limit of its permissions, within those of its account.
    pub role: Role,
    /// Networks that requests may come from: the address must be in each list that isn't empty.
    pub(crate) networks: Vec<Vec<Network>>,
    /// Policy of the user or of the role, if any.
    pub(crate) own: Option<IdentityPolicy>,
    /// Session, if the identity is one.
    pub(crate) session: Option<RoleSession>,
    /// View of buckets with checkpoint rules that requests get by default.
    pub(crate) view: DefaultView,
    /// Meters of recent use.
    pub(crate) meters: Meters,
}

/// A session of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleSession {
    /// Name of the role.
    pub(crate) role: Box<str>,
    /// Id that the role got at its creation.
    pub(crate) role_id: Box<str>,
    /// Name of the session.
    pub(crate) name: Box<str>,
    /// Policy that further limits the session.
    pub(crate) policy: Option<IdentityPolicy>,
}

impl AccountIdentity {
    /// An account whose names and id are all `name`.
    pub fn named(name: &str) -> Self {
        Self {
            account: name.into(),
            user: name.into(),
            user_id: None,
            canonical_id: name.into(),
            display_name: name.into(),
            role: Role::Admin,
            networks: Vec::new(),
            own: None,
            session: None,
            view: DefaultView::default(),
            meters: Meters::default(),
        }
    }

    /// Identity of an access key's holder.
    pub fn of(holder: &Holder) -> Self {
        let Holder { key, tenant, user } = holder;
        Self {
            account: tenant.name.as_str().into(),
            user: user.as_ref().map_or(&tenant.name, |user| &user.name).as_str().into(),
            user_id: user.as_ref().map(|user| user.id.as_str().into()),
            canonical_id: tenant.canonical_id.as_str().into(),
            display_name: tenant.display_name.as_str().into(),
            role: user.as_ref().map_or(Role::Admin, |user| user.role),
            networks: vec![tenant.networks.clone(), key.networks.clone()],
            own: user.as_ref().and_then(|user| user.policy.as_deref()).map(IdentityPolicy::read),
            session: None,
            view: key.view,
            meters: Meters::default(),
        }
    }

    /// Names and ids that policies match.
    pub(super) fn names(&self) -> UserNames<'_> {
        let session = self.session.as_ref().map(|session| SessionNames {
            role: &session.role,
            role_id: &session.role_id,
            name: &session.name,
        });
        UserNames {
            account: &self.account,
            canonical_id: &self.canonical_id,
            user: &self.user,
            user_id: self.user_id.as_deref(),
            session,
        }
    }

    /// True for root, the account that may do everything.
    pub fn is_root(&self) -> bool {
        *self.canonical_id == *ROOT
    }

    /// True for an account itself, false for its users.
    pub fn is_account(&self) -> bool {
        self.account == self.user
    }

    /// Id in S3's documents and logs: an account's canonical id, a user's ARN.
    pub(crate) fn wire_id(&self) -> String {
        if self.is_account() { self.canonical_id.to_string() } else { self.arn() }
    }

    /// ARN; for a session, its role's ARN.
    pub(crate) fn arn(&self) -> String {
        let Self { account, user, session, .. } = self;
        match session {
            None => format!("arn:aws:iam::{account}:user/{user}"),
            Some(RoleSession { role, .. }) => format!("arn:aws:iam::{account}:role/{role}"),
        }
    }

    /// Refuses requests from outside its networks. An unknown address is in no network.
    pub(crate) fn check_source(&self, peer: Option<IpAddr>) -> Result<(), Refusal> {
        let is_in = |networks: &Vec<Network>| {
            networks.is_empty()
                || peer.is_some_and(|peer| networks.iter().any(|network| network.contains(peer)))
        };
        if self.networks.iter().all(is_in) {
            return Ok(());
        }
        Err(messages::ACCESS_DENIED.refusal())
    }
}

/// Identity of a request's sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An unsigned request.
    Anonymous,
    /// The holder of an access key.
    Known(Arc<AccountIdentity>),
}

impl Identity {
    /// The account called `name`.
    pub fn known(name: &str) -> Self {
        Self::Known(Arc::new(AccountIdentity::named(name)))
    }

    /// The holder; `None` if anonymous.
    pub fn who(&self) -> Option<&Arc<AccountIdentity>> {
        match self {
            Self::Anonymous => None,
            Self::Known(who) => Some(who),
        }
    }

    /// Canonical id that owns the buckets and objects that this identity creates; `None` if
    /// anonymous.
    pub fn name(&self) -> Option<&str> {
        self.who().map(|who| &*who.canonical_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    fn limited(tenant: &[&str], key: &[&str]) -> AccountIdentity {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        AccountIdentity {
            networks: vec![read(tenant), read(key)],
            ..AccountIdentity::named("alice")
        }
    }

    fn may_come(who: &AccountIdentity, from: &str) -> bool {
        who.check_source(Some(from.parse().unwrap())).is_ok()
    }

    #[test]
    fn requests_must_match_the_networks_of_tenant_and_key() {
        assert!(may_come(&limited(&[], &[]), "192.0.2.1"));
        let tenant = limited(&["10.0.0.0/8", "2001:db8::/32"], &[]);
        assert!(may_come(&tenant, "10.1.2.3") && may_come(&tenant, "2001:db8::1"));
        assert!(may_come(&tenant, "::ffff:10.1.2.3") && !may_come(&tenant, "192.0.2.1"));
        let both = limited(&["10.0.0.0/8"], &["10.7.0.0/16", "192.0.2.1"]);
        assert!(may_come(&both, "10.7.0.1"));
        assert!(!may_come(&both, "10.8.0.1") && !may_come(&both, "192.0.2.1"));
    }

    #[test]
    fn an_unknown_address_is_in_no_network() {
        assert!(limited(&[], &[]).check_source(None).is_ok());
        let refusal = limited(&[], &["0.0.0.0/0"]).check_source(None).unwrap_err();
        assert_eq!(refusal.code, Code::AccessDenied);
    }

    #[test]
    fn root_is_the_account_of_that_id() {
        assert!(
            AccountIdentity::named("root").is_root() && !AccountIdentity::named("alice").is_root()
        );
        let claimed =
            AccountIdentity { canonical_id: "c".into(), ..AccountIdentity::named("root") };
        assert!(!claimed.is_root() && claimed.is_account());
    }
}
