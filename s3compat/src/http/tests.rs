//! Tests of the whole HTTP pipeline, in front of operations that only record requests.

mod limited;

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use martlet_protocol::ManualClock;
use parking_lot::Mutex;

use super::*;
use crate::access::Identity;
use crate::auth::testing::{NOW_MS, TestSignature, keys};
use crate::decode::BodyError;
use crate::reply::Reply;
use crate::request::PreparedRequest;

/// A request as received by the operations.
#[derive(Debug)]
struct ReceivedRequest {
    uri: String,
    headers: HeaderMap,
    identity: Identity,
    operation: &'static str,
    trailers: HeaderMap,
    body: Result<Bytes, BodyError>,
}

/// Records each request, and returns the configured reply.
#[derive(Clone, Debug, Default)]
struct Recorder {
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    error: Option<&'static str>,
}

impl OperationHandler for Recorder {
    fn handle(&self, request: PreparedRequest) -> BoxFuture<'_, Reply> {
        Box::pin(self.record(request))
    }
}

impl Recorder {
    async fn record(&self, request: PreparedRequest) -> Reply {
        let PreparedRequest { head, body, .. } = request;
        let body = match &head.document {
            Some(_) => Ok(Bytes::copy_from_slice(head.document())),
            None => body.collect().await,
        };
        let query = if head.raw_query.is_empty() { "" } else { "?" };
        self.seen.lock().push(ReceivedRequest {
            uri: format!("{}{query}{}", head.target.path(), head.raw_query),
            operation: head.operation().name(),
            identity: head.context.identity,
            trailers: head.context.facts.trailers().cloned().unwrap_or_default(),
            headers: head.headers,
            body,
        });
        let mut reply = Reply::empty(StatusCode::OK);
        reply.body = "hello".to_owned().into();
        if let Some(document) = self.error {
            reply.status = StatusCode::NOT_FOUND;
            reply.body = document.to_owned().into();
        }
        reply
    }
}

fn service_with(config: HttpConfig) -> (HttpService<Recorder>, Recorder) {
    let recorder = Recorder::default();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    (HttpService::new(config, clock, keys(), None, recorder.clone()), recorder)
}

fn service() -> (HttpService<Recorder>, Recorder) {
    service_with(HttpConfig::default())
}

fn request(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "127.0.0.1:9000");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Signs and sends a request. Returns status, headers and body of the reply.
async fn send(
    service: &HttpService<Recorder>,
    request: Request<()>,
    payload: &str,
    body: &[u8],
) -> (StatusCode, HeaderMap, String) {
    let request = TestSignature::default().sign(request, payload);
    deliver(service, request, body).await
}

