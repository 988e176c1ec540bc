//! A span that runs, and the record of one that has ended.
//!
//! Invariant: each span reaches its sink exactly once, when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::{SpanContext, SpanId};
use super::scope::SpanScope;
use crate::clock::unix_time;
use crate::error::{ErrorKind, Result};

/// Most attributes of a span; further ones are left out.
pub const ATTRIBUTES_MAX: usize = 24;
/// Longest text of an attribute in bytes; longer texts are cut.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A part of the work within a process.
    Internal,
    /// A request that the process serves.
    Server,
    /// A request that the process sends.
    Client,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// Text of the program.
    Name(&'static str),
    /// Any other text.
    Text(String),
    /// Number.
    Number(i64),
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// Place of the span.
    pub context: SpanContext,
    /// Id of its parent; none for the first span of a trace.
    pub parent: Option<SpanId>,
    /// Name; spans of one kind of work share it.
    pub name: &'static str,
    /// Side of the call.
    pub kind: SpanKind,
    /// Begin, as time since 1970.
    pub begin: Duration,
    /// Time from begin to end.
    pub took: Duration,
    /// Attributes, in the order in which they were set.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// True if the work failed for a reason that needs attention.
    pub failed: bool,
}

/// Receiver of spans that have ended. It is called by the work itself, and must neither wait nor
/// call back.
pub trait SpanSink: Send + Sync {
    /// Takes a span, or drops it.
    fn record(&self, span: FinishedSpan);
}

/// Description of a span that begins.
pub struct NewSpan {
    /// Place of the span.
    pub context: SpanContext,
    /// Id of its parent.
    pub parent: Option<SpanId>,
    /// Name.
    pub name: &'static str,
    /// Side of the call.
    pub kind: SpanKind,
}

/// A span that runs. It ends when it is dropped.
pub struct Span {
    scope: SpanScope,
    parent: Option<SpanId>,
    name: &'static str,
    kind: SpanKind,
    begin: Duration,
    began: Instant,
}

/// Parts of a span that change while it runs. The scopes of the span share them.
#[derive(Default)]
pub(super) struct SpanNotes {
    name: Option<&'static str>,
    attributes: Vec<(&'static str, SpanValue)>,
    failed: bool,
}

impl Span {
    /// Begins a span, whose record goes to `sink`.
    pub fn begin(new: &NewSpan, sink: Arc<dyn SpanSink>) -> Self {
        let notes = Arc::new(Mutex::default());
        Self {
            scope: SpanScope { context: new.context, sink, notes: Some(notes) },
            parent: new.parent,
            name: new.name,
            kind: new.kind,
            begin: unix_time(),
            began: Instant::now(),
        }
    }

    /// Returns the scope in which the children of the span are made.
    pub fn scope(&self) -> &SpanScope {
        &self.scope
    }

    /// Adds an attribute. Texts are cut to [`TEXT_BYTES_MAX`].
    pub fn set(&self, name: &'static str, value: impl Into<SpanValue>) {
        self.scope.set(name, value);
    }

    /// Sets the name.
    pub fn rename(&self, name: &'static str) {
        if let Some(notes) = &self.scope.notes {
            notes.lock().name = Some(name);
        }
    }

    /// Marks the work as failed.
    pub fn fail(&self) {
        if let Some(notes) = &self.scope.notes {
            notes.lock().failed = true;
        }
    }

