//! Traces against a collector on loopback.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span as OtlpSpan, span, status};
use parking_lot::Mutex;
use prost::Message;

use super::exporter::BATCH_SPANS_MAX;
use super::queue::QUEUE_SPANS_MAX;
use super::*;
use crate::metrics::Metrics;

/// Status and pause of a reply.
type TestReply = (StatusCode, Option<&'static str>);

/// Collector that keeps what it receives.
#[derive(Clone, Default)]
struct TestCollector {
    received: Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>,
    /// Replies in place of acceptance, in their order.
    replies: Arc<Mutex<VecDeque<TestReply>>>,
}

impl TestCollector {
    async fn start(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/base/v1/traces", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }

    fn spans(&self) -> Vec<OtlpSpan> {
        let received = self.received.lock();
        let resources = received.iter().flat_map(|(_, request)| &request.resource_spans);
        resources.flat_map(|it| &it.scope_spans).flat_map(|it| it.spans.clone()).collect()
    }
}

async fn receive(State(collector): State<TestCollector>, head: HeaderMap, body: Bytes) -> Response {
    if let Some((status, retry_after)) = collector.replies.lock().pop_front() {
        let pause = retry_after.map(|pause| [("retry-after", pause)]);
        return (status, pause.map(HeadersOf), ()).into_response();
    }
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    collector.received.lock().push((head, request));
    StatusCode::OK.into_response()
}

/// Headers of a reply.
struct HeadersOf([(&'static str, &'static str); 1]);

impl axum::response::IntoResponseParts for HeadersOf {
    type Error = std::convert::Infallible;

    fn into_response_parts(
        self,
        mut parts: axum::response::ResponseParts,
    ) -> Result<axum::response::ResponseParts, Self::Error> {
        let [(name, value)] = self.0;
        parts.headers_mut().insert(name, http::HeaderValue::from_static(value));
        Ok(parts)
    }
}

fn settings(address: SocketAddr) -> TraceSettings {
    TraceSettings {
        otlp_endpoint: Some(format!("http://{address}/base/")),
        trace_sample: 1.0,
        trace_attributes: vec!["deployment.environment.name=test".to_owned()],
        ..TraceSettings::default()
    }
}

fn open(settings: &TraceSettings) -> Traces {
    let process = TracedProcess { role: "proxy", name: "p1", zone: Some("z1".to_owned()) };
    Traces::open(settings, &process).unwrap()
}

fn attribute(attributes: &[KeyValue], name: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone()?.value
}

/// Returns an attribute that is text.
fn text_of(attributes: &[KeyValue], name: &str) -> Option<String> {
    match attribute(attributes, name)? {
        Value::StringValue(text) => Some(text),
        other => panic!("{name} is {other:?}"),
    }
}

fn metric(traces: &Traces, line: &str) -> u64 {
    let text = Metrics::default().with(traces.collector()).text();
    let found = text.lines().find_map(|it| it.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{line} is not in\n{text}"))
}

/// Waits up to 10 s until a condition holds.
async fn soon(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not after ten seconds");
}

#[tokio::test]
async fn spans_reach_the_collector_with_their_process() {
    let collector = TestCollector::default();
    let headers = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(headers.path(), "authorization: Bearer s3cret\n").unwrap();
    let mut settings = settings(collector.start().await);
    settings.otlp_headers_file = Some(headers.path().to_owned());
    let traces = open(&settings);
    let parent = traces.tracer().unwrap().begin_request(&HeaderMap::new()).unwrap();
    parent.rename("PutObject");
    parent.set("aws.s3.bucket", "b".to_owned());
    parent.set("aws.s3.key", "private".to_owned());
    parent.set("http.response.status_code", 503_u16);
    parent.fail();
    drop(parent.scope().child(SpanKind::Client, "write"));
    let context = parent.scope().context();
    drop(parent);
    soon("a batch", || collector.spans().len() == 2).await;
    let (head, request) = collector.received.lock()[0].clone();
    assert_eq!(head["content-type"], "application/x-protobuf");
    assert_eq!(head["authorization"], "Bearer s3cret");
    let resource = request.resource_spans[0].resource.clone().unwrap().attributes;
    for (name, value) in [
        ("service.name", "martlet"),
        ("service.instance.id", "proxy/p1"),
        ("martlet.zone", "z1"),
        ("deployment.environment.name", "test"),
    ] {
        assert_eq!(text_of(&resource, name).as_deref(), Some(value), "{name}");
    }
    let [child, parent]: [OtlpSpan; 2] = collector.spans().try_into().unwrap();
    assert_eq!((&*child.name, child.kind), ("write", span::SpanKind::Client as i32));
    assert_eq!((&*parent.name, parent.kind), ("PutObject", span::SpanKind::Server as i32));
    assert_eq!(parent.trace_id, context.trace.bytes());
    assert_eq!((&parent.span_id, parent.parent_span_id.len()), (&child.parent_span_id, 0));
    assert!(parent.start_time_unix_nano <= child.start_time_unix_nano);
    assert!(parent.end_time_unix_nano >= child.end_time_unix_nano);
    assert_eq!(text_of(&parent.attributes, "aws.s3.bucket").as_deref(), Some("b"));
    assert_eq!(attribute(&parent.attributes, "aws.s3.key"), None, "keys need a setting");
    let status = attribute(&parent.attributes, "http.response.status_code");
    assert_eq!(status, Some(Value::IntValue(503)));
    assert_eq!(parent.status.unwrap().code, status::StatusCode::Error as i32);
    assert!(child.status.is_none());
    assert_eq!(metric(&traces, "martlet_trace_spans_exported_total"), 2);
    traces.stop().await;
}

#[tokio::test]
async fn a_busy_collector_gets_its_batch_again_after_retry_after() {
    let collector = TestCollector::default();
    collector.replies.lock().push_back((StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    collector.replies.lock().push_back((StatusCode::TOO_MANY_REQUESTS, Some("0")));
    let mut settings = settings(collector.start().await);
    settings.trace_keys = true;
    let traces = open(&settings);
    let began = Instant::now();
    let span = traces.tracer().unwrap().begin_request(&HeaderMap::new()).unwrap();
    span.set("aws.s3.key", "shown".to_owned());
    drop(span);
    soon("the third attempt", || collector.spans().len() == 1).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let spans = collector.spans();
    assert_eq!(text_of(&spans[0].attributes, "aws.s3.key").as_deref(), Some("shown"));
    assert_eq!(metric(&traces, "martlet_trace_export_failures_total"), 2);
    assert_eq!(metric(&traces, "martlet_trace_spans_exported_total"), 1);
    traces.stop().await;
}

#[tokio::test]
async fn a_refused_batch_is_dropped_and_counted() {
    let collector = TestCollector::default();
    collector.replies.lock().push_back((StatusCode::BAD_REQUEST, None));
    let traces = open(&settings(collector.start().await));
    drop(traces.tracer().unwrap().begin_request(&HeaderMap::new()));
    let refused = "martlet_trace_spans_dropped_total{reason=\"refused\"}";
    soon("the refusal", || metric(&traces, refused) == 1).await;
    drop(traces.tracer().unwrap().begin_request(&HeaderMap::new()));
    soon("the next batch", || collector.spans().len() == 1).await;
    traces.stop().await;
}

#[tokio::test]
async fn without_a_collector_spans_are_dropped_and_no_caller_waits() {
    // A port that nothing listens on.
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let traces = open(&settings(address));
    let tracer = traces.tracer().unwrap();
    let count = 4 * QUEUE_SPANS_MAX;
    let began = Instant::now();
    for _ in 0..count {
        drop(tracer.begin_request(&HeaderMap::new()));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let full = metric(&traces, "martlet_trace_spans_dropped_total{reason=\"queue_full\"}");
    assert!(full >= (count - QUEUE_SPANS_MAX - BATCH_SPANS_MAX) as u64, "{full}");
    let counts = traces.running.as_ref().unwrap().counts.clone();
    let began = Instant::now();
    traces.stop().await;
    assert!(began.elapsed() < END_MAX, "{:?}", began.elapsed());
    let load =
        |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    let dropped = load(&counts.dropped_full) + load(&counts.dropped_unsent);
    assert_eq!((dropped, load(&counts.exported)), (count as u64, 0), "each span is counted");
}

#[tokio::test]
async fn the_stop_sends_what_waits() {
    let collector = TestCollector::default();
    let traces = open(&settings(collector.start().await));
    let tracer = traces.tracer().unwrap();
    let count = BATCH_SPANS_MAX + 10;
    for _ in 0..count {
        drop(tracer.begin_request(&HeaderMap::new()));
    }
    traces.stop().await;
    assert_eq!(collector.spans().len(), count);
}

#[tokio::test]
async fn without_an_endpoint_nothing_is_started() {
    let process = TracedProcess { role: "server", name: "s", zone: None };
    let traces = Traces::open(&TraceSettings::default(), &process).unwrap();
    assert!(traces.tracer().is_none() && traces.sink().is_none());
    assert_eq!(Metrics::default().with(traces.collector()).text(), "# EOF\n");
    traces.stop().await;
    let wrong = TraceSettings {
        otlp_headers_file: Some("/nowhere/headers".into()),
        ..settings("127.0.0.1:1".parse().unwrap())
    };
    assert!(Traces::open(&wrong, &process).is_err(), "a missing file is refused at the start");
}
