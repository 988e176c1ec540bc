//! Rights of one request.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use martlet_protocol::lock::Bypass;
use martlet_proxy::{Error, ObjectName, ReadConditions, Selection, Session};
use s3s::S3Result;

use super::bucket_access::BucketAccess;
use super::expected_owner::ExpectedOwner;
use super::judgement::{CheckedObject, Judged, Judgement, ObjectTags};
use super::object_acl::ObjectAclGuard;
use super::object_guard::ObjectGuard;
use crate::access::{Action, ConnectionNeeds, Context, Requester, ResourceArn};
use crate::errors::{denied, s3_error};
use crate::few::Few;
use crate::target::RequestTarget;

/// Header with the algorithm of the customer's key of a copy's source.
const SOURCE_ALGORITHM: HeaderName =
    HeaderName::from_static("x-amz-copy-source-server-side-encryption-customer-algorithm");

/// Headers about the source of a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceHeaders {
    /// Expected owner of the source bucket.
    owner: ExpectedOwner,
    /// Algorithm of the customer's key of the source.
    algorithm: Option<Box<str>>,
}

impl SourceHeaders {
    /// Reads the headers of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let algorithm = headers.get(SOURCE_ALGORITHM).and_then(|value| value.to_str().ok());
        Self { owner: ExpectedOwner::of_source(headers), algorithm: algorithm.map(Into::into) }
    }
}

/// Rights of one request: its principal, bucket and policy context.
#[derive(Clone)]
pub(crate) struct Authorization {
    store: Session,
    requester: Arc<Requester>,
    access: Arc<BucketAccess>,
    context: Context,
    /// Target of the request. None for requests that are not judged by policies.
    target: Option<Arc<RequestTarget>>,
    /// Headers about a copy's source.
    source: SourceHeaders,
    /// True if the object's list decides.
    is_guarded: bool,
}

impl Authorization {
    pub(crate) fn new(
        store: Session,
        requester: Requester,
        access: BucketAccess,
        context: Context,
    ) -> Self {
        let (requester, access) = (Arc::new(requester), Arc::new(access));
        let (target, source) = (None, SourceHeaders::default());
        Self { store, requester, access, context, target, source, is_guarded: false }
    }

