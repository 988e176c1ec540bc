//! Delivery of events and access log lines, after the reply to a request is ready.
//!
//! Invariants:
//! * Logging never looks up a bucket: cached metadata is enough. Only after a change of an object
//!   is the bucket looked up again, if its metadata has left the cache.
//! * Without any receiver, no data of a request is kept.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, REFERER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use martlet_protocol::entry::Bucket;
use martlet_protocol::{Clock, Setting};
use martlet_proxy::ObjectStore;
use percent_encoding::percent_decode_str;

use crate::body::{ByteCounter, ResponseBody};
use crate::bucket_documents::BucketDocuments;
use crate::connection::Connection;
use crate::events::{EventSink, ObjectEvents, RecordContext, send_events, test_message};
use crate::http::{HttpService, OperationHandler};
use crate::logging::{
    AccessLog, BatchOutcome, BucketLogs, LineContents, LogSource, OperationName, PendingLine,
};
use crate::operation::{Operation, PathKind};
use crate::reply::{Effects, ReplyInfo};
use crate::request::Observation;
use crate::target::RequestTarget;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Receivers of events and log lines.
#[derive(Clone, Debug, Default)]
pub struct Observers {
    /// Receives events of objects, by the notification rules of their buckets.
    pub sink: Option<Arc<dyn EventSink>>,
    /// Receives a line for every request.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// Receives the requests to buckets that have logging enabled.
    pub bucket_logs: Option<Arc<BucketLogs>>,
}

/// Delivers events and log lines to the receivers.
#[derive(Clone, Debug)]
pub(crate) struct RequestObserver {
    store: ObjectStore,
    region: Arc<str>,
    clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
}

/// Data of a request that is kept until its reply is ready.
pub(crate) struct RequestSummary {
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    connection: Connection,
    /// State that the request shares with its reply.
    pub(crate) observation: Observation,
    began: Instant,
}

impl RequestObserver {
    pub(crate) fn new(store: ObjectStore, region: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self { store, region, clock, observers: Observers::default() }
    }

    /// Records a request, if there is any receiver.
    pub(crate) fn see<B>(&self, request: &Request<B>) -> Option<RequestSummary> {
        let Observers { sink, access_log, bucket_logs } = &self.observers;
        if sink.is_none() && access_log.is_none() && bucket_logs.is_none() {
            return None;
        }
        let headers = request.headers();
        let header = |name| headers.get(name).cloned();
        Some(RequestSummary {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: header(HOST),
            referer: header(REFERER),
            agent: header(USER_AGENT),
            connection: Connection::of(request.extensions()),
            observation: Observation::of(sink.clone()),
            began: Instant::now(),
        })
    }

    /// Delivers the events of a request whose reply is ready, and prepares its log lines.
    pub(crate) async fn notify<H: OperationHandler>(
        &self,
        http: &HttpService<H>,
        seen: RequestSummary,
        response: &mut Response<ResponseBody>,
    ) {
        let info = response.extensions_mut().remove::<ReplyInfo>().unwrap_or_default();
        if self.is_unheard(&seen, &info) {
            return;
        }
        let events = &info.effects.events.0;
        let target = http.target_of(&seen.uri, text_of(seen.host.as_ref()));
        let name = target.as_ref().and_then(RequestTarget::bucket);
        let mut bucket = name.and_then(|name| self.store.buckets().cached(name));
        if bucket.is_none() {
            bucket = seen.observation.bucket().cloned();
        }
        if let (None, Some(name), false) = (&bucket, name, events.is_empty()) {
            bucket = Box::pin(self.store.bucket(name)).await.ok();
        }
        if let (Some(name), Some(bucket), Some(sink)) = (name, &bucket, &self.observers.sink) {
            let source = seen.connection.peer.map(|address| address.to_canonical().to_string());
            let about = RecordContext {
                bucket: name,
                bucket_owner: &bucket.owner,
                region: &self.region,
                now_ms: self.clock.now_ms(),
                requester: info.requester.as_ref().and_then(|it| it.identity.name()),
                source: source.as_deref(),
                request_id: text(response.headers(), &REQUEST_ID).unwrap_or_default(),
                host_id: text(response.headers(), &HOST_ID).unwrap_or_default(),
            };
            send_events(sink.as_ref(), &about, bucket, events);
            for target in &info.effects.configured_targets {
                sink.offer(target, about.bucket_owner, test_message(&about));
            }
        }
        self.log(
            &ObservedRequest { seen: &seen, target: target.as_ref() },
            bucket.as_deref(),
            &info,
            response,
        );
    }

