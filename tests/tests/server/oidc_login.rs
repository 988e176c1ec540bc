//! Login of a browser by OpenID Connect, through the binary: a provider on a port of its own, keys that
//! are fetched, the trust document of a role, and the session that begins.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use martlet_protocol::{Clock, SystemClock};
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, S3, encoded, exchange};
use martlet_tests::server::Server;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::time::sleep;

const CLIENT: &str = "console";
const SECRET: &str = "s3cret of the client";
/// Pause of a process after it could not fetch keys, and a little more.
const FAILURE_PAUSE: Duration = Duration::from_millis(5500);

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Key with which a provider signs.
struct SigningPair(EcdsaKeyPair);

impl SigningPair {
    fn new() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    fn jwks(&self) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y}]}).to_string()
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }
}

/// Identity provider: state of the login that is under way.
#[derive(Default)]
struct State {
    issuer: String,
    jwks: String,
    jwks_fetches: usize,
    challenge: Option<String>,
    id_token: String,
}

#[derive(Clone, Default)]
struct Provider(Arc<Mutex<State>>);

impl Provider {
    async fn start() -> Self {
        let provider = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        provider.0.lock().issuer = format!("http://{}", listener.local_addr().unwrap());
        let serving = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let provider = serving.clone();
                let service = service_fn(move |request| provider.clone().answer(request));
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        provider
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let authorization = head.headers.get("authorization").map(|it| it.to_str().unwrap());
        let (status, text) = match head.uri.path() {
            "/.well-known/openid-configuration" => (200, self.metadata().to_string()),
            "/keys" => {
                let mut state = self.0.lock();
                state.jwks_fetches += 1;
                (200, state.jwks.clone())
            }
            "/token" => self.tokens(authorization.unwrap_or_default(), &body),
            _ => (404, String::new()),
        };
        Ok(Response::builder().status(status).body(Full::new(text.into())).unwrap())
    }

    fn metadata(&self) -> Value {
        let issuer = &self.0.lock().issuer;
        let at = |path: &str| format!("{issuer}/{path}");
        json!({
            "issuer": issuer, "jwks_uri": at("keys"), "token_endpoint": at("token"),
            "authorization_endpoint": at("authorize"),
            "code_challenge_methods_supported": ["S256"],
        })
    }

    /// Exchanges a code once, for the holder of its verifier and of the client's secret.
    fn tokens(&self, authorization: &str, body: &[u8]) -> (u16, String) {
        let form = pairs(std::str::from_utf8(body).unwrap());
        let verifier = form.get("code_verifier").cloned().unwrap_or_default();
        let mut state = self.0.lock();
        let is_right = state.challenge.take() == Some(encode(Sha256::digest(verifier)))
            && form["code"] == "c0de";
        let basic = base64::engine::general_purpose::STANDARD
            .encode(format!("{CLIENT}:{}", SECRET.replace(' ', "%20")));
        if !is_right || authorization != format!("Basic {basic}") {
            return (400, json!({ "error": "invalid_grant" }).to_string());
        }
        (200, json!({ "id_token": state.id_token, "token_type": "Bearer" }).to_string())
    }
}

/// Decodes a query or a form without `+`.
fn pairs(text: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap();
            bytes.push(if byte == b'%' {
                u8::try_from(digit() * 16 + digit()).unwrap()
            } else {
                byte
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decode(name), decode(value)));
    text.split('&').filter_map(pair).collect()
}

