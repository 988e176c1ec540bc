//! Requests of users' browsers against a store that records what it receives.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::{Extensions, HeaderValue, Method};
use parking_lot::Mutex;

use super::*;
use crate::PLACES_MAX;
use crate::sign::{AccessKey, SignedService, SigningScope, UnsignedRequest};

const REGION: &str = "us-east-1";

/// Request, as the store received it.
struct Received {
    method: Method,
    target: String,
    headers: HeaderMap,
    extensions: Extensions,
    body: Vec<u8>,
}

/// Store that accepts two keys, checks signatures, and answers with the headers of a hostile object.
#[derive(Clone, Default)]
pub(super) struct RecordingStore(Arc<Mutex<Vec<Received>>>);

impl RecordingStore {
    fn keys() -> [AccessKey; 2] {
        ["alice", "bob"].map(|name| AccessKey::new(name.to_uppercase(), format!("{name}'s secret")))
    }

    /// Returns the name of the key that signed a request.
    fn signer(request: &Received) -> Option<String> {
        let given = request.headers.get("authorization")?;
        let is_token = request.target == "/" && request.method == Method::POST;
        let service = if is_token { SignedService::Sts } else { SignedService::S3 };
        let mut headers = request.headers.clone();
        for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "content-length"] {
            headers.remove(name);
        }
        let keys = Self::keys().into_iter();
        let mut keys = keys.filter(|key| {
            // Headers that the signer leaves out are those of the console's own list.
            let mut covered = headers.clone();
            if let Some(length) = request.headers.get("content-length").filter(|_| !is_token) {
                covered.insert("content-length", length.clone());
            }
            let unsigned = UnsignedRequest {
                method: &request.method,
                uri: &format!("http://console{}", request.target),
                headers: &covered,
                body: is_token.then_some(request.body.as_slice()),
                service,
            };
            let signed = key.sign(&unsigned, SigningScope { region: REGION, now_ms: NOW_MS });
            signed.is_some_and(|signed| signed["authorization"] == given)
        });
        keys.next().map(|key| key.id)
    }

    async fn answer(self, request: axum::extract::Request) -> Response {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap().to_vec();
        let target = head.uri.path_and_query().unwrap().to_string();
        let (method, headers, extensions) = (head.method, head.headers, head.extensions);
        let received = Received { method, target, headers, extensions, body };
        let signer = Self::signer(&received);
        let reply = Response::builder();
        let Some(signer) = signer else {
            let error =
                "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>";
            return reply.status(StatusCode::FORBIDDEN).body(Body::from(error)).unwrap();
        };
        let text = format!("<Arn>arn:aws:iam::lab:user/{signer}</Arn>");
        self.0.lock().push(received);
        reply
            .header("content-type", "text/html")
            .header("content-encoding", "gzip")
            .header("content-disposition", "inline")
            .header("cache-control", "public, max-age=1000000")
            .header("access-control-allow-origin", "*")
            .header("set-cookie", "martlet-console=stolen")
            .header("refresh", "0; url=http://evil.example.com")
            .header("transfer-encoding", "chunked")
            .header("connection", "keep-alive, x-amz-meta-a")
            .header("etag", "\"e\"")
            .header("x-amz-meta-a", "<script>")
            .body(Body::from(text))
            .unwrap()
    }
}

/// Parts of a store at these routes.
pub(super) fn s3_parts(routes: Router) -> S3Parts {
    S3Parts::new(routes, REGION.to_owned(), "127.0.0.1:9000".parse().unwrap(), false)
}

/// Console over a recording store.
pub(super) fn console_with_store() -> (TestConsole, RecordingStore) {
    let (console, store) = (TestConsole::new(false), RecordingStore::default());
    let answering = store.clone();
    let answer = tower::service_fn(move |request| {
        let store = answering.clone();
        async move { Ok::<_, std::convert::Infallible>(store.answer(request).await) }
    });
    console.s3.open(s3_parts(Router::new().fallback_service(answer)));
    (console, store)
}

async fn user(console: &TestConsole, name: &str) -> Browser {
    Browser::of(console.login(&name.to_uppercase(), &format!("{name}'s secret")).await).await
}