    /// Returns true if no receiver needs anything of the request.
    fn is_unheard(&self, seen: &RequestSummary, info: &ReplyInfo) -> bool {
        let Effects { events, configured_targets, .. } = &info.effects;
        self.observers.access_log.is_none()
            && events.0.is_empty()
            && configured_targets.is_empty()
            && seen
                .observation
                .bucket()
                .is_some_and(|it| it.settings.get(Setting::Logging).is_none())
    }

    /// Attaches log lines to the reply, for each log that is enabled.
    fn log(
        &self,
        request: &ObservedRequest<'_>,
        bucket: Option<&Bucket>,
        info: &ReplyInfo,
        response: &mut Response<ResponseBody>,
    ) {
        let now_ms = self.clock.now_ms();
        let name = request.target.and_then(RequestTarget::bucket);
        let of_bucket = self.observers.bucket_logs.as_ref().and_then(|logs| {
            let source = source_of(name?, bucket?, now_ms)?;
            Some((logs.clone(), source))
        });
        let access_log = self.observers.access_log.clone();
        if of_bucket.is_none() && access_log.is_none() {
            return;
        }
        let line = request.line(bucket, now_ms, info, response);
        let began = request.seen.began;
        let counted = LoggedReply { sent_bytes: 0, line, began, access_log, of_bucket };
        response.body_mut().count_by(Box::new(counted));
    }
}

/// Log settings of a bucket, with the day of the batch; `None` if the bucket has no logging.
fn source_of(name: &str, bucket: &Bucket, now_ms: u64) -> Option<LogSource> {
    let documents = BucketDocuments::of(name, bucket);
    Some(LogSource::at(documents.logged(name, bucket)?.clone(), now_ms))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn text_of(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok())
}

/// A request whose log line is written.
struct ObservedRequest<'a> {
    seen: &'a RequestSummary,
    target: Option<&'a RequestTarget>,
}

impl ObservedRequest<'_> {
    fn line(
        &self,
        bucket: Option<&Bucket>,
        now_ms: u64,
        info: &ReplyInfo,
        response: &Response<ResponseBody>,
    ) -> PendingLine {
        let headers = response.headers();
        let Effects { events: ObjectEvents(events), batch: BatchOutcome(batch), .. } =
            &info.effects;
        let Self { seen, target } = *self;
        let operation = info.operation;
        let only = events.first().filter(|_| events.len() == 1);
        let key = target.and_then(RequestTarget::key);
        let path = match (target.and_then(RequestTarget::bucket), key) {
            (None, _) => PathKind::Service,
            (Some(_), None) => PathKind::Bucket,
            (Some(_), Some(_)) => PathKind::Object,
        };
        let elapsed_ms = now_ms_since(seen.began);
        PendingLine::new(&LineContents {
            bucket_owner: bucket.map(|bucket| bucket.owner.as_str()),
            bucket: target.and_then(RequestTarget::bucket),
            time_ms: now_ms.saturating_sub(elapsed_ms),
            ip: seen.connection.peer,
            requester: info.requester.as_ref(),
            request_id: text(headers, &REQUEST_ID).unwrap_or_default(),
            operation: OperationName::of(operation, seen.method.as_str(), path),
            key: key.or_else(|| only.map(|happening| happening.key.as_str())),
            request: [
                seen.method.as_str(),
                " ",
                &path_of(&seen.uri),
                " ",
                version_name(seen.version),
            ],
            status: response.status().as_u16(),
            error: info.error.as_deref(),
            object_size: only.and_then(|happening| happening.size).or_else(|| {
                size_read(operation.filter(|_| response.status().is_success()), headers)
            }),
            turn_around_ms: elapsed_ms,
            // The referring page's URL may be a presigned link.
            referer: text_of(seen.referer.as_ref()).map(without_secrets).as_deref(),
            agent: text_of(seen.agent.as_ref()),
            version: text(headers, &VERSION_ID),
            host_id: text(headers, &HOST_ID).unwrap_or_default(),
            host: text_of(seen.host.as_ref()).or_else(|| seen.uri.host()),
            tls: seen.connection.tls,
            by_acl: seen.observation.acl_use.is_noted(),
            batch,
        })
    }
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// Query keys that sign a request, in lower case.
const SIGNING: [&str; 3] = ["x-amz-signature", "signature", "x-amz-security-token"];
/// Common part of the query keys with a customer's key or its digest: links may carry headers in
/// the query.
const OF_CUSTOMERS: &str = "-customer-key";

/// Path and query without signatures and keys, so that readers of a log can't reuse them.
fn path_of(uri: &Uri) -> Cow<'_, str> {
    without_secrets(uri.path_and_query().map_or("/", PathAndQuery::as_str))
}

