//! Metrics of the requests of S3 clients.

use std::time::Duration;

use hyper::{Method, Response};
use martlet_s3compat::LimitReason;
use martlet_s3compat::http::OperationRow as Operation;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Labels of a request: its operation and the reply's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) operation: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

impl Labels {
    /// Returns the labels of an answered request. Requests refused before they were routed count
    /// under their method.
    pub(crate) fn of<B>(method: &Method, response: &Response<B>) -> Self {
        let operation = response.extensions().get::<&'static Operation>();
        let turned_away = match *method {
            Method::GET => "refused_get",
            Method::PUT => "refused_put",
            Method::POST => "refused_post",
            Method::DELETE => "refused_delete",
            Method::HEAD => "refused_head",
            _ => "refused",
        };
        Self {
            operation: operation.map_or(turned_away, |operation| operation.name),
            status: response.status().as_u16(),
        }
    }
}

/// Metrics of all requests.
#[derive(Debug)]
pub(crate) struct Requests {
    answered: Family<Labels, Counter>,
    limited: Family<LimitLabel, Counter>,
    first_byte: Family<OperationLabel, Histogram, fn() -> Histogram>,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) in_flight: Gauge,
}

/// Histogram buckets in seconds, from 100 µs to 30 s, finest below 10 ms.
const LATENCIES: [f64; 14] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 8.0, 30.0];

impl Requests {
    pub(crate) fn new() -> Self {
        let first_byte = Family::new_with_constructor((|| Histogram::new(LATENCIES)) as fn() -> _);
        Self {
            first_byte,
            answered: Family::default(),
            limited: Family::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            in_flight: Gauge::default(),
        }
    }

    /// Records a reply whose head is being sent.
    pub(crate) fn answered(&self, labels: Labels, latency: Duration) {
        let operation = OperationLabel { operation: labels.operation };
        self.first_byte.get_or_create(&operation).observe(latency.as_secs_f64());
        self.answered.get_or_create(&labels).inc();
    }

    /// Records a request that was refused by a quota, a rate or a limit.
    pub(crate) fn limited(&self, limited: LimitReason) {
        self.limited.get_or_create(&LimitLabel { limit: limited.name() }).inc();
    }

    /// Registers all metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.answered.clone());
        registry.register(
            "requests_limited",
            "Requests refused by a quota, a rate limit or the concurrency limit",
            self.limited.clone(),
        );
        registry.register(
            "request_first_byte_seconds",
            "Time until the reply's head was sent",
            self.first_byte.clone(),
        );
        registry.register(
            "request_body_bytes",
            "Request body bytes received on the wire",
            self.bytes_in.clone(),
        );
        registry.register("reply_body_bytes", "Reply body bytes sent", self.bytes_out.clone());
        registry.register(
            "requests_in_flight",
            "Requests whose reply is not fully sent",
            self.in_flight.clone(),
        );
    }
}
