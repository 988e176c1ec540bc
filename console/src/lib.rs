//! Console: the admin API and S3 in a browser, at a port of its own.
//!
//! ```text
//! browser ─▶ headers ─▶ host check ─┬─ /, /app-….js ─▶ assets, embedded at build
//!                                   ├─ /session ─────▶ login: signs in at the admin API
//!                                   ├─ /login/oidc ──▶ oidc_login: code flow of a provider ─▶ STS
//!                                   ├─ /api/… ───────▶ forward: cookie to bearer token ─▶ admin API
//!                                   ├─ /s3/… ────────▶ objects: cookie to signature ────▶ S3
//!                                   ├─ /own/keys ────▶ own_keys: IAM actions of the store
//!                                   ├─ /own/layout ──▶ layout: LocateObject, without its tokens
//!                                   └─ /links ───────▶ links: presigned links
//! ```
//!
//! * [`assets`]: pages made by `make console`; without them a page with the reason.
//! * [`guard`]: headers of replies, names of this server, and requests of other sites.
//! * [`sessions`]: sessions of browsers, in memory; [`attempts`]: the bound on failed logins.
//! * [`cookies`]: names and attributes of cookies.
//! * [`login`], [`user_login`], [`forward`], [`objects`], [`links`]: requests of the pages.
//! * [`oidc_login`], [`web_identity`], [`id_tokens`]: logins by an identity provider.
//! * [`own_keys`]: keys of the session's user; [`layout`]: extents and nodes of an object.
//! * [`own_request`]: session and CSRF token of a request.
//! * [`s3_slot`]: the S3 service of this process; [`sign`], [`target`], [`store_form`]: its
//!   requests.
//!
//! Invariants:
//! * Each figure and each change goes through the routes of the admin API, in process. Its gate
//!   decides by the principal's role, and records changes. This crate has no rule of its own about
//!   accounts, buckets or roles.
//! * No secret and no token of the admin API is sent to a browser by a login. The browser holds a
//!   random cookie, which scripts can't read, and a CSRF token, which each request repeats.
//! * S3 decides about objects by the policies of the access key that signed in. Bytes of an object
//!   are a download to the browser, never a page, a script, a style or an image of this origin.
//! * Sessions and failed logins are bounded in number and in time.

mod assets;
mod attempts;
mod cookies;
mod forward;
mod guard;
mod id_tokens;
mod layout;
mod links;
mod login;
mod objects;
mod oidc_login;
mod own_keys;
mod own_request;
mod s3_slot;
mod sessions;
mod sign;
mod store_form;
mod target;
mod user_login;
mod web_identity;

use std::sync::Arc;

use axum::routing::{any, get, post};
use axum::{Router, middleware};
use martlet_protocol::Clock;
use martlet_serving::places::Places;

use self::attempts::Attempts;
use self::guard::Names;
pub use self::id_tokens::{IdTokenError, IdTokens, TokenClaims};
use self::oidc_login::PendingLogins;
pub use self::oidc_login::{OidcParts, RoleSource};
pub use self::s3_slot::{S3Parts, S3Slot};
use self::sessions::Sessions;

/// Maximum number of requests of one principal under way: all principals share the connections, and a
/// browser has six. Keys of one user count together, as the user makes keys.
const PLACES_MAX: usize = 24;

/// Parts of a console.
pub struct ConsoleParts {
    /// Routes of the admin address, with their gate.
    pub admin: Router,
    /// Clock of sessions.
    pub clock: Arc<dyn Clock>,
    /// Host names of the console besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// URL by which browsers reach the console behind a proxy, if it is set.
    pub url: Option<String>,
    /// True if browsers connect over TLS, to this process or to a proxy.
    pub is_secure: bool,
    /// Access key of the root identity, which signs in with the root secret.
    pub root_key: String,
    /// S3 service of the process, for the pages of users.
    pub s3: S3Slot,
    /// Logins by an identity provider, if one is configured.
    pub oidc: Option<OidcParts>,
}

/// State of the routes.
struct Console {
    admin: Router,
    names: Names,
    sessions: Sessions,
    attempts: Attempts,
    places: Places,
    clock: Arc<dyn Clock>,
    is_secure: bool,
    root_key: String,
    s3: S3Slot,
    oidc: Option<OidcParts>,
    pending: PendingLogins,
}

/// Returns the routes of a console.
pub fn router(parts: ConsoleParts) -> Router {
    let ConsoleParts { admin, clock, hosts, url, is_secure, root_key, s3, oidc } = parts;
    let console = Arc::new(Console {
        admin,
        names: Names::new(hosts, url.as_deref()),
        sessions: Sessions::new(clock.clone()),
        attempts: Attempts::new(clock.clone()),
        pending: PendingLogins::new(clock.clone()),
        places: Places::new(PLACES_MAX),
        clock,
        is_secure,
        root_key,
        s3,
        oidc,
    });
    Router::new()
        .route("/session", get(login::show).post(login::begin).delete(login::end))
        .route("/login/options", get(oidc_login::options))
        .route("/login/oidc", get(oidc_login::begin))
        .route("/login/oidc/callback", get(oidc_login::callback))
        .route("/api/{*path}", any(forward::forward))
        .route("/s3", any(objects::forward))
        .route("/s3/", any(objects::forward))
        .route("/s3/{*path}", any(objects::forward))
        .route("/links", post(links::make))
        .route("/own/keys", get(own_keys::list).post(own_keys::create).delete(own_keys::delete))
        .route("/own/keys/rotate", post(own_keys::rotate))
        .route("/own/layout", get(layout::show))
        .fallback(assets::serve)
        .layer(middleware::from_fn_with_state(console.clone(), guard::check))
        .with_state(console)
}

/// Returns true if the pages were embedded when this binary was built.
pub fn is_built() -> bool {
    assets::is_built()
}

#[cfg(test)]
mod tests;
