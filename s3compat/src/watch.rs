//! Delivery of events and access log lines, after the reply to a request is ready.
//!
//! Invariants:
//! * Logging never looks up a bucket: cached metadata is enough. Only after a change of an object
//!   is the bucket looked up again, if its metadata has left the cache.
//! * Without any receiver, no data of a request is kept.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, REFERER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use martlet_protocol::entry::Bucket;
use martlet_protocol::{Clock, Setting};
use martlet_proxy::ObjectStore;
use percent_encoding::percent_decode_str;

use crate::access::AclUse;
use crate::auth::Target;
use crate::door::{Door, ErrorCode, GuardedBody, Operation, PathKind, Tally};
use crate::events::{About, Happened, Outlet, tell, test_message};
use crate::logging::{
    AccessLog, Asker, Batched, BucketLogs, Entry, Facts, Line, Logging, Source, operation_name,
};
use crate::ops::{Announced, Targets};
use crate::service::{Peer, Tls};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Receivers of events and log lines.
#[derive(Clone, Debug, Default)]
pub struct Hearers {
    /// Receives events of objects, by the notification rules of their buckets.
    pub outlet: Option<Arc<dyn Outlet>>,
    /// Receives a line for every request.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// Receives the requests to buckets that have logging enabled.
    pub bucket_logs: Option<Arc<BucketLogs>>,
}

/// Delivers events and log lines to the receivers.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    store: ObjectStore,
    region: Arc<str>,
    clock: Arc<dyn Clock>,
    pub(crate) hearers: Hearers,
}

/// Data of a request that is kept until its reply is ready.
pub(crate) struct Seen {
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    peer: Option<IpAddr>,
    tls: Option<Tls>,
    target: Option<Target>,
    /// Shows if an access control list admitted the request.
    acl_use: AclUse,
    began: Instant,
}

impl Watch {
    pub(crate) fn new(store: ObjectStore, region: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self { store, region, clock, hearers: Hearers::default() }
    }

    /// Records a request, if there is any receiver.
    pub(crate) fn see<S, B>(&self, door: &Door<S>, request: &mut Request<B>) -> Option<Seen>
    where
        S: tower::Service<
                Request<s3s::Body>,
                Response = Response<s3s::Body>,
                Error = std::convert::Infallible,
            > + Clone,
    {
        let Hearers { outlet, access_log, bucket_logs } = &self.hearers;
        if outlet.is_none() && access_log.is_none() && bucket_logs.is_none() {
            return None;
        }
        if outlet.is_some() {
            request.extensions_mut().insert(Targets(outlet.clone()));
        }
        let acl_use = AclUse::default();
        request.extensions_mut().insert(acl_use.clone());
        let headers = request.headers();
        let header = |name| headers.get(name).cloned();
        Some(Seen {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: header(HOST),
            referer: header(REFERER),
            agent: header(USER_AGENT),
            peer: request.extensions().get::<Peer>().map(|Peer(address)| *address),
            tls: request.extensions().get::<Tls>().copied(),
            target: door.target_of(request.uri(), headers),
            acl_use,
            began: Instant::now(),
        })
    }

