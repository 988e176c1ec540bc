//! The current span of a task.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use parking_lot::Mutex;

use super::context::{SpanContext, TraceId};
use super::span::{NewSpan, Span, SpanKind, SpanNotes, SpanSink, SpanValue};
use crate::error::Result;

tokio::task_local! {
    static CURRENT: SpanScope;
}

/// A span as the parent of others: one of this process, or one of the sender of a request. Cheap to
/// clone.
#[derive(Clone)]
pub struct SpanScope {
    pub(super) context: SpanContext,
    pub(super) sink: Arc<dyn SpanSink>,
    /// Notes of a span of this process, until it ends.
    pub(super) notes: Option<Arc<Mutex<SpanNotes>>>,
}

/// Work that may run under a span of its own.
pub type ScopedWork<'a, T, F> = Either<F, BoxFuture<'a, Result<T>>>;

impl SpanScope {
    /// Returns the scope of a span in another process. Records of children go to `sink`.
    pub fn of_remote(context: SpanContext, sink: Arc<dyn SpanSink>) -> Self {
        Self { context, sink, notes: None }
    }

    /// Returns the place of the span.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Returns the current scope of this task.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Begins a child.
    pub fn child(&self, kind: SpanKind, name: &'static str) -> Span {
        let (context, parent) = (self.context.new_child(), Some(self.context.span));
        Span::begin(&NewSpan { context, parent, name, kind }, self.sink.clone())
    }

    /// Wraps a future so that its spans are children of this span.
    pub fn run<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// Runs `work` so that its spans are children of this span.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// Adds an attribute to the span, if it is one of this process that still runs.
    pub fn set(&self, name: &'static str, value: impl Into<SpanValue>) {
        if let Some(notes) = &self.notes {
            notes.lock().set(name, value.into());
        }
    }
}

impl fmt::Debug for SpanScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanScope").field("context", &self.context).finish_non_exhaustive()
    }
}

/// Begins a child of the current span. None if the task has no current span.
pub fn child(kind: SpanKind, name: &'static str) -> Option<Span> {
    CURRENT.try_with(|scope| scope.child(kind, name)).ok()
}

/// Wraps the work of a task that is about to be spawned, so that its spans are children of the
/// current span.
pub fn carried<'a, F>(work: F) -> Either<F, BoxFuture<'a, F::Output>>
where
    F: Future + Send + 'a,
    F::Output: Send + 'a,
{
    match SpanScope::current() {
        Some(scope) => Either::Right(scope.run(work).boxed()),
        None => Either::Left(work),
    }
}

/// Calls `note` with the current span, if there is one.
pub fn annotate(note: impl FnOnce(&SpanScope)) {
    // Without a current span there is nothing to note.
    let _ = CURRENT.try_with(note);
}

/// Returns the trace of the current span.
pub fn current_trace() -> Option<TraceId> {
    CURRENT.try_with(|scope| scope.context.trace).ok()
}

/// Runs `work` under a child of the current span, which `describe` completes. The child ends with
/// the work and has its outcome. Without a current span, the work runs as it is.
pub fn in_child<'a, T, F>(
    kind: SpanKind,
    name: &'static str,
    describe: impl FnOnce(&Span),
    work: F,
) -> ScopedWork<'a, T, F>
where
    F: Future<Output = Result<T>> + Send + 'a,
    T: Send + 'a,
{
    let Some(span) = child(kind, name) else { return Either::Left(work) };
    describe(&span);
    Either::Right(
        async move {
            let outcome = span.scope().clone().run(work).await;
            span.set_outcome(&outcome);
            outcome
        }
        .boxed(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::trace::FinishedSpan;

    #[derive(Default)]
    struct Kept(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for Kept {
        fn record(&self, span: FinishedSpan) {
            self.0.lock().push(span);
        }
    }

    fn root() -> (SpanScope, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        (SpanScope::of_remote(SpanContext::new_root(), kept.clone()), kept)
    }

    #[tokio::test]
    async fn children_are_made_without_knowledge_of_their_parent() {
        let (root, kept) = root();
        let parent = root.context();
        let work = async {
            tokio::task::yield_now().await;
            let inner = async {
                assert_eq!(current_trace(), Some(parent.trace));
                drop(child(SpanKind::Internal, "inner"));
                annotate(|scope| scope.set("seen", 1_u64));
                Err::<(), _>(Error::full("no room"))
            };
            in_child(SpanKind::Client, "outer", |span| span.set("of", "a"), inner).await
        };
        assert!(root.run(work).await.is_err());
        let spans = kept.0.lock();
        let [inner, outer] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((inner.name, outer.name), ("inner", "outer"));
        assert_eq!(outer.parent, Some(parent.span));
        assert_eq!(inner.parent, Some(outer.context.span));
        let expected = [
            ("of", SpanValue::Name("a")),
            ("seen", SpanValue::Number(1)),
            ("martlet.outcome", SpanValue::Name("full")),
        ];
        assert_eq!((&outer.attributes[..], outer.failed), (&expected[..], true));
        assert!(spans.iter().all(|span| span.context.trace == parent.trace));
    }

    #[tokio::test]
    async fn without_a_current_span_nothing_is_made() {
        assert!(SpanScope::current().is_none() && child(SpanKind::Internal, "x").is_none());
        assert_eq!(current_trace(), None);
        annotate(|_| panic!("there is no current span"));
        let describe = |_: &Span| panic!("there is no current span");
        let work = in_child(SpanKind::Client, "x", describe, async { Ok(7) });
        assert!(matches!(work, Either::Left(_)), "the work is as it was");
        assert_eq!(work.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn spawned_tasks_have_no_current_span_unless_it_is_given() {
        let (root, kept) = root();
        let given = root.clone();
        let spawned = root.run(async move {
            let without = tokio::spawn(async { current_trace() }).await.unwrap();
            let carried = tokio::spawn(carried(async { current_trace() })).await.unwrap();
            let entered = std::thread::spawn(move || given.enter(current_trace)).join().unwrap();
            (without, carried, entered)
        });
        let (without, carried, entered) = spawned.await;
        assert!(without.is_none() && carried.is_some() && entered == carried);
        assert!(kept.0.lock().is_empty(), "a scope of another process records no span");
    }
}
