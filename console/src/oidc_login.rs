//! Login by OpenID Connect: the authorization code flow with PKCE.
//!
//! ```text
//! browser ─ GET /login/oidc ──────────▶ state, nonce and verifier are kept here, for ten minutes
//!         ◀─ 303 to the provider, and a cookie that binds the login to this browser
//! browser ─ GET /login/oidc/callback ─▶ state and cookie agree, once
//!           code and verifier ─▶ provider ─▶ ID token: signature, iss, aud, azp, exp, nonce
//!           ID token and role ─▶ token service: AssumeRoleWithWebIdentity
//!         ◀─ 303 to the pages, and the cookie of a session
//! ```
//!
//! The trust document of the role decides who may take it on, as for programs. The session signs with
//! the temporary key of that role, and ends with the key.
//!
//! Invariants:
//! * The browser is sent to the provider's endpoint or to the pages of this console, and nowhere else.
//! * Pages of refusals have sentences of this crate. No text of a request is in them.
//! * The provider's tokens and the temporary secret stay in this process.

mod claims;
mod page;
mod pending;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use martlet_oidc::{AuthorizationRequest, CodeExchange, OidcError, OidcProvider};
use martlet_protocol::http::Peer;
use serde::{Deserialize, Serialize};

pub use self::claims::RoleSource;
pub(crate) use self::claims::VerifiedLogin;
pub(crate) use self::page::LoginRefusal;
use self::pending::PendingLogin;
pub(crate) use self::pending::PendingLogins;
use crate::Console;
use crate::cookies::{LOGIN, SESSION};
use crate::id_tokens::IdTokenError;
use crate::login::host_of;
use crate::s3_slot::S3Parts;
use crate::sessions::{NewSession, Rights};
use crate::sign::AccessKey;

/// Path of the callback.
const CALLBACK: &str = "/login/oidc/callback";
/// Maximum bytes of a code.
const CODE_BYTES_MAX: usize = 4096;

/// Parts of logins by OpenID Connect.
pub struct OidcParts {
    /// Client of the provider.
    pub provider: Arc<OidcProvider>,
    /// Id of the console at the provider.
    pub client_id: String,
    /// Secret of the console at the provider; `None` for a public client.
    pub client_secret: Option<String>,
    /// Scopes of logins, `openid` among them.
    pub scopes: Vec<String>,
    /// Role that a login takes on.
    pub role: RoleSource,
    /// Length of the role's session, in seconds.
    pub session_s: u64,
    /// URL by which browsers reach the console, without a path. `None` for the host of the request.
    pub base_url: Option<String>,
    /// Name of the provider for people.
    pub label: String,
}

/// Ways to sign in besides keys.
#[derive(Serialize)]
struct LoginOptions {
    /// Name of the identity provider, if there is one.
    oidc: Option<String>,
}

/// Parameters of a callback (RFC 6749, section 4.1.2; RFC 9207).
#[derive(Default, Deserialize)]
struct Callback {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

/// Callback, and the login that it ends.
#[derive(Clone, Copy)]
struct EndingLogin<'a> {
    given: &'a Callback,
    login: &'a PendingLogin,
}

/// Returns the address of the client.
fn client_of(head: &Parts) -> Option<IpAddr> {
    head.extensions.get::<Peer>().map(|peer| peer.0)
}

/// Returns true if a person opens the address, or follows a link of this console. Pages of other sites
/// and requests for images begin no login.
fn is_opened(headers: &HeaderMap) -> bool {
    let is_one_of = |name: &str, allowed: &[&[u8]]| {
        headers.get(name).is_none_or(|value| allowed.contains(&value.as_bytes()))
    };
    is_one_of("sec-fetch-dest", &[b"document"])
        && is_one_of("sec-fetch-site", &[b"same-origin", b"none"])
}

