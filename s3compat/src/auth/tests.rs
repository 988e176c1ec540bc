//! AWS's published examples, and wrong signatures.

use std::sync::Arc;

use http::{HeaderMap, Method, Request};
use martlet_protocol::ManualClock;

use super::testing::{ACCESS_KEY, NOW_MS, TestSignature, keys};
use super::*;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct TestServer {
    authenticator: Authenticator,
    host_bucket: Option<&'static str>,
}

impl TestServer {
    fn at(now_ms: u64) -> Self {
        Self::of(AuthConfig::default(), now_ms)
    }

    /// A server that accepts Signature Version 2, for requests of the bucket `johnsmith`.
    fn with_v2(now_ms: u64) -> Self {
        let config = AuthConfig { allow_v2: true, ..AuthConfig::default() };
        Self { host_bucket: Some("johnsmith"), ..Self::of(config, now_ms) }
    }

    fn of(config: AuthConfig, now_ms: u64) -> Self {
        let clock = Arc::new(ManualClock::at(now_ms));
        Self { authenticator: Authenticator::new(config, clock, keys()), host_bucket: None }
    }

    fn check(&self, request: &Request<()>) -> Result<AuthenticatedHead, Refusal> {
        let target = RequestTarget::parse(request.uri().path(), self.host_bucket)?;
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let head = RequestHead {
            method: request.method(),
            raw_path: request.uri().path(),
            target: &target,
            query: &query,
            headers: request.headers(),
        };
        self.authenticator.authenticate(&head, &Caller::default())
    }

    fn code(&self, request: &Request<()>) -> Option<Code> {
        self.check(request).err().map(|refusal| refusal.code)
    }
}

fn example(method: &str, path: &str, headers: &[(&str, &str)], signature: &str) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    let mut names = vec!["host"];
    request = request.header("host", "examplebucket.s3.amazonaws.com");
    for (name, value) in headers {
        request = request.header(*name, *value);
        names.push(name);
    }
    names.sort_unstable();
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={},Signature={signature}",
        names.join(";")
    );
    request.header("authorization", authorization).body(()).unwrap()
}

