//! Threads of a device. Calls that may wait for its disk run on these threads, so that a disk that
//! hangs occupies no thread of another device.
//!
//! Threads start on demand, and end after 10 s without work. The thread that worked last is woken
//! first, so that surplus threads end, and their memory with them. No call waits for another call of
//! its pool.
//!
//! Invariant: for each queued call a thread wakes or starts, or all threads run calls.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::trace::{Span, SpanKind, SpanScope};
use martlet_protocol::{Error, Result};
use tokio::sync::oneshot;

use super::pulse::{DevicePart, Pulse};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// Maximum number of threads of a device: enough to fill any disk's queue.
pub(crate) const THREADS_MAX: usize = if cfg!(feature = "interleavings") { 2 } else { 32 };
/// Maximum number of calls that wait for a thread. This also bounds the memory of waiting calls.
pub(crate) const QUEUED_MAX: usize = if cfg!(feature = "interleavings") { 2 } else { 1024 };
/// Idle time after which a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type PoolTask = Box<dyn FnOnce() + Send>;

/// Thread pool of one device. After a drop, the threads finish the queued calls and end.
pub(crate) struct Pool(Arc<PoolInner>);

struct PoolInner {
    /// Name of the device, for threads and messages.
    name: String,
    pulse: Arc<Pulse>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<PoolTask>,
    threads: usize,
    /// Threads without work, in the order in which they ended their calls.
    idle: Vec<Arc<Condvar>>,
    /// Threads that were woken or started, and have not looked into the queue.
    waking: usize,
    closed: bool,
}

/// A call that runs or is queued.
pub(crate) struct PooledCall<T>(oneshot::Receiver<Result<T>>);

impl<T> PooledCall<T> {
    /// Waits for the end of the call, without limit.
    pub(crate) async fn outcome(self) -> Result<T> {
        self.0.await.unwrap_or_else(|_| Err(Error::internal("a blocking call panicked")))
    }
}

impl Pool {
    /// Creates the pool of a device that messages call `name`. The device is suspect once no call
    /// has ended for `stall_after`.
    pub(crate) fn new(name: String, stall_after: Duration) -> Self {
        let pulse = Arc::new(Pulse::new(name.clone(), stall_after));
        Self(Arc::new(PoolInner { name, pulse, state: Mutex::default() }))
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the pulse of the device.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.0.pulse
    }

    /// Runs a call that may wait for the disk. Returns `Unavailable` at once if too many calls wait
    /// or all threads hang. Returns `Unavailable` later if the device begins to hang; the call then
    /// goes on.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.wait(self.start(work)).await
    }

    /// Waits for a call. Returns `Unavailable` if the device hangs.
    pub(crate) async fn wait<T>(&self, call: PooledCall<T>) -> Result<T> {
        self.0.pulse.wait(call.outcome()).await?
    }

    /// Starts a call like [`Pool::run`] does, without waiting for its end. A queued call whose
    /// caller has gone does not begin.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> PooledCall<T> {
        let (reply, outcome) = oneshot::channel();
        let spans = CallSpans::begin();
        let mut state = self.0.state.lock();
        if let Err(refusal) = self.0.admit(&state) {
            drop(state);
            // `outcome` receives the refusal.
            let _ = reply.send(Err(refusal));
            return PooledCall(outcome);
        }
        state.queue.push_back(Box::new(move || {
            if !reply.is_closed() {
                // The caller may have gone.
                let _ = reply.send(CallSpans::run(spans, work));
            }
        }));
        let refused = PoolInner::staff(&self.0, &mut state);
        drop(state);
        drop(refused);
        PooledCall(outcome)
    }

    /// Runs a call that no caller waits for. If too many calls wait, or all threads hang, the call
    /// does not run.
    pub(crate) fn run_detached(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if let Err(refusal) = self.0.admit(&state) {
            drop(state);
            tracing::warn!(error = %refusal, "left out a call on a device");
            return;
        }
        state.queue.push_back(Box::new(work));
        let refused = PoolInner::staff(&self.0, &mut state);
        drop(state);
        drop(refused);
    }
}

