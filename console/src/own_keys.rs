//! Own access keys of a user: the store's IAM actions, signed here with the key of the session.
//!
//! The store decides by the policy of the user. A new secret is sent to the browser once, in the reply
//! to the request that made it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use martlet_serving::operator::refuse;
use serde::{Deserialize, Serialize};

use crate::Console;
use crate::objects::{NOT_OPEN, TOO_MANY};
use crate::own_request::{csrf_of, read_body, session_of};
use crate::sign::{AccessKey, SignedService};
use crate::store_form::{element, element_ms};
use crate::target::{QUERY, encode};

/// Maximum bytes of a request.
const BYTES_MAX: usize = 64 * 1024;
const NO_KEY: &str = "own keys are those of a user who signed in with an access key";
const TEMPORARY: &str = "a session of a role has no keys: sign in with a key of a user";

/// Key in a request.
#[derive(Deserialize)]
pub(crate) struct NamedKey {
    access_key: String,
}

/// Key of a user.
#[derive(Serialize)]
struct OwnKey {
    access_key: String,
    /// True if the key is accepted.
    enabled: bool,
    /// Time of creation, and of the secret, in milliseconds since 1970.
    created_ms: u64,
    rotated_ms: u64,
    /// True for the key of this session.
    is_current: bool,
}

/// Keys of a user.
#[derive(Serialize)]
struct OwnKeyList {
    items: Vec<OwnKey>,
}

/// New secret of a key.
#[derive(Serialize)]
struct NewSecret {
    access_key: String,
    secret_key: String,
    /// True if the session can sign no more, because its key has another secret now.
    ends_session: bool,
}

/// Lists the keys of the session's user.
pub(crate) async fn list(State(console): State<Arc<Console>>, request: Request) -> Response {
    let key = match owner(&console, request.headers()) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    match console.iam(&key, "Action=ListAccessKeys", request.extensions()).await {
        Ok(text) => Json(OwnKeyList { items: keys_of(&text, &key.id) }).into_response(),
        Err(refusal) => *refusal,
    }
}

/// Creates a key.
pub(crate) async fn create(State(console): State<Arc<Console>>, request: Request) -> Response {
    change(&console, request, |_| Some("Action=CreateAccessKey".to_owned())).await
}

/// Replaces the secret of a key.
pub(crate) async fn rotate(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = |body: &[u8]| {
        let NamedKey { access_key } = serde_json::from_slice(body).ok()?;
        Some(format!("Action=RotateAccessKey&AccessKeyId={}", encode(&access_key, QUERY)))
    };
    change(&console, request, form).await
}

/// Deletes a key.
pub(crate) async fn delete(
    State(console): State<Arc<Console>>,
    Query(NamedKey { access_key }): Query<NamedKey>,
    request: Request,
) -> Response {
    let key = match owner(&console, request.headers()) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    let form = format!("Action=DeleteAccessKey&AccessKeyId={}", encode(&access_key, QUERY));
    match console.iam(&key, &form, request.extensions()).await {
        Ok(_) => Json(serde_json::json!({ "deleted": access_key })).into_response(),
        Err(refusal) => *refusal,
    }
}

/// Makes a new secret by the form that `form` returns for the body of a request.
async fn change(
    console: &Console,
    request: Request,
    form: impl FnOnce(&[u8]) -> Option<String>,
) -> Response {
    let key = match owner(console, request.headers()) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    let (head, body) = request.into_parts();
    let body = match read_body(body, BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let Some(form) = form(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "the request must name an access key");
    };
    let text = match console.iam(&key, &form, &head.extensions).await {
        Ok(text) => text,
        Err(refusal) => return *refusal,
    };
    let part = |name: &str| element(&text, name);
    let Some((access_key, secret_key)) = part("AccessKeyId").zip(part("SecretAccessKey")) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the store's reply can't be read");
    };
    // The page signs out once the person has kept the secret.
    let ends_session = access_key == key.id;
    Json(NewSecret { access_key, secret_key, ends_session }).into_response()
}

/// Returns the access key of a request's session, if it is not temporary.
fn owner(console: &Console, headers: &HeaderMap) -> Result<Arc<AccessKey>, Box<Response>> {
    let session = session_of(console, headers, csrf_of(headers))?;
    let refused = |sentence| Box::new(refuse(StatusCode::FORBIDDEN, sentence));
    let key = session.rights.s3.ok_or_else(|| refused(NO_KEY))?;
    if key.expires_ms().is_some() {
        return Err(refused(TEMPORARY));
    }
    Ok(key)
}

impl Console {
    /// Sends a form of an action to the store, and returns the body of the reply.
    async fn iam(
        &self,
        key: &AccessKey,
        action: &str,
        connection: &Extensions,
    ) -> Result<String, Box<Response>> {
        let refused = |status, sentence: &str| Box::new(refuse(status, sentence));
        let unreadable = || refused(StatusCode::INTERNAL_SERVER_ERROR, "the reply can't be read");
        let s3 = self.s3.get();
        let s3 = s3.ok_or_else(|| refused(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN))?;
        let too_many = || refused(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY);
        let _place = self.places.take(key.holder()).ok_or_else(too_many)?;
        let form = format!("{action}&Version=2010-05-08");
        let signer = Some((key, SignedService::Iam));
        let reply = self.send_form(s3, form, signer, connection).await.ok_or_else(unreadable)?;
        if reply.status.is_success() {
            return Ok(reply.text);
        }
        let sentence = element(&reply.text, "Message");
        Err(refused(reply.status, sentence.as_deref().unwrap_or("the store refused this")))
    }
}

/// Keys in a list of the store.
fn keys_of(text: &str, current: &str) -> Vec<OwnKey> {
    let members = text.split("<member>").skip(1);
    let members = members.filter_map(|rest| Some(rest.split_once("</member>")?.0));
    let key = |member: &str| {
        let access_key = element(member, "AccessKeyId")?;
        let created_ms = element_ms(member, "CreateDate")?;
        Some(OwnKey {
            is_current: access_key == current,
            enabled: element(member, "Status").as_deref() == Some("Active"),
            rotated_ms: element_ms(member, "RotateDate").unwrap_or(created_ms),
            created_ms,
            access_key,
        })
    };
    members.filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_keys_are_read() {
        let text = "<ListAccessKeysResult><AccessKeyMetadata><member><UserName>u</UserName>\
            <AccessKeyId>A&amp;B</AccessKeyId><Status>Active</Status>\
            <CreateDate>2026-11-28T02:30:00.000Z</CreateDate></member><member><AccessKeyId>C\
            </AccessKeyId><Status>Inactive</Status><CreateDate>2026-11-28T02:30:00Z</CreateDate>\
            <RotateDate>2026-11-28T02:30:01Z</RotateDate></member><member><x/></member>\
            </AccessKeyMetadata></ListAccessKeysResult>";
        let keys = keys_of(text, "A&B");
        let of = |key: &OwnKey| (key.access_key.clone(), key.enabled, key.is_current);
        assert_eq!(
            keys.iter().map(of).collect::<Vec<_>>(),
            [("A&B".to_owned(), true, true), ("C".to_owned(), false, false)]
        );
        assert_eq!(keys[0].rotated_ms, 1_795_833_000_000);
        assert_eq!(keys[1].rotated_ms - keys[1].created_ms, 1000);
    }
}
