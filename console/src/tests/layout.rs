//! Layouts of objects: what the store is asked, and what of its reply a page receives.

use axum::body::Bytes;
use axum::extract::Request as StoreRequest;
use axum::http::HeaderValue;
use parking_lot::Mutex;

use super::users::s3_parts;
use super::*;
use crate::PLACES_MAX;

/// Reply of `LocateObject` with two holders of a piece, and their tokens.
const LOCATED: &str = r#"{"size": 200000, "etag": "\"e\"", "versionId": "v", "stamp": "STAMP",
    "expires_ms": 5, "direct": true, "reason": null, "extents": [{"id": "0f", "offset": 0,
    "length": 200000, "blake3": "ab", "code": {"k": 4, "m": 2, "F": 16777216}, "pieces": [
    {"piece": 1, "id": "1f", "from": 0, "length": 50000, "holders": [
    {"url": "http://10.0.0.5:9002/x/1f", "token": "TOKEN-1", "host_id": "HOST"},
    {"url": "https://[2001:db8::1]:9002/x/1f?t=TOKEN-2", "token": "TOKEN-3", "host_id": ""}
    ]}]}], "next": 67108864}"#;

/// Status, headers and body of the store's replies.
type Reply = (StatusCode, Vec<(&'static str, &'static str)>, Bytes);