/// Returns the ways to sign in. Public, because the page of the login shows them.
pub(crate) async fn options(State(console): State<Arc<Console>>) -> Response {
    let oidc = console.oidc.as_ref().map(|oidc| oidc.label.clone());
    Json(LoginOptions { oidc }).into_response()
}

/// Begins a login: sends the browser to the provider.
pub(crate) async fn begin(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    if !is_opened(&head.headers) {
        return LoginRefusal::FOREIGN.page();
    }
    match console.begin_oidc(&head).await {
        Ok((url, cookie)) => redirect(&url, &[cookie]),
        Err(refusal) => refusal.page(),
    }
}

/// Ends a login: the provider has sent the browser back.
pub(crate) async fn callback(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let outcome = console.end_oidc(&head).await;
    let over = LOGIN.set("", &head.headers, console.is_secure);
    match outcome {
        Ok(NewSession { id, session }) => {
            let cookie = SESSION.set(&id, &head.headers, console.is_secure);
            // Fragments are sent to no server. Without the cookie the token is of no use.
            redirect(&format!("/#signed-in={}", session.csrf), &[cookie, over])
        }
        Err(refusal) => {
            let mut reply = refusal.page();
            // A login of another tab goes on.
            if refusal.ends_login()
                && let Ok(over) = HeaderValue::try_from(over)
            {
                reply.headers_mut().append(header::SET_COOKIE, over);
            }
            reply
        }
    }
}

fn redirect(url: &str, cookies: &[String]) -> Response {
    let mut reply = StatusCode::SEE_OTHER.into_response();
    let Ok(location) = HeaderValue::try_from(url) else {
        return LoginRefusal::UNAVAILABLE.page();
    };
    reply.headers_mut().insert(header::LOCATION, location);
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            reply.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    reply
}

impl Callback {
    /// Returns the state, if its form is that of this console.
    fn state(&self) -> Option<&str> {
        self.state.as_deref().filter(|state| state.len() <= pending::STATE_BYTES)
    }
}

impl Console {
    /// Returns the URL of the provider, and the cookie of the login.
    async fn begin_oidc(&self, head: &Parts) -> Result<(String, String), LoginRefusal> {
        let oidc = self.oidc.as_ref().ok_or(LoginRefusal::NOT_CONFIGURED)?;
        if self.s3.get().is_none() {
            return Err(LoginRefusal::NOT_OPEN);
        }
        let redirect_uri = self.redirect_uri(oidc, &head.headers);
        let login = self.pending.begin(client_of(head), redirect_uri);
        let request = AuthorizationRequest {
            redirect_uri: &login.redirect_uri,
            scopes: &oidc.scopes,
            state: &login.state,
            nonce: &login.nonce,
            verifier: &login.verifier,
        };
        let url = oidc.provider.authorization_url(&oidc.client_id, request).await;
        let url = url.map_err(|error| refusal_of(&error))?;
        Ok((url, LOGIN.set(&login.browser, &head.headers, self.is_secure)))
    }