    /// Delivers the events of a request whose reply is ready, and prepares its log lines.
    pub(crate) async fn tell(&self, seen: Seen, response: &mut Response<GuardedBody>) {
        let happened = response.extensions_mut().remove::<Happened>().unwrap_or_default();
        let announced = response.extensions_mut().remove::<Announced>();
        let name = seen.target.as_ref().and_then(Target::bucket);
        let mut bucket = name.and_then(|name| self.store.remembered_bucket(name));
        if let (None, Some(name), false) = (&bucket, name, happened.0.is_empty()) {
            bucket = Box::pin(self.store.bucket(name)).await.ok();
        }
        if let (Some(name), Some(bucket), Some(outlet)) = (name, &bucket, &self.hearers.outlet) {
            let requester = response.extensions().get::<Asker>();
            let source = seen.peer.map(|address| address.to_canonical().to_string());
            let about = About {
                bucket: name,
                bucket_owner: &bucket.owner,
                region: &self.region,
                now_ms: self.clock.now_ms(),
                requester: requester.and_then(|asker| asker.identity.name()),
                source: source.as_deref(),
                request_id: text(response.headers(), &REQUEST_ID).unwrap_or_default(),
                host_id: text(response.headers(), &HOST_ID).unwrap_or_default(),
            };
            tell(outlet.as_ref(), &about, bucket, &happened.0);
            for target in announced.iter().flat_map(|Announced(targets)| targets) {
                outlet.offer(target, about.bucket_owner, test_message(&about));
            }
        }
        self.log(&seen, bucket.as_deref(), &happened, response);
    }

    /// Attaches log lines to the reply, for each log that is enabled.
    fn log(
        &self,
        seen: &Seen,
        bucket: Option<&Bucket>,
        happened: &Happened,
        response: &mut Response<GuardedBody>,
    ) {
        let now_ms = self.clock.now_ms();
        let name = seen.target.as_ref().and_then(Target::bucket);
        let of_bucket = self.hearers.bucket_logs.as_ref().and_then(|logs| {
            let source = source_of(name?, bucket?, now_ms)?;
            Some((logs.clone(), source))
        });
        let access_log = self.hearers.access_log.clone();
        if of_bucket.is_none() && access_log.is_none() {
            return;
        }
        let batched = response.extensions_mut().remove::<Batched>().unwrap_or_default();
        let line = seen.line((bucket, now_ms), (happened, &batched), response);
        let began = seen.began;
        let counted = Counted { sent_bytes: 0, line, began, access_log, of_bucket };
        response.body_mut().count_by(Box::new(counted));
    }
}

/// Log settings of a bucket, with the day of the batch; `None` if the bucket has no logging.
fn source_of(name: &str, bucket: &Bucket, now_ms: u64) -> Option<Source> {
    let logging = Logging::of(bucket.settings.get(Setting::Logging)?)?;
    let day = logging.day_of(now_ms);
    Some(Source { bucket: name.to_owned(), owner: bucket.owner.clone(), logging, day })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn said(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok())
}

impl Seen {
    fn line(
        &self,
        (bucket, now_ms): (Option<&Bucket>, u64),
        (happened, Batched(batch)): (&Happened, &Batched),
        response: &Response<GuardedBody>,
    ) -> Line {
        let (headers, extensions) = (response.headers(), response.extensions());
        let operation = extensions.get::<&'static Operation>().copied();
        let only = happened.0.first().filter(|_| happened.0.len() == 1);
        let target = self.target.as_ref();
        let key = target.and_then(Target::key);
        let path = match (target.and_then(Target::bucket), key) {
            (None, _) => PathKind::Service,
            (Some(_), None) => PathKind::Bucket,
            (Some(_), Some(_)) => PathKind::Object,
        };
        let elapsed_ms = now_ms_since(self.began);
        Line::new(&Facts {
            bucket_owner: bucket.map(|bucket| bucket.owner.as_str()),
            bucket: target.and_then(Target::bucket),
            time_ms: now_ms.saturating_sub(elapsed_ms),
            ip: self.peer,
            asker: extensions.get(),
            request_id: text(headers, &REQUEST_ID).unwrap_or_default(),
            operation: &operation_name(operation, self.method.as_str(), path),
            key: key.or_else(|| only.map(|happening| happening.key.as_str())),
            request: &format!("{} {} {:?}", self.method, path_of(&self.uri), self.version),
            status: response.status().as_u16(),
            error: extensions.get::<ErrorCode>().map(|ErrorCode(code)| &**code),
            object_size: only.and_then(|happening| happening.size).or_else(|| {
                size_read(operation.filter(|_| response.status().is_success()), headers)
            }),
            turn_around_ms: elapsed_ms,
            // The referring page's URL may be a presigned link.
            referer: said(self.referer.as_ref()).map(without_secrets).as_deref(),
            agent: said(self.agent.as_ref()),
            version: text(headers, &VERSION_ID),
            host_id: text(headers, &HOST_ID).unwrap_or_default(),
            host: said(self.host.as_ref()).or_else(|| self.uri.host()),
            tls: self.tls,
            by_acl: self.acl_use.is_noted(),
            batch,
        })
    }
}

