//! A pipe of bytes from a body to a device: bounded, and able to begin again from its start for as
//! long as little has flowed, so that a device which refuses an extent can be replaced by the next.
//!
//! Three ends look at a pipe: who puts bytes in ([`Pipe`]), who asks a device to take them ([`Tap`],
//! which gives one [`Flow`] after another) and who judges how it goes ([`Gauge`]). Bytes count
//! against the budget of all writes until a device has taken them.

mod tap;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use martlet_protocol::limits::{CHUNK_BYTES, PACKED_BYTES_MAX};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) use self::tap::Tap;

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

/// Shows how a pipe stands.
#[derive(Clone)]
pub(crate) struct Gauge(Arc<Mutex<State>>);

/// How far the bytes have come that go into a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// There may be more.
    Open,
    /// All are in.
    Finished,
    /// The rest will never come.
    Broken,
}

/// What became of the bytes that come out of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// They are wanted.
    Open,
    /// A device has stored all that went in.
    Stored,
    /// Nobody reads any more.
    Abandoned,
}

/// How a pipe stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// What waits in it, with the cost of keeping it.
    pub(crate) waiting_cost: usize,
    /// Bytes that were taken out since the last beginning.
    pub(crate) taken_bytes: u64,
    /// When last a byte was taken out, or put in where there was none.
    pub(crate) moved_at: Instant,
    /// Whether a device waits for bytes that aren't there.
    pub(crate) hungry: bool,
    /// How far the bytes have come that go in.
    pub(crate) input: Input,
    /// Whether nobody reads any more, and not all was stored.
    pub(crate) abandoned: bool,
    /// Whether a device has stored all that went in.
    pub(crate) stored: bool,
}

struct State {
    waiting: VecDeque<(Bytes, Permit)>,
    waiting_cost: usize,
    taken: Vec<(Bytes, Permit)>,
    /// Where what is kept for another beginning has to find a share; none where it needs none.
    kept: Option<Keep>,
    /// What was taken since the beginning, as if it had been kept.
    taken_cost: usize,
    taken_bytes: u64,
    moved_at: Instant,
    input: Input,
    output: Output,
    /// No second beginning is wanted.
    settled: bool,
    /// Which beginning this is: flows of earlier ones take nothing more.
    beginning: u32,
    cut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits for a cut.
    watcher: Option<Waker>,
}

/// Where pipes find a share for what they keep for another beginning.
#[derive(Clone)]
pub(crate) struct Keep {
    pub(crate) bytes: Arc<Semaphore>,
    /// How many pipes keep the same bytes, each of which pays its part.
    pub(crate) pipes: usize,
}

/// A new pipe. If there is `kept`, bytes that a device has taken find a share there, or they are let
/// go and with them the chance of another beginning.
pub(crate) fn pipe(kept: Option<Keep>) -> (Pipe, Tap) {
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
    (Pipe(state.clone()), Tap::new(state))
}

impl Pipe {
    /// Whether there is room, or none is needed any more. If not, the task is woken when there may be.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        let no_more = state.output != Output::Open || state.input != Input::Open;
        let ready = no_more || state.waiting_cost < WAITING_COST_MAX;
        if !ready {
            state.writer = Some(context.waker().clone());
        }
        ready
    }

    /// Whether a device waits for bytes that aren't there, or has stored all of them. If not, the task
    /// is woken when one may.
    pub(crate) fn poll_hungry(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        let hungry = state.is_hungry() || state.output == Output::Stored;
        if !hungry {
            state.writer = Some(context.waker().clone());
        }
        hungry
    }

    /// Puts bytes in.
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

    /// Takes the bytes away from the device that has them now. It is for the other end to find
    /// another, or to give up.
    pub(crate) fn cut(&self) {
        let mut state = self.0.lock();
        state.cut = true;
        wake(&mut state.watcher);
    }

    /// Says that all bytes are in.
    pub(crate) fn finish(&self) {
        let mut state = self.0.lock();
        if state.input == Input::Open {
            state.input = Input::Finished;
            state.moved_at = if state.waiting.is_empty() { Instant::now() } else { state.moved_at };
            wake(&mut state.reader);
        }
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.0.lock().standing()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.input == Input::Open {
            state.input = Input::Broken;
        }
        wake(&mut state.reader);
    }
}

impl Gauge {
    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.0.lock().standing()
    }

    /// Whether the bytes can be given to another device from their beginning.
    pub(crate) fn can_rewind(&self) -> bool {
        self.0.lock().can_rewind()
    }

    /// No second beginning is wanted: what was kept for it is let go.
    pub(crate) fn settle(&self) {
        let mut state = self.0.lock();
        state.settled = true;
        state.taken = Vec::new();
    }

    /// Lets the bytes break off unless they have all been taken.
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
    /// Whether more may be put in.
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

    /// Whether all that was taken could be given again, and not with the next piece too.
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

    /// Keeps what a device has taken for another beginning, while there may be one.
    fn keep(&mut self, bytes: &Bytes) {
        let share = match &self.kept {
            _ if self.settled || self.taken_cost > REPLAY_COST_MAX => None,
            None => Some(None),
            Some(Keep { bytes: budget, pipes }) => {
                let share = u32::try_from(cost(bytes) / pipes).unwrap_or(u32::MAX);
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
    use std::future::poll_fn;
    use std::task::Poll;

    use futures::{FutureExt, StreamExt};

    use super::*;

    /// Waits until there is room.
    async fn ready(pipe: &Pipe) {
        poll_fn(|context| if pipe.poll_ready(context) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn breaking_off_spares_what_has_all_been_taken() {
        for all in [true, false] {
            let (pipe, tap) = pipe(None);
            pipe.push("abc".into(), None);
            pipe.push("def".into(), None);
            pipe.finish();
            let mut stream = tap.stream();
            stream.next().await.unwrap().unwrap();
            if all {
                stream.next().await.unwrap().unwrap();
            }
            tap.gauge().break_off();
            assert_eq!(stream.next().await.is_none(), all);
            assert_eq!(tap.gauge().standing().waiting_cost, 0);
        }
    }

    #[tokio::test]
    async fn tiny_pieces_fill_a_pipe_long_before_their_bytes_do() {
        let (pipe, tap) = pipe(None);
        let mut pieces = 0;
        while ready(&pipe).now_or_never().is_some() {
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
    async fn what_has_all_its_bytes_needs_no_room() {
        let (pipe, tap) = pipe(None);
        pipe.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(ready(&pipe).now_or_never().is_none(), "the pipe is full");
        pipe.finish();
        ready(&pipe).await;
        drop(pipe);
        assert_eq!(tap.gauge().standing().input, Input::Finished);
        tap.stored();
    }

    #[tokio::test]
    async fn a_dropped_writer_is_an_error_and_a_dropped_reader_is_none() {
        let (pipe_in, tap) = pipe(None);
        pipe_in.push("abc".into(), None);
        drop(pipe_in);
        assert!(tap.stream().next().await.unwrap().is_err());
        let (pipe_in, tap) = pipe(None);
        pipe_in.push(vec![1; WAITING_COST_MAX].into(), None);
        assert!(ready(&pipe_in).now_or_never().is_none(), "the pipe is full");
        drop(tap);
        ready(&pipe_in).await;
        pipe_in.push("more".into(), None);
    }
}