#[test]
fn the_published_examples_hold() {
    let mut server = TestServer::at(NOW_MS);
    server.host_bucket = Some("examplebucket");
    let base = [("x-amz-content-sha256", EMPTY), ("x-amz-date", "20130524T000000Z")];
    let get = [&[("range", "bytes=0-9")][..], &base].concat();
    let put = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        (
            "x-amz-content-sha256",
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        ),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    for request in [
        example(
            "GET",
            "/test.txt",
            &get,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        example(
            "PUT",
            "/test$file.text",
            &put,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        example(
            "GET",
            "/?lifecycle",
            &base,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        example(
            "GET",
            "/?max-keys=2&prefix=J",
            &base,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let authenticated = server.check(&request).unwrap();
        assert_eq!(authenticated.identity.name(), Some("root"), "{}", request.uri());
        assert!(matches!(authenticated.payload, Payload::Sha256(_)));
    }
}

#[test]
fn the_published_link_holds_for_its_day() {
    let link = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE\
        %2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400\
        &X-Amz-SignedHeaders=host&X-Amz-Signature=\
        aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let request = Request::get(link).header("host", "examplebucket.s3.amazonaws.com");
    let request = request.body(()).unwrap();
    for (at_ms, expected) in [
        (NOW_MS, None),
        (NOW_MS + 86_400_000, None),
        (NOW_MS + 86_401_000, Some(Code::AccessDenied)),
        (NOW_MS - 14 * 60_000, None),
        (NOW_MS - 16 * 60_000, Some(Code::AccessDenied)),
    ] {
        let server = TestServer { host_bucket: Some("examplebucket"), ..TestServer::at(at_ms) };
        assert_eq!(server.code(&request), expected, "{at_ms}");
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(path).header("host", "127.0.0.1:9000").body(()).unwrap()
}

#[test]
fn aws_own_signer_is_understood_on_odd_paths_and_queries() {
    let server = TestServer::at(NOW_MS);
    for path in [
        "/",
        "/b/plain",
        "/b/a%20b%2Bc%25d%3Fe%23f",
        "/b/../../x",
        "/b//x//",
        "/b/%D0%BA%D0%BB%D1%8E%D1%87",
        "/b/(a)!*'",
        "/b/a%2Fb",
        "/b/a=b&c@d:e,f;g",
        "/b/%0D%0A",
        "/b?list-type=2&prefix=a%20b%2Fc&delimiter=%2F",
        "/b?uploads",
    ] {
        for signing in [TestSignature::default(), TestSignature::link()] {
            let request = signing.sign(get(path), "UNSIGNED-PAYLOAD");
            let identity = server.check(&request).map(|found| found.identity);
            assert_eq!(identity, Ok(Identity::known("root")), "{}", request.uri());
        }
    }
}

#[test]
fn wrong_signatures_are_refused() {
    let server = TestServer::at(NOW_MS);
    let sign = |signing: TestSignature| signing.sign(get("/b/k"), "UNSIGNED-PAYLOAD");
    let code = |signing: TestSignature| server.code(&sign(signing));
    let good = TestSignature::default();
    assert_eq!(code(good), None);
    assert_eq!(code(TestSignature { secret: "x", ..good }), Some(Code::SignatureDoesNotMatch));
    assert_eq!(code(TestSignature { access_key: "x", ..good }), Some(Code::InvalidAccessKeyId));
    let header = Some(Code::AuthorizationHeaderMalformed);
    assert_eq!(code(TestSignature { region: "mars-1", ..good }), header);
    assert_eq!(code(TestSignature { service: "sqs", ..good }), header);
    let query = Some(Code::AuthorizationQueryParametersError);
    assert_eq!(code(TestSignature { region: "mars-1", ..TestSignature::link() }), query);
    assert_eq!(code(TestSignature { expires_s: Some(604_800), ..good }), None);
    let denied = Some(Code::AccessDenied);
    assert_eq!(code(TestSignature { expires_s: Some(604_801), ..good }), denied);
    assert_eq!(code(TestSignature { expires_s: Some(0), ..good }), denied);
    for minutes in [14, 16] {
        let expected = (minutes > 15).then_some(Code::RequestTimeTooSkewed);
        for at_ms in [NOW_MS - minutes * 60_000, NOW_MS + minutes * 60_000] {
            assert_eq!(code(TestSignature { at_ms, ..good }), expected, "{at_ms}");
        }
    }
}

#[test]
fn requests_changed_after_signing_are_refused() {
    let server = TestServer::at(NOW_MS);
    let signed = || TestSignature::default().sign(get("/b/k?tagging"), EMPTY);
    let mut other_path = signed();
    *other_path.uri_mut() = "/b/j?tagging".parse().unwrap();
    let mut other_query = signed();
    *other_query.uri_mut() = "/b/k?uploads".parse().unwrap();
    let mut other_method = signed();
    *other_method.method_mut() = Method::DELETE;
    let mut other_host = signed();
    other_host.headers_mut().insert("host", "127.0.0.1:9001".parse().unwrap());
    let mut truncated = signed();
    let text = truncated.headers()["authorization"].to_str().unwrap().to_owned();
    let shorter = text[..text.len() - 1].parse().unwrap();
    truncated.headers_mut().insert("authorization", shorter);
    for request in [other_path, other_query, other_method, other_host, truncated] {
        assert_eq!(server.code(&request), Some(Code::SignatureDoesNotMatch));
    }
}

#[test]
fn every_amazon_header_must_be_signed() {
    let server = TestServer::at(NOW_MS);
    for signing in [TestSignature::default(), TestSignature::link()] {
        for (name, expected) in [
            ("x-amz-copy-source", Some(Code::AccessDenied)),
            ("x-amz-acl", Some(Code::AccessDenied)),
            ("x-amz-meta-a", Some(Code::AccessDenied)),
            ("x-amz-tagging", Some(Code::AccessDenied)),
            ("x-amz-user-agent", None),
            ("x-amz-checksum-mode", None),
            ("x-amz-cf-id", None),
            ("user-agent", None),
        ] {
            let mut request = signing.sign(get("/b/k"), "UNSIGNED-PAYLOAD");
            request.headers_mut().append(name, "private".parse().unwrap());
            assert_eq!(server.code(&request), expected, "{name}");
        }
        let mut request = get("/b/k");
        request.headers_mut().insert("x-amz-meta-a", "  two   words ".parse().unwrap());
        assert_eq!(server.code(&signing.sign(request, "UNSIGNED-PAYLOAD")), None);
    }
}

#[test]
fn a_header_in_the_query_of_a_link_is_signed() {
    let server = TestServer::at(NOW_MS);
    let mut request = TestSignature::link().sign(get("/b/k?x-amz-acl=private"), "UNSIGNED-PAYLOAD");
    assert_eq!(server.code(&request), None);
    request.headers_mut().insert("x-amz-acl", "private".parse().unwrap());
    assert_eq!(server.code(&request), None);
    request.headers_mut().insert("x-amz-acl", "public-read".parse().unwrap());
    assert_eq!(server.code(&request), Some(Code::AccessDenied));
}

fn with(headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = get("/b/k");
    let mut map: HeaderMap = request.headers().clone();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    *request.headers_mut() = map;
    request
}

#[test]
fn malformed_authorizations_have_their_codes() {
    let server = TestServer::with_v2(NOW_MS);
    let fields = "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";
    let rest = "SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=00";
    let full = format!("AWS4-HMAC-SHA256 {fields}{rest}");
    let date = ("x-amz-date", "20130524T000000Z");
    let hash = ("x-amz-content-sha256", EMPTY);
    for (authorization, expected) in [
        ("AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", Code::SignatureDoesNotMatch),
        ("AWS AKIAIOSFODNN7EXAMPLF:frJIUN8DYpKDtOLCwo//yllqDzg=", Code::InvalidAccessKeyId),
        ("AWS AKIAIOSFODNN7EXAMPLE", Code::InvalidArgument),
        ("AWS4-ECDSA-P256-SHA256 Credential=x", Code::InvalidRequest),
        ("Basic dTpw", Code::InvalidArgument),
        ("AWS4-HMAC-SHA256", Code::InvalidRequest),
        ("AWS4-HMAC-SHA256 Signature=1", Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Signature=1,Signature=2", Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 nonsense", Code::AuthorizationHeaderMalformed),
        (&full, Code::SignatureDoesNotMatch),
    ] {
        let request = with(&[("authorization", authorization), date, hash]);
        assert_eq!(server.code(&request), Some(expected), "{authorization}");
    }
    let authorization = ("authorization", full.as_str());
    let code = |headers: &[(&'static str, &str)]| server.code(&with(headers)).unwrap();
    assert_eq!(code(&[authorization, date]), Code::InvalidRequest);
    assert_eq!(code(&[authorization, hash]), Code::AccessDenied);
    assert_eq!(code(&[authorization, hash, ("x-amz-date", "x")]), Code::AccessDenied);
    assert_eq!(code(&[authorization, authorization, date, hash]), Code::InvalidArgument);
    assert_eq!(code(&[authorization, date, hash, hash]), Code::InvalidArgument);
    let token = ("x-amz-security-token", "t");
    assert_eq!(code(&[authorization, date, hash, token]), Code::InvalidToken);
    let other_day = ("x-amz-date", "20130523T235959Z");
    assert_eq!(code(&[authorization, other_day, hash]), Code::AuthorizationHeaderMalformed);
    let unsigned_host = full.replace("host;", "");
    assert_eq!(code(&[("authorization", &unsigned_host), date, hash]), Code::AccessDenied);
}

#[test]
fn malformed_links_have_their_codes() {
    let server = TestServer::at(NOW_MS);
    let good = TestSignature::link().sign(get("/b/k"), "UNSIGNED-PAYLOAD").uri().to_string();
    let code = |from: &str, to: &str| {
        assert!(good.contains(from), "{good}");
        server.code(&get(&good.replace(from, to)))
    };
    let wrong = Some(Code::AuthorizationQueryParametersError);
    for expires in ["1h", "", "+5", "-", "-1h"] {
        assert_eq!(code("X-Amz-Expires=3600", &format!("X-Amz-Expires={expires}")), wrong);
    }
    for expires in ["0", "-1", "604801", "99999999999999999999"] {
        let found = code("X-Amz-Expires=3600", &format!("X-Amz-Expires={expires}"));
        assert_eq!(found, Some(Code::AccessDenied), "{expires}");
    }
    assert_eq!(code("X-Amz-Expires=3600", "x=1"), wrong);
    assert_eq!(code("X-Amz-Expires=3600", "X-Amz-Expires=3601"), Some(Code::SignatureDoesNotMatch));
    assert_eq!(code("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), wrong);
    assert_eq!(code("X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524"), wrong);
    assert_eq!(code("%2F20130524%2F", "%2F20130525%2F"), wrong);
    assert_eq!(code("X-Amz-Signature=", "X-Amz-Signature=0"), Some(Code::SignatureDoesNotMatch));
    assert_eq!(code("X-Amz-Signature=", "X-Amz-SignaturE="), wrong);
    let doubled = format!("{good}&X-Amz-Signature=0");
    assert_eq!(server.code(&get(&doubled)), Some(Code::InvalidArgument));
    let mut both = get(&good);
    both.headers_mut().insert("authorization", "AWS4-HMAC-SHA256 x".parse().unwrap());
    assert_eq!(server.code(&both), Some(Code::InvalidArgument));
    let added = format!("{good}&tagging");
    assert_eq!(server.code(&get(&added)), Some(Code::SignatureDoesNotMatch));
}

/// The query example of the Signature Version 2 documentation.
const V2_LINK: &str = "/photos/puppy.jpg?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE\
    &Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620";

#[test]
fn the_published_v2_link_holds_where_version_2_is_turned_on() {
    let now_ms = 1_175_139_000_000;
    let server = TestServer::with_v2(now_ms);
    let link =
        || Request::get(V2_LINK).header("host", "johnsmith.s3.amazonaws.com").body(()).unwrap();
    assert_eq!(server.check(&link()).unwrap().identity, Identity::known("root"));
    let mut added = link();
    added.headers_mut().insert("x-amz-copy-source", "/other/secret".parse().unwrap());
    assert_eq!(server.code(&added), Some(Code::SignatureDoesNotMatch));
    let mut other = link();
    *other.uri_mut() = format!("{V2_LINK}&acl").parse().unwrap();
    assert_eq!(server.code(&other), Some(Code::SignatureDoesNotMatch));
    let late = TestServer::with_v2(now_ms + 3_600_000);
    assert_eq!(late.code(&link()), Some(Code::AccessDenied));
    let usual = TestServer { host_bucket: Some("johnsmith"), ..TestServer::at(now_ms) };
    let refusal = usual.check(&link()).unwrap_err();
    assert_eq!((refusal.code, &*refusal.message), (Code::InvalidRequest, UNSUPPORTED));
}

const UNSUPPORTED: &str =
    "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";

/// Values are signed decoded, so that both requests have one string to sign.
#[test]
fn a_v2_signature_does_not_stand_for_two_requests() {
    let server = TestServer::with_v2(NOW_MS);
    let expires = NOW_MS / 1000 + 300;
    let path = "/photos/puppy.jpg";
    let text = format!(
        "GET\n\n\n{expires}\n/johnsmith{path}?response-content-type=text/plain&versionId=OLD"
    );
    let signature = v2::sign(keys().lookup(ACCESS_KEY).unwrap().secret(), &text);
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let link = |query: &str| {
        let uri = format!(
            "{path}?{query}&AWSAccessKeyId={ACCESS_KEY}&Signature={signature}&Expires={expires}"
        );
        Request::get(uri).header("host", "johnsmith.s3.amazonaws.com").body(()).unwrap()
    };
    let asked = link("response-content-type=text%2Fplain&versionId=OLD");
    assert_eq!(server.code(&asked), None);
    let other = link("response-content-type=text%2Fplain%26versionId%3DOLD");
    assert_eq!(server.code(&other), Some(Code::SignatureDoesNotMatch));
}

/// The header examples of the Signature Version 2 documentation.
#[test]
fn the_published_v2_headers_hold_for_what_they_were_made_for() {
    let server = TestServer::with_v2(1_175_024_202_000);
    let signed = |method: &str, path: &str, date: &str, signature: &str| {
        let authorization = format!("AWS AKIAIOSFODNN7EXAMPLE:{signature}");
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "johnsmith.s3.amazonaws.com").header("date", date);
        request.header("authorization", authorization).body(()).unwrap()
    };
    let date = "Tue, 27 Mar 2007 19:36:42 +0000";
    let read = || signed("GET", "/photos/puppy.jpg", date, "bWq2s1WEIj+Ydj0vQ697zp+IXMU=");
    assert_eq!(server.check(&read()).unwrap().identity, Identity::known("root"));
    let list = "/?prefix=photos&max-keys=50&marker=puppy";
    for (path, date, signature) in [
        (list, "Tue, 27 Mar 2007 19:42:41 +0000", "htDYFYduRNen8P9ZfE/s9SuKy0U="),
        ("/?acl", "Tue, 27 Mar 2007 19:44:46 +0000", "c2WLPFtWHVgbEmeEG93a4cG37dM="),
    ] {
        assert!(server.check(&signed("GET", path, date, signature)).is_ok(), "{path}");
        let other = server.code(&signed("DELETE", path, date, signature));
        assert_eq!(other, Some(Code::SignatureDoesNotMatch));
    }
    let mut added = read();
    added.headers_mut().insert("x-amz-acl", "public-read".parse().unwrap());
    assert_eq!(server.code(&added), Some(Code::SignatureDoesNotMatch));
    let mut undated = read();
    undated.headers_mut().remove("date");
    assert_eq!(server.code(&undated), Some(Code::AccessDenied));
    let late = TestServer::with_v2(1_175_028_202_000);
    assert_eq!(late.code(&read()), Some(Code::RequestTimeTooSkewed));
    let usual = TestServer { host_bucket: Some("johnsmith"), ..TestServer::at(1_175_024_202_000) };
    let refusal = usual.check(&read()).unwrap_err();
    assert_eq!((refusal.code, &*refusal.message), (Code::InvalidRequest, UNSUPPORTED));
}

#[test]
fn unsigned_requests_are_anonymous() {
    let server = TestServer::at(NOW_MS);
    let found = server.check(&get("/b/k")).unwrap();
    assert_eq!(found.identity, Identity::Anonymous);
    let silent = with(&[("authorization", "")]);
    assert_eq!(server.check(&silent).unwrap().identity, Identity::Anonymous);
    let chunks = ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    assert_eq!(server.code(&with(&[chunks])), Some(Code::InvalidRequest));
}

/// Prints the cost of authentication. Times differ between machines, so the test checks none.
#[test]
fn cost_of_authentication() {
    let server = TestServer::at(NOW_MS);
    for (name, signing) in [("header", TestSignature::default()), ("link", TestSignature::link())] {
        let request = signing.sign(get("/bucket/some/key-0001"), "UNSIGNED-PAYLOAD");
        let started = std::time::Instant::now();
        let rounds = 20_000;
        for _ in 0..rounds {
            assert!(server.check(std::hint::black_box(&request)).is_ok());
        }
        println!("{name}: {:?} a request", started.elapsed() / rounds);
    }
}

#[test]
fn a_link_may_pin_its_payload() {
    let server = TestServer::at(NOW_MS);
    for name in ["X-Amz-Content-Sha256", "x-amz-content-sha256"] {
        let link = TestSignature::link().sign(get(&format!("/b/k?{name}={EMPTY}")), EMPTY);
        let payload = server.check(&link).map(|found| found.payload);
        assert!(matches!(payload, Ok(Payload::Sha256(_))), "{name}: {payload:?}");
    }
}