async fn deliver(
    service: &HttpService<Recorder>,
    request: Request<()>,
    body: &[u8],
) -> (StatusCode, HeaderMap, String) {
    let body = Full::new(Bytes::copy_from_slice(body));
    let (parts, body) = service.answer(request.map(|()| body)).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// Error code in a reply.
fn code(reply: &(StatusCode, HeaderMap, String)) -> &str {
    let text = reply.2.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    text.map_or("", |(code, _)| code)
}

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

#[tokio::test]
async fn accepted_requests_reach_the_handler_decoded() {
    let (service, recorder) = service();
    let reply = send(&service, request("GET", "/b/a%20b?x-id=GetObject", &[]), UNSIGNED, b"").await;
    assert_eq!((reply.0, reply.2.as_str()), (StatusCode::OK, "hello"));
    assert_eq!(reply.1["x-amz-request-id"].len(), 16);
    assert!(!reply.1["x-amz-id-2"].is_empty());
    let link = TestSignature::link().sign(request("GET", "/b/k?partNumber=2", &[]), UNSIGNED);
    assert_eq!(deliver(&service, link, b"").await.0, StatusCode::OK);
    let seen = recorder.seen.lock();
    assert_eq!((seen[0].uri.as_str(), seen[0].operation), ("/b/a%20b", "GetObject"));
    assert_eq!(seen[1].uri, "/b/k?partNumber=2");
    assert_eq!(seen[0].identity, Identity::known("root"));
    for name in ["authorization", "x-amz-date", "x-amz-content-sha256"] {
        assert!(!seen[0].headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_answered_by_the_buckets_rules() {
    let recorder = Recorder::default();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let cors = Some(Arc::new(cors::tests::FixedCorsRules) as Arc<dyn CorsRules>);
    let service = HttpService::new(HttpConfig::default(), clock, keys(), cors, recorder.clone());
    let page = ("origin", "http://a.page");
    let asked = [page, ("access-control-request-method", "GET")];
    let reply = deliver(&service, request("OPTIONS", "/b/k", &asked), b"").await;
    assert_eq!((reply.0, reply.2.as_str()), (StatusCode::OK, ""));
    assert_eq!(reply.1["access-control-allow-methods"], "GET");
    assert!(reply.1.contains_key("x-amz-request-id"));
    let reply = deliver(&service, request("OPTIONS", "/closed", &asked), b"").await;
    assert_eq!((reply.0, code(&reply)), (StatusCode::FORBIDDEN, "AccessForbidden"));
    assert!(reply.2.contains("<ResourceType>BUCKET</ResourceType>"), "{}", reply.2);
    assert!(recorder.seen.lock().is_empty(), "the service answers by itself");

    let reply = send(&service, request("GET", "/b/k", &[page]), UNSIGNED, b"").await;
    assert_eq!(reply.0, StatusCode::OK);
    assert_eq!(reply.1["access-control-allow-origin"], page.1);
    let reply = deliver(&service, request("GET", "/b/k", &[page]), b"").await;
    assert_eq!(reply.0, StatusCode::FORBIDDEN, "who signs nothing is still refused");
    assert_eq!(reply.1["access-control-allow-origin"], page.1);
    let reply = send(&service, request("GET", "/b/k", &[]), UNSIGNED, b"").await;
    assert!(!reply.1.contains_key("vary"));
}

#[tokio::test]
async fn a_bucket_in_the_host_becomes_one_in_the_path() {
    let (service, recorder) = service();
    let mut asked = request("GET", "/dir/k", &[]);
    asked.headers_mut().insert("host", "photos.localhost:9000".parse().unwrap());
    assert_eq!(send(&service, asked, UNSIGNED, b"").await.0, StatusCode::OK);
    assert_eq!(recorder.seen.lock()[0].uri, "/photos/dir/k");
}

#[tokio::test]
async fn unsigned_headers_of_a_link_are_refused() {
    let (service, recorder) = service();
    let mut link = TestSignature::link().sign(request("PUT", "/b/k", &[]), UNSIGNED);
    link.headers_mut().insert("x-amz-copy-source", "/other/secret".parse().unwrap());
    let reply = deliver(&service, link, b"").await;
    assert_eq!((reply.0, code(&reply)), (StatusCode::FORBIDDEN, "AccessDenied"));
    assert!(reply.2.contains("<HeadersNotSigned>x-amz-copy-source</HeadersNotSigned>"));
    assert!(recorder.seen.lock().is_empty());
}

#[tokio::test]
async fn headers_in_the_query_of_a_link_become_headers() {
    let (service, recorder) = service();
    let path = "/b/k?x-amz-meta-a=one&X-Amz-Storage-Class=STANDARD";
    let link = TestSignature::link().sign(request("PUT", path, &[]), UNSIGNED);
    assert_eq!(deliver(&service, link, b"x").await.0, StatusCode::OK);
    let refused = TestSignature::link().sign(request("PUT", "/b/k?x-amz-mfa=1", &[]), UNSIGNED);
    assert_eq!(code(&deliver(&service, refused, b"x").await), "NotImplemented");
    let seen = recorder.seen.lock();
    assert_eq!((seen.len(), seen[0].uri.as_str()), (1, "/b/k"));
    assert_eq!(seen[0].headers["x-amz-meta-a"], "one");
    assert_eq!(seen[0].headers["x-amz-storage-class"], "STANDARD");
}

/// Method, path, headers, and the error code of the refusal.
type RefusalCase<'a> = (&'a str, &'a str, &'a [(&'static str, &'a str)], &'a str);

#[tokio::test]
async fn bad_requests_never_reach_an_operation() {
    let (service, recorder) = service();
    let long_key = format!("/b/{}", "k".repeat(1025));
    let long_header = "h".repeat(17 * 1024);
    let cases: &[RefusalCase<'_>] = &[
        ("GET", &long_key, &[], "KeyTooLongError"),
        ("GET", "/b/%FF", &[], "InvalidURI"),
        ("GET", "/b/a%00b", &[], "InvalidArgument"),
        ("GET", "//key", &[], "InvalidBucketName"),
        ("GET", "/b/k", &[("x-h", &long_header)], "RequestHeaderSectionTooLarge"),
        ("DELETE", "/b?acl", &[], "NotImplemented"),
        ("PUT", "/b/k?renameObject", &[], "NotImplemented"),
        ("PUT", "/b/k?versionId=1", &[], "NotImplemented"),
        ("GET", "/b?inventory", &[], "NotImplemented"),
        ("PATCH", "/b/k", &[], "MethodNotAllowed"),
        ("PUT", "/b/k", &[("x-amz-write-offset-bytes", "1")], "NotImplemented"),
        ("PUT", "/b/k", &[("content-md5", "x")], "InvalidDigest"),
        ("PUT", "/b/k", &[("content-length", "5368709121")], "EntityTooLarge"),
        (
            "PUT",
            "/b/k",
            &[("content-encoding", "gzip,aws-chunked"), ("x-amz-decoded-content-length", "4")],
            "InvalidArgument",
        ),
        ("GET", "/b/k?uploads", &[], "InvalidRequest"),
        ("GET", "/b/k", &[("x-amz-copy-source", "b/k")], "InvalidArgument"),
    ];
    for (method, path, headers, expected) in cases {
        let reply = send(&service, request(method, path, headers), UNSIGNED, b"").await;
        assert_eq!(code(&reply), *expected, "{method} {path}: {}", reply.2);
        for element in ["Message", "Resource", "RequestId", "HostId"] {
            assert!(reply.2.contains(&format!("</{element}>")), "{element}: {}", reply.2);
        }
        assert!(reply.2.contains(reply.1["x-amz-request-id"].to_str().unwrap()));
        assert_eq!(reply.1["content-type"], "application/xml");
    }
    assert!(recorder.seen.lock().is_empty());
}

#[tokio::test]
async fn an_rdma_token_is_declined() {
    let (service, recorder) = service();
    let asked = request("PUT", "/b/k", &[("x-amz-rdma-token", "t")]);
    let reply = send(&service, asked, UNSIGNED, b"").await;
    assert_eq!(
        (reply.0, &reply.1["x-amz-rdma-reply"]),
        (StatusCode::NOT_IMPLEMENTED, &"501".parse().unwrap())
    );
    let meta = [("x-amz-meta-rdma-token", "t")];
    let reply = send(&service, request("PUT", "/b/k", &meta), UNSIGNED, b"").await;
    assert_eq!(reply.0, StatusCode::NOT_IMPLEMENTED);
    assert!(reply.1.contains_key("x-amz-rdma-reply") && !reply.1.contains_key("etag"));
    assert!(recorder.seen.lock().is_empty());
    let read = request("GET", "/b/k", &[("x-amz-rdma-token", "t")]);
    assert_eq!(send(&service, read, UNSIGNED, b"").await.0, StatusCode::OK);
    assert_eq!(recorder.seen.lock().len(), 1, "a read goes on");
}

#[tokio::test]
async fn anonymous_requests_are_refused_unless_allowed() {
    let (service, _) = service();
    let reply = deliver(&service, request("GET", "/b/k", &[]), b"").await;
    assert_eq!((reply.0, code(&reply)), (StatusCode::FORBIDDEN, "AccessDenied"));
    let head = deliver(&service, request("HEAD", "/b/k", &[]), b"").await;
    assert_eq!((head.0, head.2.as_str()), (StatusCode::FORBIDDEN, ""));
    assert!(head.1.contains_key("x-amz-request-id"));

    let (service, recorder) =
        service_with(HttpConfig { allow_anonymous: true, ..HttpConfig::default() });
    assert_eq!(deliver(&service, request("GET", "/b/k", &[]), b"").await.0, StatusCode::OK);
    let reply = deliver(&service, request("GET", "/b/k?response-expires=0", &[]), b"").await;
    assert_eq!(code(&reply), "InvalidRequest");
    // Framing is never stored as data.
    let framed = b"1\r\nx\r\n0\r\n\r\n";
    let chunked = [("content-encoding", "aws-chunked"), ("x-amz-decoded-content-length", "1")];
    let reply = deliver(&service, request("PUT", "/b/k", &chunked), framed).await;
    assert_eq!(code(&reply), "InvalidRequest");
    let trailer =
        [("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"), chunked[0], chunked[1]];
    let reply = deliver(&service, request("PUT", "/b/k", &trailer), framed).await;
    assert_eq!(reply.0, StatusCode::OK);
    let seen = recorder.seen.lock();
    assert_eq!(seen[0].identity, Identity::Anonymous);
    assert_eq!(seen[1].body, Ok(Bytes::from_static(b"x")));
}

#[tokio::test]
async fn chunked_bodies_become_plain_ones() {
    let (service, recorder) = service();
    let framed = b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n";
    let headers = [
        ("content-encoding", "aws-chunked,gzip"),
        ("x-amz-decoded-content-length", "3"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("content-length", "45"),
    ];
    let streaming = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    send(&service, request("PUT", "/b/k", &headers), streaming, framed).await;
    for length in [&headers[2..3], &[("x-amz-decoded-content-length", "x"), headers[2]]] {
        let reply = send(&service, request("PUT", "/b/k", length), streaming, framed).await;
        assert_eq!(code(&reply), "MissingContentLength");
    }
    let longer = [("x-amz-decoded-content-length", "4"), headers[2]];
    send(&service, request("PUT", "/b/k", &longer), streaming, framed).await;
    send(&service, request("PUT", "/b/k", &headers[..2]), streaming, framed).await;
    let reply = send(
        &service,
        request("PUT", "/b/k", &[headers[1], ("x-amz-trailer", "x-a")]),
        streaming,
        b"",
    )
    .await;
    assert_eq!(code(&reply), "InvalidRequest");
    let seen = recorder.seen.lock();
    assert_eq!(seen[0].body, Ok(Bytes::from_static(b"abc")));
    assert_eq!(seen[0].trailers["x-amz-checksum-crc32"], "NSRBwg==");
    assert_eq!(seen[0].headers["content-length"], "3");
    assert_eq!(seen[0].headers["content-encoding"], "gzip");
    assert!(!seen[0].headers.contains_key("x-amz-trailer"));
    assert_eq!(seen[1].body, Err(BodyError::Incomplete));
    assert!(matches!(seen[2].body, Err(BodyError::MalformedTrailer(_))));
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn a_signed_payload_is_what_arrives() {
    let (service, recorder) = service();
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    send(&service, request("PUT", "/b/k", &[]), hash, b"abc").await;
    send(&service, request("PUT", "/b/k", &[]), hash, b"abd").await;
    send(&service, request("PUT", "/b/k", &[("content-length", "4")]), UNSIGNED, b"abc").await;
    let seen = recorder.seen.lock();
    assert_eq!(seen[0].body, Ok(Bytes::from_static(b"abc")));
    assert!(matches!(seen[1].body, Err(BodyError::ContentSha256 { .. })));
    assert_eq!(seen[2].body, Err(BodyError::Incomplete));
}

#[tokio::test]
async fn documents_are_looked_over_first() {
    let (service, recorder) = service();
    let good = "<Delete><Object><Key>a</Key></Object></Delete>";
    let huge = format!("<Delete><Quiet>{}</Quiet></Delete>", " ".repeat(3 << 20));
    let deep = "<a>".repeat(1000);
    let md5 = ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==");
    let crc = ("x-amz-checksum-crc32", "AAAAAA==");
    let entity = "<!DOCTYPE a [<!ENTITY b \"c\">]><Delete>&b;</Delete>";
    for (body, headers, expected) in [
        (good, &[][..], ""),
        (good, &[md5], "BadDigest"),
        (good, &[crc], "BadDigest"),
        (entity, &[], "MalformedXML"),
        ("<Delete><![CDATA[x]]></Delete>", &[], "MalformedXML"),
        (&deep, &[], "MalformedXML"),
        (&huge, &[], "MaxMessageLengthExceeded"),
    ] {
        let asked = request("POST", "/b?delete", headers);
        let reply = send(&service, asked, UNSIGNED, body.as_bytes()).await;
        assert_eq!(code(&reply), expected, "{}", &body[..body.len().min(60)]);
    }
    // The checksum of a CompleteMultipartUpload describes the object.
    let complete = request("POST", "/b/k?uploadId=1", &[crc]);
    assert_eq!(
        send(&service, complete, UNSIGNED, b"<CompleteMultipartUpload/>").await.0,
        StatusCode::OK
    );
    let wrong = "00".repeat(32);
    let signed = send(&service, request("POST", "/b?delete", &[]), &wrong, good.as_bytes()).await;
    assert_eq!(code(&signed), "XAmzContentSHA256Mismatch");
    let seen = recorder.seen.lock();
    assert_eq!((seen.len(), seen[0].body.clone()), (2, Ok(Bytes::from(good))));
    assert_eq!(seen[0].headers["content-length"], good.len().to_string());
}

#[tokio::test]
async fn errors_of_operations_are_completed() {
    let error = Some("<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>");
    let recorder = Recorder { error, ..Recorder::default() };
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let service = HttpService::new(HttpConfig::default(), clock, keys(), None, recorder);
    let reply = send(&service, request("GET", "/b/a&b", &[]), UNSIGNED, b"").await;
    assert_eq!(code(&reply), "NoSuchKey");
    for part in
        ["<Message>NoSuchKey</Message>", "<Resource>/b/a&amp;b</Resource>", "</HostId></Error>"]
    {
        assert!(reply.2.contains(part), "{}", reply.2);
    }
    let head = send(&service, request("HEAD", "/b/k", &[]), UNSIGNED, b"").await;
    assert_eq!((head.0, head.2.as_str()), (StatusCode::NOT_FOUND, ""));
}

#[tokio::test]
async fn requests_beyond_the_limit_get_slow_down() {
    let (service, _) =
        service_with(HttpConfig { requests_max: 1, waiting_max: 0, ..HttpConfig::default() });
    let ask = || TestSignature::default().sign(request("GET", "/b/k", &[]), UNSIGNED);
    let first = service.answer(ask().map(|()| Full::new(Bytes::new()))).await;
    let refused = deliver(&service, ask(), b"").await;
    assert_eq!((refused.0, code(&refused)), (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
    assert_eq!(refused.1["retry-after"], "1");
    assert_eq!(refused.1["x-amz-retry-after"], "1000");
    drop(first);
    assert_eq!(deliver(&service, ask(), b"").await.0, StatusCode::OK);
}

/// First bytes of the reply to `head`, before the server receives any of the body.
async fn first_word(service: HttpService<Recorder>, head: String) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (client, server) = tokio::net::UnixStream::pair().unwrap();
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(hyper_util::rt::TokioIo::new(server), service);
    let serving = tokio::spawn(connection);
    let (mut reading, mut writing) = client.into_split();
    writing.write_all(head.as_bytes()).await.unwrap();
    let mut buffer = [0; 12];
    let read = reading.read_exact(&mut buffer);
    tokio::time::timeout(Duration::from_secs(40), read).await.unwrap().unwrap();
    // After a refusal the next bytes could be the body or another request, so the connection ends.
    if !buffer.ends_with(b"100") {
        let mut rest = Vec::new();
        let rest = reading.read_to_end(&mut rest);
        tokio::time::timeout(Duration::from_secs(40), rest).await.unwrap().unwrap();
    }
    serving.abort();
    String::from_utf8(buffer.to_vec()).unwrap()
}

#[tokio::test]
async fn only_permitted_requests_get_100_continue() {
    let headers = [("expect", "100-continue"), ("content-length", "3")];
    for (signing, expected) in [
        (TestSignature::default(), "HTTP/1.1 100"),
        (TestSignature { secret: "wrong", ..TestSignature::default() }, "HTTP/1.1 403"),
    ] {
        let signed = signing.sign(request("PUT", "/b/k", &headers), UNSIGNED);
        let mut head = format!("PUT {} HTTP/1.1\r\n", signed.uri());
        for (name, value) in signed.headers() {
            write!(head, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
        }
        head.push_str("\r\n");
        assert_eq!(first_word(service().0, head).await, expected);
    }
}

/// Prints the cost of the HTTP pipeline without operations. The result depends on the machine.
#[tokio::test]
async fn cost_of_authentication() {
    let (service, recorder) = service();
    for (name, signing) in [("header", TestSignature::default()), ("link", TestSignature::link())] {
        let signed = signing.sign(request("GET", "/bucket/some/key-0001", &[]), UNSIGNED);
        let started = std::time::Instant::now();
        let rounds = 20_000;
        for _ in 0..rounds {
            let request = signed.clone().map(|()| Full::new(Bytes::new()));
            assert!(service.answer(request).await.status().is_success());
            recorder.seen.lock().clear();
        }
        println!("{name}: {:?} a request", started.elapsed() / rounds);
    }
}
