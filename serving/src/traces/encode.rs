//! Spans as messages of OTLP, by the types that the OpenTelemetry project generates.

use martlet_protocol::trace::{FinishedSpan, SpanKind, SpanValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource as OtlpResource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind as OtlpKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan, Status};
use prost::Message;

use super::settings::{TraceSettings, attribute_of};
use crate::failure::Failure;

/// Flags of a span: sampled.
const FLAGS: u32 = 1;

/// Identity of a process in its spans.
#[derive(Clone, Debug, Default)]
pub struct TracedProcess<'a> {
    /// Role, such as `proxy`.
    pub role: &'static str,
    /// Name of the process in its cluster.
    pub name: &'a str,
    /// Zone of a storage node, if the rings have it.
    pub zone: Option<String>,
}

/// Attributes of the process that sends spans.
pub(super) struct Resource(Vec<KeyValue>);

impl Resource {
    pub(super) fn new(
        settings: &TraceSettings,
        process: &TracedProcess<'_>,
    ) -> Result<Self, Failure> {
        let own = [
            ("service.name", Some(settings.trace_service.clone())),
            ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("service.instance.id", Some(format!("{}/{}", process.role, process.name))),
            ("martlet.role", Some(process.role.to_owned())),
            ("martlet.node", Some(process.name.to_owned())),
            ("martlet.zone", process.zone.clone()),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some(text(name, value?)));
        let mut attributes: Vec<KeyValue> = own.collect();
        for further in &settings.trace_attributes {
            let (name, value) = attribute_of(further)?;
            attributes.retain(|attribute| attribute.key != name);
            attributes.push(text(name, value.to_owned()));
        }
        Ok(Self(attributes))
    }

    /// Encodes a request with these spans.
    pub(super) fn encode(&self, spans: Vec<FinishedSpan>) -> Vec<u8> {
        let scope = InstrumentationScope {
            name: "martlet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = spans.into_iter().map(encoded).collect();
        let of_scope = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
        let resource = OtlpResource { attributes: self.0.clone(), ..OtlpResource::default() };
        let of_process = ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![of_scope],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![of_process] }.encode_to_vec()
    }
}

fn text(name: &str, value: String) -> KeyValue {
    attribute(name, Value::StringValue(value))
}

fn attribute(name: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

fn encoded(span: FinishedSpan) -> OtlpSpan {
    let kind = match span.kind {
        SpanKind::Internal => OtlpKind::Internal,
        SpanKind::Server => OtlpKind::Server,
        SpanKind::Client => OtlpKind::Client,
    };
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let attributes = span.attributes.into_iter().map(|(name, value)| match value {
        SpanValue::Name(value) => text(name, value.to_owned()),
        SpanValue::Text(value) => text(name, value),
        SpanValue::Number(value) => attribute(name, Value::IntValue(value)),
    });
    let failure = Status { code: StatusCode::Error as i32, ..Status::default() };
    OtlpSpan {
        trace_id: span.context.trace.bytes().to_vec(),
        span_id: span.context.span.bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default(),
        flags: FLAGS,
        name: span.name.to_owned(),
        kind: kind as i32,
        start_time_unix_nano: nanos(span.begin),
        end_time_unix_nano: nanos(span.begin + span.took),
        attributes: attributes.collect(),
        status: span.failed.then_some(failure),
        ..OtlpSpan::default()
    }
}