/// Spans of a call of a sampled request: its wait for a thread, and then its run.
struct CallSpans {
    scope: SpanScope,
    waits: Span,
}

impl CallSpans {
    fn begin() -> Option<Self> {
        let scope = SpanScope::current()?;
        let waits = scope.child(SpanKind::Internal, "wait for a thread");
        Some(Self { scope, waits })
    }

    fn run<T>(spans: Option<Self>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(Self { scope, waits }) = spans else { return work() };
        drop(waits);
        let span = scope.child(SpanKind::Internal, "call of the disk");
        let outcome = span.scope().enter(work);
        span.set_outcome(&outcome);
        outcome
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        for thread in &state.idle {
            thread.notify_one();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.name).finish()
    }
}

impl PoolInner {
    fn admit(&self, state: &PoolState) -> Result<()> {
        if state.queue.len() >= QUEUED_MAX {
            let name = &self.name;
            return Err(Error::unavailable(format!("too many calls wait for device {name}")));
        }
        let busy = state.threads >= THREADS_MAX && state.idle.is_empty();
        if busy { self.pulse.check(DevicePart::Calls) } else { Ok(()) }
    }

    /// Ensures that a thread takes the last queued call; returns the call if no thread can run it.
    fn staff(inner: &Arc<Self>, state: &mut PoolState) -> Option<PoolTask> {
        if state.waking >= state.queue.len() {
            return None;
        }
        if let Some(thread) = state.idle.pop() {
            state.waking += 1;
            thread.notify_one();
            return None;
        }
        if state.threads >= THREADS_MAX {
            return None;
        }
        let own = inner.clone();
        let thread = thread::Builder::new().name(format!("disk-{}", inner.name));
        match thread.spawn(move || own.work()) {
            Ok(_) => {
                state.threads += 1;
                state.waking += 1;
                None
            }
            // The existing threads run the call later.
            Err(_) if state.threads > 0 => None,
            Err(error) => {
                tracing::error!(device = inner.name, %error, "could not start a thread for disk \
                                                              calls");
                state.queue.pop_back()
            }
        }
    }

