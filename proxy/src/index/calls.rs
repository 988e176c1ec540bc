//! Concurrent calls to devices, each with a time limit.
//!
//! Most calls end long before their limits. So calls that are awaited together share one timer,
//! which is set anew only if their next deadline changes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::{Backend, DeviceId, Error, Result};
use martlet_topology::Cluster;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::replica_set::Role;

/// A call to a device that ends at its time limit. Awaited alone, or pushed to [`Calls`].
pub(crate) struct TimedCall<T> {
    device: DeviceId,
    most: Duration,
    reply: BoxFuture<'static, Result<T>>,
}

/// Makes a call to a device that takes at most this time.
pub(crate) fn call_in_time<T, F>(
    cluster: &Cluster,
    device: DeviceId,
    most: Duration,
    call: impl FnOnce(Arc<dyn Backend>) -> F + Send + 'static,
) -> TimedCall<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send,
{
    let node = cluster.node(device).cloned();
    let reply = Box::pin(async move { call(node?).await });
    TimedCall { device, most, reply }
}

impl<T: Send + 'static> IntoFuture for TimedCall<T> {
    type Output = Result<T>;
    type IntoFuture = BoxFuture<'static, Result<T>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { device, most, reply } = self;
        Box::pin(async move { timeout(most, reply).await.unwrap_or_else(|_| Err(silent(device))) })
    }
}

fn silent(device: DeviceId) -> Error {
    Error::unavailable(format!("device {device} does not answer"))
}

/// No reply came by the deadline.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Concurrent calls. After a drop, the remaining ones go on in the background: a write reaches its
/// slow replica, and no connection breaks in the middle of a reply.
pub(crate) struct Calls<T: Send + 'static> {
    under_way: CallsUnderWay<T>,
    waiting: Vec<DeviceId>,
}

impl<T: Send + 'static> Calls<T> {
    pub(crate) fn new() -> Self {
        Self { under_way: CallsUnderWay::new(), waiting: Vec::new() }
    }

    /// Adds a call, whose time begins now.
    pub(crate) fn push(&mut self, device: DeviceId, role: Role, call: TimedCall<T>) {
        let limit = Instant::now() + call.most;
        self.waiting.push(device);
        self.under_way.push(CallUnderWay { device, role, limit, reply: call.reply });
    }

    /// Devices that have not replied, once for each call.
    pub(crate) fn waiting(&self) -> &[DeviceId] {
        &self.waiting
    }

    /// The next reply; none without pending calls.
    ///
    /// # Errors
    /// [`Elapsed`] at the deadline.
    pub(crate) async fn next(&mut self, deadline: Instant) -> NextReply<T> {
        let reply = self.under_way.next(deadline).await?;
        if let Some((device, ..)) = &reply
            && let Some(at) = self.waiting.iter().position(|waiting| waiting == device)
        {
            self.waiting.swap_remove(at);
        }
        Ok(reply)
    }
}

impl<T: Send + 'static> Drop for Calls<T> {
    fn drop(&mut self) {
        let limits = self.under_way.calls.iter().map(|call| call.limit);
        let Some(last_limit) = limits.max() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut rest = std::mem::replace(&mut self.under_way, CallsUnderWay::new());
            runtime.spawn(async move { while let Ok(Some(_)) = rest.next(last_limit).await {} });
        }
    }
}

/// A reply with its device and role.
type CallReply<T> = (DeviceId, Role, Result<T>);

/// The next reply of some calls; none without pending calls.
pub(super) type NextReply<T> = Result<Option<CallReply<T>>, Elapsed>;

/// A call that has not replied.
struct CallUnderWay<T> {
    device: DeviceId,
    role: Role,
    limit: Instant,
    reply: BoxFuture<'static, Result<T>>,
}

impl<T> Future for CallUnderWay<T> {
    type Output = CallReply<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallReply<T>> {
        let (device, role) = (self.device, self.role);
        self.reply.poll_unpin(context).map(|reply| (device, role, reply))
    }
}

/// Calls that have not replied, with the timer of them all.
struct CallsUnderWay<T> {
    calls: FuturesUnordered<CallUnderWay<T>>,
    /// No call has an earlier limit.
    next_limit: Option<Instant>,
    /// Begun when a caller first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<T: Send + 'static> CallsUnderWay<T> {
    fn new() -> Self {
        Self { calls: FuturesUnordered::new(), next_limit: None, timer: None }
    }

    fn push(&mut self, call: CallUnderWay<T>) {
        self.next_limit = Some(self.next_limit.map_or(call.limit, |next| next.min(call.limit)));
        self.calls.push(call);
    }

    async fn next(&mut self, deadline: Instant) -> NextReply<T> {
        future::poll_fn(|context| self.poll_next(deadline, context)).await
    }

