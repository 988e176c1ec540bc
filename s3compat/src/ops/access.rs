//! Access checks before each operation.
//!
//! The owner of a bucket may do everything that the bucket's policy does not deny. Other principals
//! need an allow in the policy or a grant in an access control list.
//!
//! s3s calls the check before each operation, with the request's head alone. Four operations are
//! checked again on their bodies: `PutObjectTagging` on its tags, `PutObjectRetention` and
//! `PutObjectLegalHold` on their locks, `DeleteObjects` on its keys. Copies are checked again on
//! their source. The session checks an object's list when it reads the object.

use std::sync::Arc;

use http::{Extensions, HeaderMap, Uri};
use martlet_protocol::{Clock, VersionId};
use martlet_proxy::{Guard, ObjectName, ObjectStore};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{PutObjectLegalHoldInput, PutObjectRetentionInput, PutObjectTaggingInput};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use super::authorization::Authorization;
use super::bucket_access::BucketAccess;
use super::lock::{legal_hold, retention};
use super::new_tags;
use super::policy_context::{self, PolicyRequest};
use super::session;
use super::versions::version;
use crate::access::{
    AclUse, Action, Context, PolicyDecision, Question, RequestTraits, Requester, ResourceKind,
    actions,
};
use crate::auth::{AccountIdentity, Identity, Query};
use crate::errors::s3_error;
use crate::http::Operation;
use crate::lock;
use crate::messages;

/// Returns no secrets to s3s: the HTTP pipeline has authenticated the request and removed its
/// credentials.
pub(crate) struct NoSecrets;

#[async_trait::async_trait]
impl S3Auth for NoSecrets {
    async fn get_secret_key(&self, _access_key: &str) -> S3Result<SecretKey> {
        Err(denied())
    }
}

/// Operations that are checked after their bodies are parsed.
const JUDGED_BY_BODY: [Operation; 3] =
    [Operation::PutObjectLegalHold, Operation::PutObjectRetention, Operation::PutObjectTagging];
/// Header with the source of a copy.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// Headers with the expected owners of the bucket and of a copy's source bucket.
const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

/// Access check by the authenticated identity and the bucket's settings.
pub(crate) struct PolicyAccess {
    pub(crate) store: ObjectStore,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait::async_trait]
