//! Writer's side of an extent: distributes chunks to all copies or to one fragment, and gives up
//! slow devices while enough others keep up.
//!
//! A device is behind if its pipe is full while enough other devices wait for bytes or have all.
//! Waiting for it may take as long as the extent took without it, at least 250 ms and at most 2 s.
//! Then its pipe is cut. If all bytes are still kept, another device gets them from the beginning.
//! Otherwise the extent has one copy fewer, until replication restores it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::pipe::{Permit, Pipe, Standing};

/// Bounds of the wait for a dispensable copy.
pub(super) const GRACE_MIN: Duration = Duration::from_millis(250);
pub(super) const GRACE_MAX: Duration = Duration::from_secs(2);

/// Time at which the body of an extent was complete.
pub(super) type EndedAt = Arc<Mutex<Option<Instant>>>;

/// The pipes of one extent.
pub(crate) struct Fanout {
    pipes: Vec<Pipe>,
    /// Number of pipes that must succeed.
    needed: usize,
    begun: Instant,
    /// Time spent waiting for slow devices.
    waited: Duration,
    ended_at: EndedAt,
}

impl Fanout {
    /// A fanout of `pipes`, of which `needed` must succeed.
    pub(super) fn new(pipes: Vec<Pipe>, needed: usize, ended_at: EndedAt) -> Self {
        Self { pipes, needed, begun: Instant::now(), waited: Duration::ZERO, ended_at }
    }

    /// Waits until all pipes have room or were given up.
    pub(crate) async fn room(&mut self) {
        while !self.have_room(true).await {
            let since = Instant::now();
            let working = self.begun.elapsed().saturating_sub(self.waited);
            let allowed = working.clamp(GRACE_MIN, GRACE_MAX).saturating_sub(self.waited);
            let caught_up = timeout(allowed, self.have_room(false)).await;
            self.waited += since.elapsed();
            if caught_up.is_err() && self.cut(|pipe| !pipe.has_room(), |pipe| pipe.hungry) {
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
            self.cut(Standing::stands_still, |pipe| pipe.waiting_cost == 0 && pipe.taken_bytes > 0);
        }
    }

    /// Pushes a chunk to all copies.
    pub(crate) fn push(&self, piece: &Bytes, permit: &Permit) {
        for pipe in &self.pipes {
            pipe.push(piece.clone(), permit.clone());
        }
    }

    /// Pushes a chunk to one fragment.
    pub(crate) fn give(&self, at: usize, piece: Bytes, permit: Permit) {
        self.pipes[at].push(piece, permit);
    }

    /// Marks the end of one fragment.
    pub(crate) fn end(&self, at: usize) {
        self.pipes[at].finish();
    }

    /// Marks the end of the extent.
    pub(crate) fn finish(self) {
        *self.ended_at.lock() = Some(Instant::now());
        self.pipes.iter().for_each(Pipe::finish);
    }

    /// Waits until all pipes have room or no reader; returns true. With `or_hungry`, also returns
    /// false once enough devices wait for bytes while others are full.
    async fn have_room(&self, or_hungry: bool) -> bool {
        poll_fn(|context| {
            let mut ready = 0;
            for pipe in &self.pipes {
                ready += usize::from(pipe.poll_ready(context));
            }
            if ready == self.pipes.len() {
                return Poll::Ready(true);
            }
            let is_hungry = |pipe: &&Pipe| or_hungry && pipe.poll_hungry(context);
            if self.pipes.iter().filter(is_hungry).count() >= self.needed {
                return Poll::Ready(false);
            }
            Poll::Pending
        })
        .await
    }

    /// Cuts the pipes that are `behind`, if enough others are `well`; returns false otherwise.
    fn cut(&self, behind: impl Fn(&Standing) -> bool, well: impl Fn(&Standing) -> bool) -> bool {
        let standings: Vec<_> = self.pipes.iter().map(Pipe::standing).collect();
        let is_well = |pipe: &&Standing| pipe.stored || (!pipe.abandoned && well(pipe));
        let well = standings.iter().filter(is_well).count();
        if well < self.needed {
            return false;
        }
        for (pipe, standing) in self.pipes.iter().zip(&standings) {
            if !standing.abandoned && behind(standing) {
                pipe.cut();
            }
        }
        true
    }
}

impl Standing {
    fn stands_still(&self) -> bool {
        self.waiting_cost > 0 && self.moved_at.elapsed() >= GRACE_MIN
    }
}
