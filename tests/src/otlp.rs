//! A collector of OpenTelemetry traces, which keeps all spans that it receives.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;

/// Path that spans are sent to.
const PATH: &str = "/v1/traces";

/// A collector on loopback, which ends with its runtime.
#[derive(Clone, Debug)]
pub struct TraceCollector {
    /// Address of the collector.
    pub address: SocketAddr,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
}

/// A span, with the process that sent it. Ids are hexadecimal.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// Role and name of the process: its `service.instance.id`.
    pub process: String,
    /// Id of the trace.
    pub trace: String,
    /// Id of the span.
    pub id: String,
    /// Id of the parent; empty for the first span of a trace.
    pub parent: String,
    /// Name.
    pub name: String,
    /// True for the span of a request that the process sent.
    pub is_client: bool,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
}

impl ReceivedSpan {
    /// Returns an attribute; empty if absent.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

impl TraceCollector {
    /// Starts a collector.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self { address, spans: Arc::default() };
        tokio::spawn(collector.clone().serve(listener));
        collector
    }

    /// Returns the setting `otlp_endpoint` of processes that send their spans here.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.spans.lock().clone()
    }

    /// Returns the spans of the request with this id, and of all calls made for it, once `is_whole`
    /// accepts them. Panics after 30 seconds.
    pub async fn trace_of(
        &self,
        request: &str,
        is_whole: impl Fn(&[ReceivedSpan]) -> bool,
    ) -> Vec<ReceivedSpan> {
        let mut found = Vec::new();
        for _ in 0..300 {
            let spans = self.spans();
            let of_request = spans.iter().find(|span| span.get("aws.request_id") == request);
            if let Some(trace) = of_request.map(|span| span.trace.clone()) {
                found = spans.into_iter().filter(|span| span.trace == trace).collect();
                if is_whole(&found) {
                    return found;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the trace of {request} is not whole: {found:#?}");
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let own = self.clone();
            let service = service_fn(move |request| {
                let own = own.clone();
                async move { Ok::<_, Infallible>(own.receive(request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn receive(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_right = request.uri().path() == PATH
            && request.headers()["content-type"] == "application/x-protobuf";
        let body = request.into_body().collect().await.map(Collected::to_bytes);
        let decoded = body.ok().and_then(|body| ExportTraceServiceRequest::decode(body).ok());
        let Some(decoded) = decoded.filter(|_| is_right) else {
            return Response::builder().status(400).body(Full::default()).unwrap();
        };
        let received = decoded.resource_spans.iter().flat_map(|of_process| {
            let resource = of_process.resource.clone().unwrap_or_default();
            let process = texts(&resource.attributes).remove("service.instance.id").unwrap();
            let spans = of_process.scope_spans.iter().flat_map(|scope| &scope.spans);
            spans.map(move |span| ReceivedSpan {
                process: process.clone(),
                trace: hex::encode(&span.trace_id),
                id: hex::encode(&span.span_id),
                parent: hex::encode(&span.parent_span_id),
                name: span.name.clone(),
                is_client: span.kind == SpanKind::Client as i32,
                attributes: texts(&span.attributes),
            })
        });
        self.spans.lock().extend(received);
        Response::new(Full::default())
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pair = |attribute: &KeyValue| {
        let value = attribute.value.clone()?.value?;
        Some((attribute.key.clone(), text(value)))
    };
    attributes.iter().filter_map(pair).collect()
}