/// Replaces the values of secret query keys in a link. Names are compared as a server reads them:
/// percent-decoded and in lower case.
fn without_secrets(link: &str) -> Cow<'_, str> {
    let Some((path, query)) = link.split_once('?') else { return Cow::Borrowed(link) };
    let mut shown = String::with_capacity(link.len());
    shown.push_str(path);
    for (number, pair) in query.split('&').enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
        let is_hidden = if name.contains('%') {
            is_secret(&percent_decode_str(name).decode_utf8_lossy())
        } else {
            is_secret(name)
        };
        if is_hidden {
            shown.push_str(name);
            shown.push_str("=REDACTED");
        } else {
            shown.push_str(pair);
        }
    }
    Cow::Owned(shown)
}

/// Returns true if the value of a query key is secret. `name` is decoded, in any case.
fn is_secret(name: &str) -> bool {
    let of_customers = || {
        let parts = name.as_bytes().windows(OF_CUSTOMERS.len());
        // Most parts differ in their first byte.
        let mut begun = parts.filter(|part| part[0] == b'-');
        begun.any(|part| part.eq_ignore_ascii_case(OF_CUSTOMERS.as_bytes()))
    };
    SIGNING.iter().any(|secret| name.eq_ignore_ascii_case(secret)) || of_customers()
}

/// Size of an object that was read, from the reply's headers.
fn size_read(operation: Option<Operation>, headers: &HeaderMap) -> Option<u64> {
    operation.filter(|it| matches!(it, Operation::GetObject | Operation::HeadObject))?;
    let range = text(headers, &CONTENT_RANGE).and_then(|range| range.rsplit_once('/'));
    let size = range.map(|(_, size)| size).or_else(|| text(headers, &CONTENT_LENGTH))?;
    size.parse().ok()
}

fn now_ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A reply that is being sent. Its log line is written when the reply has been sent or abandoned.
#[derive(Debug)]
struct LoggedReply {
    sent_bytes: u64,
    line: PendingLine,
    began: Instant,
    access_log: Option<Arc<dyn AccessLog>>,
    of_bucket: Option<(Arc<BucketLogs>, LogSource)>,
}

impl ByteCounter for LoggedReply {
    fn add(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }
}

impl Drop for LoggedReply {
    fn drop(&mut self) {
        self.line.finish(self.sent_bytes, now_ms_since(self.began), |line| {
            if let Some((logs, source)) = &self.of_bucket {
                logs.offer(source, &line.parts, line.lines);
            }
            if let Some(log) = &self.access_log {
                log.offer(line.parts.concat());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_not_logged() {
        let uri = Uri::from_static(
            "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=abc&versionId=1",
        );
        let shown = path_of(&uri);
        assert_eq!(
            shown,
            "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=REDACTED&versionId=1"
        );
        assert_eq!(path_of(&Uri::from_static("/b/k")), "/b/k");
        let old = Uri::from_static("/b?AWSAccessKeyId=a&Signature=s%3D&Expires=1");
        let old = path_of(&old);
        assert_eq!(old, "/b?AWSAccessKeyId=a&Signature=REDACTED&Expires=1");
        for (name, is_secret) in [
            ("x-amz-security-token", true),
            ("X-Amz-Security-Token", true),
            ("X-Amz-%53ignature", true),
            ("x%2damz-security%2Dtoken", true),
            ("x-amz-server-side-encryption-customer-key", true),
            ("X-Amz-Copy-Source-Server-Side-Encryption-Customer-Key", true),
            ("x-amz-server-side-encryption-customer-algorithm", false),
            ("X-Amz-SignedHeaders", false),
        ] {
            let link = format!("/b/k?a=1&{name}=s3cret%3D&b=2");
            let uri: Uri = link.parse().unwrap();
            let shown = path_of(&uri);
            let value = if is_secret { "REDACTED" } else { "s3cret%3D" };
            assert_eq!(shown, format!("/b/k?a=1&{name}={value}&b=2"));
            let page = format!("https://h{link}");
            assert_eq!(without_secrets(&page), format!("https://h{shown}"));
        }
    }

    #[test]
    fn the_size_of_what_was_read_is_the_objects() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        assert_eq!(size_read(Some(Operation::HeadObject), &headers), Some(5));
        assert_eq!(size_read(Some(Operation::ListObjects), &headers), None);
        headers.insert(CONTENT_RANGE, HeaderValue::from_static("bytes 0-4/90"));
        assert_eq!(size_read(Some(Operation::GetObject), &headers), Some(90));
        assert_eq!(size_read(None, &headers), None);
    }
}
