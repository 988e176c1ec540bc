//! Heads of requests: any bytes are refused or authenticated, and requests of AWS's own signer are
//! accepted until one of their signed parts changes.

use std::sync::Arc;

use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use martlet_protocol::ManualClock;
use martlet_protocol::testing::fuzz_target::{FuzzTarget, InputReader, block};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::auth::testing::{NOW_MS, TestSignature, keys};
use crate::auth::{
    AuthConfig, AuthenticatedHead, Authenticator, Query, RequestHead, RequestTarget,
};
use crate::refusal::Refusal;

/// Heads. An input is the number of a kind, then the lines of a head, or the parts of a request that
/// AWS's signer signs.
///
/// Properties: no head causes a panic; the canonical forms of path and query are canonical; a
/// request that AWS's signer signed is accepted, in headers and as a link; after a change of its
/// method, path, query or headers it is refused.
pub const SIGNATURES: FuzzTarget =
    FuzzTarget { name: "signatures", check, seeds, heap_bytes_max: 8 << 20 };

/// Encodes all but S3's unreserved characters and slashes.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// As [`PATH`], and encodes dashes and dots too.
const PATH_AND_MORE: &AsciiSet = &PATH.add(b'-').add(b'.');
const HEADERS_MAX: usize = 64;
const METHODS: [Method; 5] = [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::HEAD];

fn check(input: &[u8]) -> bool {
    let mut reader = InputReader::new(input);
    match reader.byte() % 2 {
        0 => any_head(reader.rest()),
        _ => signed_request(reader),
    }
}

