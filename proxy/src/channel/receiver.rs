//! The reading end of a channel, for one device after another.
//!
//! Invariants: only the flow of the last start takes bytes. Before a device had time to refuse, no
//! byte is taken that would make a restart impossible.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use martlet_protocol::{ByteStream, Error, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::state::{ChannelState, Gauge, Input, Output, cost, wake};

/// Time for a device to refuse an extent before so many bytes are sent that no other device could
/// get them. Longer than a round trip, shorter than the time to fill the channel.
const REFUSAL_TIME: Duration = Duration::from_millis(5);

/// The reading end. Dropping it leaves the channel without a reader.
pub(crate) struct Receiver(Arc<Mutex<ChannelState>>);

impl Receiver {
    pub(super) fn new(state: Arc<Mutex<ChannelState>>) -> Self {
        Self(state)
    }

    /// The bytes from the beginning. Earlier streams take nothing more.
    pub(crate) fn stream(&self) -> ByteStream {
        let mut state = self.0.lock();
        state.beginning += 1;
        state.cut = false;
        state.reader = None;
        state.moved_at = Instant::now();
        Box::pin(ChunkStream {
            channel: self.0.clone(),
            beginning: state.beginning,
            held_until: Instant::now() + REFUSAL_TIME,
            held: None,
        })
    }

    /// Goes back to the beginning; returns false if its bytes are gone.
    pub(crate) fn rewind(&self) -> bool {
        let mut state = self.0.lock();
        if !state.can_rewind() {
            return false;
        }
        state.beginning += 1;
        state.waiting_cost += std::mem::take(&mut state.taken_cost);
        state.taken_bytes = 0;
        while let Some(chunk) = state.taken.pop() {
            state.waiting.push_front(chunk);
        }
        true
    }

    /// Waits for the first bytes, or for the end of the input.
    pub(crate) async fn begun(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if !state.waiting.is_empty() || state.input != Input::Open {
                return Poll::Ready(());
            }
            state.reader = Some(context.waker().clone());
            wake(&mut state.writer);
            Poll::Pending
        })
        .await;
    }

    /// Marks all bytes as stored by a device.
    pub(crate) fn stored(self) {
        self.0.lock().output = Output::Stored;
    }

    /// Waits until the channel is cut.
    pub(crate) async fn cut(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.cut {
                return Poll::Ready(());
            }
            state.watcher = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// An observer, which may outlive the receiver.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(self.0.clone())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.output == Output::Open {
            state.output = Output::Abandoned;
        }
        state.drain();
        wake(&mut state.writer);
    }
}

struct ChunkStream {
    channel: Arc<Mutex<ChannelState>>,
    beginning: u32,
    /// Until this time, no bytes are taken that would make a restart impossible.
    held_until: Instant,
    held: Option<Pin<Box<Sleep>>>,
}

impl ChunkStream {
    /// Delays the first chunk that would make a restart impossible.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.held.is_none() && self.held_until <= Instant::now() {
            return Poll::Ready(());
        }
        let held_until = self.held_until;
        self.held.get_or_insert_with(|| Box::pin(sleep_until(held_until))).as_mut().poll(context)
    }
}

