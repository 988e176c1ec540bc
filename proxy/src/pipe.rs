//! A pipe of bytes from a body to a device: bounded, and able to begin again from its start for as
//! long as little has flowed, so that a device which refuses an extent can be replaced by the next.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::Stream;
use futures::future::poll_fn;
use martlet_protocol::limits::{CHUNK_BYTES, PACKED_BYTES_MAX};
use martlet_protocol::{ByteStream, Error, Result};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// What may wait in a pipe before its writer has to.
const WAITING_COST_MAX: usize = 4 * CHUNK_BYTES;
/// What is kept for a second beginning: every packed extent is, unless it came in tiny pieces.
#[expect(clippy::cast_possible_truncation, reason = "little more than one MiB")]
const REPLAY_COST_MAX: usize = PACKED_BYTES_MAX as usize + 256 * PIECE_BYTES;
/// What keeping a piece costs besides its bytes: a client may send them one by one.
const PIECE_BYTES: usize = 128;

/// A share of the bytes that all writes together may hold.
pub(crate) type Permit = Option<Arc<OwnedSemaphorePermit>>;

/// The end that bytes go into; dropped before [`Pipe::finish`], it breaks off.
pub(crate) struct Pipe(Arc<Mutex<State>>);

/// The end that bytes come out of.
pub(crate) struct Tap(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<(Bytes, Permit)>,
    /// What waits, with the cost of keeping it.
    waiting_cost: usize,
    taken: Vec<Bytes>,
    /// What was taken since the beginning, as if it had been kept.
    taken_cost: usize,
    finished: bool,
    broken: bool,
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A new pipe.
pub(crate) fn pipe() -> (Pipe, Tap) {
    let state = Arc::new(Mutex::new(State::default()));
    (Pipe(state.clone()), Tap(state))
}

impl Pipe {
    /// Waits until there is room, or nobody reads any more.
    pub(crate) async fn ready(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.waiting_cost < WAITING_COST_MAX || state.abandoned {
                return Poll::Ready(());
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Puts bytes in.
    pub(crate) fn push(&self, bytes: Bytes, permit: Permit) {
        let mut state = self.0.lock();
        if state.abandoned {
            return;
        }
        state.waiting_cost += cost(&bytes);
        state.waiting.push_back((bytes, permit));
        wake(&mut state.reader);
    }

    /// Says that all bytes are in.
    pub(crate) fn finish(self) {
        self.0.lock().finished = true;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.broken = !state.finished;
        wake(&mut state.reader);
    }
}

impl Tap {
    /// The bytes from the beginning. One stream at a time.
    pub(crate) fn stream(&self) -> ByteStream {
        Box::pin(Flow(self.0.clone()))
    }

    /// Goes back to the beginning, if its bytes are still there.
    pub(crate) fn rewind(&self) -> bool {
        let mut state = self.0.lock();
        if state.taken_cost > REPLAY_COST_MAX {
            return false;
        }
        state.waiting_cost += std::mem::take(&mut state.taken_cost);
        while let Some(bytes) = state.taken.pop() {
            state.waiting.push_front((bytes, None));
        }
        true
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.abandoned = true;
        state.waiting.clear();
        state.taken.clear();
        wake(&mut state.writer);
    }
}

struct Flow(Arc<Mutex<State>>);

impl Stream for Flow {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock();
        if let Some((bytes, _permit)) = state.waiting.pop_front() {
            state.waiting_cost -= cost(&bytes);
            state.taken_cost += cost(&bytes);
            if state.taken_cost <= REPLAY_COST_MAX {
                state.taken.push(bytes.clone());
            } else {
                state.taken = Vec::new();
            }
            wake(&mut state.writer);
            return Poll::Ready(Some(Ok(bytes)));
        }
        if state.broken {
            return Poll::Ready(Some(Err(Error::unavailable("the body broke off"))));
        }
        if state.finished {
            return Poll::Ready(None);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

/// What keeping a piece costs.
pub(crate) fn cost(bytes: &Bytes) -> usize {
    bytes.len() + PIECE_BYTES
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    async fn drain(tap: &Tap) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut stream = tap.stream();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in_and_again_after_a_rewind() {
        let (pipe, tap) = pipe();
        pipe.push("abc".into(), None);
        assert_eq!(tap.stream().next().await.unwrap().unwrap(), "abc");
        pipe.push("def".into(), None);
        pipe.finish();
        assert!(tap.rewind());
        assert_eq!(drain(&tap).await.unwrap(), b"abcdef");
        assert!(tap.rewind());
        assert_eq!(drain(&tap).await.unwrap(), b"abcdef");
    }

    #[tokio::test]
    async fn what_was_long_cannot_begin_again() {
        let (pipe, tap) = pipe();
        pipe.push(vec![1; REPLAY_COST_MAX - PIECE_BYTES].into(), None);
        pipe.push("x".into(), None);
        let mut stream = tap.stream();
        stream.next().await.unwrap().unwrap();
        stream.next().await.unwrap().unwrap();
        assert!(!tap.rewind());
    }

    #[tokio::test]
    async fn tiny_pieces_fill_a_pipe_long_before_their_bytes_do() {
        let (pipe, tap) = pipe();
        let mut pieces = 0;
        while pipe.ready().now_or_never().is_some() {
            pipe.push("x".into(), None);
            pieces += 1;
        }
        assert!(pieces <= WAITING_COST_MAX / PIECE_BYTES);
        let mut stream = tap.stream();
        for _ in 0..pieces {
            stream.next().await.unwrap().unwrap();
        }
        assert!(!tap.rewind(), "too many to keep");
    }

    #[tokio::test]
    async fn a_dropped_writer_is_an_error_and_a_dropped_reader_is_none() {
        let (pipe_in, tap) = pipe();
        pipe_in.push("abc".into(), None);
        drop(pipe_in);
        assert!(drain(&tap).await.is_err());
        let (pipe_in, tap) = pipe();
        pipe_in.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(pipe_in.ready().now_or_never().is_none(), "the pipe is full");
        drop(tap);
        pipe_in.ready().await;
        pipe_in.push("more".into(), None);
    }
}