    /// Notes the outcome of a call of a backend. Absent entries and lost races are no failures.
    pub fn set_outcome<T>(&self, outcome: &Result<T>) {
        let Err(error) = outcome else { return self.set("martlet.outcome", "ok") };
        let kind = error.kind();
        self.set("martlet.outcome", outcome_name(kind));
        if !matches!(kind, ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Invalid) {
            self.fail();
        }
    }
}

impl SpanNotes {
    pub(super) fn set(&mut self, name: &'static str, value: SpanValue) {
        if self.attributes.len() < ATTRIBUTES_MAX {
            self.attributes.push((name, value.cut()));
        }
    }
}

/// Name of an error's kind in an attribute.
fn outcome_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "not_found",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Full => "full",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Internal => "internal",
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let notes = self.scope.notes.take();
        let SpanNotes { name, attributes, failed } =
            notes.map(|notes| std::mem::take(&mut *notes.lock())).unwrap_or_default();
        self.scope.sink.record(FinishedSpan {
            context: self.scope.context,
            parent: self.parent,
            name: name.unwrap_or(self.name),
            kind: self.kind,
            begin: self.begin,
            took: self.began.elapsed(),
            attributes,
            failed,
        });
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span")
            .field("name", &self.name)
            .field("context", &self.scope.context)
            .finish_non_exhaustive()
    }
}

impl SpanValue {
    /// Cuts a text at the last whole character within the limit.
    fn cut(self) -> Self {
        match self {
            Self::Text(mut text) if text.len() > TEXT_BYTES_MAX => {
                text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
                // Spans wait, and a client chooses some texts.
                text.shrink_to_fit();
                Self::Text(text)
            }
            other => other,
        }
    }
}

impl From<&'static str> for SpanValue {
    fn from(name: &'static str) -> Self {
        Self::Name(name)
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for SpanValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for SpanValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[derive(Default)]
    struct Kept(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for Kept {
        fn record(&self, span: FinishedSpan) {
            self.0.lock().push(span);
        }
    }

    fn begin(sink: &Arc<Kept>) -> Span {
        let context = SpanContext::new_root();
        let new = NewSpan { context, parent: None, name: "work", kind: SpanKind::Internal };
        Span::begin(&new, sink.clone())
    }

    #[test]
    fn a_span_is_recorded_once_when_it_is_dropped() {
        let kept = Arc::new(Kept::default());
        let span = begin(&kept);
        span.set("size", 7_u64);
        span.rename("other work");
        let outlives = span.scope().clone();
        assert!(kept.0.lock().is_empty());
        drop(span);
        outlives.set("late", 1_u64);
        drop(outlives);
        let [span]: [FinishedSpan; 1] = std::mem::take(&mut *kept.0.lock()).try_into().unwrap();
        assert_eq!((span.name, span.failed), ("other work", false));
        assert_eq!(span.attributes, [("size", SpanValue::Number(7))]);
        assert!(span.begin > Duration::from_secs(1_600_000_000), "{:?}", span.begin);
    }

    #[test]
    fn attributes_are_bounded() {
        let kept = Arc::new(Kept::default());
        let span = begin(&kept);
        span.set("key", "é".repeat(TEXT_BYTES_MAX));
        for _ in 0..2 * ATTRIBUTES_MAX {
            span.set("n", u64::MAX);
        }
        drop(span);
        let attributes = kept.0.lock()[0].attributes.clone();
        assert_eq!(attributes.len(), ATTRIBUTES_MAX);
        let SpanValue::Text(text) = &attributes[0].1 else { panic!("{:?}", attributes[0]) };
        assert!(text.len() <= TEXT_BYTES_MAX && text.ends_with('é'));
        assert_eq!(attributes[1].1, SpanValue::Number(i64::MAX));
    }

    #[test]
    fn absent_entries_are_no_failures() {
        for (error, outcome, failed) in [
            (None, "ok", false),
            (Some(Error::not_found("no")), "not_found", false),
            (Some(Error::unavailable("no")), "unavailable", true),
            (Some(Error::internal("no")), "internal", true),
        ] {
            let kept = Arc::new(Kept::default());
            let span = begin(&kept);
            span.set_outcome(&error.map_or(Ok(()), Err));
            drop(span);
            let span = kept.0.lock()[0].clone();
            assert_eq!(span.attributes, [("martlet.outcome", SpanValue::Name(outcome))]);
            assert_eq!(span.failed, failed, "{outcome}");
        }
    }
}
