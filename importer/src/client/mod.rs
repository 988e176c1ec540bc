//! Client of one bucket at one endpoint: pooled connections, signatures, retries and pauses.
//!
//! ```text
//! location ─ place, as named  endpoint ─ URLs
//! credentials ─ keys from the environment and from files
//! sign ─ SigV4               throttle ─ pauses after refusals
//! xml ─ documents            operations ─ S3's operations
//! ```
//!
//! A connection reads and writes at most [`BUFFER_BYTES`] ahead. Requests without a streamed body
//! are repeated after passing errors; a streamed body is the caller's to repeat.

pub(crate) mod credentials;
pub(crate) mod endpoint;
pub(crate) mod location;
pub(crate) mod operations;
mod sign;
mod throttle;
pub(crate) mod xml;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, ETAG, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use martlet_protocol::{Clock, SystemClock};
use parking_lot::RwLock;
use tokio::time::{Instant, sleep, timeout};

use self::credentials::{CredentialSource, Credentials};
use self::endpoint::{Endpoint, Query};
use self::location::S3Location;
use self::sign::{SignedBody, Unsigned};
use self::throttle::Throttle;
pub(crate) use self::throttle::back_off;
use self::xml::ErrorDocument;
use crate::error::{Error, ErrorKind, Result};

/// Maximum bytes that a connection reads or writes ahead.
const BUFFER_BYTES: usize = 256 << 10;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time to the head of a reply, and of its body where the body is a document.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum time without progress of a streamed body, and of the reply after its end.
const STALL: Duration = Duration::from_mins(5);
const IDLE_PATIENCE: Duration = Duration::from_secs(20);
/// Largest document: a page of 1,000 keys of 1,024 bytes, each percent-encoded, takes 4 MB.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Difference of the clocks from which signatures follow the server's.
const SKEW_MS: i64 = 60_000;
/// Codes of refusals that a later request may not get.
const PASSING: [&str; 8] = [
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "OperationAborted",
    "ConditionalRequestConflict",
    "RequestTimeTooSkewed",
    "BadDigest",
    "IncompleteBody",
];
const THROTTLING: [&str; 5] =
    ["SlowDown", "SlowDownRead", "TooManyRequests", "Throttling", "RequestLimitExceeded"];
/// Codes of refusals that every request of the run would get.
const FATAL: [&str; 5] = [
    "NoSuchBucket",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
];
/// Codes after which credentials are read again.
const STALE: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];

/// Error of a body's source.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Client of a bucket.
pub(crate) struct S3Client {
    name: &'static str,
    endpoint: Endpoint,
    region: String,
    source: CredentialSource,
    credentials: RwLock<Option<Arc<Credentials>>>,
    http: Client<HttpsConnector<HttpConnector>, Body>,
    throttle: Throttle,
    /// Clock of the server minus this machine's, in milliseconds.
    skew_ms: AtomicI64,
    attempts: u32,
    throttled: AtomicU64,
}

/// Request without a streamed body.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) key: Option<&'a str>,
    pub(crate) query: Query<'a>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) patience: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, key: Option<&'a str>, query: Query<'a>) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self { method, key, query, headers, body, patience: PATIENCE }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::new(ErrorKind::Refused, format!("{name} can't be \"{value}\"")))?;
        self.headers.insert(name, value);
        Ok(self)
    }
}

/// Request with a streamed body.
pub(crate) struct Upload<'a> {
    pub(crate) key: &'a str,
    pub(crate) query: Query<'a>,
    pub(crate) headers: HeaderMap,
    /// Bytes of `body`.
    pub(crate) length: u64,
    pub(crate) body: Body,
    /// Grows while the body is read.
    pub(crate) progress: Arc<AtomicU64>,
}

