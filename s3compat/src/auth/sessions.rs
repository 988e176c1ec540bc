//! Sessions of roles: their credentials, under the current state of the role.
//!
//! Invariants:
//! * A session's requests are judged by its role's current policy, at most a second old.
//! * Three changes end a session within a second. Its role or tenant is disabled or deleted. The
//!   key that began it, or that key's holder, is disabled or deleted. The key gets another secret.
//! * A session's requests must come from the networks of both its tenant and the key that began it.

use std::sync::Arc;

use martlet_proxy::{Accounts, KeyCache, RoleOf};

use super::access_keys::AccessKeys;
use super::credential::Credential;
use super::providers::IdentityProvider;
use super::session_token::{SessionKey, SessionToken};
use super::signature::unknown_key;
use crate::access::{
    AccountIdentity, AssumeMethod, AssumeRequest, Bindings, Identity, IdentityPolicy, Requester,
    RoleSession, Trust,
};
use crate::messages;
use crate::refusal::Refusal;

/// State that sessions depend on.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) key: SessionKey,
    /// Accounts of the holders of keys.
    pub(crate) accounts: Accounts,
    roles: KeyCache<ParsedRole, RoleOf>,
    pub(crate) providers: Vec<IdentityProvider>,
}

/// A parsed role.
#[derive(Debug)]
pub(crate) struct ParsedRole {
    pub(crate) of: RoleOf,
    policy: IdentityPolicy,
    /// `None` trusts the tenant's own keys. An error is an unreadable document, which trusts no
    /// principal.
    trust: Option<Result<Trust, ()>>,
}

impl ParsedRole {
    fn of(of: &RoleOf) -> Self {
        let trust = of.role.trust.as_deref().map(|text| {
            let trust = Trust::parse(text).map_err(|error| {
                tracing::error!(role = of.role.name, %error, "could not read a trust document");
            })?;
            let ids = of.role.trust_ids.as_deref().map(str::as_bytes);
            Ok(trust.bound(Bindings::decode(ids, text.as_bytes()).as_ref()))
        });
        Self { of: of.clone(), policy: IdentityPolicy::read(&of.role.policy), trust }
    }

    /// True if the role's trust document permits the request.
    pub(crate) fn admits(&self, taker: AssumeRequest<'_>) -> bool {
        match &self.trust {
            Some(Ok(trust)) => trust.admits(taker),
            Some(Err(())) => false,
            None => {
                let Requester::User(who) = taker.requester else { return false };
                taker.way == AssumeMethod::AssumeRole
                    && taker.requester.owns(&self.of.role.tenant_id)
                    && taker.requester.is_whole()
                    && who.is_account()
            }
        }
    }
}

impl Sessions {
    pub(crate) fn new(
        accounts: Accounts,
        key: SessionKey,
        providers: Vec<IdentityProvider>,
    ) -> Self {
        let roles = KeyCache::new(accounts.clone(), |of: &RoleOf, _: &str| ParsedRole::of(of));
        Self { key, accounts, roles, providers }
    }

    /// Role by tenant and name, if it exists.
    pub(crate) async fn role(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<Arc<ParsedRole>>, Refusal> {
        let path = format!("{tenant}/{name}");
        if let Some(role) = self.roles.get(&path) {
            return Ok(Some(role));
        }
        Box::pin(self.roles.find(&path)).await.map_err(|_| Refusal::try_again())
    }

    /// Credential of a session's access key, from the session's token.
    ///
    /// # Errors
    /// An invalid or expired token, or a session that has ended.
    pub(crate) async fn credential(
        &self,
        keys: &AccessKeys,
        access_key: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<Arc<Credential>, Refusal> {
        let ticket = self.key.open(token).filter(|ticket| ticket.access_key == access_key);
        let ticket = ticket.ok_or_else(Refusal::invalid_token)?;
        if now_ms >= ticket.expires_ms {
            return Err(messages::EXPIRED_TOKEN.refusal());
        }
        let role = self.role(&ticket.tenant, &ticket.role).await?;
        let role = role.filter(|role| role.of.role.id == ticket.role_id);
        let role = role.ok_or_else(|| unknown_key(access_key))?;
        let mut who = who(&ticket, &role);
        let meters = |began| keys.meters().of_session(&role.of.tenant, began);
        if let Some(source) = &ticket.source {
            let credential = keys.any(&source.access_key).await?;
            let began = credential.as_ref().filter(|it| self.key.mark(it.secret()) == source.mark);
            let began = began.and_then(|it| it.identity().who());
            let began = began.filter(|began| {
                *began.canonical_id == *source.canonical_id && *began.user == *source.user
            });
            let began = began.ok_or_else(|| unknown_key(access_key))?;
            who.networks.extend(began.networks.iter().cloned());
            who.view = began.view;
            who.meters = meters(Some(&began.meters));
        } else {
            who.meters = meters(None);
        }
        let identity = Identity::Known(Arc::new(who));
        Ok(Arc::new(Credential::new(access_key, self.key.secret(access_key), identity)))
    }
}

/// Identity of a session.
fn who(ticket: &SessionToken, role: &ParsedRole) -> AccountIdentity {
    let tenant = &role.of.tenant;
    AccountIdentity {
        user: user_id(role, &ticket.name).into(),
        canonical_id: tenant.canonical_id.as_str().into(),
        display_name: tenant.display_name.as_str().into(),
        networks: vec![tenant.networks.clone()],
        own: Some(role.policy.clone()),
        session: Some(RoleSession {
            role: ticket.role.as_str().into(),
            role_id: ticket.role_id.as_str().into(),
            name: ticket.name.as_str().into(),
            policy: ticket.policy.as_deref().map(IdentityPolicy::read),
        }),
        ..AccountIdentity::named(&tenant.name)
    }
}

/// User name of a session within its tenant. No user's name has a colon.
pub(crate) fn user_id(role: &ParsedRole, session: &str) -> String {
    format!("AROA{}:{session}", role.of.role.id.to_ascii_uppercase())
}
