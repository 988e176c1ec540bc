//! Trace of the client's request that an internal request is made for.
//!
//! ```text
//! x-martlet-trace: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//! ```
//!
//! The value has the form of W3C's `traceparent`. The header has a name of its own, so that the
//! signature of the request covers it. It is sent for sampled requests only. A node without traces,
//! and one of an earlier release, passes over it.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::trace::{ParsedParent, SpanScope, SpanSink};

/// Header with the span that an internal request belongs to.
const TRACE: HeaderName = HeaderName::from_static("x-martlet-trace");

/// Returns the text of the current span, if there is one.
pub(super) fn current_parent() -> Option<String> {
    SpanScope::current().map(|scope| scope.context().to_parent())
}

/// Adds the current span to the headers of a request, if there is one.
pub(super) fn put_on(headers: &mut HeaderMap) {
    if let Some(parent) = current_parent() {
        let value = HeaderValue::try_from(parent).expect("hexadecimal digits are a header");
        headers.insert(TRACE, value);
    }
}

/// Returns the scope of the sender's span. None if its request isn't sampled.
pub fn scope_of_headers(headers: &HeaderMap, sink: &Arc<dyn SpanSink>) -> Option<SpanScope> {
    scope_of(headers.get(TRACE)?.as_bytes(), sink)
}

/// Returns the scope of a span by its text.
pub(super) fn scope_of(parent: &[u8], sink: &Arc<dyn SpanSink>) -> Option<SpanScope> {
    let parent = ParsedParent::parse(parent).filter(|parent| parent.sampled)?;
    Some(SpanScope::of_remote(parent.context, sink.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{FinishedSpan, SpanContext};

    struct Dropped;

    impl SpanSink for Dropped {
        fn record(&self, _: FinishedSpan) {}
    }

    #[test]
    fn a_span_travels_in_a_header_and_only_if_there_is_one() {
        let sink: Arc<dyn SpanSink> = Arc::new(Dropped);
        let mut headers = HeaderMap::new();
        put_on(&mut headers);
        assert!(headers.is_empty() && scope_of_headers(&headers, &sink).is_none());
        let context = SpanContext::new_root();
        SpanScope::of_remote(context, sink.clone()).enter(|| put_on(&mut headers));
        assert_eq!(scope_of_headers(&headers, &sink).unwrap().context(), context);
        for malformed in ["", "01", &context.to_parent().replace("-01", "-00")] {
            assert!(scope_of(malformed.as_bytes(), &sink).is_none(), "{malformed}");
        }
    }
}
