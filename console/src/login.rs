//! Login and logout of a browser.
//!
//! A login with an admin key signs one request of the admin API, which begins a session there. The
//! secret is dropped afterwards. A login with the root key uses the token that follows from the root
//! secret.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use martlet_admin_api::principals::{PrincipalLine, SESSION, SessionReply, SessionRequest};
use martlet_protocol::http::Peer;
use martlet_serving::AdminToken;
use martlet_serving::access::{SigningKey, UnsignedRequest};
use martlet_serving::operator::refuse;
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::Console;
use crate::sessions::{NewSession, SESSION_S, Session, cookie};

/// Maximum bytes of a login, and of the admin API's reply to it.
const BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a key's id.
const KEY_BYTES_MAX: usize = 128;
/// Host that signed requests within this process name.
const HOST: &str = "console";
const WRONG: &str = "the key or its secret is wrong: check both, or make another key with \
    martlet admin key create";
const NO_SESSION: &str = "sign in: this browser has no session";

/// Login.
#[derive(Deserialize)]
struct LoginRequest {
    key: String,
    secret: String,
}

/// Session, as its browser knows it.
#[derive(Serialize)]
struct OpenSession {
    principal: PrincipalLine,
    /// CSRF token, for the header `x-martlet-csrf` of changes.
    csrf: String,
    version: &'static str,
}

impl From<Session> for OpenSession {
    fn from(Session { principal, csrf, .. }: Session) -> Self {
        Self { principal, csrf, version: env!("CARGO_PKG_VERSION") }
    }
}

/// Returns the refusal of a request without a session.
pub(crate) fn no_session() -> Response {
    refuse(StatusCode::UNAUTHORIZED, NO_SESSION)
}

/// Returns the session of the browser.
pub(crate) async fn show(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    match console.sessions.of(&headers, console.is_secure) {
        Some(session) => Json(OpenSession::from(session)).into_response(),
        None => no_session(),
    }
}

/// Signs in.
pub(crate) async fn begin(State(console): State<Arc<Console>>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let client = peer.map(|peer| peer.0);
    let media = request.headers().get(header::CONTENT_TYPE);
    if media.is_none_or(|media| media.as_bytes() != b"application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a login is JSON");
    }
    if !console.attempts.take(client) {
        let sentence = "too many logins have failed: wait a minute";
        return refuse(StatusCode::TOO_MANY_REQUESTS, sentence);
    }
    let before = request.headers().clone();
    let Ok(body) = to_bytes(request.into_body(), BYTES_MAX).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the login is too large");
    };
    let Ok(login) = serde_json::from_slice::<LoginRequest>(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "a login needs a key and a secret");
    };
    match console.sign_in(login, peer).await {
        Ok(SessionReply { token, principal }) => {
            console.attempts.give_back(client);
            console.sessions.end(&before, console.is_secure);
            let NewSession { id, session } = console.sessions.begin(token, principal);
            let set = [(header::SET_COOKIE, cookie(&id, console.is_secure))];
            (set, Json(OpenSession::from(session))).into_response()
        }
        Err(refused) => *refused,
    }
}

/// Signs out. Ends the session at the admin API too.
pub(crate) async fn end(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    let Some(session) = console.sessions.of(&headers, console.is_secure) else {
        return no_session();
    };
    if !session.is_own(crate::forward::csrf_of(&headers)) {
        return refuse(StatusCode::FORBIDDEN, crate::forward::NO_CSRF);
    }
    console.sessions.end(&headers, console.is_secure);
    let set = [(header::SET_COOKIE, cookie("", console.is_secure))];
    if session.principal.session.is_some() {
        let request = bearer(Method::DELETE, &session.token).body(Body::empty());
        if let Ok(request) = request {
            let reply = console.ask(request).await;
            if !reply.status().is_success() {
                return (set, reply).into_response();
            }
        }
    }
    (set, Json(serde_json::json!({}))).into_response()
}

fn bearer(method: Method, token: &str) -> Builder {
    let request = Request::builder().method(method).uri(SESSION);
    request.header(header::AUTHORIZATION, format!("Bearer {token}"))
}

impl Console {
    /// Sends a request to the admin API of this process.
    pub(crate) async fn ask(&self, request: Request) -> Response {
        match self.admin.clone().oneshot(request).await {
            Ok(reply) => reply,
            Err(never) => match never {},
        }
    }

    async fn sign_in(
        &self,
        login: LoginRequest,
        peer: Option<Peer>,
    ) -> Result<SessionReply, Box<Response>> {
        let LoginRequest { key, secret } = login;
        let (key, secret) = (key.trim().to_owned(), secret.trim().to_owned());
        if key == self.root_key {
            let token = AdminToken::of(secret.as_bytes()).to_text();
            let body = self.signed_in(bearer(Method::GET, &token), Bytes::new(), peer).await?;
            let principal = serde_json::from_slice(&body).map_err(|_| unreadable())?;
            return Ok(SessionReply { token, principal });
        }
        if key.len() > KEY_BYTES_MAX || !key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG)));
        }
        let body = serde_json::to_vec(&SessionRequest { seconds: Some(SESSION_S) });
        let body = Bytes::from(body.map_err(|_| unreadable())?);
        let unsigned =
            UnsignedRequest { method: &Method::POST, target: SESSION, host: HOST, body: &body };
        let now_ms = self.clock.now_ms();
        let mut request = Request::builder().method(Method::POST).uri(SESSION);
        for (name, value) in (SigningKey { id: key, secret }).sign(unsigned, now_ms) {
            request = request.header(name, value);
        }
        let body = self.signed_in(request.header(header::HOST, HOST), body, peer).await?;
        serde_json::from_slice(&body).map_err(|_| unreadable())
    }

    /// Sends a request of a login, and returns the body of the reply.
    async fn signed_in(
        &self,
        request: Builder,
        body: Bytes,
        peer: Option<Peer>,
    ) -> Result<Bytes, Box<Response>> {
        let wrong = || Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG));
        let mut request = request.body(Body::from(body)).map_err(|_| wrong())?;
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let reply = self.ask(request).await;
        match reply.status() {
            status if status.is_success() => {}
            // Malformed, unknown and wrong keys are refused alike.
            StatusCode::UNAUTHORIZED => return Err(wrong()),
            _ => return Err(Box::new(reply)),
        }
        to_bytes(reply.into_body(), BYTES_MAX).await.map_err(|_| unreadable())
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "callers return it as an error")]
fn unreadable() -> Box<Response> {
    Box::new(refuse(StatusCode::INTERNAL_SERVER_ERROR, "the admin API's reply can't be read"))
}
