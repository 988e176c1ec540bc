//! The writer's side of an extent: each piece of bytes goes to all copies, or to the one fragment that
//! it belongs to, and a copy or fragment that falls behind is given up while enough others keep up.
//!
//! What "behind" means: its pipe is full while enough devices ask for bytes and find none, or have all.
//! It may cost the write as much time again as the extent took without it, at least a quarter of a
//! second and at most two; then its device loses the bytes. If they are all still there, another
//! device gets them from the beginning; if not, the extent has a copy less, and replication makes up
//! for it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::pipe::{Permit, Pipe, Standing};

/// The least and the most that a write waits for a copy which it can do without.
pub(super) const GRACE_MIN: Duration = Duration::from_millis(250);
pub(super) const GRACE_MAX: Duration = Duration::from_secs(2);

/// When the body of an extent had come in whole.
pub(super) type EndedAt = Arc<Mutex<Option<Instant>>>;

/// The pipes of one extent.
pub(crate) struct Fanout {
    pipes: Vec<Pipe>,
    /// How many of them are enough.
    needed: usize,
    begun: Instant,
    /// Time spent in waiting for those behind.
    waited: Duration,
    ended_at: EndedAt,
}

impl Fanout {
    /// Pipes of which `needed` have to come through.
    pub(super) fn new(pipes: Vec<Pipe>, needed: usize, ended_at: EndedAt) -> Self {
        Self { pipes, needed, begun: Instant::now(), waited: Duration::ZERO, ended_at }
    }

    /// Waits until all pipes have room, or those that don't have been given up.
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

    /// Waits for a share of what all writes may hold, which a copy that stands still may be keeping.
    pub(crate) async fn while_waiting<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Ok(output) = timeout(GRACE_MIN, &mut future).await {
                return output;
            }
            // Whose turn hasn't come has shown nothing yet.
            self.cut(Standing::stands_still, |pipe| pipe.waiting_cost == 0 && pipe.taken_bytes > 0);
        }
    }

    /// Hands a piece to all copies.
    pub(crate) fn push(&self, piece: &Bytes, permit: &Permit) {
        for pipe in &self.pipes {
            pipe.push(piece.clone(), permit.clone());
        }
    }

    /// Hands a piece to one fragment.
    pub(crate) fn give(&self, at: usize, piece: Bytes, permit: Permit) {
        self.pipes[at].push(piece, permit);
    }

    /// Says that one fragment has all its bytes.
    pub(crate) fn end(&self, at: usize) {
        self.pipes[at].finish();
    }

    /// Says that all bytes are in.
    pub(crate) fn finish(self) {
        *self.ended_at.lock() = Some(Instant::now());
        self.pipes.iter().for_each(Pipe::finish);
    }

    /// Waits until all pipes have room, or nobody reads them any more: then true. If `or_hungry`,
    /// also until enough devices wait for those that don't: then false.
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

    /// Takes the bytes away from those that are `behind`, if enough of the others are `well`.
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
