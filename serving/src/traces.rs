//! Traces of a process: sampling of requests, and the export of their spans by OTLP.
//!
//! ```text
//! request ─ sampler ─ span ─▶ bounded queue ─▶ batches ─▶ POST /v1/traces (protobuf over HTTP)
//!                  └ not sampled: no span        └ full: the span is dropped and counted
//! ```
//!
//! * [`settings`]: settings of a role.
//! * [`sampler`]: decisions which requests are sampled, and which parents of clients are accepted.
//! * [`queue`]: spans that wait for the exporter.
//! * [`encode`]: spans as messages of OTLP.
//! * [`collector_client`]: one request to the collector, and the meaning of its reply.
//! * [`exporter`]: batches, repeats and the flush at the stop.
//! * [`metrics`]: counts of exported and dropped spans.
//!
//! Without `otlp_endpoint` nothing of this runs: requests have no spans, and no task is started.
//! No request waits for the exporter.

mod collector_client;
mod encode;
mod exporter;
pub mod metrics;
mod queue;
mod sampler;
pub mod settings;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use martlet_protocol::trace::{NewSpan, Span, SpanKind, SpanSink};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::collector_client::CollectorClient;
use self::encode::Resource;
pub use self::encode::TracedProcess;
use self::exporter::Exporter;
use self::metrics::{TraceCollector, TraceCounts};
use self::queue::SpanQueue;
use self::sampler::Sampler;
use self::settings::TraceSettings;
use crate::failure::Failure;

/// Longest time until the exporter's task has ended, after its flush.
const END_MAX: Duration = Duration::from_secs(7);

/// Traces of a role.
#[derive(Default)]
pub struct Traces {
    running: Option<RunningTraces>,
}

struct RunningTraces {
    tracer: Arc<Tracer>,
    counts: Arc<TraceCounts>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Source of the spans of a role.
pub struct Tracer {
    sampler: Sampler,
    sink: Arc<SpanQueue>,
}

impl Traces {
    /// Starts the exporter if an endpoint is set. Must be called within a runtime.
    ///
    /// # Errors
    /// The endpoint, the headers or the authorities can't be used.
    pub fn open(settings: &TraceSettings, process: &TracedProcess<'_>) -> Result<Self, Failure> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(Self::default()) };
        let client = CollectorClient::new(endpoint, settings)?;
        let counts = Arc::new(TraceCounts::default());
        let (queue, spans) = SpanQueue::new(counts.clone(), settings.trace_keys);
        let resource = Resource::new(settings, process)?;
        let (stop, stopped) = watch::channel(false);
        let exporter = Exporter { spans, client, resource, counts: counts.clone(), stopped };
        let task = tokio::spawn(exporter.run());
        let sampler = Sampler::new(settings);
        let tracer = Arc::new(Tracer { sampler, sink: Arc::new(queue) });
        Ok(Self { running: Some(RunningTraces { tracer, counts, stop, task }) })
    }

    /// Returns the source of spans, if traces are on.
    pub fn tracer(&self) -> Option<Arc<Tracer>> {
        self.running.as_ref().map(|running| running.tracer.clone())
    }

    /// Returns the receiver of spans, if traces are on.
    pub fn sink(&self) -> Option<Arc<dyn SpanSink>> {
        Some(self.running.as_ref()?.tracer.sink())
    }

    /// Returns the collector of the metrics.
    pub fn collector(&self) -> TraceCollector {
        TraceCollector(self.running.as_ref().map(|running| running.counts.clone()))
    }

    /// Sends the spans that wait, for 5 seconds at most. Must be called after the last request.
    pub async fn stop(self) {
        let Some(RunningTraces { stop, mut task, .. }) = self.running else { return };
        stop.send_replace(true);
        if tokio::time::timeout(END_MAX, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Tracer {
    /// Returns the receiver of spans.
    pub fn sink(&self) -> Arc<dyn SpanSink> {
        self.sink.clone()
    }

    /// Begins the span of a client's request, if the request is sampled.
    pub fn begin_request(&self, headers: &HeaderMap) -> Option<Span> {
        let sampled = self.sampler.sample(headers)?;
        let new = NewSpan {
            context: sampled.context,
            parent: sampled.parent,
            name: "request",
            kind: SpanKind::Server,
        };
        Some(Span::begin(&new, self.sink()))
    }
}

#[cfg(test)]
mod tests;