impl Browser {
    async fn ask(
        &self,
        console: &TestConsole,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut headers = vec![("cookie", self.cookie.as_str()), ("x-martlet-csrf", &self.csrf)];
        headers.extend_from_slice(more);
        console.send(method, path, &headers, body).await
    }
}

#[tokio::test]
async fn an_access_key_signs_in_and_its_secret_stays_here() {
    let (console, _) = console_with_store();
    let browser = user(&console, "alice").await;
    let own = json_of(browser.ask(&console, "GET", "/session", &[], "").await).await;
    assert_eq!(own["s3"]["arn"], "arn:aws:iam::lab:user/ALICE");
    assert_eq!(own["s3"]["endpoint"], "http://127.0.0.1:9000");
    assert!(own["principal"].is_null() && !own.to_string().contains("secret"), "{own}");
    // The admin API gets nothing from such a session.
    let reply = browser.ask(&console, "GET", "/api/admin/v1/session", &[], "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    for (key, secret) in [("ALICE", "bob's secret"), ("ALICE", ""), ("CAROL", "x"), ("a/b", "x")] {
        assert_eq!(console.login(key, secret).await.status(), StatusCode::UNAUTHORIZED, "{key}");
    }
    // An admin key signs nothing at S3.
    let operator = Browser::of(console.login(&console.key, &console.secret).await).await;
    let reply = operator.ask(&console, "GET", "/s3/train", &[], "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn two_cookies_of_the_session_are_refused() {
    let (console, store) = console_with_store();
    let (alice, bob) = (user(&console, "alice").await, user(&console, "bob").await);
    store.0.lock().clear();
    // A page of another port has set the cookie of its own session, for a longer path.
    let two = format!("{}; {}", bob.cookie, alice.cookie);
    for csrf in [&alice.csrf, &bob.csrf] {
        let headers = [("cookie", two.as_str()), ("x-martlet-csrf", csrf.as_str())];
        for (method, path) in [("GET", "/s3/train"), ("PUT", "/s3/train/YQ")] {
            let reply = console.send(method, path, &headers, "").await;
            assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{method} {path}");
        }
        let reply = console.send("GET", "/session", &headers, "").await;
        assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
    }
    assert!(store.0.lock().is_empty());
    // A login says so, as another session would not open either.
    let headers = [("cookie", two.as_str()), ("content-type", "application/json")];
    let body = json!({ "key": "ALICE", "secret": "alice's secret" }).to_string();
    let reply = console.send("POST", "/session", &headers, &body).await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    assert!(json_of(reply).await["error"].as_str().unwrap().contains("two cookies"));
    assert_eq!(alice.ask(&console, "GET", "/s3/train", &[], "").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn logins_wait_for_the_store() {
    let console = TestConsole::new(false);
    assert_eq!(console.login("ALICE", "x").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    let reply = browser.ask(&console, "GET", "/s3/train", &[], "").await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn only_headers_of_the_list_reach_the_store() {
    let (console, store) = console_with_store();
    let browser = user(&console, "alice").await;
    let sent = [
        ("authorization", "AWS4-HMAC-SHA256 Credential=BOB"),
        ("x-amz-security-token", "t"),
        ("x-amz-content-sha256", "0"),
        ("x-amz-date", "20200101T000000Z"),
        ("connection", "keep-alive, x-amz-meta-b"),
        ("te", "trailers"),
        ("origin", "http://localhost:1"),
        ("referer", "http://localhost:1/objects"),
        ("cache-control", "no-cache"),
        ("content-type", "text/plain"),
        ("content-length", "4"),
        ("x-amz-meta-b", "1"),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    let reply = browser.ask(&console, "PUT", "/s3/train/YS8uLi9i?x=a+b", &sent, "body").await;
    assert_eq!(reply.status(), StatusCode::OK);
    let received = store.0.lock().pop().unwrap();
    assert_eq!(
        (received.target.as_str(), &*received.body),
        ("/train/a/../b?x=a%20b", &b"body"[..])
    );
    let mut names: Vec<&str> =
        received.headers.keys().map(axum::http::HeaderName::as_str).collect();
    names.sort_unstable();
    let wanted = [
        "authorization",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-meta-b",
    ];
    assert_eq!(names, wanted);
    assert_eq!(received.headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
    assert_eq!(received.headers["host"], "console");
}

#[tokio::test]
async fn the_address_of_the_client_reaches_the_store() {
    use martlet_protocol::http::Peer;
    let (console, store) = console_with_store();
    let browser = user(&console, "alice").await;
    let peer = Peer("192.0.2.7".parse().unwrap());
    let request = Request::get("/s3").header("host", "localhost:1");
    let request = request.header("cookie", &browser.cookie).header("x-martlet-csrf", &browser.csrf);
    let request = request.extension(peer).body(Body::empty()).unwrap();
    assert_eq!(console.router.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
    let received = store.0.lock().pop().unwrap();
    assert_eq!(received.extensions.get::<Peer>().map(|peer| peer.0), Some(peer.0));
}

#[tokio::test]
async fn objects_are_downloads_that_no_page_can_run() {
    let (console, store) = console_with_store();
    let browser = user(&console, "alice").await;
    let link = format!("/s3/train/YQ?versionId=1&x-martlet-csrf={}", browser.link_token);
    let cookie = [("cookie", browser.cookie.as_str())];
    // A link saves an object, and its token does nothing else.
    for (path, token) in [
        ("/s3/train/YQ?versionId=1", &browser.csrf),
        ("/s3/train?list-type=2", &browser.link_token),
        ("/api/admin/v1/session?a=1", &browser.link_token),
    ] {
        let path = format!("{path}&x-martlet-csrf={token}");
        let reply = console.send("GET", &path, &cookie, "").await;
        assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(console.send("GET", &link, &cookie, "").await.status(), StatusCode::OK);
    let received = store.0.lock().pop().unwrap();
    assert_eq!(received.target, "/train/a?versionId=1", "S3 receives no token");
    let reply = browser.ask(&console, "GET", "/s3/train/YS5odG1s", &[], "").await;
    let headers = reply.headers();
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''a.html");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-store");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("sandbox; default-src 'none'"), "{policy}");
    assert_eq!(headers["x-object-content-type"], "text/html");
    assert_eq!((&headers["etag"], &headers["x-amz-meta-a"]), (&hv("\"e\""), &hv("<script>")));
    for name in [
        "set-cookie",
        "refresh",
        "content-encoding",
        "access-control-allow-origin",
        "transfer-encoding",
        "connection",
    ] {
        assert!(!headers.contains_key(name), "{name}");
    }
    // Neither as a script, a style, a frame or a worker, nor from another site.
    for (name, value) in [
        ("sec-fetch-dest", "script"),
        ("sec-fetch-dest", "style"),
        ("sec-fetch-dest", "iframe"),
        ("sec-fetch-dest", "serviceworker"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let reply = browser.ask(&console, "GET", "/s3/train/YS5odG1s", &[(name, value)], "").await;
        assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{value}");
    }
}

fn hv(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

/// Body whose chunks a test sends one by one.
struct SentBody(tokio::sync::mpsc::Receiver<&'static str>);

impl http_body::Body for SentBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let chunk = std::task::ready!(self.0.poll_recv(context));
        Poll::Ready(
            chunk.map(|text| Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))),
        )
    }
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let console = TestConsole::new(false);
    let echo = tower::service_fn(|request: axum::extract::Request| async move {
        Ok::<_, std::convert::Infallible>(Response::new(request.into_body()))
    });
    console.s3.open(s3_parts(Router::new().fallback_service(echo)));
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let request = Request::put("/s3/train/YQ")
        .header("host", "localhost:1")
        .header("cookie", &browser.cookie)
        .header("x-martlet-csrf", &browser.csrf)
        .body(Body::new(SentBody(receive)))
        .unwrap();
    // The reply begins before the request has a byte, and each chunk passes by itself.
    let mut reply = console.router.clone().oneshot(request).await.unwrap().into_body();
    for chunk in ["first", "second"] {
        send.send(chunk).await.unwrap();
        let frame = poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut reply), context));
        let frame = frame.await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, chunk);
    }
}

/// Polls a request once. Returns true if the request waits.
async fn waits(request: &mut Pin<Box<impl Future<Output = Response>>>) -> bool {
    poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending())).await
}

