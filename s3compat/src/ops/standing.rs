//! How somebody stands to a bucket: by its owner, its policy and its access control list.
//!
//! Invariants:
//! * A policy that can't be read opens nothing, and leaves its owner what repairs it.
//! * Its owner can always read, replace and delete a policy, whatever it denies.
//! * Where a bucket's public policy is restricted, nobody but the owner is let in.
//! * Who carries a policy may do what that or the bucket's allows, in another's bucket what both do.
//! * A policy's Allow opens no object that another account owns: such objects have lists.
//! * What no policy speaks of is decided by lists: the bucket's, or that of the object, once it is read.

use martlet_protocol::Setting;
use martlet_protocol::entry::Bucket;

use super::acl::{Control, Ownership};
use super::policy::is_restricted;
use crate::access::{
    Acl, AclUse, Action, Bindings, Granted, Permission, Policy, Question, Requester, Verdict,
};

/// Whether something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    No,
    /// If the object's list grants it.
    ByObject,
    /// If the object is the bucket's owner's, or its list grants it.
    ByOwner,
    Yes,
}

impl Answer {
    fn of(may: bool) -> Self {
        if may { Self::Yes } else { Self::No }
    }
}

/// How somebody stands to a bucket.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each limits by itself what may be done")]
pub(crate) struct Standing {
    pub(super) bucket: String,
    pub(super) owner: String,
    is_owner: bool,
    /// Its role leaves it all that its account may.
    is_whole: bool,
    policy: Option<Policy>,
    /// Its policy lets others in by nothing that it says.
    is_closed: bool,
    is_unreadable: bool,
    /// None where the bucket is its owner's alone.
    acl: Option<Acl>,
    pub(super) control: Control,
    /// Whether a list was needed.
    pub(super) acl_use: AclUse,
}

impl Standing {
    /// How `requester` stands to a bucket.
    pub(super) fn of(requester: &Requester, name: &str, bucket: &Bucket) -> Self {
        let is_owner = requester.owns(&bucket.owner);
        let document = bucket.settings.get(Setting::Policy);
        let policy = document.map(|document| {
            let ids = bucket.settings.get(Setting::PolicyPrincipals);
            let bindings = Bindings::decode(ids, document);
            Policy::parse(document, name).map(|policy| policy.bound(bindings.as_ref()))
        });
        let policy = policy.transpose();
        let is_unreadable = policy.is_err();
        if let Err(error) = &policy {
            tracing::error!(bucket = name, %error, "a bucket's policy can't be read");
        }
        let policy = policy.unwrap_or_default();
        let is_public = policy.as_ref().is_some_and(Policy::is_public);
        let is_closed = is_public && is_restricted(&bucket.settings);
        let control = Control::of(&bucket.settings);
        let document = bucket.settings.get(Setting::Acl).filter(|_| !control.is_enforced());
        Self {
            bucket: name.to_owned(),
            owner: bucket.owner.clone(),
            is_owner,
            is_whole: requester.is_whole(),
            policy,
            is_closed,
            is_unreadable,
            acl: document.map(|document| Acl::decode(document, &bucket.owner)),
            control,
            acl_use: AclUse::default(),
        }
    }

    /// The same, which notes there whether a list was needed.
    pub(super) fn noting(self, acl_use: AclUse) -> Self {
        Self { acl_use, ..self }
    }

    /// Whether it may do everything, whatever a request says, but for what is the object's to say.
    pub(super) fn is_unlimited(&self) -> bool {
        self.is_owner
            && self.is_whole
            && self.policy.is_none()
            && !self.is_unreadable
            && self.acl.is_none()
    }

    /// Whether it may do nothing, whatever a request says.
    pub(super) fn is_shut_out(&self) -> bool {
        let is_alone = self.policy.is_none() && self.control.is_enforced();
        !self.is_owner && (is_alone || self.is_closed || self.is_unreadable)
    }

    /// Whether there is anything that could let it do all of this, whatever the request says.
    pub(super) fn may_ever(&self, requester: &Requester, actions: &[Action]) -> bool {
        let is_new = actions.contains(&Action::PutObject);
        let may = |action: &Action| {
            (is_new && *action == Action::PutObjectTagging)
                || self.grants(requester, *action) != Answer::No
        };
        self.is_owner || self.policy.is_some() || actions.iter().all(may)
    }

    /// Returns true when its policy or a list could let a stranger do this.
    pub(super) fn could_open(&self, stranger: &Requester, action: Action) -> bool {
        let by_policy = self.policy.as_ref().is_some_and(|one| one.may_allow(stranger, action));
        !self.is_shut_out() && (by_policy || self.grants(stranger, action) != Answer::No)
    }

