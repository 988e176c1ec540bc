//! Guard of the objects that a request reads: by their lists, and by the tags that policies judge.
//!
//! A check before the operation reads an object's tags, and the operation reads the object itself. In
//! between the object may be replaced, so the guard judges the tags of the object that is served.

use std::sync::Arc;

use martlet_protocol::entry::Object;
use martlet_proxy::Guard;

use super::bucket_access::AccessDecision;
use super::judgement::{Judgement, ObjectTags};
use super::object_acl::ObjectAclGuard;
use crate::few::Few;

/// Guard that admits a requester by an object's list and tags.
pub(crate) struct ObjectGuard {
    list: Option<ObjectAclGuard>,
    tags: Option<JudgedTags>,
}

impl ObjectGuard {
    /// Joins the checks; none without a check.
    pub(super) fn of(list: Option<ObjectAclGuard>, tags: Option<JudgedTags>) -> Option<Arc<Self>> {
        (list.is_some() || tags.is_some()).then(|| Arc::new(Self { list, tags }))
    }

    /// Returns true if the object's list decides.
    pub(crate) fn reads_list(&self) -> bool {
        self.list.is_some()
    }
}

impl Guard for ObjectGuard {
    fn admits(&self, object: &Object) -> bool {
        self.tags.as_ref().is_none_or(|tags| tags.admit(object))
            && self.list.as_ref().is_none_or(|list| list.admits(object))
    }

    fn trusts(&self, object: &Object) -> bool {
        self.tags.is_none() && self.list.as_ref().is_none_or(|list| list.trusts(object))
    }
}

/// Actions that were judged by an object's tags.
pub(super) struct JudgedTags {
    pub(super) judgement: Judgement,
    pub(super) tags: ObjectTags,
    pub(super) answers: Few<AccessDecision>,
}

impl JudgedTags {
    /// Returns true if the object has the judged tags, or others that allow no less.
    fn admit(&self, object: &Object) -> bool {
        let tags = &object.attributes.tags;
        let is_no_less = || {
            let now = self.judgement.answers(tags);
            now.iter().zip(&*self.answers).all(|(now, before)| now >= before)
        };
        *tags == self.tags || is_no_less()
    }
}
