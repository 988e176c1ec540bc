//! What a request may do, for as long as it lasts.
//!
//! Invariants:
//! * A policy that can't be read opens nothing, and leaves its owner what repairs it.
//! * Its owner can always read, replace and delete a policy, whatever it denies.
//! * Where a bucket's public policy is restricted, it lets nobody in but the owner.

use std::sync::Arc;

use http::Extensions;
use martlet_protocol::Setting;
use martlet_protocol::entry::Bucket;
use martlet_protocol::lock::Bypass;
use martlet_proxy::{Error, ObjectName, ReadConditions, Selection, Session};
use s3s::S3Result;

use super::access::denied;
use super::policy::is_restricted;
use crate::access::{Action, Context, Policy, Question, Requester, Scope, Verdict};
use crate::errors::s3_error;

/// How somebody stands to a bucket.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each limits by itself what may be done")]
pub(crate) struct Standing {
    bucket: String,
    owner: String,
    is_owner: bool,
    /// Its role leaves it all that its account may.
    is_whole: bool,
    policy: Option<Policy>,
    /// Its policy lets others in by nothing that it says.
    is_closed: bool,
    is_unreadable: bool,
}

impl Standing {
    /// How `requester` stands to a bucket.
    pub(super) fn of(requester: &Requester, name: &str, bucket: &Bucket) -> Self {
        let is_owner = requester.owns(&bucket.owner);
        let document = bucket.settings.get(Setting::Policy);
        let policy = document.map(|document| Policy::parse(document, name)).transpose();
        let is_unreadable = policy.is_err();
        if let Err(error) = &policy {
            tracing::error!(bucket = name, %error, "a bucket's policy can't be read");
        }
        let policy = policy.unwrap_or_default();
        let is_public = policy.as_ref().is_some_and(Policy::is_public);
        let is_closed = is_public && is_restricted(&bucket.settings);
        Self {
            bucket: name.to_owned(),
            owner: bucket.owner.clone(),
            is_owner,
            is_whole: requester.is_whole(),
            policy,
            is_closed,
            is_unreadable,
        }
    }

    /// Whether it may do everything, whatever a request says.
    pub(super) fn is_unlimited(&self) -> bool {
        self.is_owner && self.is_whole && self.policy.is_none() && !self.is_unreadable
    }

    /// Whether it may do nothing, whatever a request says.
    pub(super) fn is_shut_out(&self) -> bool {
        !self.is_owner && (self.policy.is_none() || self.is_closed || self.is_unreadable)
    }

    /// Whether it may do this to `resource`.
    fn allows(&self, question: &Question<'_>) -> bool {
        use Action::{DeleteBucketPolicy, GetBucketPolicy, PutBucketPolicy};
        if self.is_owner
            && matches!(question.action, DeleteBucketPolicy | GetBucketPolicy | PutBucketPolicy)
        {
            return true;
        }
        if self.is_unreadable {
            return false;
        }
        let verdict = self.policy.as_ref().map_or(Verdict::Undecided, |one| one.judge(question));
        match verdict {
            Verdict::Deny => false,
            Verdict::Allow => self.is_owner || !self.is_closed,
            Verdict::Undecided => self.is_owner,
        }
    }

    /// Whether the answer hangs on the tags of the object that is there.
    fn reads_existing_tags(&self) -> bool {
        self.policy.as_ref().is_some_and(Policy::reads_existing_tags)
    }
}

/// What a request may do.
#[derive(Clone)]
pub(crate) struct Rights {
    store: Session,
    requester: Arc<Requester>,
    standing: Arc<Standing>,
    context: Context,
}

impl Rights {
    pub(super) fn new(
        store: Session,
        requester: Requester,
        standing: Standing,
        context: Context,
    ) -> Self {
        Self { store, requester: Arc::new(requester), standing: Arc::new(standing), context }
    }

    /// Those of a request that came by the access check.
    pub(super) fn find(extensions: &Extensions) -> S3Result<&Self> {
        extensions.get().ok_or_else(denied)
    }