    /// Sets the target of the request.
    pub(crate) fn for_target(self, target: Arc<RequestTarget>) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Sets the headers about a copy's source.
    pub(crate) fn copying(self, source: SourceHeaders) -> Self {
        Self { source, ..self }
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
    pub(crate) fn guard(&self, actions: &[Action]) -> Option<Arc<ObjectGuard>> {
        let by_object = actions.iter().copied();
        let list = ObjectAclGuard::of(&self.requester, &self.access, by_object, std::iter::empty());
        ObjectGuard::of(list, None)
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
        self.may(&self.access, Few::one(action), Some(name)).await
    }

    /// Refuses unless all actions are allowed.
    pub(crate) async fn check(&self, actions: Few<Action>, name: ObjectName<'_>) -> S3Result<()> {
        if self.may(&self.access, actions, Some(name)).await? { Ok(()) } else { Err(denied()) }
    }

    /// Refuses actions that no list could allow, on an object, or on the bucket; `resource` is its ARN.
    /// Returns a guard for what the object itself decides.
    pub(crate) async fn check_but_object(
        &self,
        actions: Few<Action>,
        object: Option<CheckedObject<'_>>,
        resource: ResourceArn,
    ) -> S3Result<Option<Arc<ObjectGuard>>> {
        self.judged(&self.access, actions, object, resource).await?.into_guard()
    }

    /// Refuses a forbidden deletion of one of many keys, or of a version of it.
    pub(crate) async fn check_delete(&self, name: ObjectName<'_>, bypass: Bypass) -> S3Result<()> {
        let action = match name.version {
            None => Action::DeleteObject,
            Some(_) => Action::DeleteObjectVersion,
        };
        let mut actions = Few::one(action);
        if bypass != Bypass::Nothing {
            actions.push(Action::BypassGovernanceRetention);
        }
        self.check(actions, name).await
    }

    /// Checks that a copy's source, in any bucket, may be read, and that its tags, if any, may be
    /// copied to `tags_to`. Returns a guard for what the object itself decides. The source is judged
    /// without the properties that the request gives the new object.
    pub(crate) async fn check_source(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        tags_to: Option<&str>,
    ) -> S3Result<Option<Arc<ObjectGuard>>> {
        let (read, read_tags) = match name.version {
            None => (Action::GetObject, Action::GetObjectTagging),
            Some(_) => (Action::GetObjectVersion, Action::GetObjectVersionTagging),
        };
        let found = self.store.bucket(bucket).await.map_err(s3_error)?;
        self.source.owner.check(&self.requester, &found.owner)?;
        let access = Arc::new(
            BucketAccess::of(&self.requester, bucket, &found)
                .with_acl_use(self.access.acl_use.clone()),
        );
        let algorithm = self.source.algorithm.as_deref();
        let of_source = Self { context: self.context.of_source(algorithm), ..self.clone() };
        let resource = ResourceArn::of(bucket, Some(name.key));
        let judged = of_source.judged(&access, Few::one(read), Some(name.into()), resource).await?;
        let guard = judged.into_guard()?;
        if !of_source.may_list_in(&access, Some(name.key)).await?
            && self.existing_tags(bucket, name).await?.is_none()
        {
            return Err(denied());
        }
        let Some(target) = tags_to else { return Ok(guard) };
        let target = Some(target.into());
        let may_copy_tags = of_source.may(&access, Few::one(read_tags), Some(name)).await?
            && self.may(&self.access, Few::one(Action::PutObjectTagging), target).await?;
        if may_copy_tags
            || self.existing_tags(bucket, name).await?.is_none_or(|tags| tags.is_empty())
        {
            return Ok(guard);
        }
        Err(denied())
    }

    /// Returns true if the principal may learn if the request's key exists.
    pub(crate) async fn may_list(&self) -> S3Result<bool> {
        let key = self.target.as_ref().and_then(|target| target.key());
        self.may_list_in(&self.access, key).await
    }

    /// Returns true if the principal may learn if a key exists: it must be allowed to list that
    /// prefix.
    async fn may_list_in(&self, access: &Arc<BucketAccess>, key: Option<&str>) -> S3Result<bool> {
        let Some(key) = key else {
            return self.may(access, Few::one(Action::ListBucket), None).await;
        };
        let with_prefix = self.with(|context| context.set("s3:prefix", key));
        with_prefix.may(access, Few::one(Action::ListBucket), None).await
    }

    async fn may(
        &self,
        access: &Arc<BucketAccess>,
        actions: Few<Action>,
        name: Option<ObjectName<'_>>,
    ) -> S3Result<bool> {
        let resource = ResourceArn::of(access.bucket(), name.map(|it| it.key));
        let object = name.map(CheckedObject::from);
        Ok(self.judged(access, actions, object, resource).await?.is_allowed())
    }

    /// Judges actions on an object, or on the bucket; `resource` is its ARN.
    async fn judged(
        &self,
        access: &Arc<BucketAccess>,
        actions: Few<Action>,
        object: Option<CheckedObject<'_>>,
        resource: ResourceArn,
    ) -> S3Result<Judged> {
        let bucket = access.bucket();
        let mut context = self.context.clone();
        let of_object = object.is_some().then_some(&resource);
        if access.reads_context(of_object) || self.requester.reads_context() {
            context.add("s3:ResourceAccount", access.owner());
        }
        let mut tags = None;
        if let Some(CheckedObject { name, read }) = object {
            // The version of this very object: the query may name one for another.
            context.forget("s3:VersionId");
            if let Some(version) = name.version {
                context.set("s3:VersionId", version.to_string());
            }
            if self.reads_tags(access) {
                // The tags of this very version: tags of other versions may differ.
                let found = match read {
                    Some(read) => Box::pin(self.existing_tags(bucket, read)).await?,
                    None => None,
                };
                tags = Some(found.unwrap_or_default());
            }
        }
        let (requester, access) = (self.requester.clone(), access.clone());
        Ok(Judgement { requester, access, actions, resource, context }.judged(tags))
    }

    /// Returns true if decisions depend on the tags of existing objects.
    pub(crate) fn reads_objects(&self) -> bool {
        self.reads_tags(&self.access)
    }

    /// Returns the properties of the connection that decisions depend on.
    pub(crate) fn connection_needs(&self) -> ConnectionNeeds {
        self.access.connection_needs().and(self.requester.connection_needs())
    }

    fn reads_tags(&self, access: &BucketAccess) -> bool {
        access.reads_existing_tags() || self.requester.reads_existing_tags()
    }

    /// Tags of an object. None if the object does not exist. They decide, so no header lowers the level
    /// of this read below the bucket's.
    async fn existing_tags(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
    ) -> S3Result<Option<ObjectTags>> {
        let none = ReadConditions::default();
        match self.store.deciding().head(bucket, name, Selection::Whole, &none).await {
            Ok(read) => Ok(Some(read.object.attributes.tags.clone())),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(s3_error(error)),
        }
    }
}
