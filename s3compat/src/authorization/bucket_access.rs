//! Access of a principal to a bucket, by its owner, its policy and its access control list.
//!
//! Invariants:
//! * An unreadable policy allows nothing, except that the bucket's owner may read, replace or
//!   delete it.
//! * The bucket's owner can always read, replace and delete the policy, whatever the policy denies.
//! * If a public policy is restricted (`RestrictPublicBuckets`), only the owner has access.
//! * A principal with policies of its own needs an allow by those or by the bucket's policy in its
//!   own account's buckets, and by both in other buckets.
//! * A policy's Allow opens no object that another account owns: such objects have lists.
//! * Lists decide what no policy decides: the bucket's list, or the object's list once it is read.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;

use super::acl_settings::{AclSettings, Ownership};
use crate::access::{
    AclUse, Action, ConnectionNeeds, GrantSource, Permission, Policy, PolicyDecision, Question,
    Requester, ResourceArn,
};
use crate::bucket_documents::{AccessDocuments, BucketDocuments};

/// Result of an access check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessDecision {
    No,
    /// Allowed if the object's list grants it.
    ByObject,
    /// Allowed if the bucket's owner owns the object, or the object's list grants it.
    ByOwner,
    Yes,
}

impl AccessDecision {
    fn of(may: bool) -> Self {
        if may { Self::Yes } else { Self::No }
    }
}

/// Access of a principal to a bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketAccess {
    bucket: String,
    owner: String,
    is_owner: bool,
    /// True if the principal's role leaves it all rights of its account.
    is_whole: bool,
    documents: Arc<BucketDocuments>,
    /// Records that a list was needed.
    pub(crate) acl_use: AclUse,
}

impl BucketAccess {
    /// Evaluates the access of `requester` to a bucket.
    pub(crate) fn of(requester: &Requester, name: &str, bucket: &Bucket) -> Self {
        Self {
            bucket: name.to_owned(),
            owner: bucket.owner.clone(),
            is_owner: requester.owns(&bucket.owner),
            is_whole: requester.is_whole(),
            documents: BucketDocuments::of(name, bucket),
            acl_use: AclUse::default(),
        }
    }

    /// Name of the bucket.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Canonical id of the bucket's owner.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Settings that apply to lists.
    pub(crate) fn control(&self) -> AclSettings {
        self.documents.access.control
    }

    fn documents(&self) -> &AccessDocuments {
        &self.documents.access
    }

    /// Returns this access, with the need of lists recorded in `acl_use`.
    pub(crate) fn with_acl_use(self, acl_use: AclUse) -> Self {
        Self { acl_use, ..self }
    }

