//! Requests of the pages to the admin API: the cookie of a session becomes its bearer token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::own_request::{CSRF, csrf_of, no_session, session_of};

/// Refusal of a request to the admin API by an access key of S3.
const NO_ADMIN: &str = "this session is of an access key, which has no rights at the admin API: \
    sign in with an admin key";

/// Sends a request of a page to the admin API.
pub(crate) async fn forward(State(console): State<Arc<Console>>, request: Request) -> Response {
    let session = match session_of(&console, request.headers(), csrf_of(request.headers())) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let Some(admin) = session.rights.admin else {
        return refuse(StatusCode::FORBIDDEN, NO_ADMIN);
    };
    let (mut head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let inner = target.strip_prefix("/api").and_then(|target| target.parse::<Uri>().ok());
    let Ok(authorization) = HeaderValue::try_from(format!("Bearer {}", admin.token)) else {
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
