//! Judgement of the actions of a request on one resource, by policies and lists.

use std::sync::Arc;

use martlet_proxy::ObjectName;
use s3s::S3Result;

use super::bucket_access::{AccessDecision, BucketAccess};
use super::object_acl::ObjectAclGuard;
use super::object_guard::{JudgedTags, ObjectGuard};
use crate::access::{Action, Context, Question, Requester, ResourceArn, ResourceKind};
use crate::errors::denied;
use crate::few::Few;

/// Tags of an object: names and values.
pub(super) type ObjectTags = Vec<(String, String)>;

/// Object of a check.
#[derive(Clone, Copy)]
pub(crate) struct CheckedObject<'a> {
    /// Object as policies name it.
    pub(crate) name: ObjectName<'a>,
    /// Object that the request reads, whose tags count: that of a view may have another version. None if
    /// there is no such object.
    pub(crate) read: Option<ObjectName<'a>>,
}

impl<'a> From<ObjectName<'a>> for CheckedObject<'a> {
    fn from(name: ObjectName<'a>) -> Self {
        Self { name, read: Some(name) }
    }
}

/// Actions of a request on one resource.
#[derive(Clone)]
pub(super) struct Judgement {
    pub(super) requester: Arc<Requester>,
    pub(super) access: Arc<BucketAccess>,
    pub(super) actions: Few<Action>,
    /// Resource of actions on objects: the object, or the bucket without a key.
    pub(super) resource: ResourceArn,
    /// Condition keys, without the tags of the existing object.
    pub(super) context: Context,
}

impl Judgement {
    /// True if the request makes the object. Its writer may set list and tags, unless a policy denies
    /// that.
    pub(super) fn is_new(&self) -> bool {
        self.actions.contains(&Action::PutObject)
    }

    /// Judges each action, given the tags of the existing object.
    pub(super) fn answers(&self, tags: &ObjectTags) -> Few<AccessDecision> {
        let (requester, access, is_new) = (&*self.requester, &*self.access, self.is_new());
        let mut tagged = None;
        if !tags.is_empty() {
            let tags = tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            tagged.insert(self.context.clone()).set_existing(tags);
        }
        let context = tagged.as_ref().unwrap_or(&self.context);
        let answer = |action: Action| {
            let arn = match action.scope() {
                ResourceKind::Object => self.resource.as_str(),
                ResourceKind::Bucket | ResourceKind::Service => self.resource.bucket(),
            };
            if !requester.has_role_for(action) {
                return AccessDecision::No;
            }
            let question = Question { requester, action, arn, is_new, context };
            match access.allows(&question) {
                AccessDecision::ByObject | AccessDecision::ByOwner if is_new => AccessDecision::Yes,
                AccessDecision::No if is_new => access.allows_new_tags(&question),
                answer => answer,
            }
        };
        self.actions.map(answer)
    }

    /// Judges each action by these tags; none if policies judge no tags.
    pub(super) fn judged(self, tags: Option<ObjectTags>) -> Judged {
        let none = ObjectTags::new();
        let answers = self.answers(tags.as_ref().unwrap_or(&none));
        Judged { judgement: self, tags, answers }
    }
}

/// Actions with their decisions.
pub(super) struct Judged {
    judgement: Judgement,
    /// Tags that were judged; none if policies judge no tags.
    tags: Option<ObjectTags>,
    answers: Few<AccessDecision>,
}

impl Judged {
    /// Returns true if all actions are allowed, whatever the object's list has.
    pub(super) fn is_allowed(&self) -> bool {
        self.answers.iter().all(|answer| *answer == AccessDecision::Yes)
    }

    /// Refuses denied actions. Returns a guard for what the object itself decides: by its list, and by
    /// the tags that it has when it is read.
    pub(super) fn into_guard(self) -> S3Result<Option<Arc<ObjectGuard>>> {
        let Self { judgement, tags, answers } = self;
        if answers.contains(&AccessDecision::No) {
            return Err(denied());
        }
        let of = |wanted: AccessDecision| {
            let both = judgement.actions.iter().zip(&*answers);
            both.filter(move |(_, answer)| **answer == wanted).map(|(action, _)| *action)
        };
        let (by_object, by_owner) = (of(AccessDecision::ByObject), of(AccessDecision::ByOwner));
        let Judgement { requester, access, .. } = &judgement;
        let list = ObjectAclGuard::of(requester, access, by_object, by_owner);
        let is_new = judgement.is_new();
        let tags = tags.filter(|_| !is_new);
        let tags = tags.map(|tags| JudgedTags { judgement, tags, answers });
        Ok(ObjectGuard::of(list, tags))
    }
}
