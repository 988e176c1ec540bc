//! Principals of requests.

use std::sync::Arc;

use martlet_proxy::Role;

use super::action::{Action, ResourceKind};
use super::connection_needs::ConnectionNeeds;
use super::context::Context;
use super::identity::AccountIdentity;
use super::identity_policy::IdentityPolicy;
use super::policy::PolicyDecision;
use super::question::PolicyQuestion;
use super::subject::Subject;

/// Principal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// An unsigned request.
    Anonymous,
    /// An account, or a user of one.
    User(Arc<AccountIdentity>),
    /// The store itself, when it delivers the access logs of buckets.
    LogDelivery,
}

impl Requester {
    /// The account `name`.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self::User(Arc::new(AccountIdentity::named(name)))
    }

    /// True if the requester's role permits the action, whatever else decides.
    pub(crate) fn has_role_for(&self, action: Action) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => true,
            Self::User(who) => role_allows(who.role, action),
        }
    }

    /// True if the requester may do everything that its account may: no lesser role, no policy of
    /// its own and no session.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => true,
            Self::User(who) => {
                who.role == Role::Admin && who.own.is_none() && who.session.is_none()
            }
        }
    }

    /// Verdict of the policies that the requester carries; `None` if it carries none. A session's
    /// own policy must allow the action, otherwise the verdict is Deny. If so, the policy of the
    /// role or user decides.
    pub(crate) fn own_verdict(&self, question: &Question<'_>) -> Option<PolicyDecision> {
        let Self::User(who) = self else { return None };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        if limit.is_none() && who.own.is_none() {
            return None;
        }
        let question = question.of_policy();
        if limit.is_some_and(|policy| policy.evaluate(&question) != PolicyDecision::Allow) {
            return Some(PolicyDecision::Deny);
        }
        who.own.as_ref().map(|policy| policy.evaluate(&question))
    }

    /// True if evaluating these policies needs the tags of the existing object.
    pub(crate) fn reads_existing_tags(&self) -> bool {
        let Self::User(who) = self else { return false };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        who.own.iter().chain(limit).any(IdentityPolicy::reads_existing_tags)
    }

    /// Properties of the connection that evaluating these policies needs.
    pub(crate) fn connection_needs(&self) -> ConnectionNeeds {
        let Self::User(who) = self else { return ConnectionNeeds::default() };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        who.own.iter().chain(limit).map(IdentityPolicy::connection_needs).collect()
    }

    /// True if evaluating these policies needs values of the request.
    pub(crate) fn reads_context(&self) -> bool {
        let Self::User(who) = self else { return false };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        who.own.iter().chain(limit).any(IdentityPolicy::reads_context)
    }

    /// True if the requester is this owner, or root, which owns everything.
    pub(crate) fn owns(&self, owner: &str) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => false,
            Self::User(who) => *who.canonical_id == *owner || who.is_root(),
        }
    }

    /// Requester as principals of policies match it.
    pub(crate) fn subject(&self) -> Subject<'_> {
        match self {
            Self::Anonymous => Subject::Anonymous,
            Self::LogDelivery => Subject::LogDelivery,
            Self::User(who) => Subject::User(who.names()),
        }
    }

    /// ARN of the requester; `None` for anonymous requests and log delivery.
    pub(crate) fn arn(&self) -> Option<String> {
        match self {
            Self::Anonymous | Self::LogDelivery => None,
            Self::User(who) => Some(who.arn()),
        }
    }
}

/// A request for policies and lists to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// Principal of the request.
    pub(crate) requester: &'a Requester,
    /// Requested action.
    pub(crate) action: Action,
    /// ARN of the resource of the action: of a bucket, an object or an account.
    pub(crate) arn: &'a str,
    /// True if the action is about an object that the request makes, false for one that is there.
    pub(crate) is_new: bool,
    /// Condition keys of the request.
    pub(crate) context: &'a Context,
}

impl<'a> Question<'a> {
    /// Question for one policy.
    pub(crate) fn of_policy(&self) -> PolicyQuestion<'a> {
        let Self { requester, action, arn, is_new, context } = *self;
        PolicyQuestion { subject: requester.subject(), action, arn, is_new, context }
    }
}

/// Object actions that the read-write role excludes: they change the access of others, or protect
/// objects from deletion.
const BEYOND_WRITING: [Action; 8] = [
    Action::BypassGovernanceRetention,
    Action::ObjectOwnerOverrideToBucketOwner,
    Action::PutObjectAcl,
    Action::PutObjectLegalHold,
    Action::PutObjectRetention,
    Action::PutObjectVersionAcl,
    Action::ReplicateDelete,
    Action::ReplicateObject,
];

/// True if a role permits an action, within the limits of its account.
fn role_allows(role: Role, action: Action) -> bool {
    let is_reading = || {
        let name = action.name();
        name.starts_with("s3:Get") || name.starts_with("s3:List") || name.starts_with("martlet:Get")
    };
    // Roles are about buckets and objects: a reader may replace a key that was lost.
    if action.is_of_account() {
        return true;
    }
    let is_writing = || {
        // Commits and withdrawals concern objects that a policy may deny by key.
        action == Action::HoldCheckpoint
            || action.scope() == ResourceKind::Object && !BEYOND_WRITING.contains(&action)
    };
    match role {
        Role::Admin => true,
        Role::ReadWrite => is_reading() || is_writing(),
        Role::ReadOnly => is_reading(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_allow_the_actions_of_their_names() {
        let allows = |role, action| role_allows(role, action);
        for action in Action::ALL {
            assert!(allows(Role::Admin, *action));
            assert!(!allows(Role::ReadOnly, *action) || allows(Role::ReadWrite, *action));
        }
        for action in [Action::GetObject, Action::ListBucket, Action::ListAllMyBuckets] {
            assert!(allows(Role::ReadOnly, action), "{action:?}");
        }
        for action in [Action::PutObject, Action::DeleteObject, Action::PutObjectTagging] {
            assert!(
                !allows(Role::ReadOnly, action) && allows(Role::ReadWrite, action),
                "{action:?}"
            );
        }
        for action in [
            Action::CreateBucket,
            Action::DeleteBucket,
            Action::PutBucketPolicy,
            Action::PutObjectAcl,
            Action::BypassGovernanceRetention,
        ] {
            assert!(!allows(Role::ReadWrite, action), "{action:?}");
        }
    }
}
