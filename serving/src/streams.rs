//! Requests of one HTTP/2 connection: running, or waiting for the client since a known time.
//!
//! HTTP/1.1 has one request at a time, and a client that stops reading blocks the socket. On HTTP/2
//! a client can keep one stream's window shut and hold a reply for ever, while other streams
//! continue. A connection without requests occupies a place.
//! [`Streams::wait_until_idle_or_stalled`] detects both.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// Requests of a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Streams(Arc<Mutex<StreamsState>>);

struct StreamsState {
    turns: Vec<AwaitedSide>,
    /// Time of the last request's end; `None` while requests are under way.
    idle_since: Option<Instant>,
}

/// Side that a request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AwaitedSide {
    /// The slot is free.
    Nobody,
    /// The server prepares the reply.
    Server,
    /// The client has yet to read the reply.
    Client { since: Instant },
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// No request for the idle timeout.
    Idle,
    /// A reply was not read within the timeout.
    Stalled,
}

/// One request, until its reply is sent or dropped.
pub(super) struct Stream {
    streams: Streams,
    at: usize,
}

impl Streams {
    pub(super) fn new() -> Self {
        let state = StreamsState { turns: Vec::new(), idle_since: Some(Instant::now()) };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Adds a request.
    pub(super) fn begin(&self) -> Stream {
        let mut state = self.0.lock();
        state.idle_since = None;
        let free = state.turns.iter().position(|turn| *turn == AwaitedSide::Nobody);
        let at = free.unwrap_or_else(|| {
            state.turns.push(AwaitedSide::Nobody);
            state.turns.len() - 1
        });
        state.turns[at] = AwaitedSide::Server;
        Stream { streams: self.clone(), at }
    }

    /// Waits until no request has been under way for `idle`, or a reply has not been read for
    /// `stall`. A `stall` of zero means no limit.
    pub(super) async fn wait_until_idle_or_stalled(
        &self,
        idle: Duration,
        stall: Duration,
    ) -> CloseReason {
        let longest = if stall.is_zero() { idle } else { idle.min(stall) };
        loop {
            sleep((longest / 4).max(Duration::from_millis(10))).await;
            let state = self.0.lock();
            if state.idle_since.is_some_and(|since| since.elapsed() >= idle) {
                return CloseReason::Idle;
            }
            let is_left = |turn: &AwaitedSide| matches!(turn, AwaitedSide::Client { since } if since.elapsed() >= stall);
            if !stall.is_zero() && state.turns.iter().any(is_left) {
                return CloseReason::Stalled;
            }
        }
    }
}

impl Stream {
    fn is_now(&self, turn: AwaitedSide) {
        self.streams.0.lock().turns[self.at] = turn;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.streams.0.lock();
        state.turns[self.at] = AwaitedSide::Nobody;
        if state.turns.iter().all(|turn| *turn == AwaitedSide::Nobody) {
            state.turns.clear();
            state.idle_since = Some(Instant::now());
        }
    }
}

/// Response body that records whether server or client is waited for.
pub(super) struct TrackedBody<B> {
    pub(super) body: B,
    pub(super) stream: Stream,
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.stream.is_now(AwaitedSide::Server);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.stream.is_now(AwaitedSide::Client { since: Instant::now() });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    const IDLE: Duration = Duration::from_mins(1);
    const STALL: Duration = Duration::from_secs(20);

    fn reply(streams: &Streams) -> TrackedBody<Full<Bytes>> {
        TrackedBody { body: Full::new(Bytes::from_static(b"bytes")), stream: streams.begin() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_is_spent_after_a_while() {
        let (streams, begun) = (Streams::new(), Instant::now());
        let one = streams.begin();
        let other = streams.begin();
        tokio::spawn(async move {
            sleep(IDLE).await;
            drop(one);
            sleep(IDLE).await;
            drop(other);
        });
        assert_eq!(streams.wait_until_idle_or_stalled(IDLE, STALL).await, CloseReason::Idle);
        assert!(begun.elapsed() >= 3 * IDLE, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_reply_stalls_its_client_and_a_slow_server_does_not() {
        let (streams, begun) = (Streams::new(), Instant::now());
        // This reply has not been polled yet, so it waits for the server.
        let (slow, mut left, mut taken) = (reply(&streams), reply(&streams), reply(&streams));
        sleep(10 * STALL).await;
        assert!(taken.frame().await.unwrap().is_ok());
        drop(taken);
        assert!(left.frame().await.unwrap().is_ok());
        assert_eq!(streams.wait_until_idle_or_stalled(IDLE, STALL).await, CloseReason::Stalled);
        assert!(begun.elapsed() >= 11 * STALL);
        drop((slow, left));
        assert_eq!(
            streams.wait_until_idle_or_stalled(IDLE, Duration::ZERO).await,
            CloseReason::Idle
        );
    }
}