impl S3Access for PolicyAccess {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = operation(context.extensions_mut())?;
        let Some(bucket) = context.s3_path().get_bucket_name().map(str::to_owned) else {
            return self.check_named(context, &[Action::ListAllMyBuckets], "*");
        };
        // CreateBucket itself checks if the name is taken.
        if operation == Operation::CreateBucket {
            let actions = creating(context)?;
            return self.check_named(context, &actions, &bucket);
        }
        let key = context.s3_path().get_object_key().map(str::to_owned);
        let requester = requester(context)?;
        let store = session(context.extensions_mut(), &self.store);
        let found = store.bucket(&bucket).await.map_err(s3_error)?;
        let expected = |name| ExpectedOwner::of(context.headers(), name);
        let of_source = expected(EXPECTED_SOURCE_OWNER);
        expected(EXPECTED_OWNER).check(&requester, &found.owner)?;
        let acl_use = context.extensions_mut().get::<AclUse>().cloned().unwrap_or_default();
        let access = BucketAccess::of(&requester, &bucket, &found).with_acl_use(acl_use);
        if access.has_no_access() {
            return Err(denied());
        }
        // An unlimited principal needs no policy context. Copies also check their source bucket.
        if access.is_unlimited() && !context.headers().contains_key(COPY_SOURCE) {
            let actions = actions(operation, RequestTraits::default());
            let authorization = Authorization::new(store, requester, access, Context::default());
            let guard = authorization.guard(&actions);
            enter(context, authorization, guard);
            return Ok(());
        }
        let asked = PolicyRequest {
            operation,
            headers: context.headers(),
            query: context.uri().query().unwrap_or_default(),
        };
        let actions = actions(operation, asked.case()?);
        if !access.may_ever(&requester, &actions) {
            return Err(denied());
        }
        let mut known = asked.context(self.clock.now_ms())?;
        policy_context::add_requester(&mut known, &requester);
        policy_context::add_extensions(&mut known, context.extensions_mut());
        // In S3 this condition key does not apply to the deletion of a version.
        if actions.contains(&Action::DeleteObjectVersion) {
            known.forget("s3:if-match");
        }
        let authorization =
            Authorization::new(store, requester, access, known).expecting(of_source);
        let authorization = authorization.for_key(key.clone());
        let is_by_key = actions.iter().any(|action| action.scope() == ResourceKind::Object);
        let guard = match key {
            _ if JUDGED_BY_BODY.contains(&operation) => None,
            // The keys are in the body.
            None if is_by_key && operation == Operation::DeleteObjects => None,
            None if is_by_key => return Err(denied()),
            key => {
                let version = query_version(context.uri().query().unwrap_or_default())?;
                let name = key.as_deref().map(|key| ObjectName { key, version });
                authorization.check_but_object(&actions, name).await?
            }
        };
        enter(context, authorization, guard);
        Ok(())
    }

    async fn put_object_retention(
        &self,
        request: &mut S3Request<PutObjectRetentionInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, Operation::PutObjectRetention)?;
        let retention = retention(request.input.retention.as_ref())?;
        let authorization = Authorization::find(&request.extensions)?.with(|context| {
            if let Some(retention) = retention {
                lock::add_retention(context, retention, self.clock.now_ms());
            }
        });
        authorization.check(&actions, named_in(&request.input.key, &request.uri)?).await
    }

    async fn put_object_legal_hold(
        &self,
        request: &mut S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, Operation::PutObjectLegalHold)?;
        let is_on = legal_hold(request.input.legal_hold.as_ref())?;
        let authorization = Authorization::find(&request.extensions)?;
        let authorization = authorization.with(|context| lock::add_hold(context, is_on));
        authorization.check(&actions, named_in(&request.input.key, &request.uri)?).await
    }

    async fn put_object_tagging(
        &self,
        request: &mut S3Request<PutObjectTaggingInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, Operation::PutObjectTagging)?;
        let authorization = Authorization::find(&request.extensions)?;
        let tags = request.input.tagging.tag_set.iter();
        let tags = tags.filter_map(|tag| Some((tag.key.as_deref()?, tag.value.as_deref()?)));
        let name = named_in(&request.input.key, &request.uri)?;
        authorization.with_tags(tags).check(&actions, name).await
    }
}

/// Account that must own a bucket, if the request names one.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedOwner(Option<Box<[u8]>>);

impl ExpectedOwner {
    fn of(headers: &HeaderMap, name: &str) -> Self {
        Self(headers.get(name).map(|value| value.as_bytes().into()))
    }

    /// Refuses a bucket of another owner. The expected owner matches by canonical id, or by account
    /// name if the requester is the owner.
    pub(super) fn check(&self, requester: &Requester, owner: &str) -> S3Result<()> {
        let Some(expected) = &self.0 else { return Ok(()) };
        let is_own =
            |who: &AccountIdentity| *who.canonical_id == *owner && is_text(expected, &who.account);
        let is_met = match requester {
            _ if is_text(expected, owner) => true,
            Requester::Anonymous | Requester::LogDelivery => false,
            Requester::User(who) => is_own(who),
        };
        if is_met { Ok(()) } else { Err(denied()) }
    }
}

fn is_text(bytes: &[u8], text: &str) -> bool {
    bytes == text.as_bytes()
}

impl PolicyAccess {
    /// Requires a signed request, a role for all actions, and an allow by the principal's own
    /// policies, if it has any.
    fn check_named(
        &self,
        context: &mut S3AccessContext<'_>,
        actions: &[Action],
        resource: &str,
    ) -> S3Result<()> {
        let requester = requester(context)?;
        let has_role = actions.iter().all(|action| requester.has_role_for(*action));
        if requester == Requester::Anonymous || !has_role {
            return Err(denied());
        }
        if requester.is_whole() {
            return Ok(());
        }
        let operation = operation(context.extensions_mut())?;
        let asked = PolicyRequest {
            operation,
            headers: context.headers(),
            query: context.uri().query().unwrap_or_default(),
        };
        let mut known = asked.context(self.clock.now_ms())?;
        policy_context::add_requester(&mut known, &requester);
        policy_context::add_extensions(&mut known, context.extensions_mut());
        let may = |&action: &Action| {
            let question = Question { requester: &requester, action, resource, context: &known };
            matches!(requester.own_verdict(&question), None | Some(PolicyDecision::Allow))
        };
        if actions.iter().all(may) { Ok(()) } else { Err(denied()) }
    }
}

