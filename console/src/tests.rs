//! Requests of browsers against a gate with real keys and rules.

mod layout;
mod oidc;
mod users;

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use martlet_admin_api::principals::AdminRole;
use martlet_protocol::{Clock, ManualClock};
use martlet_serving::AdminToken;
use martlet_serving::access::{
    AdminAccess, AdminDirectory, AdminKeyState, AdminSecret, Principal, RouteAccess, TenantTarget,
};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{AdminParts, Health, Operator, RoleCondition};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::attempts::FAILURES_MAX;

const ROOT_SECRET: &str = "1234567890123456";
const NOW_MS: u64 = 1_795_833_000_000;

/// Directory in which every key is a viewer.
struct Viewers;

#[async_trait]
impl AdminDirectory for Viewers {
    async fn key(&self, _: &str) -> Result<Option<Arc<AdminKeyState>>, String> {
        Ok(Some(Arc::new(AdminKeyState {
            name: "eyes".into(),
            role: AdminRole::Viewer,
            tenant: None,
            created_ms: 0,
            expires_ms: None,
            sessions_from_ms: 0,
            ended: Vec::new(),
        })))
    }

    async fn owner(&self, _: &TenantTarget) -> Result<Option<String>, String> {
        Ok(None)
    }
}

struct Healthy;

#[async_trait]
impl Health for Healthy {
    async fn condition(&self) -> RoleCondition {
        RoleCondition { serves: true, reasons: Vec::new() }
    }
}

/// Routes of sessions as `martlet-admin-server` has them, and one change.
fn routes(secret: AdminSecret, clock: Arc<dyn Clock>) -> ApiRoutes {
    use axum::{Extension, Json};
    use martlet_admin_api::principals::{PrincipalLine, SESSION, SessionReply};
    use martlet_serving::access::SessionClaims;

    let anyone = RouteAccess::Anyone;
    let begin = move |Extension(principal): Extension<Principal>| async move {
        let key = principal.key.clone().unwrap();
        let began_ms = clock.now_ms();
        let claims = SessionClaims {
            id: AdminSecret::new_session_id(&key),
            key,
            role: principal.role,
            tenant: None,
            tenant_id: None,
            began_ms,
            expires_ms: began_ms + 1000,
            reads: None,
            at: None,
        };
        let principal = PrincipalLine { session: Some(claims.id.clone()), ..principal.line() };
        Json(SessionReply { token: secret.seal(&claims), principal })
    };
    let show = |Extension(principal): Extension<Principal>| async move { Json(principal.line()) };
    ApiRoutes::new()
        .get(SESSION, ApiDoc::reply::<PrincipalLine>(anyone, "Show"), show)
        .post(SESSION, ApiDoc::reply::<SessionReply>(anyone, "Begin"), begin)
        .delete(SESSION, ApiDoc::reply::<String>(anyone, "End"), || async { "{}" })
        .post(
            "/admin/v1/change",
            ApiDoc::reply::<String>(RouteAccess::Operate, "Change"),
            || async { "done" },
        )
}

/// Console, with an admin key of a viewer.
struct TestConsole {
    router: Router,
    key: String,
    secret: String,
    s3: S3Slot,
}

impl TestConsole {
    fn new(is_secure: bool) -> Self {
        Self::with(is_secure, Arc::new(ManualClock::at(NOW_MS)), None)
    }