/// Query keys that sign a request, in lower case.
const SIGNING: [&str; 3] = ["x-amz-signature", "signature", "x-amz-security-token"];
/// Common part of the query keys with a customer's key or its digest: links may carry headers in
/// the query.
const OF_CUSTOMERS: &str = "-customer-key";

/// Path and query without signatures and keys, so that readers of a log can't reuse them.
fn path_of(uri: &Uri) -> String {
    without_secrets(uri.path_and_query().map_or("/", PathAndQuery::as_str)).into_owned()
}

/// Replaces the values of secret query keys in a link. Names are compared as a server reads them:
/// percent-decoded and in lower case.
fn without_secrets(link: &str) -> Cow<'_, str> {
    let Some((path, query)) = link.split_once('?') else { return Cow::Borrowed(link) };
    let shown = query.split('&').map(|pair| {
        let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        let is_secret = SIGNING.contains(&&*plain) || plain.contains(OF_CUSTOMERS);
        if is_secret { format!("{name}=REDACTED") } else { pair.to_owned() }
    });
    Cow::Owned(format!("{path}?{}", shown.collect::<Vec<_>>().join("&")))
}

/// Size of an object that was read, from the reply's headers.
fn size_read(operation: Option<&Operation>, headers: &HeaderMap) -> Option<u64> {
    operation.filter(|row| matches!(row.name, "GetObject" | "HeadObject"))?;
    let range = text(headers, &CONTENT_RANGE).and_then(|range| range.rsplit_once('/'));
    let size = range.map(|(_, size)| size).or_else(|| text(headers, &CONTENT_LENGTH))?;
    size.parse().ok()
}

fn now_ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A reply that is being sent. Its log line is written when the reply has been sent or abandoned.
#[derive(Debug)]
struct Counted {
    sent_bytes: u64,
    line: Line,
    began: Instant,
    access_log: Option<Arc<dyn AccessLog>>,
    of_bucket: Option<(Arc<BucketLogs>, Source)>,
}

impl Tally for Counted {
    fn add(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let line = self.line.finish(self.sent_bytes, now_ms_since(self.began));
        if let Some((logs, source)) = self.of_bucket.take() {
            logs.offer(Entry { source, line: line.clone() });
        }
        if let Some(log) = &self.access_log {
            log.offer(line);
        }
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
        let old = path_of(&Uri::from_static("/b?AWSAccessKeyId=a&Signature=s%3D&Expires=1"));
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
            let shown = path_of(&link.parse().unwrap());
            let value = if is_secret { "REDACTED" } else { "s3cret%3D" };
            assert_eq!(shown, format!("/b/k?a=1&{name}={value}&b=2"));
            let page = format!("https://h{link}");
            assert_eq!(without_secrets(&page), format!("https://h{shown}"));
        }
    }

    #[test]
    fn the_size_of_what_was_read_is_the_objects() {
        let row = |name| crate::door::TABLE.iter().find(|row| row.name == name);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        assert_eq!(size_read(row("HeadObject"), &headers), Some(5));
        assert_eq!(size_read(row("ListObjects"), &headers), None);
        headers.insert(CONTENT_RANGE, HeaderValue::from_static("bytes 0-4/90"));
        assert_eq!(size_read(row("GetObject"), &headers), Some(90));
        assert_eq!(size_read(None, &headers), None);
    }
}