/// Authenticates a head. SigV2 is allowed, so that its parser runs too.
fn authenticate(request: &Request<()>) -> Result<AuthenticatedHead, Refusal> {
    let config = AuthConfig { allow_v2: true, ..AuthConfig::default() };
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let authenticator = Authenticator::new(config, clock, keys());
    let (raw_path, raw_query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let target = RequestTarget::parse(raw_path, None)?;
    let query = Query::parse(raw_query)?;
    let caller = authenticator.caller(request.headers(), raw_query, None);
    let caller = caller.now_or_never().expect("fixed keys need no directory")?;
    let head = RequestHead {
        method: request.method(),
        raw_path,
        target: &target,
        query: &query,
        headers: request.headers(),
    };
    authenticator.authenticate(&head, &caller)
}

/// Parses the lines of a head: method and target, then headers. Lines that are no header are left
/// out.
fn parse(text: &[u8]) -> Option<Request<()>> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.next()?;
    let at = first.iter().position(|byte| *byte == b' ')?;
    let method = Method::from_bytes(&first[..at]).ok()?;
    let uri = Uri::try_from(&first[at + 1..]).ok()?;
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    for line in lines.take(HEADERS_MAX) {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    Some(request)
}

fn any_head(text: &[u8]) -> bool {
    let Some(request) = parse(text) else { return false };
    check_canonical(request.uri());
    authenticate(&request).is_ok()
}

/// Asserts that canonical forms are canonical: parsed again they are unchanged.
fn check_canonical(uri: &Uri) {
    if let Ok(target) = RequestTarget::parse(uri.path(), None) {
        let path = target.path().into_owned();
        let again = RequestTarget::parse(&path, None).expect("a canonical path can be parsed");
        assert_eq!((again.path(), again.key()), (path.as_str().into(), target.key()));
    }
    let canonical = |raw: &str| {
        let query = Query::parse(raw).ok()?;
        let mut text = String::new();
        query.push_canonical(&mut text);
        Some(text)
    };
    if let Some(first) = canonical(uri.query().unwrap_or_default()) {
        assert_eq!(canonical(&first).as_ref(), Some(&first));
    }
}

/// A request before it is signed.
#[derive(Clone)]
struct Unsigned {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(&'static str, String)>,
}

/// Visible ASCII and single blanks of a text, as headers of a client are.
fn visible(text: &str) -> String {
    let kept: String = text.chars().filter(|it| (' '..='~').contains(it)).collect();
    kept.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

impl Unsigned {
    fn read(reader: &mut InputReader<'_>) -> Self {
        let method = METHODS[usize::from(reader.byte()) % METHODS.len()].clone();
        // Some clients encode more than S3's rule asks for, and sign the path as they send it.
        let set = if reader.byte().is_multiple_of(2) { PATH } else { PATH_AND_MORE };
        let key = reader.text().replace('\0', "");
        let path = format!("/bucket/{}", utf8_percent_encode(&key, set));
        let count = usize::from(reader.byte() % 4);
        let pair = |number: usize| (format!("q{number}-{}", reader.text()), reader.text());
        let query = (0..count).map(pair).collect();
        let (metadata, content_type) = (visible(&reader.text()), visible(&reader.text()));
        let headers = vec![("x-amz-meta-a", metadata), ("content-type", content_type)];
        Self { method, path, query, headers }
    }

    fn request(&self) -> Request<()> {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs =
            self.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        let uri =
            if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.parse().expect("an encoded path and query are a URI");
        let headers: &mut HeaderMap = request.headers_mut();
        headers.insert("host", HeaderValue::from_static("s3.example.com"));
        for (name, value) in &self.headers {
            headers.insert(*name, value.parse().expect("visible ASCII is a header"));
        }
        request
    }
}

fn signed_request(mut reader: InputReader<'_>) -> bool {
    let is_link = reader.byte() % 2 == 1;
    let change = reader.byte() % 4;
    let unsigned = Unsigned::read(&mut reader);
    let signature = if is_link { TestSignature::link() } else { TestSignature::default() };
    let signed = signature.sign(unsigned.request(), "UNSIGNED-PAYLOAD");
    check_canonical(signed.uri());
    let accepted = authenticate(&signed);
    let accepted = accepted.expect("AWS's signer and this store agree");
    assert_eq!(accepted.identity.name(), Some("root"));
    let changed = changed(signed, change);
    assert!(authenticate(&changed).is_err(), "part {change} was changed after the signature");
    true
}

/// A signed request of which one part was changed.
fn changed(mut request: Request<()>, part: u8) -> Request<()> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().map(str::to_owned));
    let uri = |path: &str, query: Option<&str>| {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{path}{query}").parse::<Uri>().expect("an extended URI is a URI")
    };
    match part {
        0 => {
            let is_get = request.method() == Method::GET;
            *request.method_mut() = if is_get { Method::HEAD } else { Method::GET };
        }
        1 => *request.uri_mut() = uri(&format!("{path}x"), query.as_deref()),
        2 => {
            let more = query.map_or("more=1".to_owned(), |query| format!("{query}&more=1"));
            *request.uri_mut() = uri(&path, Some(&more));
        }
        _ => {
            let name = HeaderName::from_static("x-amz-meta-a");
            let value = request.headers()[&name].to_str().expect("the value is visible ASCII");
            let value = format!("{value}x").parse().expect("the value is visible ASCII");
            request.headers_mut().insert(name, value);
        }
    }
    request
}

/// Returns the lines of a head.
fn lines(request: &Request<()>) -> Vec<u8> {
    let mut text = format!("{} {}\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
    }
    text
}

fn seeds() -> Vec<Vec<u8>> {
    let unsigned = Unsigned {
        method: Method::PUT,
        path: "/bucket/a%20key/%C3%A9".to_owned(),
        query: vec![("partNumber".to_owned(), "2".to_owned()), ("x".to_owned(), String::new())],
        headers: vec![("x-amz-meta-a", "b c".to_owned())],
    };
    let signed = |signature: TestSignature| {
        let request = signature.sign(unsigned.request(), "UNSIGNED-PAYLOAD");
        [vec![0], lines(&request)].concat()
    };
    let anonymous = b"\0GET /bucket/key?versionId=null\nhost: s3.example.com\nrange: bytes=0-9\n";
    let parts = |is_link: u8, change: u8| {
        let key = block("a key/é".as_bytes());
        let pairs = [block(b"n"), block(b"v v"), block(b"m"), block("&=+".as_bytes())].concat();
        let headers = [block(b"meta  data"), block(b"text/plain")].concat();
        [&[1, is_link, change, 1, 0][..], &key, &[2], &pairs, &headers].concat()
    };
    let mut seeds =
        vec![signed(TestSignature::default()), signed(TestSignature::link()), anonymous.to_vec()];
    for change in 0..4 {
        seeds.extend([parts(0, change), parts(1, change)]);
    }
    seeds
}