    fn with(is_secure: bool, clock: Arc<dyn Clock>, oidc: Option<OidcParts>) -> Self {
        let secret = AdminSecret::derive(&[7; 32]);
        let operator = Arc::new(Operator::new(vec![AdminToken::of(ROOT_SECRET.as_bytes())]));
        let access = AdminAccess {
            secret: Some(secret.clone()),
            directory: Some(Arc::new(Viewers)),
            clock: clock.clone(),
            ..AdminAccess::default()
        };
        operator.open(AdminParts {
            health: Arc::new(Healthy),
            metrics: Metrics::default(),
            routes: routes(secret.clone(), clock.clone()),
            access: Arc::new(access),
        });
        let key = AdminSecret::new_key_id();
        let parts = ConsoleParts {
            admin: operator.router(),
            clock,
            hosts: Vec::new(),
            url: None,
            is_secure,
            root_key: "root".into(),
            s3: S3Slot::default(),
            oidc,
        };
        let s3 = parts.s3.clone();
        Self { router: router(parts), secret: secret.key_secret(&key), key, s3 }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost:1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn login(&self, key: &str, secret: &str) -> Response {
        let body = json!({ "key": key, "secret": secret }).to_string();
        self.send("POST", "/session", &[("content-type", "application/json")], &body).await
    }
}

/// Cookie and CSRF token of a browser.
struct Browser {
    cookie: String,
    csrf: String,
    link_token: String,
}

async fn json_of(reply: Response) -> Value {
    let bytes = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

impl Browser {
    async fn of(reply: Response) -> Self {
        assert_eq!(reply.status(), StatusCode::OK);
        let set = reply.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        let cookie = set.split(';').next().unwrap().to_owned();
        let session = json_of(reply).await;
        let text = |name: &str| session[name].as_str().unwrap().to_owned();
        Self { cookie, csrf: text("csrf"), link_token: text("link_token") }
    }
}

fn check_headers(headers: &HeaderMap) {
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
    assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn every_reply_has_the_headers() {
    let console = TestConsole::new(false);
    for (method, path) in
        [("GET", "/"), ("GET", "/no.js"), ("GET", "/session"), ("POST", "/api/admin/v1/change")]
    {
        let foreign = [("origin", "http://evil.example.com")];
        check_headers(console.send(method, path, &[], "").await.headers());
        check_headers(console.send(method, path, &foreign, "").await.headers());
    }
    let rebound = Request::get("/session").header("host", "evil.example.com");
    let reply = console.router.clone().oneshot(rebound.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    check_headers(reply.headers());
}

#[tokio::test]
async fn a_viewer_signs_in_and_gets_the_words_of_the_gate() {
    let console = TestConsole::new(false);
    let browser = Browser::of(console.login(&console.key, &console.secret).await).await;
    let cookie = [("cookie", browser.cookie.as_str())];
    let full = [cookie[0], ("x-martlet-csrf", browser.csrf.as_str())];
    // The cookie alone, which other ports of the host receive too, reads nothing.
    let session = console.send("GET", "/session", &cookie, "").await;
    assert_eq!(session.status(), StatusCode::UNAUTHORIZED);
    let line = console.send("GET", "/api/admin/v1/session", &cookie, "").await;
    assert_eq!(line.status(), StatusCode::FORBIDDEN);
    let own = json_of(console.send("GET", "/session", &full, "").await).await;
    assert_eq!(own["principal"]["role"], "viewer");
    let text = own.to_string();
    assert!(!text.contains("mas1.") && !text.contains(&console.secret), "{text}");
    let line = json_of(console.send("GET", "/api/admin/v1/session", &full, "").await).await;
    assert_eq!(line["kind"], "session");

    let change = async |csrf: &str| {
        let headers = [cookie[0], ("x-martlet-csrf", csrf)];
        console.send("POST", "/api/admin/v1/change", &headers, "{}").await
    };
    let without = console.send("POST", "/api/admin/v1/change", &cookie, "{}").await;
    let sentence = json_of(without).await["error"].as_str().unwrap().to_owned();
    assert_eq!(sentence, own_request::NO_CSRF);
    assert_eq!(change("0").await.status(), StatusCode::FORBIDDEN);
    let refused = change(&browser.csrf).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let sentence = json_of(refused).await["error"].as_str().unwrap().to_owned();
    assert!(sentence.contains("needs the role operator"), "{sentence}");

    assert_eq!(
        console.send("DELETE", "/session", &cookie, "").await.status(),
        StatusCode::FORBIDDEN
    );
    assert_eq!(console.send("DELETE", "/session", &full, "").await.status(), StatusCode::OK);
    let after = console.send("GET", "/api/admin/v1/session", &full, "").await;
    assert_eq!(after.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_root_key_signs_in_as_an_operator() {
    let console = TestConsole::new(true);
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    assert!(browser.cookie.starts_with("__Host-"), "{}", browser.cookie);
    let headers = [("cookie", browser.cookie.as_str()), ("x-martlet-csrf", browser.csrf.as_str())];
    let reply = console.send("POST", "/api/admin/v1/change", &headers, "{}").await;
    assert_eq!(reply.status(), StatusCode::OK);
    // An `authorization` of the page itself is replaced, and without a cookie nothing is sent on.
    let token = format!("Bearer {}", AdminToken::of(ROOT_SECRET.as_bytes()).to_text());
    let own = [("authorization", token.as_str())];
    let reply = console.send("GET", "/api/admin/v1/session", &own, "").await;
    assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn wrong_secrets_are_refused_and_bounded() {
    let (console, _) = users::console_with_store();
    let wrong =
        [("root", "x"), ("other", ROOT_SECRET), (&console.key, "x"), ("a\r\nb", "x"), ("", "")];
    for (key, secret) in wrong {
        let reply = console.login(key, secret).await;
        assert_eq!(reply.status(), StatusCode::UNAUTHORIZED, "{key:?}");
        assert!(!reply.headers().contains_key(header::SET_COOKIE));
    }
    for _ in wrong.len()..FAILURES_MAX as usize {
        assert_eq!(console.login("root", "x").await.status(), StatusCode::UNAUTHORIZED);
    }
    let reply = console.login("root", ROOT_SECRET).await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn forms_of_other_sites_begin_no_session() {
    let console = TestConsole::new(false);
    let body = json!({ "key": "root", "secret": ROOT_SECRET }).to_string();
    for headers in [
        [("content-type", "text/plain"), ("x-a", "b")],
        [("content-type", "application/json"), ("origin", "http://evil.example.com")],
        [("content-type", "application/json"), ("sec-fetch-site", "cross-site")],
    ] {
        let reply = console.send("POST", "/session", &headers, &body).await;
        assert!(!reply.status().is_success(), "{headers:?}");
        assert!(!reply.headers().contains_key(header::SET_COOKIE));
    }
}