    fn work(&self) {
        let woken = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        state.waking -= 1;
        loop {
            if let Some(job) = state.queue.pop_front() {
                MutexGuard::unlocked(&mut state, || {
                    let _beat = self.pulse.begin(DevicePart::Calls);
                    // The caller of a call that panics receives the error that the call ended
                    // early.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                });
                continue;
            }
            if state.closed {
                break;
            }
            state.idle.push(woken.clone());
            let late = woken.wait_for(&mut state, IDLE_MAX).timed_out();
            match state.idle.iter().position(|idle| Arc::ptr_eq(idle, &woken)) {
                // A caller has chosen this thread, even if its time was up.
                None => state.waking -= 1,
                Some(at) => {
                    state.idle.remove(at);
                    if late && state.queue.is_empty() {
                        break;
                    }
                }
            }
        }
        state.threads -= 1;
    }
}

#[cfg(all(test, feature = "interleavings"))]
mod interleavings;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::sync::mpsc::{Sender, channel};

    use futures::FutureExt;
    use martlet_protocol::ErrorKind;
    use martlet_protocol::trace::{self, FinishedSpan, SpanContext, SpanSink};

    use super::super::pulse::STALL_AFTER;
    use super::*;

    fn pool(stall_after: Duration) -> Pool {
        Pool::new("d1".to_owned(), stall_after)
    }

    /// Starts calls that hang until the returned senders are dropped.
    fn hang(pool: &Pool, calls: usize) -> (Vec<PooledCall<()>>, Vec<Sender<()>>) {
        let hung = (0..calls).map(|_| {
            let (release, released) = channel::<()>();
            let call = pool.start(move || {
                let _ = released.recv();
                Ok(())
            });
            (call, release)
        });
        hung.unzip()
    }

    #[tokio::test]
    async fn threads_and_calls_that_wait_are_bounded() {
        let pool = pool(STALL_AFTER);
        let (mut calls, mut releases) = hang(&pool, THREADS_MAX);
        while !pool.0.state.lock().queue.is_empty() {
            tokio::task::yield_now().await;
        }
        let (waiting, more) = hang(&pool, QUEUED_MAX);
        calls.extend(waiting);
        releases.extend(more);
        assert_eq!(pool.0.state.lock().threads, THREADS_MAX);
        let error = pool.run(|| Ok(())).now_or_never().expect("it is refused at once").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        drop(releases);
        for call in calls {
            call.outcome().await.unwrap();
        }
        pool.run(|| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn nothing_waits_for_threads_that_hang() {
        let pool = pool(Duration::from_millis(20));
        let (calls, releases) = hang(&pool, THREADS_MAX);
        while pool.0.pulse.check(DevicePart::Calls).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let error = pool.run(|| Ok(())).now_or_never().expect("it is refused at once").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        drop(releases);
        for call in calls {
            call.outcome().await.unwrap();
        }
        pool.run(|| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn a_cancelled_call_does_not_begin() {
        let pool = pool(STALL_AFTER);
        let (calls, releases) = hang(&pool, THREADS_MAX);
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = |begun: &Arc<AtomicUsize>| {
            let begun = begun.clone();
            move || Ok(begun.fetch_add(1, Ordering::Relaxed))
        };
        drop(pool.start(counted(&begun)));
        let kept = pool.start(counted(&begun));
        drop((calls, releases));
        assert_eq!(kept.outcome().await.unwrap(), 0, "it is the first that began");
    }

    #[tokio::test]
    async fn a_call_of_a_sampled_request_has_a_span_for_its_wait_and_one_for_its_run() {
        #[derive(Default)]
        struct Names(Mutex<Vec<(&'static str, bool)>>);
        impl SpanSink for Names {
            fn record(&self, span: FinishedSpan) {
                self.0.lock().push((span.name, span.failed));
            }
        }
        let (pool, names) = (pool(STALL_AFTER), Arc::new(Names::default()));
        let scope = SpanScope::of_remote(SpanContext::new_root(), names.clone());
        let inner = || {
            drop(trace::child(SpanKind::Internal, "sync"));
            Err::<(), _>(Error::internal("the disk failed"))
        };
        assert!(scope.run(pool.run(inner)).await.is_err());
        let expected = [("wait for a thread", false), ("sync", false), ("call of the disk", true)];
        assert_eq!(*names.0.lock(), expected);
        pool.run(|| Ok(())).await.unwrap();
        assert_eq!(names.0.lock().len(), expected.len(), "other calls have no spans");
    }

    #[tokio::test]
    async fn the_thread_that_worked_last_is_woken_first() {
        let pool = pool(STALL_AFTER);
        let (calls, releases) = hang(&pool, 3);
        drop(releases);
        for call in calls {
            call.outcome().await.unwrap();
        }
        let mut threads = std::collections::HashSet::new();
        for _ in 0..10 {
            while pool.0.state.lock().idle.len() < 3 {
                tokio::task::yield_now().await;
            }
            threads.insert(pool.run(|| Ok(thread::current().id())).await.unwrap());
        }
        assert_eq!(threads.len(), 1, "surplus threads would never end");
    }

    #[tokio::test]
    async fn a_panicking_call_ends_no_thread() {
        let pool = pool(STALL_AFTER);
        for _ in 0..2 * THREADS_MAX {
            let call = pool.run(|| -> Result<()> { panic!("this call was to panic") });
            assert_eq!(call.await.unwrap_err().kind(), ErrorKind::Internal);
        }
        pool.run(|| Ok(())).await.unwrap();
        assert!(pool.0.state.lock().threads <= THREADS_MAX);
    }
}
