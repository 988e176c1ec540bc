//! Spans that wait for the exporter: a bounded queue between requests and the exporter's task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use martlet_protocol::trace::{FinishedSpan, SpanSink};
use tokio::sync::mpsc;

use super::metrics::TraceCounts;

/// Most spans that wait. With the bounds of a span this is 10 MiB for spans with the longest keys.
pub(super) const QUEUE_SPANS_MAX: usize = 4096;
/// Attribute that is dropped unless a setting permits it: keys may be private.
const KEY: &str = "aws.s3.key";

/// Sender of the queue.
pub(super) struct SpanQueue {
    spans: mpsc::Sender<FinishedSpan>,
    counts: Arc<TraceCounts>,
    has_keys: bool,
}

impl SpanQueue {
    /// Makes a queue. `has_keys` is true if spans may have the keys of objects.
    pub(super) fn new(
        counts: Arc<TraceCounts>,
        has_keys: bool,
    ) -> (Self, mpsc::Receiver<FinishedSpan>) {
        let (spans, receiver) = mpsc::channel(QUEUE_SPANS_MAX);
        (Self { spans, counts, has_keys }, receiver)
    }
}

impl SpanSink for SpanQueue {
    fn record(&self, mut span: FinishedSpan) {
        if !self.has_keys {
            span.attributes.retain(|(name, _)| *name != KEY);
        }
        if self.spans.try_send(span).is_err() {
            self.counts.dropped_full.fetch_add(1, Ordering::Relaxed);
        }
    }
}
