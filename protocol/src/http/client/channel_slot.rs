//! The channel of a node: opened after some calls, and opened again after its end.
//!
//! ```text
//! closed ─ fourth short call ─▶ opening ─┬─ 101 and the proof ─▶ open ─ ended ─▶ closed
//!    ▲                                   └─ else ─┐
//!    └────────── 2 s, or 1 min if the node answered otherwise
//! ```
//!
//! No call waits for a channel: while none is open, calls go by HTTP.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::channel::Channel;

/// Short calls before a channel is opened: a client that makes fewer does without.
const CALLS_MIN: u32 = 4;
/// Pause after a node that could not be reached.
const PAUSE: Duration = Duration::from_secs(2);
/// Pause after a node that opens no channel: it may be of another version.
const LONG_PAUSE: Duration = Duration::from_mins(1);

/// Place for the channel of a node.
#[derive(Default)]
pub(super) struct ChannelSlot(Mutex<SlotState>);

/// Outcome of an attempt to open a channel.
pub(super) enum OpenedChannel {
    Open(Arc<Channel>),
    /// The node answered otherwise.
    Refused,
    /// The node was not reached, or the attempt was dropped.
    Unreached,
}

enum SlotState {
    Closed { calls: u32, not_before: Option<Instant> },
    Opening,
    Open(Arc<Channel>),
}

impl Default for SlotState {
    fn default() -> Self {
        Self::Closed { calls: 0, not_before: None }
    }
}

impl ChannelSlot {
    /// Opens another channel for further calls; the present one ends with its last reply.
    pub(super) fn renew(&self) {
        let mut state = self.0.lock();
        if let SlotState::Open(channel) = &*state {
            channel.retire();
            *state = SlotState::default();
        }
    }

    /// Returns true if a channel is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(&*self.0.lock(), SlotState::Open(channel) if channel.is_open())
    }

    /// Ends an opening.
    pub(super) fn opened(&self, opened: OpenedChannel) {
        let closed = |pause| {
            let not_before = Some(Instant::now() + pause);
            SlotState::Closed { calls: CALLS_MIN, not_before }
        };
        *self.0.lock() = match opened {
            OpenedChannel::Open(channel) => SlotState::Open(channel),
            OpenedChannel::Refused => closed(LONG_PAUSE),
            OpenedChannel::Unreached => closed(PAUSE),
        };
    }

    /// Counts a short call. Returns the open channel, and true if a channel is to be opened now.
    pub(super) fn count_call(&self) -> (Option<Arc<Channel>>, bool) {
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Open(channel) if channel.is_open() => return (Some(channel.clone()), false),
            SlotState::Open(_) => *state = SlotState::default(),
            SlotState::Closed { calls, not_before } => {
                *calls = calls.saturating_add(1);
                let is_due = not_before.is_none_or(|at| Instant::now() >= at);
                if *calls >= CALLS_MIN && is_due {
                    *state = SlotState::Opening;
                    return (None, true);
                }
            }
            SlotState::Opening => {}
        }
        (None, false)
    }
}
