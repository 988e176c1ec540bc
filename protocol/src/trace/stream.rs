//! Spans of streams: a span lasts until its stream ends or is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;

use super::span::Span;
use crate::backend::ByteStream;
use crate::error::Result;

/// Bytes of a stream, read under a span, which has their number and the outcome.
pub struct SpannedStream {
    bytes: ByteStream,
    /// Bytes of the whole stream.
    length: u64,
    read: u64,
    span: Option<Span>,
}

impl SpannedStream {
    /// Wraps a stream of `length` bytes. The span ends with the stream.
    pub fn new(bytes: ByteStream, length: u64, span: Span) -> Self {
        Self { bytes, length, read: 0, span: Some(span) }
    }

    fn end(&mut self, outcome: &Result<()>) {
        if let Some(span) = self.span.take() {
            span.set("martlet.bytes", self.read);
            span.set_outcome(outcome);
        }
    }
}

impl Stream for SpannedStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { bytes, span, .. } = &mut *self;
        let mut poll = || bytes.as_mut().poll_next(context);
        let polled = match span {
            Some(span) => span.scope().enter(poll),
            None => poll(),
        };
        match &polled {
            Poll::Ready(Some(Ok(bytes))) => self.read += bytes.len() as u64,
            Poll::Ready(Some(Err(error))) => {
                let outcome = Err(crate::Error::new(error.kind(), ""));
                self.end(&outcome);
            }
            Poll::Ready(None) => self.end(&Ok(())),
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for SpannedStream {
    fn drop(&mut self) {
        // HTTP drops a body of known length after its last byte.
        if self.read >= self.length {
            self.end(&Ok(()));
        }
        if let Some(span) = self.span.take() {
            span.set("martlet.bytes", self.read);
            span.set("martlet.outcome", "dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::error::Error;
    use crate::trace::{
        FinishedSpan, SpanContext, SpanKind, SpanScope, SpanSink, SpanValue, current_trace,
    };

    #[derive(Default)]
    struct Kept(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for Kept {
        fn record(&self, span: FinishedSpan) {
            self.0.lock().push(span);
        }
    }

    fn spanned(items: Vec<Result<Bytes>>) -> (SpannedStream, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        let root = SpanScope::of_remote(SpanContext::new_root(), kept.clone());
        let bytes = futures::stream::iter(items).inspect(|_| {
            assert!(current_trace().is_some(), "the source is polled under the span");
        });
        (SpannedStream::new(bytes.boxed(), 5, root.child(SpanKind::Server, "read")), kept)
    }

    #[tokio::test]
    async fn the_span_of_a_stream_has_its_length_and_its_end() {
        let whole = || vec![Ok(Bytes::from_static(b"abc")), Ok(Bytes::from_static(b"de"))];
        let mut broken = whole();
        broken.push(Err(Error::corrupt("no")));
        for (items, taken, bytes, outcome) in [
            (whole(), usize::MAX, 5, "ok"),
            (broken, usize::MAX, 5, "corrupt"),
            (whole(), 1, 3, "dropped"),
            (whole(), 2, 5, "ok"),
        ] {
            let (stream, kept) = spanned(items);
            let _ = stream.take(taken).collect::<Vec<_>>().await;
            let spans = kept.0.lock();
            let expected = [
                ("martlet.bytes", SpanValue::Number(bytes)),
                ("martlet.outcome", SpanValue::Name(outcome)),
            ];
            assert_eq!((spans.len(), &spans[0].attributes[..]), (1, &expected[..]));
        }
    }
}