/// Reply with its whole body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl S3Client {
    /// Makes a client and reads its credentials. `name` is the subject of errors. Blocks.
    pub(crate) fn new(name: &'static str, at: &S3Location, attempts: u32) -> Result<Self> {
        let endpoint = Endpoint::parse(&at.endpoint, &at.bucket, at.addressing)?;
        let tls = if at.endpoint.starts_with("https:") {
            let setting = format!("--{name}-ca");
            martlet_serving::client_config(at.ca_file.as_deref(), &setting)
                .map_err(|failure| Error::fatal(failure.to_string()))?
        } else {
            Arc::new(no_authority())
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_PATIENCE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_PATIENCE)
            .http1_max_buf_size(BUFFER_BYTES)
            .build(connector);
        let credentials = at.credentials.read().map_err(|error| error.within(name))?.map(Arc::new);
        Ok(Self {
            name,
            endpoint,
            region: at.region.clone(),
            source: at.credentials.clone(),
            credentials: RwLock::new(credentials),
            http,
            throttle: Throttle::default(),
            skew_ms: AtomicI64::new(0),
            attempts,
            throttled: AtomicU64::new(0),
        })
    }

    /// Returns the server's clock minus this machine's in milliseconds, as of the last reply.
    pub(crate) fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::Relaxed)
    }

    /// Returns the number of replies that limited the requests.
    pub(crate) fn throttled(&self) -> u64 {
        self.throttled.load(Ordering::Relaxed)
    }

    /// Sends a request and reads the whole reply. Repeats the request after passing errors.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Reply> {
        let mut failures = 0;
        loop {
            let outcome = match self.send_once(&call).await {
                Ok(response) => self.collect(response).await,
                Err(error) => Err(error),
            };
            failures = self.next_attempt(outcome.as_ref().err(), failures).await;
            match outcome {
                Err(error) if error.is_passing() && failures < self.attempts => {}
                outcome => return outcome,
            }
        }
    }

    /// Sends a request and returns the reply with its body unread. Repeats the request after
    /// passing errors.
    pub(crate) async fn open(&self, call: Call<'_>) -> Result<Response<Incoming>> {
        let mut failures = 0;
        loop {
            let outcome = self.send_once(&call).await;
            failures = self.next_attempt(outcome.as_ref().err(), failures).await;
            match outcome {
                Err(error) if error.is_passing() && failures < self.attempts => {}
                outcome => return outcome,
            }
        }
    }

    /// Counts a failure, and waits before the next attempt if one is left.
    async fn next_attempt(&self, error: Option<&Error>, failures: u32) -> u32 {
        let Some(error) = error.filter(|error| error.is_passing()) else { return failures };
        let failures = failures + 1;
        if failures < self.attempts && error.kind() == ErrorKind::Transient {
            back_off(failures).await;
        }
        failures
    }

    async fn send_once(&self, call: &Call<'_>) -> Result<Response<Incoming>> {
        self.throttle.wait().await;
        let credentials = self.current();
        let length = call.body.len() as u64;
        let mut request = self.request(Outline {
            method: &call.method,
            key: call.key,
            query: call.query,
            headers: &call.headers,
            body: SignedBody::Bytes(&call.body),
            credentials: credentials.as_deref(),
        })?;
        if length > 0 || call.method != Method::GET && call.method != Method::HEAD {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let full = Full::new(call.body.clone()).map_err(|never| match never {});
        let sent = self.http.request(request.map(|()| full.boxed_unsync()));
        let response = timeout(call.patience, sent).await.map_err(|_| self.late())?;
        let response = response.map_err(|error| self.broken(&error))?;
        self.checked(response, credentials).await
    }

    /// Sends a streamed body. Not repeated: the body can be read once.
    pub(crate) async fn upload(&self, upload: Upload<'_>) -> Result<Reply> {
        self.throttle.wait().await;
        let credentials = self.current();
        let mut request = self.request(Outline {
            method: &Method::PUT,
            key: Some(upload.key),
            query: upload.query,
            headers: &upload.headers,
            body: SignedBody::Trailer,
            credentials: credentials.as_deref(),
        })?;
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(upload.length));
        let sent = self.http.request(request.map(|()| upload.body));
        tokio::select! {
            response = sent => {
                let response = response.map_err(|error| self.broken(&error))?;
                self.collect(self.checked(response, credentials).await?).await
            }
            () = stalled(&upload.progress) => {
                Err(Error::transient(format!("the {} took no bytes for {STALL:?}", self.name)))
            }
        }
    }

    fn request(&self, outline: Outline<'_>) -> Result<Request<()>> {
        let uri = self.endpoint.uri(outline.key, outline.query)?;
        let host = HeaderValue::try_from(self.endpoint.host())
            .map_err(|_| Error::fatal(format!("the bucket of the {} is no host", self.name)))?;
        let mut headers = outline.headers.clone();
        headers.insert(HOST, host);
        if let Some(credentials) = outline.credentials {
            let unsigned = Unsigned {
                method: outline.method,
                uri: &uri,
                headers: &headers,
                body: outline.body,
                region: &self.region,
                now_ms: self.signing_time_ms(),
            };
            headers.extend(sign::signature(unsigned, credentials)?);
        }
        let mut request = Request::new(());
        *request.method_mut() = outline.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Time of signatures: this machine's, or the server's if the clocks differ much.
    fn signing_time_ms(&self) -> u64 {
        let skew = self.skew_ms();
        let skew = if skew.abs() < SKEW_MS { 0 } else { skew };
        SystemClock.now_ms().saturating_add_signed(skew)
    }

    /// Takes note of the reply, and turns a refusal into an error.
    async fn checked(
        &self,
        response: Response<Incoming>,
        credentials: Option<Arc<Credentials>>,
    ) -> Result<Response<Incoming>> {
        let date = response.headers().get(DATE).and_then(|it| it.to_str().ok());
        if let Some(ms) = date.and_then(crate::dates::http_date_ms) {
            let now = SystemClock.now_ms();
            self.skew_ms.store(ms.wrapping_sub(now).cast_signed(), Ordering::Relaxed);
        }
        let status = response.status();
        if status.is_success() {
            self.throttle.succeeded();
            return Ok(response);
        }
        let body = self.document(response.into_body()).await.unwrap_or_default();
        let document: ErrorDocument = xml::parse(&body, "error").unwrap_or_default();
        if STALE.contains(&document.code.as_str()) && self.reads_newer(credentials).await? {
            return Err(Error::transient("the credentials were read again"));
        }
        Err(self.refusal(status, &document))
    }

    /// Classifies a refusal.
    fn refusal(&self, status: StatusCode, document: &ErrorDocument) -> Error {
        let ErrorDocument { code, message } = document;
        let is = |codes: &[&str]| codes.contains(&code.as_str());
        let kind = match status.as_u16() {
            _ if is(&THROTTLING) => ErrorKind::Throttled,
            429 => ErrorKind::Throttled,
            503 if code.is_empty() => ErrorKind::Throttled,
            _ if is(&FATAL) => ErrorKind::Fatal,
            _ if is(&PASSING) => ErrorKind::Transient,
            301 | 307 | 308 => ErrorKind::Fatal,
            404 => ErrorKind::NotFound,
            412 | 304 => ErrorKind::Condition,
            501 => ErrorKind::Refused,
            408 | 500..=599 => ErrorKind::Transient,
            _ => ErrorKind::Refused,
        };
        if kind == ErrorKind::Throttled {
            self.throttled.fetch_add(1, Ordering::Relaxed);
            self.throttle.slow_down();
        }
        let words = match (code.is_empty(), message.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!(" {code}"),
            (false, false) => format!(" {code}: {message}"),
        };
        Error::new(kind, format!("the {} answered {}{words}", self.name, status.as_u16()))
    }

    /// Reads the credentials again. Returns true if they have changed since `used` was read.
    async fn reads_newer(&self, used: Option<Arc<Credentials>>) -> Result<bool> {
        if self.current() != used {
            return Ok(true);
        }
        let source = self.source.clone();
        let read = tokio::task::spawn_blocking(move || source.read()).await;
        let read = read.expect("reading credentials does not panic")?.map(Arc::new);
        let is_newer = read != used;
        *self.credentials.write() = read;
        Ok(is_newer)
    }

    fn current(&self) -> Option<Arc<Credentials>> {
        self.credentials.read().clone()
    }

    async fn collect(&self, response: Response<Incoming>) -> Result<Reply> {
        let (head, body) = response.into_parts();
        let body = self.document(body).await?;
        Ok(Reply { headers: head.headers, body })
    }

    async fn document(&self, body: Incoming) -> Result<Bytes> {
        let body = timeout(PATIENCE, Limited::new(body, DOCUMENT_BYTES_MAX).collect()).await;
        let body = body.map_err(|_| self.late())?;
        Ok(body.map_err(|error| self.broken(&*error))?.to_bytes())
    }

    fn late(&self) -> Error {
        Error::transient(format!("the {} does not answer in time", self.name))
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        Error::transient(format!("the connection to the {} broke: {}", self.name, chain(error)))
    }
}

/// Request before its signature.
#[derive(Clone, Copy)]
struct Outline<'a> {
    method: &'a Method,
    key: Option<&'a str>,
    query: Query<'a>,
    headers: &'a HeaderMap,
    body: SignedBody<'a>,
    credentials: Option<&'a Credentials>,
}

/// Waits until a counter has not grown for [`STALL`].
async fn stalled(progress: &AtomicU64) {
    let mut last = progress.load(Ordering::Relaxed);
    let mut since = Instant::now();
    loop {
        sleep(STALL / 10).await;
        let now = progress.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= STALL {
            return;
        }
    }
}

/// Returns the ETag of a reply without its quotes; empty if the reply has none.
pub(crate) fn etag_of(headers: &HeaderMap) -> String {
    let etag = headers.get(ETAG).and_then(|it| it.to_str().ok()).unwrap_or_default();
    etag.trim_matches('"').to_owned()
}

/// Returns an error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// TLS settings that trust no authority, for endpoints in clear.
fn no_authority() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}
