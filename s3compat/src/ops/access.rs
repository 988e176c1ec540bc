//! Who may do what: the owner of a bucket everything that its policy doesn't deny, others what its
//! policy allows or an access control list grants.
//!
//! s3s asks here before each operation. What is decided then needs the request's head alone; two
//! operations name more in their bodies, and ask again: `PutObjectTagging` its tags, `DeleteObjects`
//! its keys. Copies ask again for their source. What an object's list has to grant is asked of it by
//! the session, when the object is read.

use std::sync::Arc;

use http::{HeaderMap, Uri};
use martlet_protocol::{Clock, VersionId};
use martlet_proxy::{Guard, ObjectName, ObjectStore};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{PutObjectLegalHoldInput, PutObjectRetentionInput, PutObjectTaggingInput};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use super::asked::{self, Asked};
use super::lock::{legal_hold, retention};
use super::new_tags;
use super::rights::Rights;
use super::session;
use super::standing::Standing;
use super::versions::version;
use crate::access::{AclUse, Action, Case, Context, Question, Requester, Scope, Verdict, actions};
use crate::auth::{Identity, Query, Who};
use crate::door::Operation;
use crate::errors::s3_error;
use crate::lock;
use crate::sentences;

/// s3s is told no secrets: the door has authenticated the request and taken its credentials out.
pub(crate) struct NoSecrets;

#[async_trait::async_trait]
impl S3Auth for NoSecrets {
    async fn get_secret_key(&self, _access_key: &str) -> S3Result<SecretKey> {
        Err(denied())
    }
}

/// Operations that are judged once their bodies are read.
const JUDGED_BY_BODY: [&str; 3] = ["PutObjectLegalHold", "PutObjectRetention", "PutObjectTagging"];
/// Names the source of a copy.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// Says whose the bucket must be, and whose that which is copied from.
const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

/// Asks for the identity that the door found, and what the bucket lets it do.
pub(crate) struct ByPolicy {
    pub(crate) store: ObjectStore,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait::async_trait]
impl S3Access for ByPolicy {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_owned();
        let Some(bucket) = context.s3_path().get_bucket_name().map(str::to_owned) else {
            return self.check_named(context, &[Action::ListAllMyBuckets], "*");
        };
        // Whether a name is taken is CreateBucket's own question.
        if operation == "CreateBucket" {
            let actions = creating(context)?;
            return self.check_named(context, &actions, &bucket);
        }
        let key = context.s3_path().get_object_key().map(str::to_owned);
        let requester = requester(context)?;
        let store = session(context.extensions_mut(), &self.store);
        let found = store.bucket(&bucket).await.map_err(s3_error)?;
        let expected = |name| Expected::of(context.headers(), name);
        let of_source = expected(EXPECTED_SOURCE_OWNER);
        expected(EXPECTED_OWNER).check(&requester, &found.owner)?;
        let acl_use = context.extensions_mut().get::<AclUse>().cloned().unwrap_or_default();
        let standing = Standing::of(&requester, &bucket, &found).noting(acl_use);
        if standing.is_shut_out() {
            return Err(denied());
        }
        // What nobody will be asked about need not be known. Copies ask another bucket, too.
        if standing.is_unlimited() && !context.headers().contains_key(COPY_SOURCE) {
            let actions = actions(&operation, Case::default()).ok_or_else(denied)?;
            let rights = Rights::new(store, requester, standing, Context::default());
            let guard = rights.guard(&actions);
            enter(context, rights, guard);
            return Ok(());
        }
        let asked = Asked {
            operation: &operation,
            headers: context.headers(),
            query: context.uri().query().unwrap_or_default(),
        };
        let actions = actions(&operation, asked.case()?).ok_or_else(denied)?;
        if !standing.may_ever(&requester, &actions) {
            return Err(denied());
        }
        let mut known = asked.context(self.clock.now_ms())?;
        asked::add_requester(&mut known, &requester);
        asked::add_extensions(&mut known, context.extensions_mut());
        // In S3 the removal of a version is no action that this key is about.
        if actions.contains(&Action::DeleteObjectVersion) {
            known.forget("s3:if-match");
        }
        let rights = Rights::new(store, requester, standing, known).expecting(of_source);
        let rights = rights.about(key.clone());
        let is_by_key = actions.iter().any(|action| action.scope() == Scope::Object);
        let guard = match key {
            _ if JUDGED_BY_BODY.contains(&operation.as_str()) => None,
            // The keys are in the body.
            None if is_by_key && operation == "DeleteObjects" => None,
            None if is_by_key => return Err(denied()),
            key => {
                let version = query_version(context.uri().query().unwrap_or_default())?;
                let name = key.as_deref().map(|key| ObjectName { key, version });
                rights.check_but_object(&actions, name).await?
            }
        };
        enter(context, rights, guard);
        Ok(())
    }

    async fn put_object_retention(
        &self,
        request: &mut S3Request<PutObjectRetentionInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, "PutObjectRetention")?;
        let retention = retention(request.input.retention.as_ref())?;
        let rights = Rights::find(&request.extensions)?.with(|context| {
            if let Some(retention) = retention {
                lock::add_retention(context, retention, self.clock.now_ms());
            }
        });
        rights.check(&actions, named_in(&request.input.key, &request.uri)?).await
    }

    async fn put_object_legal_hold(
        &self,
        request: &mut S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, "PutObjectLegalHold")?;
        let is_on = legal_hold(request.input.legal_hold.as_ref())?;
        let rights = Rights::find(&request.extensions)?;
        let rights = rights.with(|context| lock::add_hold(context, is_on));
        rights.check(&actions, named_in(&request.input.key, &request.uri)?).await
    }

    async fn put_object_tagging(
        &self,
        request: &mut S3Request<PutObjectTaggingInput>,
    ) -> S3Result<()> {
        let actions = actions_of(request, "PutObjectTagging")?;
        let rights = Rights::find(&request.extensions)?;
        let tags = request.input.tagging.tag_set.iter();
        let tags = tags.filter_map(|tag| Some((tag.key.as_deref()?, tag.value.as_deref()?)));
        let name = named_in(&request.input.key, &request.uri)?;
        rights.with_tags(tags).check(&actions, name).await
    }
}

