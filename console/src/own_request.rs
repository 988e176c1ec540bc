//! Session, CSRF token and body of a request.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use martlet_serving::operator::refuse;
use tokio::time::timeout;

use crate::Console;
use crate::cookies::SESSION;
use crate::sessions::Session;

const NO_SESSION: &str = "sign in: this browser has no session";
const TWO_COOKIES: &str = "the browser sends two cookies of this console, one of which a page of \
    another port has set: delete the cookies of this host, and sign in again";
/// Timeout for a small body: a client that is silent holds a place of the console's connections.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the CSRF token of a session.
pub(crate) const CSRF: &str = "x-martlet-csrf";
/// Query parameter of a version.
const VERSION_ID: &str = "versionId";
/// Refusal of a request without the session's CSRF token.
pub(crate) const NO_CSRF: &str = "the request lacks the token of this session: sign in again";

/// Returns the CSRF token of a request.
pub(crate) fn csrf_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(CSRF)?.to_str().ok()
}

/// Returns the session of a request that repeats the session's CSRF token.
///
/// Reads repeat the token too. Browsers send the cookie to every port of the host, but pages of
/// other ports, and their servers, don't have the token.
pub(crate) fn session_of(
    console: &Console,
    headers: &HeaderMap,
    given: Option<&str>,
) -> Result<Session, Box<Response>> {
    let session = open_session(console, headers)?;
    if !session.is_own(given) {
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, NO_CSRF)));
    }
    Ok(session)
}

/// Returns the session of a link that saves an object: a query with the token of links, and with no
/// other parameter but a version.
pub(crate) fn session_of_link(
    console: &Console,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Session, Box<Response>> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs);
    let pairs = pairs.unwrap_or_default();
    let (tokens, rest): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(name, _)| name == CSRF);
    let [(_, token)] = &tokens[..] else { return session_of(console, headers, None) };
    let session = open_session(console, headers)?;
    let is_download = rest.iter().all(|(name, _)| name == VERSION_ID);
    if !is_download || !session.is_own_link(Some(token)) {
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, NO_CSRF)));
    }
    Ok(session)
}

/// Returns the open session of a request's cookie.
fn open_session(console: &Console, headers: &HeaderMap) -> Result<Session, Box<Response>> {
    check_cookies(console, headers)?;
    let session = console.sessions.of(headers, console.is_secure);
    session.ok_or_else(|| Box::new(no_session()))
}

/// Refuses a request with two cookies of the session's name. A page of another port of the host can
/// set one, and would otherwise lead the browser into a session of a stranger.
pub(crate) fn check_cookies(console: &Console, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if SESSION.values(headers, console.is_secure).len() > 1 {
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, TWO_COOKIES)));
    }
    Ok(())
}

/// Returns the refusal of a request without a session.
pub(crate) fn no_session() -> Response {
    refuse(StatusCode::UNAUTHORIZED, NO_SESSION)
}

/// Reads a small body.
///
/// # Errors
/// The reply, if the body is too large, is cut short or takes too long.
pub(crate) async fn read_body(body: Body, bytes_max: usize) -> Result<Bytes, Box<Response>> {
    match timeout(BODY_TIMEOUT, to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let sentence = "the body of the request is too large, or was cut short";
            Err(Box::new(refuse(StatusCode::PAYLOAD_TOO_LARGE, sentence)))
        }
        Err(_) => {
            let sentence = "the body of the request took too long";
            Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, sentence)))
        }
    }
}