/// Actions that a CreateBucket request needs: one more for each setting of the new bucket.
fn creating(context: &mut S3AccessContext<'_>) -> S3Result<Vec<Action>> {
    let has_tags = new_tags::are_given(context.extensions_mut())?;
    let headers = context.headers();
    let asked = PolicyRequest { operation: Operation::CreateBucket, headers, query: "" };
    let mut actions = vec![Action::CreateBucket];
    if asked.case()?.sets_acl {
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

/// Actions of a request whose body is parsed.
fn actions_of<T>(request: &S3Request<T>, operation: Operation) -> S3Result<Vec<Action>> {
    let query = request.uri.query().unwrap_or_default();
    let case = PolicyRequest { operation, headers: &request.headers, query }.case()?;
    Ok(actions(operation, case))
}

/// Version in the query, if any.
fn query_version(query: &str) -> S3Result<Option<VersionId>> {
    version(Query::parse(query)?.get("versionId"))
}

/// Object that a request names: the key, and the version in the query.
fn named_in<'a>(key: &'a str, uri: &Uri) -> S3Result<ObjectName<'a>> {
    Ok(ObjectName { key, version: query_version(uri.query().unwrap_or_default())? })
}

/// Admits a request: stores its rights, and a session with its guard, in the extensions.
fn enter(
    context: &mut S3AccessContext<'_>,
    mut authorization: Authorization,
    guard: Option<Arc<dyn Guard>>,
) {
    let extensions = context.extensions_mut();
    authorization.is_guarded = guard.is_some();
    if let Some(guard) = guard {
        extensions.insert(authorization.session().guarded(guard));
    }
    extensions.insert(authorization);
}

/// Operation of the request. Refuses requests that did not pass the HTTP pipeline.
fn operation(extensions: &Extensions) -> S3Result<Operation> {
    extensions.get().copied().ok_or_else(denied)
}

/// Principal of the request. Refuses requests that did not pass the HTTP pipeline.
fn requester(context: &mut S3AccessContext<'_>) -> S3Result<Requester> {
    let extensions = context.extensions_mut();
    match extensions.get::<Identity>() {
        None => Err(denied()),
        Some(Identity::Anonymous) => Ok(Requester::Anonymous),
        Some(Identity::Known(who)) => Ok(Requester::User(who.clone())),
    }
}

/// Replaces `NoSuchKey` and similar errors by AccessDenied for principals without `ListBucket`.
/// So errors do not reveal if a key exists.
pub(super) async fn conceal<T>(
    authorization: Option<Authorization>,
    outcome: S3Result<T>,
) -> S3Result<T> {
    let (Some(authorization), Err(error)) = (authorization, &outcome) else { return outcome };
    let is_telling = match error.code() {
        S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion => true,
        // A delete marker has no list that could grant access.
        S3ErrorCode::MethodNotAllowed => authorization.is_guarded,
        _ => false,
    };
    if is_telling && !authorization.may_list().await? { Err(denied()) } else { outcome }
}

/// 403 AccessDenied.
pub(super) fn denied() -> S3Error {
    messages::ACCESS_DENIED.error()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_owner_is_expected_by_its_id_and_by_itself_by_its_name() {
        let check = |expected: &'static str, requester: &Requester| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(EXPECTED_OWNER),
                HeaderValue::from_static(expected),
            )]);
            ExpectedOwner::of(&headers, EXPECTED_OWNER).check(requester, "c0ffee").is_ok()
        };
        let alice = Requester::User(Arc::new(AccountIdentity {
            canonical_id: "c0ffee".into(),
            ..AccountIdentity::named("alice")
        }));
        let bob = Requester::named("bob");
        assert!(check("c0ffee", &alice) && check("alice", &alice));
        assert!(check("c0ffee", &bob) && !check("alice", &bob) && !check("bob", &bob));
        assert!(check("c0ffee", &Requester::Anonymous) && !check("", &Requester::Anonymous));
        assert!(!check("c0ffeefoo", &alice) && !check("123456789012", &alice));
        assert!(ExpectedOwner::default().check(&bob, "c0ffee").is_ok(), "nobody is expected");
    }
}