impl Stream for ChunkStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let channel = self.channel.clone();
        let mut state = channel.lock();
        if state.input == Input::Broken || state.beginning != self.beginning {
            return Poll::Ready(Some(Err(Error::unavailable("the body ended early"))));
        }
        if state.next_is_the_last_chance() {
            ready!(self.poll_held(context));
        }
        if let Some((bytes, permit)) = state.waiting.pop_front() {
            drop(permit);
            state.waiting_cost -= cost(&bytes);
            state.taken_cost += cost(&bytes);
            state.taken_bytes += bytes.len() as u64;
            state.moved_at = Instant::now();
            state.keep(&bytes);
            wake(&mut state.writer);
            return Poll::Ready(Some(Ok(bytes)));
        }
        if state.input == Input::Finished {
            return Poll::Ready(None);
        }
        state.reader = Some(context.waker().clone());
        wake(&mut state.writer);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::super::channel;
    use super::super::state::{CHUNK_OVERHEAD_BYTES, REPLAY_COST_MAX, ReplayBudget};
    use super::*;

    async fn drain(receiver: &Receiver) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut stream = receiver.stream();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in_and_again_after_a_rewind() {
        let (channel, receiver) = channel(None);
        channel.push("abc".into(), None);
        assert_eq!(receiver.stream().next().await.unwrap().unwrap(), "abc");
        channel.push("def".into(), None);
        channel.finish();
        assert!(receiver.rewind());
        assert_eq!(drain(&receiver).await.unwrap(), b"abcdef");
        assert!(receiver.rewind());
        assert_eq!(drain(&receiver).await.unwrap(), b"abcdef");
    }

    #[tokio::test]
    async fn a_body_beyond_the_replay_limit_cannot_rewind() {
        let (channel, receiver) = channel(None);
        channel.push(vec![1; REPLAY_COST_MAX - CHUNK_OVERHEAD_BYTES].into(), None);
        channel.push("x".into(), None);
        let mut stream = receiver.stream();
        stream.next().await.unwrap().unwrap();
        stream.next().await.unwrap().unwrap();
        assert!(!receiver.rewind());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_can_be_given_again_is_held_until_a_device_had_time_to_refuse() {
        let (channel, receiver) = channel(None);
        channel.push(vec![1; REPLAY_COST_MAX - CHUNK_OVERHEAD_BYTES].into(), None);
        channel.push("x".into(), None);
        let mut stream = receiver.stream();
        stream.next().await.unwrap().unwrap();
        assert!(stream.next().now_or_never().is_none());
        assert!(receiver.rewind(), "all of it is still there");
        let mut again = receiver.stream();
        assert!(stream.next().await.unwrap().is_err(), "the first stream takes nothing more");
        let begun = Instant::now();
        again.next().await.unwrap().unwrap();
        assert_eq!(again.next().await.unwrap().unwrap(), "x");
        assert_eq!(begun.elapsed(), REFUSAL_TIME);
        assert!(!receiver.rewind());
    }

    #[tokio::test]
    async fn channels_without_a_replay_share_cannot_rewind_and_shares_are_returned() {
        let kept = Arc::new(tokio::sync::Semaphore::new(3 * CHUNK_OVERHEAD_BYTES));
        let (first, first_receiver) =
            channel(Some(ReplayBudget { bytes: kept.clone(), channels: 1 }));
        let (second, second_receiver) =
            channel(Some(ReplayBudget { bytes: kept.clone(), channels: 1 }));
        for channel in [&first, &second] {
            channel.push(vec![1; CHUNK_OVERHEAD_BYTES].into(), None);
            channel.finish();
        }
        assert_eq!(drain(&first_receiver).await.unwrap().len(), CHUNK_OVERHEAD_BYTES);
        assert_eq!(kept.available_permits(), CHUNK_OVERHEAD_BYTES);
        assert_eq!(drain(&second_receiver).await.unwrap().len(), CHUNK_OVERHEAD_BYTES);
        assert!(!second_receiver.rewind(), "the first has the share");
        for _ in 0..2 {
            assert!(first_receiver.rewind());
            assert_eq!(drain(&first_receiver).await.unwrap().len(), CHUNK_OVERHEAD_BYTES);
            assert_eq!(
                kept.available_permits(),
                CHUNK_OVERHEAD_BYTES,
                "what is kept again has its share"
            );
        }
        first_receiver.stored();
        assert_eq!(kept.available_permits(), 3 * CHUNK_OVERHEAD_BYTES);
    }

    #[tokio::test]
    async fn no_device_is_called_before_the_first_byte() {
        let (sender, receiver) = channel(None);
        assert!(receiver.begun().now_or_never().is_none());
        sender.push("abc".into(), None);
        receiver.begun().await;
        let (sender, receiver) = channel(None);
        drop(sender);
        receiver.begun().await;
        assert_eq!(receiver.gauge().status().input, Input::Broken);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_is_seen_and_over_with_the_next_beginning() {
        let (channel, receiver) = channel(None);
        let _stream = receiver.stream();
        assert!(receiver.cut().now_or_never().is_none());
        channel.cut();
        receiver.cut().await;
        let _stream = receiver.stream();
        assert!(receiver.cut().now_or_never().is_none());
    }
}
