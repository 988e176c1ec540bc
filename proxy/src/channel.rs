//! A bounded channel of bytes from a body to a device. Until too much has been taken, it can
//! restart from the beginning, so another device can replace one that refuses an extent.
//!
//! A channel has three ends: the writer ([`Sender`]), the reader ([`Receiver`], which yields one
//! stream of chunks after another) and the observer ([`Gauge`]). Bytes count against the write
//! budget until a device has taken them.

mod receiver;
mod state;

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use self::receiver::Receiver;
use self::state::{ChannelState, Output, WAITING_COST_MAX, wake};
pub(crate) use self::state::{ChannelStatus, Gauge, Input, Permit, ReplayBudget, cost};

/// The writing end. Dropping it before [`Sender::finish`] breaks the channel.
pub(crate) struct Sender(Arc<Mutex<ChannelState>>);

/// Creates a channel. With `kept`, taken bytes need a share of that budget; without one they are
/// dropped, and the channel can't restart.
pub(crate) fn channel(kept: Option<ReplayBudget>) -> (Sender, Receiver) {
    let state = Arc::new(Mutex::new(ChannelState::new(kept)));
    (Sender(state.clone()), Receiver::new(state))
}

impl Sender {
    /// Returns true if the channel has room or needs none. Otherwise the task is woken when it may
    /// have.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        let no_more = state.output != Output::Open || state.input != Input::Open;
        let ready = no_more || state.waiting_cost < WAITING_COST_MAX;
        if !ready {
            state.writer = Some(context.waker().clone());
        }
        ready
    }

    /// Returns true if a device waits for more bytes or has stored all. Otherwise the task is woken
    /// when one may.
    pub(crate) fn poll_hungry(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        let hungry = state.is_hungry() || state.output == Output::Stored;
        if !hungry {
            state.writer = Some(context.waker().clone());
        }
        hungry
    }

    /// Appends bytes.
    pub(crate) fn push(&self, bytes: Bytes, permit: Permit) {
        let mut state = self.0.lock();
        if state.output != Output::Open {
            return;
        }
        if state.waiting.is_empty() {
            state.moved_at = Instant::now();
        }
        state.waiting_cost += cost(&bytes);
        state.waiting.push_back((bytes, permit));
        wake(&mut state.reader);
    }

    /// Takes the bytes away from the current device. The reader looks for another device, or gives
    /// up.
    pub(crate) fn cut(&self) {
        let mut state = self.0.lock();
        state.cut = true;
        wake(&mut state.watcher);
    }

    /// Marks the end of the bytes.
    pub(crate) fn finish(&self) {
        let mut state = self.0.lock();
        if state.input == Input::Open {
            state.input = Input::Finished;
            state.moved_at = if state.waiting.is_empty() { Instant::now() } else { state.moved_at };
            wake(&mut state.reader);
        }
    }

    /// Current state.
    pub(crate) fn status(&self) -> ChannelStatus {
        self.0.lock().status()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.input == Input::Open {
            state.input = Input::Broken;
        }
        wake(&mut state.reader);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use futures::{FutureExt, StreamExt};

    use super::state::CHUNK_OVERHEAD_BYTES;
    use super::*;

    /// Waits until the channel has room.
    async fn ready(channel: &Sender) {
        poll_fn(
            |context| if channel.poll_ready(context) { Poll::Ready(()) } else { Poll::Pending },
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn breaking_off_spares_what_has_all_been_taken() {
        for all in [true, false] {
            let (channel, receiver) = channel(None);
            channel.push("abc".into(), None);
            channel.push("def".into(), None);
            channel.finish();
            let mut stream = receiver.stream();
            stream.next().await.unwrap().unwrap();
            if all {
                stream.next().await.unwrap().unwrap();
            }
            receiver.gauge().break_off();
            assert_eq!(stream.next().await.is_none(), all);
            assert_eq!(receiver.gauge().status().waiting_cost, 0);
        }
    }

    #[tokio::test]
    async fn tiny_chunks_fill_a_channel_long_before_their_bytes_do() {
        let (channel, receiver) = channel(None);
        let mut chunks = 0;
        while ready(&channel).now_or_never().is_some() {
            channel.push("x".into(), None);
            chunks += 1;
        }
        assert!(chunks <= WAITING_COST_MAX / CHUNK_OVERHEAD_BYTES);
        let mut stream = receiver.stream();
        for _ in 0..chunks {
            stream.next().await.unwrap().unwrap();
        }
        assert!(!receiver.rewind(), "too many to keep");
    }

    #[tokio::test]
    async fn a_finished_channel_needs_no_capacity() {
        let (channel, receiver) = channel(None);
        channel.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(ready(&channel).now_or_never().is_none(), "the channel is full");
        channel.finish();
        ready(&channel).await;
        drop(channel);
        assert_eq!(receiver.gauge().status().input, Input::Finished);
        receiver.stored();
    }

    #[tokio::test]
    async fn a_dropped_writer_is_an_error_and_a_dropped_reader_is_none() {
        let (pipe_in, receiver) = channel(None);
        pipe_in.push("abc".into(), None);
        drop(pipe_in);
        assert!(receiver.stream().next().await.unwrap().is_err());
        let (pipe_in, receiver) = channel(None);
        pipe_in.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(ready(&pipe_in).now_or_never().is_none(), "the channel is full");
        drop(receiver);
        ready(&pipe_in).await;
        pipe_in.push("more".into(), None);
    }
}
