//! Login and logout of a browser.
//!
//! A login with an admin key signs one request of the admin API, which begins a session there. The
//! secret is dropped afterwards. A login with the root key uses the token that follows from the root
//! secret. Any other key is an access key of S3: its secret is checked by the token service, and
//! stays in the memory of this process until the session ends.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Builder;
use axum::http::{Extensions, HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use martlet_admin_api::principals::{PrincipalLine, SESSION, SessionReply, SessionRequest};
use martlet_protocol::http::Peer;
use martlet_serving::AdminToken;
use martlet_serving::access::{SigningKey, UnsignedRequest};
use martlet_serving::operator::refuse;
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::Console;
use crate::cookies::SESSION as SESSION_COOKIE;
use crate::own_request::{check_cookies, csrf_of, no_session, read_body, session_of};
use crate::sessions::{AdminRights, NewSession, Rights, SESSION_S, Session};
use crate::sign::AccessKey;

/// Maximum bytes of a login, and of the admin API's reply to it.
const BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a key's id.
const KEY_BYTES_MAX: usize = 128;
/// Host that signed requests within this process name.
const HOST: &str = "console";
pub(crate) const WRONG: &str =
    "the key or its secret is wrong: check both, or ask an operator for another key";

/// Refusal of a network whose logins failed too often.
pub(crate) const TOO_MANY: &str = "too many logins have failed: wait a minute";

/// Login.
#[derive(Deserialize)]
struct LoginRequest {
    key: String,
    secret: String,
}

/// Session, as its browser knows it.
#[derive(Serialize)]
struct OpenSession {
    /// Principal at the admin API, if the key has rights there.
    principal: Option<PrincipalLine>,
    /// Access key at S3, if the session signs requests there.
    s3: Option<OpenS3>,
    /// CSRF token, for the header `x-martlet-csrf`.
    csrf: String,
    /// Token of links that save an object.
    link_token: String,
    version: &'static str,
}

/// Access key of a session, and the values that clients need to use S3 themselves.
#[derive(Serialize)]
struct OpenS3 {
    access_key: String,
    arn: String,
    /// Name for people, from an identity provider.
    name: Option<String>,
    /// End of a temporary key, in milliseconds since 1970.
    expires_ms: Option<u64>,
    endpoint: String,
    region: String,
}

impl OpenSession {
    /// Session of a browser that reached the console as `host`.
    fn new(console: &Console, session: Session, host: &str) -> Self {
        let Session { rights: Rights { admin, s3 }, csrf, link_token, .. } = session;
        let service = console.s3.get();
        let s3 = s3.map(|key| OpenS3 {
            access_key: key.id.clone(),
            arn: key.arn.clone(),
            name: key.name.clone(),
            expires_ms: key.expires_ms(),
            endpoint: service.map(|it| it.endpoint(host)).unwrap_or_default(),
            region: service.map(|it| it.region.clone()).unwrap_or_default(),
        });
        let principal = admin.map(|admin| admin.principal);
        Self { principal, s3, csrf, link_token, version: env!("CARGO_PKG_VERSION") }
    }
}

pub(crate) fn host_of(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// Returns the session of the browser.
pub(crate) async fn show(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    match session_of(&console, &headers, csrf_of(&headers)) {
        Ok(session) => Json(OpenSession::new(&console, session, host_of(&headers))).into_response(),
        // The page shows the login then.
        Err(_) => no_session(),
    }
}

/// Signs in.
pub(crate) async fn begin(State(console): State<Arc<Console>>, request: Request) -> Response {
    let client = request.extensions().get::<Peer>().map(|peer| peer.0);
    let media = request.headers().get(header::CONTENT_TYPE);
    if media.is_none_or(|media| media.as_bytes() != b"application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a login is JSON");
    }
    if let Err(refusal) = check_cookies(&console, request.headers()) {
        return *refusal;
    }
    if !console.attempts.take(client) {
        return refuse(StatusCode::TOO_MANY_REQUESTS, TOO_MANY);
    }
    let before = request.headers().clone();
    let connection = request.extensions().clone();
    let body = match read_body(request.into_body(), BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let Ok(login) = serde_json::from_slice::<LoginRequest>(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "a login needs a key and a secret");
    };
    match console.sign_in(login, &connection).await {
        Ok(rights) => {
            console.attempts.give_back(client);
            console.sessions.end(&before, console.is_secure);
            let NewSession { id, session } = console.sessions.begin(rights);
            let set = [(header::SET_COOKIE, SESSION_COOKIE.set(&id, &before, console.is_secure))];
            let session = OpenSession::new(&console, session, host_of(&before));
            (set, Json(session)).into_response()
        }
        Err(refused) => {
            // At most as often as logins may fail.
            tracing::info!(
                ?client,
                status = refused.status().as_u16(),
                "refused a login to the console"
            );
            *refused
        }
    }
}

/// Signs out. Ends the session at the admin API too.
pub(crate) async fn end(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    let session = match session_of(&console, &headers, csrf_of(&headers)) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    console.sessions.end(&headers, console.is_secure);
    let set = [(header::SET_COOKIE, SESSION_COOKIE.set("", &headers, console.is_secure))];
    let admin = session.rights.admin;
    if let Some(admin) = admin.filter(|admin| admin.principal.session.is_some()) {
        let request = bearer(Method::DELETE, &admin.token).body(Body::empty());
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

    /// Returns the rights of a key: at the admin API, at S3, or at both for the root key.
    async fn sign_in(
        &self,
        login: LoginRequest,
        connection: &Extensions,
    ) -> Result<Rights, Box<Response>> {
        let LoginRequest { key, secret } = login;
        let (key, secret) = (key.trim().to_owned(), secret.trim().to_owned());
        let is_key = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b',';
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(is_key) {
            return Err(Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG)));
        }
        let admin = self.admin_rights(&key, &secret, connection).await;
        let is_root = key == self.root_key;
        match admin {
            Ok(admin) if is_root => {
                let known = self.access_key(&key, &secret, connection).await.ok();
                let s3 = known.unwrap_or_else(|| AccessKey::new(key, secret));
                Ok(Rights { admin: Some(admin), s3: Some(Arc::new(s3)) })
            }
            Ok(admin) => Ok(Rights { admin: Some(admin), s3: None }),
            // Without a store the secret of the root key has been checked already.
            Err(refused) if is_root && self.s3.get().is_none() => Err(refused),
            Err(refused) if refused.status() == StatusCode::UNAUTHORIZED => {
                let s3 = self.access_key(&key, &secret, connection).await?;
                Ok(Rights { admin: None, s3: Some(Arc::new(s3)) })
            }
            Err(refused) => Err(refused),
        }
    }

    async fn admin_rights(
        &self,
        key: &str,
        secret: &str,
        connection: &Extensions,
    ) -> Result<AdminRights, Box<Response>> {
        if key == self.root_key {
            let token = AdminToken::of(secret.as_bytes()).to_text();
            let request = bearer(Method::GET, &token);
            let body = self.signed_in(request, Bytes::new(), connection).await?;
            let principal = serde_json::from_slice(&body).map_err(|_| unreadable())?;
            return Ok(AdminRights { token, principal });
        }
        if !key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG)));
        }
        let body = serde_json::to_vec(&SessionRequest { seconds: Some(SESSION_S) });
        let body = Bytes::from(body.map_err(|_| unreadable())?);
        let unsigned =
            UnsignedRequest { method: &Method::POST, target: SESSION, host: HOST, body: &body };
        let now_ms = self.clock.now_ms();
        let mut request = Request::builder().method(Method::POST).uri(SESSION);
        let signing = SigningKey { id: key.to_owned(), secret: secret.to_owned() };
        for (name, value) in signing.sign(unsigned, now_ms) {
            request = request.header(name, value);
        }
        let request = request.header(header::HOST, HOST);
        let body = self.signed_in(request, body, connection).await?;
        let SessionReply { token, principal } =
            serde_json::from_slice(&body).map_err(|_| unreadable())?;
        Ok(AdminRights { token, principal })
    }

    /// Sends a request of a login, and returns the body of the reply.
    async fn signed_in(
        &self,
        request: Builder,
        body: Bytes,
        connection: &Extensions,
    ) -> Result<Bytes, Box<Response>> {
        let wrong = || Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG));
        let mut request = request.body(Body::from(body)).map_err(|_| wrong())?;
        *request.extensions_mut() = connection.clone();
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
