//! Logins by OpenID Connect against a provider in this process and a token service that records.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use martlet_oidc::{OidcProvider, ProviderParts};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::ring;
use sha2::{Digest, Sha256};
use url::Url;

use super::users::s3_parts;
use super::*;

const CLIENT: &str = "console";
const ARN: &str = "arn:aws:iam::lab:role/reader";
/// End of the temporary key: 15 minutes after `NOW_MS`.
const END: &str = "2026-11-28T02:45:00Z";

/// Provider: a code is good for one exchange by who knows its verifier.
#[derive(Clone, Default)]
struct Provider(Arc<ProviderState>);

#[derive(Default)]
struct ProviderState {
    issuer: Mutex<String>,
    /// Challenge of the last login; taken by the exchange of its code.
    challenge: Mutex<Option<String>>,
    /// Claims of the next token.
    claims: Mutex<Value>,
    is_away: AtomicBool,
    names_issuer: AtomicBool,
}

impl Provider {
    async fn start() -> Self {
        let provider = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        *provider.0.issuer.lock() = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(Self::metadata))
            .route("/token", post(Self::token))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        provider
    }

    fn issuer(&self) -> String {
        self.0.issuer.lock().clone()
    }

    #[expect(clippy::unused_async, reason = "handlers are async")]
    async fn metadata(State(provider): State<Self>) -> Json<Value> {
        let issuer = provider.issuer();
        Json(json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "authorization_response_iss_parameter_supported":
                provider.0.names_issuer.load(Ordering::SeqCst),
        }))
    }

    #[expect(clippy::unused_async, reason = "handlers are async")]
    async fn token(State(provider): State<Self>, body: String) -> (StatusCode, Json<Value>) {
        let form: std::collections::HashMap<String, String> =
            url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let of = |name: &str| form.get(name).cloned();
        if provider.0.is_away.load(Ordering::SeqCst) {
            return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({})));
        }
        let verifier = of("code_verifier").unwrap_or_default();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let known = provider.0.challenge.lock().take();
        let is_right = of("code").as_deref() == Some("c0de")
            && known == Some(challenge)
            && of("client_id").as_deref() == Some(CLIENT);
        if !is_right {
            return (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" })));
        }
        let claims = URL_SAFE_NO_PAD.encode(provider.0.claims.lock().to_string());
        (StatusCode::OK, Json(json!({ "id_token": format!("h.{claims}.good") })))
    }
}

/// Verifier whose signatures are the word `good`. `s3compat` has the real one.
struct WordTokens;

#[async_trait]
impl IdTokens for WordTokens {
    async fn verify(&self, token: &str) -> Result<TokenClaims, IdTokenError> {
        let parts: Vec<&str> = token.split('.').collect();
        let invalid = || IdTokenError::Invalid("no token".to_owned());
        let ["h", claims, "good"] = parts[..] else { return Err(invalid()) };
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| invalid())?;
        serde_json::from_slice(&claims).map_err(|_| invalid())
    }
}