/// The account that a bucket must be owned by, where a request says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(Option<Box<[u8]>>);

impl Expected {
    fn of(headers: &HeaderMap, name: &str) -> Self {
        Self(headers.get(name).map(|value| value.as_bytes().into()))
    }

    /// Refuses another owner than the one that is meant: by its canonical id or, where it is its owner
    /// itself that asks, by its name.
    pub(super) fn check(&self, requester: &Requester, owner: &str) -> S3Result<()> {
        let Some(expected) = &self.0 else { return Ok(()) };
        let is_own = |who: &Who| *who.canonical_id == *owner && is_text(expected, &who.account);
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

impl ByPolicy {
    /// Asks for somebody in particular, whose role and own policy let it do this.
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
        let operation = context.s3_op().name().to_owned();
        let asked = Asked {
            operation: &operation,
            headers: context.headers(),
            query: context.uri().query().unwrap_or_default(),
        };
        let mut known = asked.context(self.clock.now_ms())?;
        asked::add_requester(&mut known, &requester);
        asked::add_extensions(&mut known, context.extensions_mut());
        let may = |&action: &Action| {
            let question = Question { requester: &requester, action, resource, context: &known };
            matches!(requester.own_verdict(&question), None | Some(Verdict::Allow))
        };
        if actions.iter().all(may) { Ok(()) } else { Err(denied()) }
    }
}

/// The actions of making a bucket: whoever may do no more may not say what it is to be like.
fn creating(context: &mut S3AccessContext<'_>) -> S3Result<Vec<Action>> {
    let has_tags = new_tags::are_given(context.extensions_mut())?;
    let headers = context.headers();
    let asked = Asked { operation: "CreateBucket", headers, query: "" };
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

/// The actions of a request whose body is read.
fn actions_of<T>(request: &S3Request<T>, operation: &str) -> S3Result<Vec<Action>> {
    let query = request.uri.query().unwrap_or_default();
    let case = Asked { operation, headers: &request.headers, query }.case()?;
    actions(operation, case).ok_or_else(denied)
}

/// The version that a query names.
fn query_version(query: &str) -> S3Result<Option<VersionId>> {
    version(Query::parse(query)?.get("versionId"))
}

/// The object that a request names: a key, and the version in its query.
fn named_in<'a>(key: &'a str, uri: &Uri) -> S3Result<ObjectName<'a>> {
    Ok(ObjectName { key, version: query_version(uri.query().unwrap_or_default())? })
}

/// Lets a request go on, with its rights.
fn enter(context: &mut S3AccessContext<'_>, mut rights: Rights, guard: Option<Arc<dyn Guard>>) {
    let extensions = context.extensions_mut();
    rights.is_guarded = guard.is_some();
    if let Some(guard) = guard {
        extensions.insert(rights.session().guarded(guard));
    }
    extensions.insert(rights);
}

/// Who asks. A request that didn't come by the door is nobody's.
fn requester(context: &mut S3AccessContext<'_>) -> S3Result<Requester> {
    let extensions = context.extensions_mut();
    if extensions.get::<&'static Operation>().is_none() {
        return Err(denied());
    }
    match extensions.get::<Identity>() {
        None => Err(denied()),
        Some(Identity::Anonymous) => Ok(Requester::Anonymous),
        Some(Identity::Known(who)) => Ok(Requester::User(who.clone())),
    }
}

/// What somebody who may not list a bucket is told of a key that isn't there: no more than of one
/// that is.
pub(super) async fn conceal<T>(rights: Option<Rights>, outcome: S3Result<T>) -> S3Result<T> {
    let (Some(rights), Err(error)) = (rights, &outcome) else { return outcome };
    let is_telling = match error.code() {
        S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion => true,
        // A delete marker has no list to ask.
        S3ErrorCode::MethodNotAllowed => rights.is_guarded,
        _ => false,
    };
    if is_telling && !rights.may_list().await? { Err(denied()) } else { outcome }
}

/// 403.
pub(super) fn denied() -> S3Error {
    sentences::ACCESS_DENIED.error()
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
            Expected::of(&headers, EXPECTED_OWNER).check(requester, "c0ffee").is_ok()
        };
        let alice =
            Requester::User(Arc::new(Who { canonical_id: "c0ffee".into(), ..Who::named("alice") }));
        let bob = Requester::named("bob");
        assert!(check("c0ffee", &alice) && check("alice", &alice));
        assert!(check("c0ffee", &bob) && !check("alice", &bob) && !check("bob", &bob));
        assert!(check("c0ffee", &Requester::Anonymous) && !check("", &Requester::Anonymous));
        assert!(!check("c0ffeefoo", &alice) && !check("123456789012", &alice));
        assert!(Expected::default().check(&bob, "c0ffee").is_ok(), "nobody is expected");
    }
}
