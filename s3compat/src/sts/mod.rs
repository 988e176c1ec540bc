//! The security token service: temporary sessions of roles, for a signer or for an identity
//! provider's token.
//!
//! ```text
//! POST / (a form) ─▶ signature of the service "sts", or a token ─▶ trust document ─▶ a session
//! any S3 request with a session token ─▶ Authenticator ─▶ current role, tenant, source
//! ```
//!
//! * [`jwt`]: tokens of identity providers. `auth` has the public keys that verify them.
//! * [`form`], [`assume`], [`reply`]: the actions, in the form and XML of the SDKs.
//!
//! Its only caller is the HTTP pipeline: `http::tokens` passes on forms that are posted to no
//! bucket, and this module answers them whole. Session tokens and the credentials of sessions are
//! in `auth`, which reads them for each S3 request with a session token.
//!
//! A session has no state in the store. Its token, sealed with the cluster's key, holds the role,
//! the issuing key and the end of the session. The role, its tenant and the issuing key are looked
//! up at each use, so that their deletion ends the session. Decisions about trust are made by
//! `access`; this module finds the role, and binds the result to a token.
//!
//! The service comes before the S3 operations. Such a form can't be posted to a bucket, so requests
//! for the service and for buckets are never confused.

mod assume;
mod form;
mod jwt;
pub(crate) mod reply;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri};

use self::assume::StsRequest;
use self::form::{StsAction, StsForm};
pub use self::jwt::Claims;
use self::reply::{Elements, StsCode, StsError};
use crate::access::Requester;
use crate::auth::{Authenticator, Caller, RequestHead};
use crate::body::ResponseBody;
use crate::connection::Connection;
use crate::refusal::Refusal;
use crate::target::{Query, RequestTarget};

/// Limit of a form in bytes: a token, a policy and some names, all of them encoded.
pub(crate) const FORM_BYTES_MAX: u64 = 128 * 1024;
const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// True if a request without a bucket is for this service.
pub(crate) fn is_for(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let is_form =
        content_type.get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM));
    method == Method::POST && is_form && uri.path() == "/" && uri.query().is_none_or(str::is_empty)
}

/// Answers a request, given the result of reading its body.
pub(crate) async fn answer(
    authenticator: &Authenticator,
    parts: &Parts,
    read: Result<(&RequestTarget, &[u8]), &Refusal>,
    id: &str,
) -> Response<ResponseBody> {
    let outcome = match read {
        Ok((target, body)) => act(authenticator, parts, target, body).await,
        Err(refusal) => Err(refusal.clone().into()),
    };
    match outcome {
        Ok((action, result)) => reply::done(reply::STS, action.name(), &result, id),
        Err(error) => {
            tracing::debug!(
                id,
                code = error.code.code_and_status().0,
                error.message,
                "refused a request"
            );
            reply::refused(reply::STS, &error, id)
        }
    }
}

/// Refusal of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRefusal {
    /// True if the provider's keys can't be read at present.
    pub is_passing: bool,
    /// Reason in a sentence, without values of the token.
    pub message: String,
}

/// Verifies a provider's token, as `AssumeRoleWithWebIdentity` does.
///
/// # Errors
/// The token is not of a known provider, not for this store, or not valid now.
pub(crate) async fn verify_token(
    authenticator: &Authenticator,
    token: &str,
) -> Result<Claims, TokenRefusal> {
    let verified = async {
        let sessions = authenticator
            .sessions()
            .ok_or_else(|| StsError::new(StsCode::InvalidAction, "Roles are not supported here"))?;
        let provider = assume::provider_of(sessions, token)?;
        jwt::verify_by(provider, token, authenticator.now().unix_ms()).await
    };
    verified.await.map_err(|error: StsError| TokenRefusal {
        is_passing: error.code == StsCode::IdpCommunicationError,
        message: error.message,
    })
}

async fn act(
    authenticator: &Authenticator,
    parts: &Parts,
    target: &RequestTarget,
    body: &[u8],
) -> Result<(StsAction, Elements), StsError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| StsError::validation("The request body is not UTF-8"))?;
    let form = &StsForm::parse(text)?;
    let Some(sessions) = authenticator.sessions() else {
        return Err(StsError::new(StsCode::InvalidAction, "Roles are not supported here"));
    };
    let now_ms = authenticator.now().unix_ms();
    let connection = Connection::of(&parts.extensions);
    let call = StsRequest { sessions, form, connection, now_ms };
    if form.action == StsAction::AssumeRoleWithWebIdentity {
        let result = Box::pin(call.assume_role_with_web_identity()).await?;
        return Ok((form.action, result));
    }
    if !parts.headers.contains_key(AUTHORIZATION) {
        let message = "Request is missing Authentication Token";
        return Err(StsError::new(StsCode::MissingAuthenticationToken, message));
    }
    let caller: Caller = authenticator.caller(&parts.headers, "", connection.peer).await?;
    let query = Query::default();
    let (method, headers) = (&parts.method, &parts.headers);
    let head = RequestHead { method, raw_path: parts.uri.path(), target, query: &query, headers };
    let credential = authenticator.authenticate_form_request(&head, body, &caller, "sts")?;
    let who = credential
        .identity()
        .who()
        .ok_or_else(|| StsError::validation("The request has no principal"))?;
    let requester = Requester::User(who.clone());
    let result = match form.action {
        StsAction::GetCallerIdentity => StsRequest::caller_identity(who),
        _ => Box::pin(call.assume_role(&credential, who, &requester)).await?,
    };
    Ok((form.action, result))
}
