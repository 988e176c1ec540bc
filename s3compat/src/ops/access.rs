//! Access checks before each operation.
//!
//! The owner of a bucket may do everything that the bucket's policy does not deny. Other principals
//! need an allow in the policy or a grant in an access control list.
//!
//! [`AccessCheck`] runs before each operation, with the request's head alone. Four operations check
//! their documents as well: `PutObjectTagging` its tags, `PutObjectRetention` and
//! `PutObjectLegalHold` their locks, `DeleteObjects` its keys. Copies check their source. The
//! session checks an object's list when it reads the object.

use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_protocol::lock::Retention;
use martlet_proxy::{Error, ObjectName, Session, ViewedObject};
use s3s::dto::Tagging;
use s3s::{S3ErrorCode, S3Result};

use super::new_bucket::NewBucketDocument;
use super::operations::Operations;
use super::policy_context::{self, PolicyRequest};
use crate::access::{
    Action, Context, Identity, PolicyDecision, Question, RequestTraits, Requester, ResourceArn,
    ResourceKind, actions,
};
use crate::authorization::{
    Authorization, BucketAccess, CheckedObject, ExpectedOwner, ObjectGuard, SourceHeaders,
    add_requester,
};
use crate::errors::{denied, s3_error};
use crate::lock;
use crate::operation::Operation;
use crate::request::OperationRequest;

/// Access check by the authenticated identity and the bucket's settings.
pub(crate) struct AccessCheck<'a> {
    /// Session of the request.
    pub(crate) session: &'a Session,
    pub(crate) clock: &'a dyn Clock,
}

impl AccessCheck<'_> {
    /// Checks a request, and stores its rights in the request. Returns a guarded session if lists
    /// of objects decide.
    pub(crate) async fn check(&self, request: &mut OperationRequest) -> S3Result<Option<Session>> {
        let Some(bucket) = request.target.bucket() else {
            let all = ResourceArn::of("*", None);
            self.check_named(request, &[Action::ListAllMyBuckets], &all)?;
            return Ok(None);
        };
        // CreateBucket itself checks if the name is taken.
        if request.operation() == Operation::CreateBucket {
            let arn = ResourceArn::of(bucket, None);
            self.check_named(request, &creating(request)?, &arn)?;
            return Ok(None);
        }
        let requester = requester(&request.context.identity);
        let found = self.session.bucket(bucket).await.map_err(s3_error)?;
        ExpectedOwner::of_bucket(&request.headers).check(&requester, &found.owner)?;
        request.context.observation.note_bucket(&found);
        let acl_use = request.context.observation.acl_use.clone();
        let access = BucketAccess::of(&requester, bucket, &found).with_acl_use(acl_use);
        if access.has_no_access() {
            return Err(denied());
        }
        // An unlimited principal needs no policy context. Copies also check their source bucket.
        let is_copy = request.operation().row().is_copy;
        let (authorization, guard) = if access.is_unlimited() && !is_copy {
            let actions = actions(request.operation(), RequestTraits::default());
            let store = self.session.clone();
            let authorization = Authorization::new(store, requester, access, Context::default());
            let guard = authorization.guard(&actions);
            (authorization, guard)
        } else {
            Box::pin(self.check_policies(request, requester, access)).await?
        };
        let reads_list = guard.as_ref().is_some_and(|guard| guard.reads_list());
        let guarded = guard.map(|guard| self.session.guarded(guard));
        request.authorization = Some(authorization.guarded(reads_list));
        Ok(guarded)
    }

    /// Checks a request by policies and lists. Returns its rights, and a guard for what the
    /// object's list decides.
    async fn check_policies(
        &self,
        request: &OperationRequest,
        requester: Requester,
        access: BucketAccess,
    ) -> S3Result<(Authorization, Option<Arc<ObjectGuard>>)> {
        let operation = request.operation();
        let policy_request = PolicyRequest::of(request);
        let actions = actions(operation, policy_request.case()?);
        if !access.may_ever(&requester, &actions) {
            return Err(denied());
        }
        let mut known = Context::default();
        let key = request.target.key();
        let resource = ResourceArn::of(access.bucket(), key);
        let is_copy = operation.row().is_copy;
        // The policy of a copy's source may have conditions too.
        if access.reads_context(key.map(|_| &resource)) || requester.reads_context() || is_copy {
            known = policy_request.context(self.clock.now_ms())?;
            add_requester(&mut known, &requester);
            policy_context::add_request(&mut known, request);
            // In S3 this condition key does not apply to the deletion of a version.
            if actions.contains(&Action::DeleteObjectVersion) {
                known.forget("s3:if-match");
            }
        }
        let mut authorization = Authorization::new(self.session.clone(), requester, access, known)
            .for_target(request.target.clone());
        if is_copy {
            authorization = authorization.copying(SourceHeaders::of(&request.headers));
        }
        let is_by_key = actions.iter().any(|action| action.scope() == ResourceKind::Object);
        let guard = match (operation, key) {
            // The operation checks its document.
            (
                Operation::PutObjectLegalHold
                | Operation::PutObjectRetention
                | Operation::PutObjectTagging
                | Operation::DeleteObjects,
                _,
            ) => None,
            (_, None) if is_by_key => return Err(denied()),
            (_, None) => authorization.check_but_object(actions, None, resource).await?,
            (_, Some(_)) => {
                let name = request.object_name()?;
                let mut object = CheckedObject::from(name);
                // Its tags count, not those of the current version.
                if authorization.reads_objects() && request.reads_view() {
                    let viewed = Box::pin(self.viewed(request)).await?;
                    object.read = viewed.map(|it| ObjectName { key: &it.key, version: it.version });
                }
                authorization.check_but_object(actions, Some(object), resource).await?
            }
        };
        Ok((authorization, guard))
    }

    /// Object of the view that a request reads, resolved once for check and operation. None if the view
    /// has no such key.
    async fn viewed<'a>(
        &self,
        request: &'a OperationRequest,
    ) -> S3Result<Option<&'a ViewedObject>> {
        let Some(view) = &request.view else { return Ok(None) };
        match self.session.checkpoints().resolve(request.bucket(), &view.key).await {
            Ok(viewed) => Ok(Some(view.resolved.get_or_init(|| viewed))),
            Err(Error::NoSuchKey | Error::NoSuchBucket) => Ok(None),
            Err(error) => Err(s3_error(error)),
        }
    }

    /// Requires a signed request, a role for all actions, and an allow by the principal's own
    /// policies, if it has any.
    fn check_named(
        &self,
        request: &OperationRequest,
        actions: &[Action],
        resource: &ResourceArn,
    ) -> S3Result<()> {
        let requester = requester(&request.context.identity);
        let has_role = actions.iter().all(|action| requester.has_role_for(*action));
        if requester == Requester::Anonymous || !has_role {
            return Err(denied());
        }
        if requester.is_whole() {
            return Ok(());
        }
        let mut known = PolicyRequest::of(request).context(self.clock.now_ms())?;
        add_requester(&mut known, &requester);
        policy_context::add_request(&mut known, request);
        let may = |&action: &Action| {
            let question = Question {
                requester: &requester,
                action,
                arn: resource.as_str(),
                is_new: false,
                context: &known,
            };
            matches!(requester.own_verdict(&question), None | Some(PolicyDecision::Allow))
        };
        if actions.iter().all(may) { Ok(()) } else { Err(denied()) }
    }
}

