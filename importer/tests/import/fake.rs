//! An S3 store in memory, with the faults that a test orders.
//!
//! It signs nothing and checks no signature. It verifies trailers and conditions as S3 does.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::net::TcpListener;

/// Keys in a page: few, so that small buckets have many pages.
const PAGE_KEYS: usize = 7;
const KEPT: [&str; 7] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-amz-website-redirect-location",
];

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Object of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredObject {
    pub(crate) body: Bytes,
    pub(crate) etag: String,
    pub(crate) headers: HeaderMap,
    /// Sizes of the parts; empty if the object was put at once.
    pub(crate) parts: Vec<usize>,
    pub(crate) tags: String,
    /// Second of the write.
    pub(crate) second: u64,
}

/// Fault of one request or of several ones.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Answer this status.
    Status(u16),
    /// Break the connection behind this many bytes of the body.
    Cut(usize),
    /// Return other bytes.
    Damage,
    /// Replace the object by these bytes before the request.
    Replace(Bytes),
    /// Do as requested, and break the connection instead of answering.
    NoReply,
}

/// Order of a fault: for the next `times` requests of a method and a text in their target.
#[derive(Clone, Debug)]
pub(crate) struct FaultOrder {
    pub(crate) method: Method,
    pub(crate) target: &'static str,
    pub(crate) fault: Fault,
    pub(crate) times: usize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, StoredObject>,
    pub(crate) uploads: BTreeMap<String, Upload>,
    pub(crate) faults: Vec<FaultOrder>,
    /// Method and target of each request.
    pub(crate) requests: Vec<String>,
    /// Answers no question about parts.
    pub(crate) hides_parts: bool,
    /// Second of the store's clock.
    pub(crate) second: u64,
    next_upload: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Upload {
    pub(crate) key: String,
    headers: HeaderMap,
    parts: BTreeMap<u32, Bytes>,
}

/// A running store.
pub(crate) struct FakeStore {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<State>>,
}

pub(crate) fn md5(bytes: &[u8]) -> String {
    hex::encode(Md5::digest(bytes))
}

impl StoredObject {
    pub(crate) fn whole(body: &[u8]) -> Self {
        let body = Bytes::copy_from_slice(body);
        Self { etag: md5(&body), body, second: 100, ..Self::default() }
    }

    pub(crate) fn in_parts(body: &[u8], sizes: &[usize]) -> Self {
        let mut rest = body;
        let mut all = Vec::new();
        for size in sizes {
            let (part, behind) = rest.split_at(*size);
            all.extend_from_slice(&Md5::digest(part));
            rest = behind;
        }
        assert!(rest.is_empty(), "parts are all of the body");
        let etag = format!("{}-{}", md5(&all), sizes.len());
        Self { etag, parts: sizes.to_vec(), ..Self::whole(body) }
    }
}

impl FakeStore {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { second: 1000, ..State::default() }));
        let shared = state.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| serve(state.clone(), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client may leave at any time.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn put(&self, key: &str, object: StoredObject) {
        self.state.lock().objects.insert(key.to_owned(), object);
    }

    pub(crate) fn get(&self, key: &str) -> Option<StoredObject> {
        self.state.lock().objects.get(key).cloned()
    }

    pub(crate) fn order(&self, method: Method, target: &'static str, fault: Fault, times: usize) {
        self.state.lock().faults.push(FaultOrder { method, target, fault, times });
    }

    /// Number of requests of a method with a text in their target.
    pub(crate) fn count(&self, method: &str, target: &str) -> usize {
        let state = self.state.lock();
        let matching = |it: &&String| it.starts_with(method) && it.contains(target);
        state.requests.iter().filter(matching).count()
    }
}

/// Request with its body and its decoded target.
struct Asked {
    method: Method,
    key: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
}

async fn serve(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().unwrap().to_string();
    let broken = || std::io::Error::other("broken on purpose");
    let body = body.collect().await.map_err(|_| broken())?.to_bytes();
    let decode = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let path = head.uri.path().trim_start_matches('/');
    let key = decode(path.split_once('/').map_or("", |(_, key)| key));
    let pairs = head.uri.query().unwrap_or_default().split('&').filter(|it| !it.is_empty());
    let query = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    let asked =
        Asked { method: head.method, key, query: query.collect(), headers: head.headers, body };
    let mut state = state.lock();
    state.requests.push(format!("{} {target}", asked.method));
    let fault = state.fault(&asked.method, &target);
    if let Some(Fault::Replace(body)) = &fault {
        let object = StoredObject { second: 200, ..StoredObject::whole(body) };
        state.objects.insert(asked.key.clone(), object);
    }
    if let Some(Fault::Status(status)) = fault {
        return Ok(error(status, if status == 503 { "SlowDown" } else { "Ordered" }));
    }
    let response = state.answer(&asked);
    match fault {
        Some(Fault::NoReply) => Err(broken()),
        Some(Fault::Cut(bytes)) => Ok(response.map(|body| cut(&body, bytes))),
        Some(Fault::Damage) => Ok(response.map(|body| damage(&body))),
        _ => Ok(response.map(|body| {
            Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
        })),
    }
    .map(|response: Response<Body>| response)
}