#[tokio::test]
async fn requests_for_own_keys_take_places() {
    let console = TestConsole::new(false);
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    let silent = tower::service_fn(|_: axum::extract::Request| {
        std::future::pending::<Result<Response, std::convert::Infallible>>()
    });
    console.s3.open(s3_parts(Router::new().fallback_service(silent)));
    let list = || Box::pin(browser.ask(&console, "GET", "/own/keys", &[], ""));
    let mut waiting: Vec<_> = (0..PLACES_MAX).map(|_| list()).collect();
    for request in &mut waiting {
        assert!(waits(request).await);
    }
    assert_eq!(list().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    waiting.pop();
    assert!(waits(&mut list()).await, "a request that left has returned its place");
}

#[tokio::test]
async fn hostile_targets_never_reach_the_store() {
    let (console, store) = console_with_store();
    let browser = user(&console, "alice").await;
    store.0.lock().clear();
    for path in [
        "/s3/train/../../session",
        "/s3/train/%2e%2e/x",
        "/s3/train/a%2Fb",
        "/s3/%2e%2e/api",
        "/s3/train/YQ?X-Amz-Signature=1",
        "/s3/train/YQ?x-amz-security-token=1",
        "/s3/train/YQ?Signature=1&AWSAccessKeyId=BOB&Expires=1",
        "/s3/train/YQ?locate",
    ] {
        let status = browser.ask(&console, "GET", path, &[], "").await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
    }
    // Sessions of roles, whose secrets a page would receive.
    let form = "Action=AssumeRole&Version=2011-06-15";
    let reply = browser.ask(&console, "POST", "/s3", &[], form).await;
    assert_eq!(reply.status(), StatusCode::METHOD_NOT_ALLOWED);
    // Requests without the token of the session, and anything without a session.
    let cookie = [("cookie", browser.cookie.as_str())];
    let reply = console.send("GET", "/s3/train/YQ", &cookie, "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    let link = format!("/s3/train/YQ?x-martlet-csrf={}", browser.link_token);
    let reply = console.send("DELETE", &link, &cookie, "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    let reply = console.send("DELETE", "/s3/train/YQ", &cookie, "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    let reply = console.send("POST", "/links", &cookie, "{}").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    assert_eq!(console.send("GET", "/s3", &[], "").await.status(), StatusCode::UNAUTHORIZED);
    assert!(store.0.lock().is_empty());
}

#[tokio::test]
async fn each_session_signs_with_its_own_key() {
    let (console, store) = console_with_store();
    let (alice, bob) = (user(&console, "alice").await, user(&console, "bob").await);
    for (browser, wanted) in [(&alice, "ALICE"), (&bob, "BOB"), (&alice, "ALICE")] {
        browser.ask(&console, "GET", "/s3/train?list-type=2", &[], "").await;
        let received = store.0.lock().pop().unwrap();
        assert_eq!(RecordingStore::signer(&received).as_deref(), Some(wanted));
    }
    // The token of one session changes nothing in the name of the other.
    let headers = [("cookie", alice.cookie.as_str()), ("x-martlet-csrf", bob.csrf.as_str())];
    let reply = console.send("DELETE", "/s3/train/YQ", &headers, "").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    assert_eq!(alice.ask(&console, "DELETE", "/session", &[], "").await.status(), StatusCode::OK);
    let reply = alice.ask(&console, "GET", "/s3/train", &[], "").await;
    assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(bob.ask(&console, "GET", "/s3/train", &[], "").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn links_are_made_for_the_key_of_the_session() {
    let (console, _) = console_with_store();
    let browser = user(&console, "alice").await;
    let link = async |expires_s: u64, endpoint: &str| {
        let body = json!({ "bucket": "train", "key": "../a b", "method": "GET",
            "expires_s": expires_s, "endpoint": endpoint });
        browser.ask(&console, "POST", "/links", &[], &body.to_string()).await
    };
    let reply = json_of(link(60, "https://s3.example.com").await).await;
    let url = reply["url"].as_str().unwrap();
    assert!(url.starts_with("https://s3.example.com/train/../a%20b?"), "{url}");
    assert!(url.contains("Credential=ALICE%2F") && !url.contains("secret"), "{url}");
    assert_eq!(reply["expires_ms"], NOW_MS + 60_000);
    for (expires_s, endpoint) in [(604_801, "https://s3.example.com"), (60, "javascript:x")] {
        assert_eq!(link(expires_s, endpoint).await.status(), StatusCode::BAD_REQUEST);
    }
}
