//! Rights of one request.

use std::sync::Arc;

use martlet_protocol::lock::Bypass;
use martlet_proxy::{Error, Guard, ObjectName, ReadConditions, Selection, Session};
use s3s::S3Result;

use super::bucket_access::{AccessDecision, BucketAccess};
use super::expected_owner::ExpectedOwner;
use super::object_acl::ObjectAclGuard;
use crate::access::{Action, Context, Question, Requester, ResourceKind};
use crate::errors::{denied, s3_error};

/// Rights of one request: its principal, bucket and policy context.
#[derive(Clone)]
pub(crate) struct Authorization {
    store: Session,
    requester: Arc<Requester>,
    access: Arc<BucketAccess>,
    context: Context,
    /// Key of the request, if any.
    key: Option<String>,
    /// Expected owner of a copy's source bucket.
    source_owner: ExpectedOwner,
    /// True if the object's list decides.
    is_guarded: bool,
}

/// Actions that the object's list decides.
struct UndecidedActions {
    /// Actions that the list must grant.
    by_object: Vec<Action>,
    /// Actions that the list must grant unless the bucket's owner owns the object.
    by_owner: Vec<Action>,
}

impl Authorization {
    pub(crate) fn new(
        store: Session,
        requester: Requester,
        access: BucketAccess,
        context: Context,
    ) -> Self {
        let (requester, access) = (Arc::new(requester), Arc::new(access));
        let source_owner = ExpectedOwner::default();
        let key = None;
        Self { store, requester, access, context, key, source_owner, is_guarded: false }
    }

    /// Sets the key of the request.
    pub(crate) fn for_key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// Sets the expected owner of a copy's source bucket.
    pub(crate) fn expecting(self, source_owner: ExpectedOwner) -> Self {
        Self { source_owner, ..self }
    }

    /// Principal of the request.
    pub(crate) fn requester(&self) -> &Requester {
        &self.requester
    }

    /// Access of the principal to the request's bucket.
    pub(crate) fn bucket_access(&self) -> &BucketAccess {
        &self.access
    }

    /// Records that the object's list decides, or not.
    pub(crate) fn guarded(self, is_guarded: bool) -> Self {
        Self { is_guarded, ..self }
    }

    /// Returns true if the object's list decides.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Guard that checks objects' lists for these actions. None if they need no list.
    pub(crate) fn guard(&self, actions: &[Action]) -> Option<Arc<dyn Guard>> {
        let open = UndecidedActions { by_object: actions.to_vec(), by_owner: Vec::new() };
        self.guard_of(&self.access, &open)
    }

    fn guard_of(
        &self,
        access: &Arc<BucketAccess>,
        open: &UndecidedActions,
    ) -> Option<Arc<dyn Guard>> {
        let wanted = access.needed_permissions(&open.by_object);
        let allowed = access.needed_permissions(&open.by_owner);
        let (requester, access) = (self.requester.clone(), access.clone());
        (!wanted.is_empty() || !allowed.is_empty()).then(|| {
            Arc::new(ObjectAclGuard { requester, access, wanted, allowed }) as Arc<dyn Guard>
        })
    }