fn cut(body: &Bytes, bytes: usize) -> Body {
    let frames = [Ok(Frame::data(body.slice(..bytes))), Err(std::io::Error::other("cut"))];
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

fn damage(body: &Bytes) -> Body {
    let mut other = body.to_vec();
    if let Some(first) = other.first_mut() {
        *first ^= 1;
    }
    Full::new(Bytes::from(other)).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn reply(status: u16, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn refusal(status: u16, code: &str) -> Response<Bytes> {
    reply(status, format!("<Error><Code>{code}</Code><Message>of a test</Message></Error>"))
}

fn error(status: u16, code: &str) -> Response<Body> {
    refusal(status, code)
        .map(|body| Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
}

impl State {
    fn fault(&mut self, method: &Method, target: &str) -> Option<Fault> {
        let order = self.faults.iter_mut().find(|order| {
            order.times > 0 && order.method == *method && target.contains(order.target)
        })?;
        order.times -= 1;
        Some(order.fault.clone())
    }

    fn answer(&mut self, asked: &Asked) -> Response<Bytes> {
        let has = |name: &str| asked.query.contains_key(name);
        match asked.method.as_str() {
            "HEAD" | "PUT" if asked.key.is_empty() => reply(200, ""),
            "GET" if asked.key.is_empty() => self.list(asked),
            "GET" if has("tagging") => self.tags(asked),
            "GET" | "HEAD" => self.read(asked),
            "PUT" if has("uploadId") => self.put_part(asked),
            "PUT" => self.write(asked),
            "POST" if has("uploads") => self.begin(asked),
            "POST" => self.complete(asked),
            "DELETE" => {
                let gone = self.uploads.remove(&asked.query["uploadId"]).is_none();
                if gone { refusal(404, "NoSuchUpload") } else { reply(204, "") }
            }
            _ => refusal(501, "NotImplemented"),
        }
    }

    fn list(&self, asked: &Asked) -> Response<Bytes> {
        let text = |name: &str| asked.query.get(name).map_or("", String::as_str);
        let token = String::from_utf8(hex::decode(text("continuation-token")).unwrap()).unwrap();
        let after = token.as_str().max(text("start-after"));
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let mut xml = "<ListBucketResult><EncodingType>url</EncodingType>".to_owned();
        let encode = |key: &str| utf8_percent_encode(key, NON_ALPHANUMERIC).to_string();
        let (mut listed, mut last, mut common) = (0, String::new(), String::new());
        for (key, object) in self.objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
            if key.as_str() <= after {
                continue;
            }
            if listed == PAGE_KEYS {
                let token = hex::encode(&last);
                let _ = write!(xml, "<IsTruncated>true</IsTruncated>");
                let _ = write!(xml, "<NextContinuationToken>{token}</NextContinuationToken>");
                break;
            }
            let rest = &key[prefix.len()..];
            if let Some(at) = rest.find('/').filter(|_| !delimiter.is_empty()) {
                let folder = format!("{prefix}{}", &rest[..=at]);
                if folder != common {
                    let name = encode(&folder);
                    let _ = write!(xml, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
                    (common, listed) = (folder, listed + 1);
                }
            } else {
                let (name, size, etag) = (encode(key), object.body.len(), &object.etag);
                let (minute, second) = (object.second / 60, object.second % 60);
                let _ = write!(
                    xml,
                    "<Contents><Key>{name}</Key><Size>{size}</Size><ETag>\"{etag}\"</ETag>\
                     <LastModified>2026-11-28T00:{minute:02}:{second:02}Z</LastModified></Contents>"
                );
                listed += 1;
            }
            last.clone_from(key);
        }
        reply(200, xml + "</ListBucketResult>")
    }

    fn tags(&self, asked: &Asked) -> Response<Bytes> {
        let Some(object) = self.objects.get(&asked.key) else { return refusal(404, "NoSuchKey") };
        let mut xml = "<Tagging><TagSet>".to_owned();
        for (name, value) in object.tags.split('&').filter_map(|it| it.split_once('=')) {
            let _ = write!(xml, "<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
        }
        reply(200, xml + "</TagSet></Tagging>")
    }

    fn read(&self, asked: &Asked) -> Response<Bytes> {
        let Some(object) = self.objects.get(&asked.key) else { return refusal(404, "NoSuchKey") };
        let header = |name: &str| asked.headers.get(name).and_then(|it| it.to_str().ok());
        if header("if-match").is_some_and(|it| it.trim_matches('"') != object.etag) {
            return refusal(412, "PreconditionFailed");
        }
        let (mut first, mut end) = (0, object.body.len());
        let mut response = reply(200, "");
        let number = asked.query.get("partNumber").filter(|_| !self.hides_parts);
        if let Some(number) = number.map(|it| it.parse::<usize>().unwrap()) {
            first = object.parts[..number - 1].iter().sum();
            end = first + object.parts[number - 1];
            response.headers_mut().insert("x-amz-mp-parts-count", object.parts.len().into());
        }
        if let Some(range) = header("range") {
            let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (first, end) = (from.parse().unwrap(), to.parse::<usize>().unwrap() + 1);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {first}-{}/{}", end - 1, object.body.len());
            response.headers_mut().insert("content-range", text.parse().unwrap());
        }
        let headers = response.headers_mut();
        headers.extend(object.headers.clone());
        headers.insert("etag", format!("\"{}\"", object.etag).parse().unwrap());
        headers.insert("content-length", (end - first).into());
        if asked.method == Method::GET {
            *response.body_mut() = object.body.slice(first..end);
        }
        response
    }

    /// Answers whether a write's condition holds.
    fn may_write(&self, asked: &Asked) -> bool {
        let header = |name: &str| asked.headers.get(name).and_then(|it| it.to_str().ok());
        let present = self.objects.get(&asked.key);
        if header("if-none-match").is_some() && present.is_some() {
            return false;
        }
        header("if-match")
            .is_none_or(|etag| present.is_some_and(|it| it.etag == etag.trim_matches('"')))
    }

    fn write(&mut self, asked: &Asked) -> Response<Bytes> {
        let Some(body) = decoded(asked) else { return refusal(400, "BadDigest") };
        if !self.may_write(asked) {
            return refusal(412, "PreconditionFailed");
        }
        let object = StoredObject {
            etag: md5(&body),
            body,
            headers: kept(&asked.headers),
            parts: Vec::new(),
            tags: tagging(&asked.headers),
            second: self.second,
        };
        let mut response = reply(200, "");
        response.headers_mut().insert("etag", format!("\"{}\"", object.etag).parse().unwrap());
        self.objects.insert(asked.key.clone(), object);
        response
    }

    fn begin(&mut self, asked: &Asked) -> Response<Bytes> {
        self.next_upload += 1;
        let id = format!("upload-{}", self.next_upload);
        let upload = Upload {
            key: asked.key.clone(),
            headers: asked.headers.clone(),
            parts: BTreeMap::new(),
        };
        self.uploads.insert(id.clone(), upload);
        let xml = format!("<R><UploadId>{id}</UploadId></R>");
        reply(200, xml)
    }

    fn put_part(&mut self, asked: &Asked) -> Response<Bytes> {
        let Some(body) = decoded(asked) else { return refusal(400, "BadDigest") };
        let Some(upload) = self.uploads.get_mut(&asked.query["uploadId"]) else {
            return refusal(404, "NoSuchUpload");
        };
        let mut response = reply(200, "");
        response.headers_mut().insert("etag", format!("\"{}\"", md5(&body)).parse().unwrap());
        upload.parts.insert(asked.query["partNumber"].parse().unwrap(), body);
        response
    }

    fn complete(&mut self, asked: &Asked) -> Response<Bytes> {
        let Some(upload) = self.uploads.get(&asked.query["uploadId"]).cloned() else {
            return refusal(404, "NoSuchUpload");
        };
        let body: Vec<u8> = upload.parts.values().flat_map(|part| part.iter().copied()).collect();
        let crc64 = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &body);
        if asked.headers["x-amz-checksum-crc64nvme"] != STANDARD.encode(crc64.to_be_bytes()) {
            return refusal(400, "InvalidRequest");
        }
        if !self.may_write(asked) {
            return refusal(412, "PreconditionFailed");
        }
        let sizes: Vec<_> = upload.parts.values().map(Bytes::len).collect();
        let object = StoredObject {
            headers: kept(&upload.headers),
            tags: tagging(&upload.headers),
            second: self.second,
            ..StoredObject::in_parts(&body, &sizes)
        };
        let xml = format!("<R><ETag>&quot;{}&quot;</ETag></R>", object.etag);
        self.uploads.remove(&asked.query["uploadId"]);
        self.objects.insert(asked.key.clone(), object);
        reply(200, xml)
    }
}

fn kept(headers: &HeaderMap) -> HeaderMap {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("x-amz-meta-");
    let all = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let mut kept: HeaderMap = all.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(encoding) = kept.remove("content-encoding") {
        let lasting = encoding.to_str().unwrap().trim_start_matches("aws-chunked");
        let lasting = lasting.trim_start_matches(',');
        if !lasting.is_empty() {
            kept.insert("content-encoding", lasting.parse().unwrap());
        }
    }
    kept
}

fn tagging(headers: &HeaderMap) -> String {
    headers.get("x-amz-tagging").map_or("", |it| it.to_str().unwrap()).to_owned()
}

/// Decodes a chunked body; `None` if its trailer is wrong.
fn decoded(asked: &Asked) -> Option<Bytes> {
    let mut rest = &asked.body[..];
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|it| it == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            break;
        }
        body.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n");
        rest = &rest[size + 2..];
    }
    let crc64 = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &body);
    let trailer =
        format!("x-amz-checksum-crc64nvme:{}\r\n\r\n", STANDARD.encode(crc64.to_be_bytes()));
    let length = asked.headers["x-amz-decoded-content-length"].to_str().unwrap();
    (rest == trailer.as_bytes() && length == body.len().to_string()).then(|| body.into())
}
