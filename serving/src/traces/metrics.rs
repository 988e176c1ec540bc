//! Metrics of traces.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Counts of spans since the start of the process.
#[derive(Debug, Default)]
pub(super) struct TraceCounts {
    /// Spans that the collector accepted.
    pub(super) exported: AtomicU64,
    /// Spans that found the queue full.
    pub(super) dropped_full: AtomicU64,
    /// Spans that the collector refused.
    pub(super) dropped_refused: AtomicU64,
    /// Spans that were given up: the collector was away for too long, or the process stopped.
    pub(super) dropped_unsent: AtomicU64,
    /// Requests to the collector that failed and could be repeated.
    pub(super) failures: AtomicU64,
}

/// Collector of the metrics of traces. Without traces there are none.
#[derive(Debug)]
pub struct TraceCollector(pub(super) Option<Arc<TraceCounts>>);

impl Collector for TraceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(counts) = &self.0 else { return Ok(()) };
        let count = |count: &AtomicU64| ConstCounter::new(count.load(Ordering::Relaxed));
        for (name, help, value) in [
            ("trace_spans_exported", "Spans that the collector accepted", &counts.exported),
            ("trace_export_failures", "Requests to the collector that failed", &counts.failures),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            count(value).encode(metric)?;
        }
        let help = "Spans that were dropped, by reason";
        let name = "trace_spans_dropped";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, value) in [
            ("queue_full", &counts.dropped_full),
            ("refused", &counts.dropped_refused),
            ("unsent", &counts.dropped_unsent),
        ] {
            count(value).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