    /// Returns these rights with the tags that the request sets.
    pub(crate) fn with_tags<'a>(&self, tags: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut authorization = self.clone();
        authorization.context.set_tags(tags);
        authorization
    }

    /// Returns these rights with context from the request's body, added by `add`.
    pub(crate) fn with(&self, add: impl FnOnce(&mut Context)) -> Self {
        let mut authorization = self.clone();
        add(&mut authorization.context);
        authorization
    }

    /// Returns true if another action on an object is allowed.
    pub(crate) async fn permits(&self, action: Action, name: ObjectName<'_>) -> S3Result<bool> {
        self.may(&self.access, &[action], Some(name)).await
    }

    /// Refuses unless all actions are allowed.
    pub(crate) async fn check(&self, actions: &[Action], name: ObjectName<'_>) -> S3Result<()> {
        if self.may(&self.access, actions, Some(name)).await? { Ok(()) } else { Err(denied()) }
    }

    /// Refuses actions that no list could allow. Returns a guard for those that the object's list
    /// decides.
    pub(crate) async fn check_but_object(
        &self,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<Option<Arc<dyn Guard>>> {
        let open = self.undecided(&self.access, actions, name).await?;
        Ok(self.guard_of(&self.access, &open))
    }

    /// Refuses a forbidden deletion of one of many keys, or of a version of it.
    pub(crate) async fn check_delete(&self, name: ObjectName<'_>, bypass: Bypass) -> S3Result<()> {
        let action = match name.version {
            None => Action::DeleteObject,
            Some(_) => Action::DeleteObjectVersion,
        };
        let further = (bypass != Bypass::Nothing).then_some(Action::BypassGovernanceRetention);
        let actions: Vec<Action> = std::iter::once(action).chain(further).collect();
        self.check(&actions, name).await
    }

    /// Checks that a copy's source, in any bucket, may be read, and that its tags, if any, may be
    /// copied to `tags_to`. Returns a guard for what the object's list decides.
    pub(crate) async fn check_source(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        tags_to: Option<&str>,
    ) -> S3Result<Option<Arc<dyn Guard>>> {
        let (read, read_tags) = match name.version {
            None => (Action::GetObject, Action::GetObjectTagging),
            Some(_) => (Action::GetObjectVersion, Action::GetObjectVersionTagging),
        };
        let found = self.store.bucket(bucket).await.map_err(s3_error)?;
        self.source_owner.check(&self.requester, &found.owner)?;
        let access = Arc::new(
            BucketAccess::of(&self.requester, bucket, &found)
                .with_acl_use(self.access.acl_use.clone()),
        );
        let open = self.undecided(&access, &[read], Some(name)).await?;
        let guard = self.guard_of(&access, &open);
        if !self.may_list_in(&access, Some(name.key)).await?
            && self.existing_tags(bucket, name).await?.is_none()
        {
            return Err(denied());
        }
        let Some(target) = tags_to else { return Ok(guard) };
        let target = Some(target.into());
        let may_copy_tags = self.may(&access, &[read_tags], Some(name)).await?
            && self.may(&self.access, &[Action::PutObjectTagging], target).await?;
        if may_copy_tags
            || self.existing_tags(bucket, name).await?.is_none_or(|tags| tags.is_empty())
        {
            return Ok(guard);
        }
        Err(denied())
    }

    /// Returns true if the principal may learn if the request's key exists.
    pub(crate) async fn may_list(&self) -> S3Result<bool> {
        self.may_list_in(&self.access, self.key.as_deref()).await
    }

    /// Returns true if the principal may learn if a key exists: it must be allowed to list that
    /// prefix.
    async fn may_list_in(&self, access: &BucketAccess, key: Option<&str>) -> S3Result<bool> {
        let Some(key) = key else {
            return self.may(access, &[Action::ListBucket], None).await;
        };
        let with_prefix = self.with(|context| context.set("s3:prefix", key));
        with_prefix.may(access, &[Action::ListBucket], None).await
    }

    /// Refuses denied actions. Returns the actions that the object's list decides.
    async fn undecided(
        &self,
        access: &BucketAccess,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<UndecidedActions> {
        let answers = self.answers(access, actions, name).await?;
        if answers.contains(&AccessDecision::No) {
            return Err(denied());
        }
        let of = |wanted: AccessDecision| {
            let both = actions.iter().zip(&answers).filter(|(_, answer)| **answer == wanted);
            both.map(|(action, _)| *action).collect()
        };
        Ok(UndecidedActions {
            by_object: of(AccessDecision::ByObject),
            by_owner: of(AccessDecision::ByOwner),
        })
    }

    async fn may(
        &self,
        access: &BucketAccess,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<bool> {
        let answers = self.answers(access, actions, name).await?;
        Ok(answers.iter().all(|answer| *answer == AccessDecision::Yes))
    }

    async fn answers(
        &self,
        access: &BucketAccess,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<Vec<AccessDecision>> {
        let bucket = access.bucket();
        let mut context = self.context.clone();
        if access.reads_context(name.map(|it| it.key)) || self.requester.reads_context() {
            context.add("s3:ResourceAccount", access.owner());
        }
        let resource = match name {
            None => bucket.to_owned(),
            Some(name) => {
                if let Some(version) = name.version {
                    context.set("s3:VersionId", version.to_string());
                }
                if self.reads_tags(access) {
                    // The tags of this very version: tags of other versions may differ.
                    let tags =
                        Box::pin(self.existing_tags(bucket, name)).await?.unwrap_or_default();
                    let tags = tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                    context.set_existing(tags);
                }
                format!("{bucket}/{}", name.key)
            }
        };
        let (requester, context) = (&*self.requester, &context);
        // The writer of an object may set its list, unless a policy denies it.
        let is_new = actions.contains(&Action::PutObject);
        let answer = |&action: &Action| {
            let resource = match action.scope() {
                ResourceKind::Object => resource.as_str(),
                ResourceKind::Bucket | ResourceKind::Service => bucket,
            };
            if !requester.has_role_for(action) {
                return AccessDecision::No;
            }
            let question = Question { requester, action, resource, context };
            match access.allows(&question) {
                AccessDecision::ByObject | AccessDecision::ByOwner if is_new => AccessDecision::Yes,
                AccessDecision::No if is_new => access.allows_new_tags(&question),
                answer => answer,
            }
        };
        Ok(actions.iter().map(answer).collect())
    }

    /// Returns true if decisions depend on the tags of existing objects.
    pub(crate) fn reads_objects(&self) -> bool {
        self.reads_tags(&self.access)
    }

    /// Returns true if decisions depend on the client's address.
    pub(crate) fn reads_address(&self) -> bool {
        self.access.reads_address() || self.requester.reads_address()
    }

    fn reads_tags(&self, access: &BucketAccess) -> bool {
        access.reads_existing_tags() || self.requester.reads_existing_tags()
    }

    /// Tags of an object. None if the object does not exist.
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