    /// The same with the tags that the request sets.
    pub(super) fn with_tags<'a>(&self, tags: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut rights = self.clone();
        rights.context.set_tags(tags);
        rights
    }

    /// The same with what `add` knows of the request's body.
    pub(super) fn with(&self, add: impl FnOnce(&mut Context)) -> Self {
        let mut rights = self.clone();
        add(&mut rights.context);
        rights
    }

    /// Whether one more thing may be done to an object.
    pub(super) async fn permits(&self, action: Action, key: &str) -> S3Result<bool> {
        self.may(&self.standing, &[action], Some(key)).await
    }

    /// Refuses all that isn't allowed whole.
    pub(super) async fn check(&self, actions: &[Action], key: Option<&str>) -> S3Result<()> {
        if self.may(&self.standing, actions, key).await? { Ok(()) } else { Err(denied()) }
    }

    /// Refuses to delete one of many keys, or a version of it.
    pub(super) async fn check_delete(&self, name: ObjectName<'_>, bypass: Bypass) -> S3Result<()> {
        let action = match name.version {
            None => Action::DeleteObject,
            Some(_) => Action::DeleteObjectVersion,
        };
        let further = (bypass != Bypass::Nothing).then_some(Action::BypassGovernanceRetention);
        let actions: Vec<Action> = std::iter::once(action).chain(further).collect();
        self.check(&actions, Some(name.key)).await
    }

    /// Refuses to read an object that may be in another bucket, and to copy its tags along to
    /// `tags_to` where it has some.
    pub(super) async fn check_source(
        &self,
        (bucket, name): (&str, ObjectName<'_>),
        tags_to: Option<&str>,
    ) -> S3Result<()> {
        let key = name.key;
        let (read, read_tags) = match name.version {
            None => (Action::GetObject, Action::GetObjectTagging),
            Some(_) => (Action::GetObjectVersion, Action::GetObjectVersionTagging),
        };
        let found = self.store.bucket(bucket).await.map_err(s3_error)?;
        let standing = Standing::of(&self.requester, bucket, &found);
        if !self.may(&standing, &[read], Some(key)).await? {
            return Err(denied());
        }
        if !self.may(&standing, &[Action::ListBucket], None).await?
            && self.existing_tags(bucket, name).await?.is_none()
        {
            return Err(denied());
        }
        let Some(target) = tags_to else { return Ok(()) };
        let may_copy_tags = self.may(&standing, &[read_tags], Some(key)).await?
            && self.may(&self.standing, &[Action::PutObjectTagging], Some(target)).await?;
        if may_copy_tags
            || self.existing_tags(bucket, name).await?.is_none_or(|tags| tags.is_empty())
        {
            return Ok(());
        }
        Err(denied())
    }

    /// Whether it may know which keys there are.
    pub(super) async fn may_list(&self) -> S3Result<bool> {
        self.may(&self.standing, &[Action::ListBucket], None).await
    }

    async fn may(
        &self,
        standing: &Standing,
        actions: &[Action],
        key: Option<&str>,
    ) -> S3Result<bool> {
        let bucket = &standing.bucket;
        let mut context = self.context.clone();
        context.add("s3:ResourceAccount", &standing.owner);
        let resource = match key {
            None => bucket.clone(),
            Some(key) => {
                if standing.reads_existing_tags() {
                    let tags = self.existing_tags(bucket, key.into()).await?.unwrap_or_default();
                    let tags = tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                    context.set_existing(tags);
                }
                format!("{bucket}/{key}")
            }
        };
        Ok(actions.iter().all(|action| {
            let resource = match action.scope() {
                Scope::Object => resource.as_str(),
                Scope::Bucket | Scope::Service => bucket,
            };
            let requester = &self.requester;
            requester.has_role_for(*action)
                && standing.allows(&Question {
                    requester,
                    action: *action,
                    resource,
                    context: &context,
                })
        }))
    }

    /// The tags of an object, if it is there.
    async fn existing_tags(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
    ) -> S3Result<Option<Vec<(String, String)>>> {
        let none = ReadConditions::default();
        match self.store.head(bucket, name, Selection::Whole, &none).await {
            Ok(read) => Ok(Some(read.object.attributes.tags.clone())),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(s3_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::BucketState;
    use martlet_protocol::{BucketId, Level, PolicyId, Settings};

    use super::*;

    fn standing(who: &str, policy: Option<&str>) -> Standing {
        let mut settings = Settings::default();
        if let Some(policy) = policy {
            settings.set(Setting::Policy, policy.into()).unwrap();
        }
        let bucket = Bucket {
            id: BucketId::random(),
            created_ms: 0,
            generation: 1,
            state: BucketState::Open,
            index_shards: 4,
            policy: PolicyId(0),
            owner: "alice".to_owned(),
            consistency: Level::default(),
            settings,
        };
        Standing::of(&Requester::named(who), "bkt", &bucket)
    }

    fn allows(who: &str, policy: Option<&str>, action: Action) -> bool {
        let requester = &Requester::named(who);
        let resource = if action.scope() == Scope::Bucket { "bkt" } else { "bkt/k" };
        let context = &Context::default();
        standing(who, policy).allows(&Question { requester, action, resource, context })
    }

    #[test]
    fn a_bucket_without_a_policy_is_its_owners() {
        for action in Action::ALL {
            assert!(allows("alice", None, *action) && !allows("bob", None, *action));
        }
        assert!(standing("alice", None).is_unlimited() && standing("bob", None).is_shut_out());
    }

    #[test]
    fn a_policy_that_can_not_be_read_leaves_the_owner_what_repairs_it() {
        let broken = Some(r#"{"Version": "2040-01-01"}"#);
        let repairs =
            [Action::GetBucketPolicy, Action::PutBucketPolicy, Action::DeleteBucketPolicy];
        for action in Action::ALL {
            assert_eq!(allows("alice", broken, *action), repairs.contains(action));
            assert!(!allows("bob", broken, *action));
        }
        assert!(!standing("alice", broken).is_unlimited() && standing("bob", broken).is_shut_out());
    }
}
