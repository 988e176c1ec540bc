//! State that the ends of a channel share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use martlet_protocol::limits::{CHUNK_BYTES, PACKED_BYTES_MAX};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Cost of waiting bytes above which the writer has to wait.
pub(super) const WAITING_COST_MAX: usize = 4 * CHUNK_BYTES;
/// Cost of the bytes kept for a restart. Covers every packed extent, except one of very many tiny
/// chunks.
#[expect(clippy::cast_possible_truncation, reason = "little more than one MiB")]
pub(super) const REPLAY_COST_MAX: usize = PACKED_BYTES_MAX as usize + 256 * CHUNK_OVERHEAD_BYTES;
/// Overhead of a chunk besides its bytes: a client may send single bytes.
pub(super) const CHUNK_OVERHEAD_BYTES: usize = 128;

/// A share of the write budget.
pub(crate) type Permit = Option<Arc<OwnedSemaphorePermit>>;

/// Observer of a channel's state.
#[derive(Clone)]
pub(crate) struct Gauge(pub(super) Arc<Mutex<ChannelState>>);

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
pub(super) enum Output {
    /// A device may read them.
    Open,
    /// A device has stored all of them.
    Stored,
    /// No reader is left.
    Abandoned,
}

/// Snapshot of a channel's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelStatus {
    /// Cost of the bytes that wait in the channel.
    pub(crate) waiting_cost: usize,
    /// Bytes taken since the last start.
    pub(crate) taken_bytes: u64,
    /// Time of the last byte taken, or put into an empty channel.
    pub(crate) moved_at: Instant,
    /// True if a device has taken bytes and waits for more.
    pub(crate) hungry: bool,
    /// State of the input.
    pub(crate) input: Input,
    /// True if no reader is left and not all was stored.
    pub(crate) abandoned: bool,
    /// True if a device has stored all bytes.
    pub(crate) stored: bool,
}

/// Bytes in a channel, and the state of its ends.
pub(super) struct ChannelState {
    pub(super) waiting: VecDeque<(Bytes, Permit)>,
    pub(super) waiting_cost: usize,
    pub(super) taken: Vec<(Bytes, Permit)>,
    /// Budget for bytes kept for a restart; none if unlimited.
    pub(super) kept: Option<ReplayBudget>,
    /// Cost of the bytes taken since the start, kept or not.
    pub(super) taken_cost: usize,
    pub(super) taken_bytes: u64,
    pub(super) moved_at: Instant,
    pub(super) input: Input,
    pub(super) output: Output,
    /// True if no restart is needed any more.
    pub(super) settled: bool,
    /// Number of the current start: flows of earlier starts take nothing more.
    pub(super) beginning: u32,
    pub(super) cut: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Task that waits for a cut.
    pub(super) watcher: Option<Waker>,
}

/// Budget for the bytes that channels keep for a restart.
#[derive(Clone)]
pub(crate) struct ReplayBudget {
    pub(crate) bytes: Arc<Semaphore>,
    /// Number of channels that share the kept bytes and their cost.
    pub(crate) channels: usize,
}

impl Gauge {
    /// Current state.
    pub(crate) fn status(&self) -> ChannelStatus {
        self.0.lock().status()
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

impl ChannelStatus {
    /// Returns true if the channel accepts more bytes.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_cost < WAITING_COST_MAX
    }
}

impl ChannelState {
    pub(super) fn new(kept: Option<ReplayBudget>) -> Self {
        Self {
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
        }
    }

    pub(super) fn status(&self) -> ChannelStatus {
        ChannelStatus {
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
    pub(super) fn next_is_the_last_chance(&self) -> bool {
        let with_next = |(bytes, _): &(Bytes, Permit)| self.taken_cost + cost(bytes);
        self.can_rewind()
            && self.waiting.front().map(with_next).is_some_and(|cost| cost > REPLAY_COST_MAX)
    }

    /// Returns true if a device has taken bytes and waits for more. One that has received nothing
    /// yet proves nothing.
    pub(super) fn is_hungry(&self) -> bool {
        let has_begun = self.taken_bytes > 0;
        has_begun && self.waiting.is_empty() && self.reader.is_some() && self.output == Output::Open
    }

    pub(super) fn can_rewind(&self) -> bool {
        !self.settled && self.input != Input::Broken && self.taken_cost <= REPLAY_COST_MAX
    }

    /// Keeps taken bytes for a restart, while one is possible.
    pub(super) fn keep(&mut self, bytes: &Bytes) {
        let share = match &self.kept {
            _ if self.settled || self.taken_cost > REPLAY_COST_MAX => None,
            None => Some(None),
            Some(ReplayBudget { bytes: budget, channels }) => {
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

    pub(super) fn drain(&mut self) {
        self.waiting = VecDeque::new();
        self.waiting_cost = 0;
        self.taken = Vec::new();
    }
}

/// Memory cost of a chunk.
pub(crate) fn cost(bytes: &Bytes) -> usize {
    bytes.len() + CHUNK_OVERHEAD_BYTES
}

/// Wakes a task, if one waits.
pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