    fn redirect_uri(&self, oidc: &OidcParts, headers: &HeaderMap) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        // The guard has checked that the host is this server.
        let base = oidc.base_url.clone();
        let base = base.unwrap_or_else(|| format!("{scheme}://{}", host_of(headers)));
        format!("{}{CALLBACK}", base.trim_end_matches('/'))
    }

    /// Begins a session for the browser of a callback.
    async fn end_oidc(&self, head: &Parts) -> Result<NewSession, LoginRefusal> {
        let oidc = self.oidc.as_ref().ok_or(LoginRefusal::NOT_CONFIGURED)?;
        let s3 = self.s3.get().ok_or(LoginRefusal::NOT_OPEN)?;
        // A callback that no login waits for costs nothing, and isn't counted: a page of another site
        // could otherwise use up the logins of its visitors' network.
        let (given, login) = self.login_of(head)?;
        let client = client_of(head);
        if !self.attempts.take(client) {
            return Err(LoginRefusal::TOO_MANY);
        }
        // At most as often as logins may fail.
        let key = self
            .key_of_callback(oidc, s3, head, EndingLogin { given: &given, login: &login })
            .await;
        let key = key.inspect_err(|refusal| refusal.log(client))?;
        self.attempts.give_back(client);
        // A session that this browser had ends; its cookie is sent if the provider is this site.
        self.sessions.end(&head.headers, self.is_secure);
        Ok(self.sessions.begin(Rights { admin: None, s3: Some(Arc::new(key)) }))
    }

    /// Returns the parameters of a callback, and the login that it ends.
    fn login_of(&self, head: &Parts) -> Result<(Callback, PendingLogin), LoginRefusal> {
        let given = Query::<Callback>::try_from_uri(&head.uri);
        let Query(given) = given.map_err(|_| LoginRefusal::MALFORMED)?;
        // A page of another port may have set a second cookie of the name.
        let [cookie] = LOGIN.values(&head.headers, self.is_secure)[..] else {
            return Err(LoginRefusal::UNKNOWN_STATE);
        };
        let state = given.state().ok_or(LoginRefusal::MALFORMED)?;
        let login = self.pending.take(state, cookie).ok_or(LoginRefusal::UNKNOWN_STATE)?;
        Ok((given, login))
    }

    /// Returns the temporary key of the login that a callback ends.
    async fn key_of_callback(
        &self,
        oidc: &OidcParts,
        s3: &S3Parts,
        head: &Parts,
        callback: EndingLogin<'_>,
    ) -> Result<AccessKey, LoginRefusal> {
        let verified = self.verified(oidc, s3, callback).await?;
        self.assume(s3, &verified, &head.extensions).await
    }

    /// Exchanges the code of a callback, and verifies the ID token.
    async fn verified(
        &self,
        oidc: &OidcParts,
        s3: &S3Parts,
        EndingLogin { given, login }: EndingLogin<'_>,
    ) -> Result<VerifiedLogin, LoginRefusal> {
        let is_issuer = oidc.provider.is_issuer(given.iss.as_deref()).await;
        if !is_issuer.map_err(|error| refused_by(&error))? {
            return Err(LoginRefusal::OTHER_ISSUER);
        }
        if given.error.is_some() {
            let is_denied = given.error.as_deref() == Some("access_denied");
            return Err(if is_denied { LoginRefusal::DENIED } else { LoginRefusal::PROVIDER });
        }
        let code = given.code.as_deref().filter(|code| code.len() <= CODE_BYTES_MAX);
        let exchange = CodeExchange {
            code: code.ok_or(LoginRefusal::MALFORMED)?,
            verifier: &login.verifier,
            redirect_uri: &login.redirect_uri,
            client_id: &oidc.client_id,
            client_secret: oidc.client_secret.as_deref(),
        };
        let token = oidc.provider.exchange(exchange).await.map_err(|error| refused_by(&error))?;
        let verifier = s3.id_tokens.as_ref().ok_or(LoginRefusal::NOT_CONFIGURED)?;
        let claims = verifier.verify(&token).await.map_err(|error| match error {
            IdTokenError::Unavailable => LoginRefusal::UNAVAILABLE,
            IdTokenError::Invalid(why) => {
                tracing::info!(why, "refused an ID token");
                LoginRefusal::TOKEN
            }
        })?;
        VerifiedLogin::of(oidc, token, &claims, &login.nonce)
    }
}

/// Logs an error of the provider, and returns the refusal for the browser.
fn refused_by(error: &OidcError) -> LoginRefusal {
    tracing::warn!(%error, "could not sign a browser in by the identity provider");
    refusal_of(error)
}

fn refusal_of(error: &OidcError) -> LoginRefusal {
    match error {
        OidcError::Unavailable(_) => LoginRefusal::UNAVAILABLE,
        OidcError::Refused(_) => LoginRefusal::PROVIDER,
    }
}