async fn get(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::get(target).header("host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    exchange(address, request.body(Full::new(Bytes::new())).unwrap()).await.unwrap()
}

/// Server with a provider, and a role that trusts the provider's subject `alice`.
struct Setting {
    setup: Setup,
    server: Server,
    console: SocketAddr,
    provider: Provider,
    key: SigningPair,
}

/// Login that a browser has begun.
struct Begun {
    cookie: String,
    query: HashMap<String, String>,
}

impl Setting {
    async fn new() -> Self {
        let provider = Provider::start().await;
        let issuer = provider.0.lock().issuer.clone();
        let setup = Setup::new();
        let secret_file = setup.join("client.secret");
        std::fs::write(&secret_file, format!("{SECRET}\n")).unwrap();
        let setup = setup
            .set("MARTLET_OIDC_ISSUER", &issuer)
            .set("MARTLET_OIDC_AUDIENCES", CLIENT)
            .set("MARTLET_CONSOLE_OIDC_CLIENT_ID", CLIENT)
            .set("MARTLET_CONSOLE_OIDC_CLIENT_SECRET_FILE", secret_file.to_str().unwrap())
            .set("MARTLET_CONSOLE_OIDC_ROLE", "arn:aws:iam::lab:role/reader")
            .set("MARTLET_CONSOLE_OIDC_LABEL", "the lab")
            .flags(&["--console-address", "127.0.0.1:0"]);
        let server = setup.start().await;
        let printed = server.printed();
        let (_, url) = printed.split_once("Console for browsers: http://").unwrap();
        let console = url.split_whitespace().next().unwrap().parse().unwrap();
        let this = Self { setup, server, console, provider, key: SigningPair::new() };
        this.make_role(&issuer).await;
        this
    }

    async fn make_role(&self, issuer: &str) {
        let name = issuer.strip_prefix("http://").unwrap();
        let policy = json!({"Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": "*"}]});
        let trust = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
            "Action": "sts:AssumeRoleWithWebIdentity", "Principal": {"Federated": name},
            "Condition": {"StringEquals": {format!("{name}:sub"): "alice"}}}]});
        let files = [("policy", policy), ("trust", trust)].map(|(file, document)| {
            let path = self.setup.join(file);
            std::fs::write(&path, document.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        });
        let [policy, trust] = &files;
        for command in [
            &["tenant", "create", "lab"][..],
            &["role", "create", "--tenant", "lab", "reader", "--policy", policy, "--trust", trust],
            &[
                "key",
                "create",
                "--tenant",
                "lab",
                "--access-key",
                "KEYOFLAB",
                "--secret-key",
                "secret of lab",
            ],
        ] {
            let output = self.server.ask(command);
            assert!(output.status.success(), "{output:?}");
        }
        let mut client = S3::with_keys(self.server.s3_address, "KEYOFLAB", "secret of lab");
        client.make_bucket("train").await;
        let put = client.put("/train/hello", Bytes::from_static(b"hello")).await.unwrap();
        assert_eq!(put.status, 200);
    }

    async fn begin(&self) -> Begun {
        let reply = get(self.console, "/login/oidc", &[]).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        let (_, query) = reply.header("location").split_once('?').unwrap();
        let query = pairs(&query.replace('+', "%20"));
        let mut state = self.provider.0.lock();
        state.challenge = Some(query["code_challenge"].clone());
        let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        Begun { cookie, query }
    }

    fn claims(&self, begun: &Begun) -> Value {
        let now_s = SystemClock.now_ms() / 1000;
        json!({"iss": self.provider.0.lock().issuer, "sub": "alice", "aud": CLIENT, "iat": now_s,
            "exp": now_s + 60, "nonce": begun.query["nonce"]})
    }

    fn header() -> Value {
        json!({"alg": "ES256", "kid": "k1"})
    }

    async fn call_back(&self, begun: &Begun, token: String) -> Reply {
        self.provider.0.lock().id_token = token;
        let target = format!("/login/oidc/callback?code=c0de&state={}", begun.query["state"]);
        get(self.console, &target, &[("cookie", &begun.cookie)]).await
    }

    /// Signs `alice` in with a good token.
    async fn sign_in(&self) -> (Begun, Reply) {
        let begun = self.begin().await;
        let token = self.key.token(&Self::header(), &self.claims(&begun));
        let reply = self.call_back(&begun, token).await;
        (begun, reply)
    }

    /// Tries a token, whose login must be refused with a sentence.
    async fn refused(
        &self,
        change: impl FnOnce(&mut Value, &mut Value),
        by: &SigningPair,
    ) -> String {
        let begun = self.begin().await;
        let (mut header, mut claims) = (Self::header(), self.claims(&begun));
        change(&mut header, &mut claims);
        let reply = self.call_back(&begun, by.token(&header, &claims)).await;
        assert!(reply.status >= 400, "{header} {claims}");
        assert!(!reply.header("set-cookie").contains("martlet-console"));
        reply.text()
    }
}