    /// Polls the calls, then the timer: a reply that is there counts, however late it is.
    fn poll_next(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<NextReply<T>> {
        loop {
            if let Poll::Ready(reply) = self.calls.poll_next_unpin(context) {
                return Poll::Ready(Ok(reply));
            }
            let until = self.next_limit.map_or(deadline, |limit| limit.min(deadline));
            ready!(self.poll_timer(until, context));
            if self.next_limit != Some(until) {
                return Poll::Ready(Err(Elapsed));
            }
            self.end_late_calls(until);
        }
    }

    fn poll_timer(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        // Calls that use up the budget of their task don't outlast the timer.
        unconstrained(timer.as_mut()).poll_unpin(context)
    }

    /// Drops the calls whose limit has come. Each replies with an error instead.
    fn end_late_calls(&mut self, now: Instant) {
        let calls = std::mem::take(&mut self.calls);
        self.next_limit = None;
        for mut call in calls {
            if call.limit > now {
                self.push(call);
            } else {
                call.reply = future::ready(Err(silent(call.device))).boxed();
                self.calls.push(call);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = ms(100);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Calls with the time at which they began.
    struct Began {
        calls: Calls<u32>,
        at: Instant,
    }

    impl Began {
        fn new() -> Self {
            Self { calls: Calls::new(), at: Instant::now() }
        }

        fn push(
            &mut self,
            device: u32,
            most: Duration,
            reply: impl Future<Output = Result<u32>> + Send + 'static,
        ) {
            let device = DeviceId(device);
            let call = TimedCall { device, most, reply: reply.boxed() };
            self.calls.push(device, Role::Member, call);
        }

        /// Waits for the next reply, until this time after the beginning. Returns the reply's time
        /// and device, and true unless it is an error.
        async fn next(
            &mut self,
            until: Duration,
        ) -> Result<Option<(Duration, u32, bool)>, Elapsed> {
            let reply = self.calls.next(self.at + until).await?;
            Ok(reply.map(|(device, _, reply)| (self.at.elapsed(), device.0, reply.is_ok())))
        }
    }

    async fn after(time: Duration) -> Result<u32> {
        sleep(time).await;
        Ok(7)
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_ends_at_its_own_limit() {
        let mut began = Began::new();
        began.push(1, LIMIT, pending());
        began.push(2, 3 * LIMIT, pending());
        began.push(3, LIMIT, after(ms(50)));
        began.push(4, LIMIT, after(2 * LIMIT));
        let far = 10 * LIMIT;
        assert_eq!(began.next(far).await.unwrap(), Some((ms(50), 3, true)));
        let mut late = [began.next(far).await.unwrap(), began.next(far).await.unwrap()];
        late.sort_unstable();
        assert_eq!(late, [Some((LIMIT, 1, false)), Some((LIMIT, 4, false))]);
        assert_eq!(began.calls.waiting(), [DeviceId(2)]);
        assert_eq!(began.next(far).await.unwrap(), Some((3 * LIMIT, 2, false)));
        assert_eq!(began.next(far).await.unwrap(), None);
        assert!(began.calls.waiting().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_no_call_and_later_calls_have_later_limits() {
        let mut began = Began::new();
        began.push(1, LIMIT, pending());
        began.push(2, LIMIT, after(ms(70)));
        assert!(began.next(ms(30)).await.is_err());
        assert!(began.next(ms(60)).await.is_err());
        assert_eq!(began.at.elapsed(), ms(60));
        began.push(3, LIMIT, pending());
        let far = 10 * LIMIT;
        for expected in [(ms(70), 2, true), (LIMIT, 1, false), (ms(60) + LIMIT, 3, false)] {
            assert_eq!(began.next(far).await.unwrap(), Some(expected));
        }
        // The limit of a call that has replied ends no other call.
        began.push(4, LIMIT, after(ms(10)));
        assert!(
            began.next(far).await.unwrap().is_some_and(|(_, device, is_ok)| device == 4 && is_ok)
        );
        sleep(2 * LIMIT).await;
        began.push(5, LIMIT, after(ms(90)));
        assert!(
            began.next(far).await.unwrap().is_some_and(|(_, device, is_ok)| device == 5 && is_ok)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn calls_left_behind_go_on_until_their_limits() {
        let mut began = Began::new();
        let (done, held) = (Arc::new(()), Arc::new(()));
        let (end, keep) = (done.clone(), held.clone());
        began.push(1, LIMIT, async move {
            let reply = after(ms(50)).await;
            drop(end);
            reply
        });
        began.push(2, 2 * LIMIT, async move {
            let reply = pending().await;
            drop(keep);
            reply
        });
        assert!(began.next(ms(10)).await.is_err());
        drop(began);
        let counts = || (Arc::strong_count(&done), Arc::strong_count(&held));
        assert_eq!(counts(), (2, 2));
        sleep(ms(45)).await;
        assert_eq!(counts(), (1, 2), "the first has ended");
        sleep(ms(140)).await;
        assert_eq!(counts(), (1, 2), "the second has 5 ms left");
        sleep(ms(10)).await;
        assert_eq!(counts(), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_awaited_alone_ends_at_its_limit() {
        let began = Instant::now();
        let call =
            TimedCall { device: DeviceId(3), most: LIMIT, reply: pending::<Result<u32>>().boxed() };
        assert_eq!(call.await.unwrap_err().to_string(), "device d3 does not answer");
        assert_eq!(began.elapsed(), LIMIT);
    }
}