    /// Returns true if the principal may do everything, except what objects' lists decide.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_owner
            && self.is_whole
            && self.documents().policy.is_none()
            && !self.documents().is_unreadable
            && self.documents().acl.is_none()
    }

    /// Returns true if the principal may do nothing, whatever the request.
    pub(crate) fn has_no_access(&self) -> bool {
        let is_alone = self.documents().policy.is_none() && self.control().is_enforced();
        !self.is_owner && (is_alone || self.documents().is_closed || self.documents().is_unreadable)
    }

    /// Returns true if some policy or list could allow all of these actions.
    pub(crate) fn may_ever(&self, requester: &Requester, actions: &[Action]) -> bool {
        let is_new = actions.contains(&Action::PutObject);
        let may = |action: &Action| {
            (is_new && *action == Action::PutObjectTagging)
                || self.grants(requester, *action) != AccessDecision::No
        };
        self.is_owner || self.documents().policy.is_some() || actions.iter().all(may)
    }

    /// Returns true if the bucket's policy or list could allow this action to `stranger`.
    pub(crate) fn may_allow(&self, stranger: &Requester, action: Action) -> bool {
        let by_policy = self
            .documents()
            .policy
            .as_ref()
            .is_some_and(|one| one.may_allow(&stranger.subject(), action));
        !self.has_no_access() && (by_policy || self.grants(stranger, action) != AccessDecision::No)
    }

    /// Evaluates an action on a resource.
    pub(crate) fn allows(&self, question: &Question<'_>) -> AccessDecision {
        use Action::{DeleteBucketPolicy, GetBucketPolicy, PutBucketPolicy};
        let own = question.requester.own_verdict(question);
        if own == Some(PolicyDecision::Deny) {
            return AccessDecision::No;
        }
        if self.is_owner
            && own.is_none()
            && matches!(question.action, DeleteBucketPolicy | GetBucketPolicy | PutBucketPolicy)
        {
            return AccessDecision::Yes;
        }
        if self.documents().is_unreadable {
            return AccessDecision::No;
        }
        let is_silent = own == Some(PolicyDecision::Undecided);
        match self.evaluate_policy(question) {
            PolicyDecision::Deny => AccessDecision::No,
            _ if self.documents().is_closed && !self.is_owner => AccessDecision::No,
            // In a bucket of another account, both sides must allow the action.
            _ if is_silent && !self.is_owner => AccessDecision::No,
            PolicyDecision::Allow => self.allowed(question.action),
            PolicyDecision::Undecided if is_silent => AccessDecision::No,
            PolicyDecision::Undecided => self.by_lists(question.requester, question.action),
        }
    }

    /// Evaluates if a new object may have tags. Lists grant nothing about tags: a list that allows
    /// the write also allows tags, unless a policy denies them.
    pub(crate) fn allows_new_tags(&self, question: &Question<'_>) -> AccessDecision {
        let is_open = !self.documents().is_unreadable
            && (self.is_owner || !self.documents().is_closed)
            && question.action == Action::PutObjectTagging
            && question.requester.own_verdict(question).is_none()
            && self.evaluate_policy(question) == PolicyDecision::Undecided;
        if is_open {
            self.by_lists(question.requester, Action::PutObject)
        } else {
            AccessDecision::No
        }
    }

    /// Result of a policy's Allow. The policy is the bucket owner's, so it opens only objects of
    /// that owner. Other objects are opened by lists.
    fn allowed(&self, action: Action) -> AccessDecision {
        let is_on_object = matches!(action.granted(), GrantSource::OnObject(_));
        if is_on_object && !self.control().is_enforced() {
            AccessDecision::ByOwner
        } else {
            AccessDecision::Yes
        }
    }

    fn evaluate_policy(&self, question: &Question<'_>) -> PolicyDecision {
        self.documents()
            .policy
            .as_ref()
            .map_or(PolicyDecision::Undecided, |one| one.evaluate(&question.of_policy()))
    }

    /// Evaluates the lists where nothing else has decided, and records their need. Owners need no
    /// list.
    fn by_lists(&self, requester: &Requester, action: Action) -> AccessDecision {
        let answer = self.grants(requester, action);
        if answer == AccessDecision::Yes && !self.is_owner {
            self.acl_use.set();
        }
        answer
    }

    /// Evaluates the lists.
    fn grants(&self, requester: &Requester, action: Action) -> AccessDecision {
        match action.granted() {
            GrantSource::ToOwner => AccessDecision::of(self.is_owner),
            GrantSource::OnObject(_) if self.control().is_enforced() => {
                AccessDecision::of(self.is_owner)
            }
            GrantSource::OnObject(_) => AccessDecision::ByObject,
            GrantSource::OnBucket(wanted) => AccessDecision::of(match &self.documents().acl {
                None => self.is_owner,
                Some(acl) => acl.allows(requester, wanted, self.control().ignores_public),
            }),
        }
    }

    /// Permissions that these actions need from objects' lists. Empty if lists are disabled.
    pub(crate) fn needed_permissions(
        &self,
        actions: impl Iterator<Item = Action>,
    ) -> Vec<Permission> {
        if self.control().is_enforced() {
            return Vec::new();
        }
        let of_object = |action: Action| match action.granted() {
            GrantSource::OnObject(permission) => Some(permission),
            GrantSource::ToOwner | GrantSource::OnBucket(_) => None,
        };
        actions.filter_map(of_object).collect()
    }

    /// Owner of an object that `requester` writes. Objects of anonymous requests, of log delivery
    /// and of root belong to the bucket's owner.
    pub(crate) fn owner_of_new<'a>(
        &'a self,
        requester: &'a Requester,
        gives_away: bool,
    ) -> &'a str {
        match (requester, self.control().ownership) {
            (Requester::Anonymous | Requester::LogDelivery, _) | (_, Ownership::Enforced) => {
                &self.owner
            }
            (_, Ownership::Preferred) if gives_away => &self.owner,
            (Requester::User(_), _) if self.is_owner => &self.owner,
            (Requester::User(who), _) => &who.canonical_id,
        }
    }

    /// Returns true if the policy has conditions or variables that apply to this object or to the
    /// bucket. Without an object: to any object.
    pub(crate) fn reads_context(&self, object: Option<&ResourceArn>) -> bool {
        self.documents().policy.as_ref().is_some_and(|policy| match object {
            None => policy.reads_context(),
            Some(object) => policy.reads_context_of(object),
        })
    }

    /// Returns the properties of the connection that the policy depends on.
    pub(crate) fn connection_needs(&self) -> ConnectionNeeds {
        self.documents().policy.as_ref().map(Policy::connection_needs).unwrap_or_default()
    }

    /// Returns true if the policy has conditions on the tags of the existing object.
    pub(crate) fn reads_existing_tags(&self) -> bool {
        self.documents().policy.as_ref().is_some_and(Policy::reads_existing_tags)
    }
}

#[cfg(test)]
mod tests;
