//! Delivery of events and access log lines, after the reply to a request is ready.
//!
//! Invariants:
//! * Logging never looks up a bucket: cached metadata is enough. Only after a change of an object
//!   is the bucket looked up again, if its metadata has left the cache.
//! * Without any receiver, no data of a request is kept.

use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, REFERER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use martlet_protocol::entry::Bucket;
use martlet_protocol::{Clock, Setting};
use martlet_proxy::ObjectStore;

use crate::body::{ByteCounter, ResponseBody};
use crate::bucket_documents::BucketDocuments;
use crate::connection::Connection;
use crate::events::{EventSink, ObjectEvents, RecordContext, send_events, test_message};
use crate::http::{HttpService, OperationHandler};
use crate::logging::{
    AccessLog, BatchOutcome, BucketLogs, LineContents, LogSource, OperationName, PendingLine,
    RequestLine,
};
use crate::operation::{Operation, PathKind};
use crate::reply::{Effects, ReplyInfo};
use crate::request::Observation;
use crate::target::RequestTarget;

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
        let Effects { events: ObjectEvents(events), configured_targets, .. } = &info.effects;
        let target = info.target.clone().or_else(|| {
            let target = http.target_of(&seen.uri, text_of(seen.host.as_ref()));
            target.map(Arc::new)
        });
        let name = target.as_ref().and_then(|target| target.bucket());
        let mut bucket = self.bucket_of(&seen, &info, name);
        if let (None, Some(name), false) = (&bucket, name, events.is_empty()) {
            bucket = Box::pin(self.store.bucket(name)).await.ok();
        }
        let is_told = !events.is_empty() || !configured_targets.is_empty();
        let sink = self.observers.sink.as_ref().filter(|_| is_told);
        if let (Some(name), Some(bucket), Some(sink)) = (name, &bucket, sink) {
            let source = seen.connection.peer.map(|address| address.to_canonical().to_string());
            let about = RecordContext {
                bucket: name,
                bucket_owner: &bucket.owner,
                region: &self.region,
                now_ms: self.clock.now_ms(),
                requester: info.requester.as_ref().and_then(|it| it.identity.name()),
                source: source.as_deref(),
                request_id: text_of(response.body().request_id()).unwrap_or_default(),
                host_id: text_of(Some(http.host_id())).unwrap_or_default(),
            };
            send_events(sink.as_ref(), &about, bucket, events);
            for target in configured_targets {
                sink.offer(target, about.bucket_owner, test_message(&about));
            }
        }
        let request =
            ObservedRequest { seen: &seen, target: target.as_deref(), host_id: http.host_id() };
        self.log(&request, bucket.as_deref(), &info, response);
    }

    /// Cached metadata of a request's bucket. Only an operation on the bucket can have changed its
    /// settings, and only the events of a long write may be of newer ones: other requests take what
    /// they were answered by.
    fn bucket_of(
        &self,
        seen: &RequestSummary,
        info: &ReplyInfo,
        name: Option<&str>,
    ) -> Option<Arc<Bucket>> {
        let observed = seen.observation.bucket();
        let is_on_object = info.operation.is_some_and(|it| it.row().path == PathKind::Object);
        let is_current = is_on_object && info.effects.events.0.is_empty();
        let bucket = observed.filter(|_| is_current).cloned();
        bucket.or_else(|| self.store.buckets().cached(name?)).or_else(|| observed.cloned())
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
    host_id: &'a HeaderValue,
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
        let Self { seen, target, host_id } = *self;
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
            request_id: text_of(response.body().request_id()).unwrap_or_default(),
            operation: OperationName::of(operation, seen.method.as_str(), path),
            key: key.or_else(|| only.map(|happening| happening.key.as_str())),
            request: RequestLine {
                method: seen.method.as_str(),
                link: link_of(&seen.uri),
                protocol: version_name(seen.version),
            },
            status: response.status().as_u16(),
            error: info.error.as_deref(),
            object_size: only.and_then(|happening| happening.size).or_else(|| {
                size_read(operation.filter(|_| response.status().is_success()), headers)
            }),
            turn_around_ms: elapsed_ms,
            referer: text_of(seen.referer.as_ref()),
            agent: text_of(seen.agent.as_ref()),
            version: text(headers, &VERSION_ID),
            host_id: text_of(Some(host_id)).unwrap_or_default(),
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

/// Path and query of a request.
fn link_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", PathAndQuery::as_str)
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
        let line = std::mem::take(&mut self.line);
        line.finish(self.sent_bytes, now_ms_since(self.began), |line| {
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
