//! Session and CSRF token of a request.

use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::sessions::Session;

const NO_SESSION: &str = "sign in: this browser has no session";
/// Header with the CSRF token of a session.
pub(crate) const CSRF: &str = "x-martlet-csrf";
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
    let session = console.sessions.of(headers, console.is_secure);
    let session = session.ok_or_else(|| Box::new(no_session()))?;
    if !session.is_own(given) {
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, NO_CSRF)));
    }
    Ok(session)
}

/// Returns the CSRF token in the query of a link.
pub(crate) fn csrf_of_link(uri: &Uri) -> Option<String> {
    let pairs: Query<Vec<(String, String)>> = Query::try_from_uri(uri).ok()?;
    pairs.0.into_iter().find(|(name, _)| name == CSRF).map(|(_, value)| value)
}

/// Returns the refusal of a request without a session.
pub(crate) fn no_session() -> Response {
    refuse(StatusCode::UNAUTHORIZED, NO_SESSION)
}