/// Forms that the token service received, and the code of its next refusal.
#[derive(Clone, Default)]
struct TokenService(Arc<Mutex<(Vec<String>, Option<&'static str>)>>);

impl TokenService {
    fn routes(&self) -> Router {
        let service = self.clone();
        let answer = move |body: String| {
            let service = service.clone();
            async move {
                let mut state = service.0.lock();
                state.0.push(body);
                match state.1 {
                    Some(code) => (
                        StatusCode::FORBIDDEN,
                        format!("<Error><Code>{code}</Code><Message>no &lt;b></Message></Error>"),
                    ),
                    None => (
                        StatusCode::OK,
                        format!(
                            "<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>hidden\
                             </SecretAccessKey><SessionToken>sealed</SessionToken><Expiration>{END}\
                             </Expiration><Arn>arn:aws:sts::lab:assumed-role/reader/alice</Arn>"
                        ),
                    ),
                }
            }
        };
        let list = |headers: HeaderMap| async move {
            let token = headers.get("x-amz-security-token").cloned();
            assert_eq!(token.unwrap(), "sealed");
            "<Buckets/>"
        };
        Router::new().route("/", post(answer).get(list))
    }
}

struct Setting {
    console: TestConsole,
    provider: Provider,
    service: TokenService,
    clock: Arc<ManualClock>,
}

async fn setting_with(role: RoleSource) -> Setting {
    let provider = Provider::start().await;
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let issuer = provider.issuer();
    let parts = ProviderParts { issuer, tls: Arc::new(tls), clock: clock.clone() };
    let oidc = OidcParts {
        provider: Arc::new(OidcProvider::new(parts)),
        client_id: CLIENT.into(),
        client_secret: None,
        scopes: vec!["openid".into(), "email".into()],
        role,
        session_s: 900,
        base_url: None,
        label: "Example".into(),
    };
    let (service, now) = (TokenService::default(), clock.clone());
    let console = TestConsole::with(false, now, Some(oidc));
    let mut parts = s3_parts(service.routes());
    parts.id_tokens = Some(Arc::new(WordTokens));
    console.s3.open(parts);
    Setting { console, provider, service, clock }
}

async fn setting() -> Setting {
    setting_with(RoleSource::Arn(ARN.into())).await
}

/// Login that a browser has begun.
struct Begun {
    cookie: String,
    query: std::collections::HashMap<String, String>,
}

impl Begun {
    fn of(&self, name: &str) -> &str {
        &self.query[name]
    }

    fn callback(&self) -> String {
        format!("/login/oidc/callback?code=c0de&state={}", self.of("state"))
    }
}

impl Setting {
    /// Begins a login, and lets the person sign in at the provider as `alice`.
    async fn begin(&self) -> Begun {
        let reply = self.console.send("GET", "/login/oidc", &[], "").await;
        assert_eq!(reply.status(), StatusCode::SEE_OTHER);
        check_headers(reply.headers());
        assert_eq!(reply.headers()[header::CACHE_CONTROL], "no-store");
        let set = reply.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        assert!(set.contains("HttpOnly; SameSite=Lax; Max-Age=600"), "{set}");
        let url = Url::parse(reply.headers()[header::LOCATION].to_str().unwrap()).unwrap();
        assert!(url.as_str().starts_with(&format!("{}/authorize?", self.provider.issuer())));
        let query: std::collections::HashMap<String, String> =
            url.query_pairs().into_owned().collect();
        *self.provider.0.challenge.lock() = Some(query["code_challenge"].clone());
        *self.provider.0.claims.lock() = json!({
            "sub": "alice", "aud": CLIENT, "nonce": query["nonce"], "name": "Alice <b>",
        });
        Begun { cookie: set.split(';').next().unwrap().to_owned(), query }
    }

    fn claim(&self, name: &str, value: Value) {
        self.provider.0.claims.lock()[name] = value;
    }

    async fn call(&self, begun: &Begun, target: &str) -> Response {
        let headers = [("cookie", begun.cookie.as_str()), ("sec-fetch-site", "cross-site")];
        self.console.send("GET", target, &headers, "").await
    }

    /// Calls back, and expects a page with a sentence and without a session.
    async fn refused(&self, begun: &Begun, target: &str) -> (StatusCode, String) {
        let reply = self.call(begun, target).await;
        check_headers(reply.headers());
        assert!(!reply.headers().contains_key(header::LOCATION), "{target}");
        let cookies = reply.headers().get_all(header::SET_COOKIE).iter();
        assert!(!cookies.into_iter().any(|it| it.to_str().unwrap().contains("martlet-console")));
        assert_eq!(reply.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let status = reply.status();
        let bytes = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    fn forms(&self) -> Vec<String> {
        self.service.0.lock().0.clone()
    }
}

#[tokio::test]
async fn a_person_signs_in_and_the_secret_stays_here() {
    let setting = setting().await;
    let options = setting.console.send("GET", "/login/options", &[], "").await;
    assert_eq!(json_of(options).await, json!({ "oidc": "Example" }));
    let begun = setting.begin().await;
    assert_eq!(begun.of("redirect_uri"), "http://localhost:1/login/oidc/callback");
    assert_eq!((begun.of("scope"), begun.of("client_id")), ("openid email", CLIENT));
    let reply = setting.call(&begun, &begun.callback()).await;
    assert_eq!(reply.status(), StatusCode::SEE_OTHER);
    let location = reply.headers()[header::LOCATION].to_str().unwrap().to_owned();
    let csrf = location.strip_prefix("/#signed-in=").unwrap();
    let cookies: Vec<&str> =
        reply.headers().get_all(header::SET_COOKIE).iter().map(|it| it.to_str().unwrap()).collect();
    assert!(cookies[0].contains("SameSite=Strict") && cookies[0].contains("HttpOnly"));
    assert!(cookies[1].contains("martlet-login") && cookies[1].contains("Max-Age=0"));
    let cookie = cookies[0].split(';').next().unwrap();
    let full = [("cookie", cookie), ("x-martlet-csrf", csrf)];
    let own = json_of(setting.console.send("GET", "/session", &full, "").await).await;
    assert_eq!(own["s3"]["arn"], "arn:aws:sts::lab:assumed-role/reader/alice");
    assert_eq!(own["s3"]["name"], "Alice <b>");
    let text = own.to_string();
    assert!(!text.contains("hidden") && !text.contains("sealed") && !text.contains("good"));
    let form = setting.forms().pop().unwrap();
    assert!(form.starts_with("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&"), "{form}");
    for part in ["arn%3Aaws%3Aiam%3A%3Alab%3Arole%2Freader", "RoleSessionName=alice", "=900&"] {
        assert!(form.contains(part), "{form}");
    }
    // S3 requests carry the session token, and the admin API gets nothing from such a session.
    let list = setting.console.send("GET", "/s3", &full, "").await;
    assert_eq!(list.status(), StatusCode::OK);
    let admin = setting.console.send("GET", "/api/admin/v1/session", &full, "").await;
    assert_eq!(admin.status(), StatusCode::FORBIDDEN);
    // The session ends with the temporary key.
    setting.clock.set_ms(own["s3"]["expires_ms"].as_u64().unwrap());
    let over = setting.console.send("GET", "/session", &full, "").await;
    assert_eq!(over.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn states_are_of_one_browser_and_of_one_use() {
    let setting = setting().await;
    let begun = setting.begin().await;
    let wrong = format!("/login/oidc/callback?code=c0de&state={}", "0".repeat(64));
    for target in [
        "/login/oidc/callback",
        "/login/oidc/callback?code=c0de",
        &wrong,
        &format!("{}&state=x", begun.callback()),
    ] {
        let (status, _) = setting.refused(&begun, target).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{target}");
    }
    // Another browser has no cookie, or that of another login.
    let other = setting.begin().await;
    let stranger = Begun { cookie: "a=b".into(), query: other.query.clone() };
    for browser in [&stranger, &begun] {
        let (status, page) = setting.refused(browser, &other.callback()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(page.contains("was not begun in this browser"), "{page}");
    }
    let reply = setting.call(&other, &other.callback()).await;
    assert_eq!(reply.status(), StatusCode::SEE_OTHER);
    let (status, _) = setting.refused(&other, &other.callback()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the state was used");
    assert_eq!(setting.forms().len(), 1);
    setting.clock.advance_ms(60_000);
    let slow = setting.begin().await;
    setting.clock.advance_ms(600_000);
    let (_, page) = setting.refused(&slow, &slow.callback()).await;
    assert!(page.contains("took more than ten minutes"), "{page}");
}

#[tokio::test]
async fn codes_are_good_for_one_exchange() {
    let setting = setting().await;
    let (begun, again) = (setting.begin().await, setting.begin().await);
    // The code of the second login with the state, and so the verifier, of the first one.
    let (status, page) = setting.refused(&begun, &begun.callback()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(page.contains("identity provider refused the login"), "{page}");
    let (status, _) = setting.refused(&again, &again.callback()).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "the code was used");
    assert!(setting.forms().is_empty());
}

#[tokio::test]
async fn tokens_of_other_logins_and_clients_begin_no_session() {
    let setting = setting().await;
    for (name, value) in [
        ("nonce", json!("0".repeat(64))),
        ("nonce", Value::Null),
        ("aud", json!("other")),
        ("aud", json!([CLIENT, "other"])),
        ("azp", json!("other")),
    ] {
        let begun = setting.begin().await;
        setting.claim(name, value.clone());
        let (status, page) = setting.refused(&begun, &begun.callback()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{name} {value}");
        assert!(page.contains("token is not valid"), "{page}");
    }
    assert!(setting.forms().is_empty());
}

#[tokio::test]
async fn a_claim_names_the_role() {
    let setting = setting_with(RoleSource::Claim("martlet_role".into())).await;
    for value in [json!("reader"), json!([ARN, ARN]), json!("https://evil.example"), Value::Null] {
        let begun = setting.begin().await;
        setting.claim("martlet_role", value.clone());
        let (_, page) = setting.refused(&begun, &begun.callback()).await;
        assert!(page.contains("names no role"), "{value}: {page}");
    }
    let begun = setting.begin().await;
    setting.claim("martlet_role", json!("arn:aws:iam::lab:role/writer"));
    setting.call(&begun, &begun.callback()).await;
    assert!(setting.forms()[0].contains("role%2Fwriter"));
}

#[tokio::test]
async fn answers_of_the_provider_are_never_repeated() {
    let setting = setting().await;
    let evil = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for (more, sentence) in [
        (format!("error={evil}&error_description={evil}"), "identity provider refused"),
        (format!("error=access_denied&error_description={evil}"), "or it was cancelled there"),
        (format!("code={evil}"), "identity provider refused"),
        (format!("code={}", "a".repeat(5000)), "can't be read"),
        (format!("code=c0de&iss={evil}"), "another identity provider"),
    ] {
        let begun = setting.begin().await;
        let target = format!("/login/oidc/callback?{more}&state={}", begun.of("state"));
        let (_, page) = setting.refused(&begun, &target).await;
        assert!(page.contains(sentence) && !page.contains("<script"), "{more}: {page}");
    }
    // No parameter leads the browser elsewhere.
    let begun = setting.begin().await;
    let target =
        format!("{}&next=http://evil.example&iss={}", begun.callback(), setting.provider.issuer());
    let reply = setting.call(&begun, &target).await;
    assert!(reply.headers()[header::LOCATION].to_str().unwrap().starts_with("/#signed-in="));
}

#[tokio::test]
async fn a_provider_that_names_itself_must_do_so() {
    let setting = setting().await;
    setting.provider.0.names_issuer.store(true, Ordering::SeqCst);
    let begun = setting.begin().await;
    let (_, page) = setting.refused(&begun, &begun.callback()).await;
    assert!(page.contains("another identity provider"), "{page}");
    let begun = setting.begin().await;
    let target = format!("{}&iss={}", begun.callback(), setting.provider.issuer());
    assert_eq!(setting.call(&begun, &target).await.status(), StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn refusals_of_the_store_and_silence_of_the_provider_have_sentences() {
    let setting = setting().await;
    for (code, sentence) in [
        ("AccessDenied", "does not trust your account"),
        ("InvalidIdentityToken", "token is not valid"),
        ("ServiceUnavailable", "could not begin the session"),
    ] {
        setting.service.0.lock().1 = Some(code);
        let begun = setting.begin().await;
        let (_, page) = setting.refused(&begun, &begun.callback()).await;
        assert!(page.contains(sentence) && !page.contains("no &lt;b>"), "{page}");
    }
    let begun = setting.begin().await;
    setting.provider.0.is_away.store(true, Ordering::SeqCst);
    let (status, page) = setting.refused(&begun, &begun.callback()).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(page.contains("does not answer"), "{page}");
}

#[tokio::test]
async fn failed_logins_count_with_those_of_keys() {
    let setting = setting().await;
    let begun = setting.begin().await;
    for _ in 0..2 * FAILURES_MAX {
        let begun = setting.begin().await;
        let reply = setting.call(&begun, &begun.callback()).await;
        assert_eq!(reply.status(), StatusCode::SEE_OTHER, "successes don't count");
    }
    // Callbacks that no login waits for are not counted: other sites can lead a browser to them.
    for _ in 0..2 * FAILURES_MAX {
        setting.refused(&begun, "/login/oidc/callback?code=x&state=0").await;
    }
    for _ in 0..FAILURES_MAX {
        let wrong = setting.begin().await;
        setting.claim("aud", json!("other"));
        setting.refused(&wrong, &wrong.callback()).await;
    }
    let begun = setting.begin().await;
    let (status, page) = setting.refused(&begun, &begun.callback()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(page.contains("begin the login again"), "the state is used up: {page}");
    let begun = setting.begin().await;
    let reply = setting.call(&begun, &begun.callback()).await;
    let cookie = reply.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("martlet-login") && cookie.contains("Max-Age=0"), "{cookie}");
    let reply = setting.console.login("root", ROOT_SECRET).await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn pages_of_other_sites_begin_no_login() {
    let setting = setting().await;
    for headers in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-dest", "image"),
        ("sec-fetch-dest", "iframe"),
    ] {
        let reply = setting.console.send("GET", "/login/oidc", &[headers], "").await;
        assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{headers:?}");
        assert!(!reply.headers().contains_key(header::SET_COOKIE));
    }
    let opened = [("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "document")];
    let reply = setting.console.send("GET", "/login/oidc", &opened, "").await;
    assert_eq!(reply.status(), StatusCode::SEE_OTHER);
    // A second cookie of the name, which another port has set, ends no login.
    let begun = setting.begin().await;
    let tossed = format!("martlet-login-1=x; {}", begun.cookie);
    let two = Begun { cookie: tossed, query: begun.query.clone() };
    let (_, page) = setting.refused(&two, &two.callback()).await;
    assert!(page.contains("was not begun in this browser"), "{page}");
}

#[tokio::test]
async fn without_a_provider_there_is_no_such_login() {
    let console = TestConsole::new(false);
    let options = console.send("GET", "/login/options", &[], "").await;
    assert_eq!(json_of(options).await, json!({ "oidc": null }));
    for path in ["/login/oidc", "/login/oidc/callback?code=a&state=b"] {
        assert_eq!(console.send("GET", path, &[], "").await.status(), StatusCode::NOT_FOUND);
    }
}
