//! Requests of the pages to the admin API: the cookie of a session becomes its bearer token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::login::no_session;

/// Header with the CSRF token of a session.
const CSRF: &str = "x-martlet-csrf";
/// Refusal of a change without the session's CSRF token.
pub(crate) const NO_CSRF: &str = "the request lacks the token of this session: load the page again";

/// Returns the CSRF token of a request.
pub(crate) fn csrf_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(CSRF)?.to_str().ok()
}

/// Sends a request of a page to the admin API.
pub(crate) async fn forward(State(console): State<Arc<Console>>, request: Request) -> Response {
    let Some(session) = console.sessions.of(request.headers(), console.is_secure) else {
        return no_session();
    };
    let is_change = *request.method() != Method::GET && *request.method() != Method::HEAD;
    if is_change && !session.is_own(csrf_of(request.headers())) {
        return refuse(StatusCode::FORBIDDEN, NO_CSRF);
    }
    let (mut head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let inner = target.strip_prefix("/api").and_then(|target| target.parse::<Uri>().ok());
    let Ok(authorization) = HeaderValue::try_from(format!("Bearer {}", session.token)) else {
        return no_session();
    };
    let Some(uri) = inner else {
        return refuse(StatusCode::BAD_REQUEST, "the path can't be read");
    };
    head.uri = uri;
    head.headers.remove(header::COOKIE);
    head.headers.remove(CSRF);
    head.headers.insert(header::AUTHORIZATION, authorization);
    let reply = console.ask(Request::from_parts(head, body)).await;
    if reply.status() == StatusCode::UNAUTHORIZED {
        return no_session();
    }
    reply
}
