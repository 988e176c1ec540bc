//! A bounded channel of bytes from a body to a device. Until too much has been taken, it can
//! restart from the beginning, so another device can replace one that refuses an extent.
//!
//! A channel has three ends: the writer ([`Sender`]), the reader ([`Receiver`], which yields one
//! [`Flow`] after another) and the observer ([`Gauge`]). Bytes count against the write budget until
//! a device has taken them.

mod receiver;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use martlet_protocol::limits::{CHUNK_BYTES, PACKED_BYTES_MAX};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) use self::receiver::Receiver;

/// Cost of waiting bytes above which the writer has to wait.
const WAITING_COST_MAX: usize = 4 * CHUNK_BYTES;
/// Cost of the bytes kept for a restart. Covers every packed extent, except one of very many tiny
/// chunks.
#[expect(clippy::cast_possible_truncation, reason = "little more than one MiB")]
const REPLAY_COST_MAX: usize = PACKED_BYTES_MAX as usize + 256 * PIECE_BYTES;
/// Overhead of a chunk besides its bytes: a client may send single bytes.
const PIECE_BYTES: usize = 128;

/// A share of the write budget.
pub(crate) type Permit = Option<Arc<OwnedSemaphorePermit>>;

/// The writing end. Dropping it before [`Sender::finish`] breaks the channel.
pub(crate) struct Sender(Arc<Mutex<State>>);

/// Observer of a channel's state.
#[derive(Clone)]
pub(crate) struct Gauge(Arc<Mutex<State>>);

/// State of the bytes that go into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// More may follow.
    Open,
    /// All bytes are in.
    Finished,
    /// The rest will never arrive.
    Broken,
}

/// State of the bytes that come out of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// A device may read them.
    Open,
    /// A device has stored all of them.
    Stored,
    /// No reader is left.
    Abandoned,
}

/// Snapshot of a channel's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Cost of the bytes that wait in the channel.
    pub(crate) waiting_cost: usize,
    /// Bytes taken since the last start.
    pub(crate) taken_bytes: u64,
    /// Time of the last byte taken, or put into an empty channel.
    pub(crate) moved_at: Instant,
    /// True if a device waits for bytes.
    pub(crate) hungry: bool,
    /// State of the input.
    pub(crate) input: Input,
    /// True if no reader is left and not all was stored.
    pub(crate) abandoned: bool,
    /// True if a device has stored all bytes.
    pub(crate) stored: bool,
}

struct State {
    waiting: VecDeque<(Bytes, Permit)>,
    waiting_cost: usize,
    taken: Vec<(Bytes, Permit)>,
    /// Budget for bytes kept for a restart; none if unlimited.
    kept: Option<Keep>,
    /// Cost of the bytes taken since the start, kept or not.
    taken_cost: usize,
    taken_bytes: u64,
    moved_at: Instant,
    input: Input,
    output: Output,
    /// True if no restart is needed any more.
    settled: bool,
    /// Number of the current start: flows of earlier starts take nothing more.
    beginning: u32,
    cut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Task that waits for a cut.
    watcher: Option<Waker>,
}

/// Budget for the bytes that channels keep for a restart.
#[derive(Clone)]
pub(crate) struct Keep {
    pub(crate) bytes: Arc<Semaphore>,
    /// Number of channels that share the kept bytes and their cost.
    pub(crate) channels: usize,
}