#[tokio::test]
async fn a_person_signs_in_by_the_provider_and_reads_what_the_role_may() {
    let setting = Setting::new().await;
    let options = get(setting.console, "/login/options", &[]).await;
    assert_eq!(options.text(), r#"{"oidc":"the lab"}"#);
    // Keys that don't fit are no keys, and the next attempt fetches again.
    setting.provider.0.lock().jwks = "x".repeat((1 << 20) + 1);
    let (_, reply) = setting.sign_in().await;
    assert_eq!(reply.status, 502, "{}", reply.text());
    setting.provider.0.lock().jwks = setting.key.jwks();
    sleep(FAILURE_PAUSE).await;
    let (begun, reply) = setting.sign_in().await;
    assert_eq!(reply.status, 303, "{}\n{}", reply.text(), setting.server.logged());
    let csrf = reply.header("location").strip_prefix("/#signed-in=").unwrap().to_owned();
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    let own = [("cookie", cookie.as_str()), ("x-martlet-csrf", csrf.as_str())];
    let session: Value =
        serde_json::from_slice(&get(setting.console, "/session", &own).await.body).unwrap();
    assert_eq!(session["s3"]["arn"], "arn:aws:sts::lab:assumed-role/reader/alice");
    let object = get(setting.console, &format!("/s3/train/{}", encode("hello")), &own).await;
    assert_eq!((object.status, &object.body[..]), (200, &b"hello"[..]));
    // The policy of the role has no list of all buckets.
    assert_eq!(get(setting.console, "/s3", &own).await.status, 403);
    let token = setting.provider.0.lock().id_token.clone();
    let again = setting.call_back(&begun, token.clone()).await;
    assert_eq!(again.status, 400, "the state was used");
    // The token service takes tokens of the provider without a file of keys too.
    let form = format!(
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=job&RoleArn={}&\
         WebIdentityToken={token}",
        encoded("arn:aws:iam::lab:role/reader")
    );
    let address = setting.server.s3_address;
    let request = Request::post("/")
        .header("host", address.to_string())
        .header("content-type", "application/x-www-form-urlencoded")
        .header("content-length", form.len());
    let reply = exchange(address, request.body(Full::new(Bytes::from(form))).unwrap()).await;
    assert_eq!(reply.unwrap().status, 200);
    let audit = setting.setup.data_dir().join("audit/tenants/audit-1.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    let record = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut record = record.filter(|it| it["operation"] == "AssumeRoleWithWebIdentity");
    let record = record.next_back().unwrap();
    assert_eq!((&record["outcome"], &record["who"]["tenant"]), (&json!("done"), &json!("lab")));
    assert_eq!(record["who"]["name"], "reader/alice");
    let logged = setting.server.logged();
    assert!(!audit.contains(&token) && !logged.contains(&token) && !logged.contains(SECRET));
}

#[tokio::test]
async fn tokens_that_are_not_the_providers_begin_no_session() {
    let setting = Setting::new().await;
    setting.provider.0.lock().jwks = setting.key.jwks();
    let now_s = SystemClock.now_ms() / 1000;
    let own = &setting.key;
    let refusals = [
        setting.refused(|_, _| {}, &SigningPair::new()).await,
        setting.refused(|header, _| header["alg"] = json!("none"), own).await,
        setting.refused(|header, _| header["alg"] = json!("HS256"), own).await,
        setting.refused(|header, _| header["kid"] = json!("k2"), own).await,
        setting.refused(|_, claims| claims["aud"] = json!("other"), own).await,
        setting.refused(|_, claims| claims["iss"] = json!("https://evil.example"), own).await,
        setting.refused(|_, claims| claims["exp"] = json!(now_s - 120), own).await,
        setting.refused(|_, claims| claims["nonce"] = json!("0"), own).await,
    ];
    for page in refusals {
        assert!(page.contains("token is not valid for this console"), "{page}");
    }
    let page = setting.refused(|_, claims| claims["sub"] = json!("mallory"), own).await;
    assert!(page.contains("does not trust your account"), "{page}");
    assert_eq!(setting.provider.0.lock().jwks_fetches, 1, "unknown keys wait for a minute");
    let (_, reply) = setting.sign_in().await;
    assert_eq!(reply.status, 303, "{}", reply.text());
}

#[tokio::test]
async fn half_a_provider_is_refused_at_the_start() {
    let (code, sentence) = Setup::new().set("MARTLET_CONSOLE_OIDC_CLIENT_ID", CLIENT).refusal();
    assert!(code != 0 && sentence.contains("needs oidc_issuer"), "{sentence}");
    let (_, sentence) = Setup::new()
        .set("MARTLET_OIDC_ISSUER", "http://idp.example")
        .set("MARTLET_OIDC_AUDIENCES", CLIENT)
        .refusal();
    assert!(sentence.contains("must be https"), "{sentence}");
}
