//! Requests of the pages to S3: signed here with the access key of the session.
//!
//! The service decides by the policies of that key. Bodies stream both ways. Headers of requests and
//! replies are closed lists: no cookie, no signature and no address of a page reaches S3, and no
//! header of an object decides how a browser treats the object. An object is always a download.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::own_request::{CSRF, csrf_of, session_of, session_of_link};
use crate::sign::{SignedService, SigningScope, UnsignedRequest};
use crate::target::{S3Target, s3_query};

/// Host that signed requests within this process name.
pub(crate) const HOST: &str = "console";
/// Name of this client in access logs.
pub(crate) const AGENT: &str = "martlet-console";
/// Headers of a request that S3 receives, besides those of S3 itself.
const REQUEST: [HeaderName; 8] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    HeaderName::from_static("content-md5"),
    header::RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];
/// Prefixes of S3's headers.
const PREFIXES: [&str; 2] = ["x-amz-", "x-martlet-"];
/// Headers with S3's prefixes that only a signer sets.
const SIGNER: [&str; 4] = ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token", CSRF];
/// Headers of a reply that a browser receives as they are, besides those of S3 itself.
const REPLY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LAST_MODIFIED,
];
/// Headers of an object that a browser would obey. Pages read them by another name.
const RENAMED: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "x-object-content-type"),
    (header::CONTENT_ENCODING, "x-object-content-encoding"),
    (header::CONTENT_LANGUAGE, "x-object-content-language"),
    (header::CONTENT_DISPOSITION, "x-object-content-disposition"),
    (header::CACHE_CONTROL, "x-object-cache-control"),
    (header::EXPIRES, "x-object-expires"),
];
pub(crate) const NO_KEY: &str = "this session is of an admin key, which has no rights at S3: sign in with an \
    access key";
/// Refusal beyond the requests of one principal under way.
pub(crate) const TOO_MANY: &str =
    "too many requests of this user are under way: wait for some of them";
/// Refusal while the devices are opened.
pub(crate) const NOT_OPEN: &str = "the store is not open yet: try again in a moment";

/// Sends a request of a page to S3.
pub(crate) async fn forward(State(console): State<Arc<Console>>, request: Request) -> Response {
    if !is_own(request.headers()) {
        return refuse(StatusCode::FORBIDDEN, "objects are read by pages of this console alone");
    }
    let headers = request.headers();
    // A download is a link, which has no header of its own.
    let session = match csrf_of(headers) {
        None if *request.method() == Method::GET => {
            session_of_link(&console, headers, request.uri())
        }
        given => session_of(&console, headers, given),
    };
    let session = match session {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let Some(key) = session.rights.s3 else { return refuse(StatusCode::FORBIDDEN, NO_KEY) };
    let Some(s3) = console.s3.get() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN);
    };
    let Some(_place) = console.places.take(key.holder()) else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY);
    };
    let (mut head, body) = request.into_parts();
    let target = match S3Target::of_path(head.uri.path()) {
        Ok(target) => target,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, sentence),
    };
    // A POST to the service itself would begin sessions of roles, whose secrets pages must not hold.
    if target.bucket.is_none() && head.method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "the list of buckets is read by GET");
    }
    let path = match s3_query(&head.uri, CSRF) {
        Ok(query) => target.s3_path() + &query,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, sentence),
    };
    let headers = request_headers(&head.headers);
    let unsigned = UnsignedRequest {
        method: &head.method,
        uri: &format!("http://{HOST}{path}"),
        headers: &headers,
        body: None,
        service: SignedService::S3,
    };
    let scope = SigningScope { region: &s3.region, now_ms: console.clock.now_ms() };
    let signed = key.sign(&unsigned, scope).zip(path.parse::<Uri>().ok());
    let Some((headers, uri)) = signed else {
        return refuse(StatusCode::BAD_REQUEST, "the request can't be signed: a header is no text");
    };
    (head.headers, head.uri) = (headers, uri);
    let (reply, body) = s3.ask(Request::from_parts(head, body)).await.into_parts();
    Response::from_parts(reply_head(reply, &target), body)
}

/// Returns true if a page of this origin sends the request, or a person opens its address. Requests
/// for scripts, styles, frames and workers are refused, whatever their type.
fn is_own(headers: &HeaderMap) -> bool {
    let is_one_of = |name: &str, allowed: [&[u8]; 2]| {
        headers.get(name).is_none_or(|value| allowed.contains(&value.as_bytes()))
    };
    is_one_of("sec-fetch-site", [b"same-origin", b"none"])
        && is_one_of("sec-fetch-dest", [b"empty", b"document"])
}

fn is_of_s3(name: &HeaderName) -> bool {
    PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
}

fn request_headers(sent: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        let is_signers = SIGNER.contains(&name.as_str());
        if REQUEST.contains(name) || (is_of_s3(name) && !is_signers) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(header::HOST, HeaderValue::from_static(HOST));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
    headers
}

fn reply_head(mut reply: Parts, target: &S3Target) -> Parts {
    let sent = std::mem::take(&mut reply.headers);
    for (name, value) in &sent {
        if REPLY.contains(name) || is_of_s3(name) {
            reply.headers.append(name.clone(), value.clone());
        } else if let Some((_, other)) = RENAMED.iter().find(|(renamed, _)| renamed == name) {
            reply.headers.append(HeaderName::from_static(other), value.clone());
        }
    }
    let media = HeaderValue::from_static("application/octet-stream");
    reply.headers.insert(header::CONTENT_TYPE, media);
    let disposition = HeaderValue::try_from(target.disposition());
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    reply.headers.insert(header::CONTENT_DISPOSITION, disposition);
    reply
}