/// Creates a channel. With `kept`, taken bytes need a share of that budget; without one they are
/// dropped, and the channel can't restart.
pub(crate) fn channel(kept: Option<Keep>) -> (Sender, Receiver) {
    let state = Arc::new(Mutex::new(State {
        waiting: VecDeque::new(),
        waiting_cost: 0,
        taken: Vec::new(),
        kept,
        taken_cost: 0,
        taken_bytes: 0,
        moved_at: Instant::now(),
        input: Input::Open,
        output: Output::Open,
        settled: false,
        beginning: 0,
        cut: false,
        reader: None,
        writer: None,
        watcher: None,
    }));
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

    /// Returns true if a device waits for bytes or has stored all. Otherwise the task is woken when
    /// one may.
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
    pub(crate) fn standing(&self) -> Standing {
        self.0.lock().standing()
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

impl Gauge {
    /// Current state.
    pub(crate) fn standing(&self) -> Standing {
        self.0.lock().standing()
    }

    /// Returns true if another device can get the bytes from their beginning.
    pub(crate) fn can_rewind(&self) -> bool {
        self.0.lock().can_rewind()
    }

    /// Drops the bytes kept for a restart; none is needed any more.
    pub(crate) fn settle(&self) {
        let mut state = self.0.lock();
        state.settled = true;
        state.taken = Vec::new();
    }

    /// Breaks the channel, unless all bytes have been taken.
    pub(crate) fn break_off(&self) {
        let mut state = self.0.lock();
        if !state.waiting.is_empty() || state.input != Input::Finished {
            state.input = Input::Broken;
            state.cut = true;
            state.drain();
            wake(&mut state.reader);
            wake(&mut state.watcher);
        }
    }
}

impl Standing {
    /// Returns true if the channel accepts more bytes.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_cost < WAITING_COST_MAX
    }
}

impl State {
    fn standing(&self) -> Standing {
        Standing {
            waiting_cost: self.waiting_cost,
            taken_bytes: self.taken_bytes,
            moved_at: self.moved_at,
            hungry: self.is_hungry(),
            input: self.input,
            abandoned: self.output == Output::Abandoned,
            stored: self.output == Output::Stored,
        }
    }

    /// Returns true if the channel can restart now, but not after the next chunk.
    fn next_is_the_last_chance(&self) -> bool {
        let with_next = |(bytes, _): &(Bytes, Permit)| self.taken_cost + cost(bytes);
        self.can_rewind()
            && self.waiting.front().map(with_next).is_some_and(|cost| cost > REPLAY_COST_MAX)
    }

    fn is_hungry(&self) -> bool {
        self.waiting.is_empty() && self.reader.is_some() && self.output == Output::Open
    }

    fn can_rewind(&self) -> bool {
        !self.settled && self.input != Input::Broken && self.taken_cost <= REPLAY_COST_MAX
    }

    /// Keeps taken bytes for a restart, while one is possible.
    fn keep(&mut self, bytes: &Bytes) {
        let share = match &self.kept {
            _ if self.settled || self.taken_cost > REPLAY_COST_MAX => None,
            None => Some(None),
            Some(Keep { bytes: budget, channels }) => {
                let share = u32::try_from(cost(bytes) / channels).unwrap_or(u32::MAX);
                budget.clone().try_acquire_many_owned(share).ok().map(|share| Some(Arc::new(share)))
            }
        };
        if let Some(share) = share {
            self.taken.push((bytes.clone(), share));
        } else {
            self.taken = Vec::new();
            self.taken_cost = self.taken_cost.max(REPLAY_COST_MAX + 1);
        }
    }

    fn drain(&mut self) {
        self.waiting = VecDeque::new();
        self.waiting_cost = 0;
        self.taken = Vec::new();
    }
}

/// Memory cost of a chunk.
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
    use std::future::poll_fn;
    use std::task::Poll;

    use futures::{FutureExt, StreamExt};

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
            assert_eq!(receiver.gauge().standing().waiting_cost, 0);
        }
    }

    #[tokio::test]
    async fn tiny_pieces_fill_a_pipe_long_before_their_bytes_do() {
        let (channel, receiver) = channel(None);
        let mut pieces = 0;
        while ready(&channel).now_or_never().is_some() {
            channel.push("x".into(), None);
            pieces += 1;
        }
        assert!(pieces <= WAITING_COST_MAX / PIECE_BYTES);
        let mut stream = receiver.stream();
        for _ in 0..pieces {
            stream.next().await.unwrap().unwrap();
        }
        assert!(!receiver.rewind(), "too many to keep");
    }

    #[tokio::test]
    async fn what_has_all_its_bytes_needs_no_room() {
        let (channel, receiver) = channel(None);
        channel.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(ready(&channel).now_or_never().is_none(), "the channel is full");
        channel.finish();
        ready(&channel).await;
        drop(channel);
        assert_eq!(receiver.gauge().standing().input, Input::Finished);
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
