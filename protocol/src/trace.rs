//! Spans of sampled requests: the parts of a request's time, in all processes that worked for it.
//!
//! ```text
//! S3 request (proxy) ─┬─ call of a node (proxy) ── served call (node) ─┬─ wait for a thread
//!                     └─ call of a node …                              └─ call of the disk, …
//! ```
//!
//! * [`context`]: ids of a trace and of a span, and their text in `traceparent`.
//! * [`span`]: a span that runs, and the record of one that has ended.
//! * [`scope`]: the current span of a task. Its children are made without knowledge of the parent.
//! * [`stream`]: spans of streams.
//!
//! Only sampled requests have a scope. Without a scope, [`child`] costs one look at a task-local
//! variable, and no span is made. Spawned tasks and other threads don't inherit the scope.
//!
//! The crate records spans, and knows neither their sampling nor their export: see
//! `martlet-serving`'s traces.

pub mod context;
pub mod scope;
pub mod span;
pub mod stream;

pub use context::{ParsedParent, SpanContext, SpanId, TraceId};
pub use scope::{ScopedWork, SpanScope, annotate, carried, child, current_trace, in_child};
pub use span::{FinishedSpan, NewSpan, Span, SpanKind, SpanSink, SpanValue};
pub use stream::SpannedStream;
