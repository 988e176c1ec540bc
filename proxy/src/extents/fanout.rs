//! Writer's side of an extent: distributes chunks to all copies or to one fragment, and gives up
//! slow devices while enough others keep up.
//!
//! A device is behind if its channel is full while enough other devices wait for more bytes or have
//! all. Fragments that have not begun don't count.
//! Waiting for it may take as long as the extent took without it, at least 250 ms and at most 2 s.
//! Then its channel is cut. If all bytes are still kept, another device gets them from the
//! beginning. Otherwise the extent has one copy fewer, until replication restores it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::channel::{ChannelStatus, Permit, Sender};

/// Bounds of the wait for a dispensable copy.
pub(super) const GRACE_MIN: Duration = Duration::from_millis(250);
pub(super) const GRACE_MAX: Duration = Duration::from_secs(2);

/// Time at which the body of an extent was complete.
pub(super) type EndedAt = Arc<Mutex<Option<Instant>>>;

/// The channels of one extent.
pub(crate) struct Fanout {
    channels: Vec<Sender>,
    /// Number of channels that must succeed.
    needed: usize,
    begun: Instant,
    /// Time spent waiting for slow devices.
    waited: Duration,
    ended_at: EndedAt,
}

impl Fanout {
    /// A fanout of `channels`, of which `needed` must succeed.
    pub(super) fn new(channels: Vec<Sender>, needed: usize, ended_at: EndedAt) -> Self {
        Self { channels, needed, begun: Instant::now(), waited: Duration::ZERO, ended_at }
    }

    /// Waits until all channels have room or were given up.
    pub(crate) async fn room(&mut self) {
        while !self.have_room(true).await {
            let since = Instant::now();
            let working = self.begun.elapsed().saturating_sub(self.waited);
            let allowed = working.clamp(GRACE_MIN, GRACE_MAX).saturating_sub(self.waited);
            let caught_up = timeout(allowed, self.have_room(false)).await;
            self.waited += since.elapsed();
            if caught_up.is_err()
                && self.cut(|channel| !channel.has_room(), |channel| channel.hungry)
            {
                self.waited = Duration::ZERO;
            }
        }
    }

    /// Awaits a share of the write budget, and meanwhile cuts stalled devices that may hold it.
    pub(crate) async fn while_waiting<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Ok(output) = timeout(GRACE_MIN, &mut future).await {
                return output;
            }
            // A device that has received nothing yet proves nothing.
            self.cut(ChannelStatus::stands_still, |channel| {
                channel.waiting_cost == 0 && channel.taken_bytes > 0
            });
        }
    }

    /// Pushes a chunk to all copies.
    pub(crate) fn push(&self, chunk: &Bytes, permit: &Permit) {
        for channel in &self.channels {
            channel.push(chunk.clone(), permit.clone());
        }
    }

    /// Pushes a chunk to one fragment.
    pub(crate) fn push_to(&self, at: usize, chunk: Bytes, permit: Permit) {
        self.channels[at].push(chunk, permit);
    }

    /// Marks the end of one fragment.
    pub(crate) fn end(&self, at: usize) {
        self.channels[at].finish();
    }

    /// Marks the end of the extent.
    pub(crate) fn finish(self) {
        *self.ended_at.lock() = Some(Instant::now());
        self.channels.iter().for_each(Sender::finish);
    }

    /// Waits until all channels have room or no reader; returns true. With `or_hungry`, also
    /// returns false once enough devices wait for bytes while others are full.
    async fn have_room(&self, or_hungry: bool) -> bool {
        poll_fn(|context| {
            let mut ready = 0;
            for channel in &self.channels {
                ready += usize::from(channel.poll_ready(context));
            }
            if ready == self.channels.len() {
                return Poll::Ready(true);
            }
            let is_hungry = |channel: &&Sender| or_hungry && channel.poll_hungry(context);
            if self.channels.iter().filter(is_hungry).count() >= self.needed {
                return Poll::Ready(false);
            }
            Poll::Pending
        })
        .await
    }

    /// Cuts the channels that are `behind`, if enough others are `well`; returns false otherwise.
    fn cut(
        &self,
        behind: impl Fn(&ChannelStatus) -> bool,
        well: impl Fn(&ChannelStatus) -> bool,
    ) -> bool {
        let statuses: Vec<_> = self.channels.iter().map(Sender::status).collect();
        let is_well =
            |channel: &&ChannelStatus| channel.stored || (!channel.abandoned && well(channel));
        let well = statuses.iter().filter(is_well).count();
        if well < self.needed {
            return false;
        }
        for (channel, status) in self.channels.iter().zip(&statuses) {
            if !status.abandoned && behind(status) {
                channel.cut();
            }
        }
        true
    }
}

impl ChannelStatus {
    fn stands_still(&self) -> bool {
        self.waiting_cost > 0 && self.moved_at.elapsed() >= GRACE_MIN
    }
}