impl Operations {
    /// Checks a `PutObjectTagging` by its tags.
    pub(super) async fn check_tagging(
        &self,
        request: &OperationRequest,
        tagging: &Tagging,
    ) -> S3Result<()> {
        let tags = tagging.tag_set.iter();
        // The operation refuses a tag without a value.
        let tags = tags.filter_map(|tag| Some((tag.key.as_deref()?, tag.value.as_deref()?)));
        check_document(request, request.authorization()?.with_tags(tags)).await
    }

    /// Checks a `PutObjectRetention` by its retention.
    pub(super) async fn check_retention(
        &self,
        request: &OperationRequest,
        retention: Option<Retention>,
    ) -> S3Result<()> {
        let authorization = request.authorization()?.with(|context| {
            if let Some(retention) = retention {
                lock::add_retention(context, retention, self.clock.now_ms());
            }
        });
        check_document(request, authorization).await
    }

    /// Checks a `PutObjectLegalHold` by its hold.
    pub(super) async fn check_legal_hold(
        &self,
        request: &OperationRequest,
        is_on: bool,
    ) -> S3Result<()> {
        let authorization = request.authorization()?.with(|context| lock::add_hold(context, is_on));
        check_document(request, authorization).await
    }
}

/// Refuses a request unless its rights, with the context of its document, allow all its actions.
async fn check_document(request: &OperationRequest, authorization: Authorization) -> S3Result<()> {
    let actions = actions(request.operation(), PolicyRequest::of(request).case()?);
    authorization.check(actions, request.object_name()?).await
}

/// Actions that a CreateBucket request needs: one more for each setting of the new bucket.
fn creating(request: &OperationRequest) -> S3Result<Vec<Action>> {
    let has_tags = NewBucketDocument::of(request)?.has_tags();
    let headers = &request.headers;
    let mut actions = vec![Action::CreateBucket];
    if PolicyRequest::of(request).case()?.sets_acl {
        actions.push(Action::PutBucketAcl);
    }
    if headers.contains_key("x-amz-object-ownership") {
        actions.push(Action::PutBucketOwnershipControls);
    }
    if headers.contains_key("x-amz-bucket-object-lock-enabled") {
        actions.push(Action::PutBucketObjectLockConfiguration);
    }
    if has_tags {
        actions.push(Action::PutBucketTagging);
    }
    Ok(actions)
}

/// Principal of the request.
fn requester(identity: &Identity) -> Requester {
    match identity {
        Identity::Anonymous => Requester::Anonymous,
        Identity::Known(who) => Requester::User(who.clone()),
    }
}

/// Replaces `NoSuchKey` and similar errors by AccessDenied for principals without `ListBucket`.
/// So errors do not reveal if a key exists.
pub(crate) async fn conceal<T>(
    authorization: Option<&Authorization>,
    outcome: S3Result<T>,
) -> S3Result<T> {
    let (Some(authorization), Err(error)) = (authorization, &outcome) else { return outcome };
    let is_telling = match error.code() {
        S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion => true,
        // A delete marker has no list that could grant access.
        S3ErrorCode::MethodNotAllowed => authorization.is_guarded(),
        _ => false,
    };
    // Rare, and large: boxed, so that other requests need no space for it.
    if is_telling && !Box::pin(authorization.may_list()).await? { Err(denied()) } else { outcome }
}