/// Targets and headers of the requests that the store received.
type Received = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// Console over a store with this reply, and the requests that the store received.
async fn console(reply: Reply) -> (TestConsole, Browser, Received) {
    let console = TestConsole::new(false);
    let received = Received::default();
    let (list, reply) = (received.clone(), Arc::new(reply));
    let answer = tower::service_fn(move |request: StoreRequest| {
        let target = request.uri().path_and_query().unwrap().to_string();
        list.lock().push((target, request.headers().clone()));
        let (status, headers, body) = &*reply;
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let answer = answer.body(Body::from(body.clone())).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    // The login would ask the store for the name of the key.
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    console.s3.open(s3_parts(Router::new().fallback_service(answer)));
    (console, browser, received)
}

fn located(body: impl Into<Bytes>) -> Reply {
    (StatusCode::OK, vec![("x-martlet-locate", "1")], body.into())
}

async fn show(console: &TestConsole, browser: &Browser, query: &str) -> Response {
    let headers = [("cookie", browser.cookie.as_str()), ("x-martlet-csrf", &browser.csrf)];
    console.send("GET", &format!("/own/layout?{query}"), &headers, "").await
}

#[tokio::test]
async fn nodes_are_shown_and_tokens_are_not() {
    let (console, browser, received) = console(located(LOCATED)).await;
    let query = "bucket=train&key=a%2F..%2Fb%20%26%3F&version=v%2B1&from=7&etag=%22e%22";
    let reply = show(&console, &browser, query).await;
    assert_eq!(reply.status(), StatusCode::OK);
    check_headers(reply.headers());
    let layout = json_of(reply).await;
    let text = layout.to_string();
    for secret in ["TOKEN", "STAMP", "HOST", "expires"] {
        assert!(!text.contains(secret), "{text}");
    }
    let expected = json!({"size": 200_000, "etag": "\"e\"", "direct": true, "reason": null,
        "next": 67_108_864, "extents": [{"id": "0f", "offset": 0, "length": 200_000, "blake3": "ab",
            "code": {"k": 4, "m": 2}, "pieces": [{"piece": 1, "id": "1f", "from": 0,
                "length": 50_000, "holders": [{"url": "http://10.0.0.5:9002"},
                    {"url": "https://[2001:db8::1]:9002"}]}]}]});
    assert_eq!(layout, expected);
    let (target, headers) = received.lock().pop().unwrap();
    assert_eq!(target, "/train/a/../b%20%26%3F?locate=&versionId=v%2B1");
    let of = |name: &str| headers.get(name).map(|it: &HeaderValue| it.to_str().unwrap());
    assert_eq!((of("range"), of("if-match")), (Some("bytes=7-"), Some("\"e\"")));
    assert_eq!((of("host"), of("user-agent")), (Some("console"), Some("martlet-console")));
    assert!(of("authorization").unwrap().contains("Credential=root/"), "{headers:?}");
    assert!(of("cookie").is_none() && of("x-martlet-csrf").is_none());
}

#[tokio::test]
async fn the_first_page_names_no_range_and_no_version() {
    let body = r#"{"size": 3, "etag": "e", "direct": false, "reason": "inline", "extents": [],
        "next": null}"#;
    let (console, browser, received) = console(located(body)).await;
    let layout = json_of(show(&console, &browser, "bucket=train&key=k").await).await;
    assert_eq!((&layout["direct"], &layout["reason"]), (&json!(false), &json!("inline")));
    let (target, headers) = received.lock().pop().unwrap();
    assert_eq!(target, "/train/k?locate=");
    assert!(!headers.contains_key("range") && !headers.contains_key("if-match"));
}

#[tokio::test]
async fn refusals_of_the_store_are_sentences() {
    let error = |text: &'static str| Bytes::from_static(text.as_bytes());
    for (status, body, sentence) in [
        (403, error("<Error><Message>Access Denied</Message></Error>"), "Access Denied"),
        (404, error("<Error><Message>No &quot;k&quot;</Message></Error>"), "No \"k\""),
        (501, error("<Error><Message>locate</Message></Error>"), "data port"),
        (503, error(""), "status 503"),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let (console, browser, _) = console((status, Vec::new(), body)).await;
        let reply = show(&console, &browser, "bucket=train&key=k").await;
        assert_eq!(reply.status(), status);
        let error = json_of(reply).await["error"].to_string();
        assert!(error.contains(&sentence.replace('"', "\\\"")), "{error}");
    }
}

#[tokio::test]
async fn other_replies_are_no_layouts() {
    let object = (StatusCode::OK, Vec::new(), Bytes::from_static(LOCATED.as_bytes()));
    let no_url = LOCATED.replace("http://10.0.0.5:9002/x/1f", "x/1f");
    let long = Bytes::from(vec![b' '; (16 << 20) + 1]);
    for reply in [object, located("{}"), located("<a>"), located(no_url), located(long)] {
        let (console, browser, _) = console(reply).await;
        let reply = show(&console, &browser, "bucket=train&key=k").await;
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(json_of(reply).await["error"], "the store's reply can't be read");
    }
}

#[tokio::test]
async fn hostile_queries_and_strangers_never_reach_the_store() {
    let (console, browser, received) = console(located(LOCATED)).await;
    for query in [
        "bucket=..&key=k",
        "bucket=a%2Fb&key=k",
        "bucket=train&key=",
        "bucket=train",
        "bucket=train&key=k&from=-1",
        "bucket=train&key=k&etag=%0D%0Ax-amz-a:1",
    ] {
        let status = show(&console, &browser, query).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
    }
    let path = "/own/layout?bucket=train&key=k";
    let cookie = [("cookie", browser.cookie.as_str())];
    assert_eq!(console.send("GET", path, &cookie, "").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(console.send("GET", path, &[], "").await.status(), StatusCode::UNAUTHORIZED);
    let operator = Browser::of(console.login(&console.key, &console.secret).await).await;
    let reply = show(&console, &operator, "bucket=train&key=k").await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN, "an admin key has no rights at S3");
    assert!(received.lock().is_empty());
}

#[tokio::test]
async fn layouts_take_places() {
    let console = TestConsole::new(false);
    let browser = Browser::of(console.login("root", ROOT_SECRET).await).await;
    let silent = tower::service_fn(|_: StoreRequest| {
        std::future::pending::<Result<Response, std::convert::Infallible>>()
    });
    console.s3.open(s3_parts(Router::new().fallback_service(silent)));
    let mut waiting = Vec::new();
    for _ in 0..PLACES_MAX {
        let mut request = Box::pin(show(&console, &browser, "bucket=train&key=k"));
        assert!(waits(&mut request).await);
        waiting.push(request);
    }
    let reply = show(&console, &browser, "bucket=train&key=k").await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
}

/// Polls a request once. Returns true if the request waits.
async fn waits<F: Future<Output = Response> + Unpin>(request: &mut F) -> bool {
    use std::task::Poll;
    std::future::poll_fn(|context| {
        Poll::Ready(std::pin::Pin::new(&mut *request).poll(context).is_pending())
    })
    .await
}