    /// Whether it may do this to `resource`.
    pub(super) fn allows(&self, question: &Question<'_>) -> Answer {
        use Action::{DeleteBucketPolicy, GetBucketPolicy, PutBucketPolicy};
        let own = question.requester.own_verdict(question);
        if own == Some(Verdict::Deny) {
            return Answer::No;
        }
        if self.is_owner
            && own.is_none()
            && matches!(question.action, DeleteBucketPolicy | GetBucketPolicy | PutBucketPolicy)
        {
            return Answer::Yes;
        }
        if self.is_unreadable {
            return Answer::No;
        }
        let is_silent = own == Some(Verdict::Undecided);
        match self.judge(question) {
            Verdict::Deny => Answer::No,
            _ if self.is_closed && !self.is_owner => Answer::No,
            // What is another account's, both must allow.
            _ if is_silent && !self.is_owner => Answer::No,
            Verdict::Allow => self.allowed(question.action),
            Verdict::Undecided if is_silent => Answer::No,
            Verdict::Undecided => self.by_lists(question.requester, question.action),
        }
    }

    /// Whether an object that is being made may have tags. Lists don't speak of tags: by one that lets
    /// it make the object, it may, unless a policy denies it.
    pub(super) fn lets_tag_new(&self, question: &Question<'_>) -> Answer {
        let is_open = !self.is_unreadable
            && (self.is_owner || !self.is_closed)
            && question.action == Action::PutObjectTagging
            && question.requester.own_verdict(question).is_none()
            && self.judge(question) == Verdict::Undecided;
        if is_open { self.by_lists(question.requester, Action::PutObject) } else { Answer::No }
    }

    /// What a policy that allows something comes to. It is the bucket's owner's word, which counts for what
    /// that owns: what others wrote is theirs to open, by lists.
    fn allowed(&self, action: Action) -> Answer {
        let is_on_object = matches!(action.granted(), Granted::OnObject(_));
        if is_on_object && !self.control.is_enforced() { Answer::ByOwner } else { Answer::Yes }
    }

    fn judge(&self, question: &Question<'_>) -> Verdict {
        self.policy.as_ref().map_or(Verdict::Undecided, |one| one.judge(question))
    }

    /// What the lists say where nothing else has decided. Owners need none.
    fn by_lists(&self, requester: &Requester, action: Action) -> Answer {
        let answer = self.grants(requester, action);
        if answer == Answer::Yes && !self.is_owner {
            self.acl_use.note();
        }
        answer
    }

    /// What the lists say.
    fn grants(&self, requester: &Requester, action: Action) -> Answer {
        match action.granted() {
            Granted::ToOwner => Answer::of(self.is_owner),
            Granted::OnObject(_) if self.control.is_enforced() => Answer::of(self.is_owner),
            Granted::OnObject(_) => Answer::ByObject,
            Granted::OnBucket(wanted) => Answer::of(match &self.acl {
                None => self.is_owner,
                Some(acl) => acl.allows(requester, wanted, self.control.ignores_public),
            }),
        }
    }

    /// What of lists on objects these actions ask for, where nothing else has decided.
    pub(super) fn asks_objects(&self, actions: &[Action]) -> Vec<Permission> {
        if self.control.is_enforced() {
            return Vec::new();
        }
        let of_object = |action: &Action| match action.granted() {
            Granted::OnObject(permission) => Some(permission),
            Granted::ToOwner | Granted::OnBucket(_) => None,
        };
        actions.iter().filter_map(of_object).collect()
    }

    /// Whose an object is that `requester` makes. What nobody in particular makes is the bucket's
    /// owner's, and so is what root makes.
    pub(super) fn owner_of_new<'a>(
        &'a self,
        requester: &'a Requester,
        gives_away: bool,
    ) -> &'a str {
        match (requester, self.control.ownership) {
            (Requester::Anonymous | Requester::LogDelivery, _) | (_, Ownership::Enforced) => {
                &self.owner
            }
            (_, Ownership::Preferred) if gives_away => &self.owner,
            (Requester::User(_), _) if self.is_owner => &self.owner,
            (Requester::User(who), _) => &who.canonical_id,
        }
    }

    /// Whether the answer hangs on the tags of the object that is there.
    pub(super) fn reads_existing_tags(&self) -> bool {
        self.policy.as_ref().is_some_and(Policy::reads_existing_tags)
    }
}

#[cfg(test)]
mod tests;
