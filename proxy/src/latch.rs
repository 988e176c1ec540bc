//! Turns and latches on names, so that concurrent operations of one process wait instead of
//! outbidding each other. They only help performance: the ballot makes a conditional write exact.
//!
//! * [`Turns`]: names don't wait for each other, and each wait has a deadline.
//! * [`Latches`]: names share a fixed number of latches, which bounds the concurrent holders.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use martlet_protocol::id::random_bytes;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

/// Number of latches, shared by hash of the name.
const STRIPES: usize = 256;

/// Latches on names of one kind. A task holds at most one of each kind.
pub(crate) struct Latches {
    stripes: Vec<Mutex<()>>,
    /// Random hash key, so that clients can't choose names that share a latch.
    secret: [u8; 16],
}

impl Latches {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { stripes, secret: random_bytes() }
    }

    /// Waits for the latch on `name`; holds it until the guard is dropped.
    pub(crate) async fn lock(&self, name: impl Hash) -> MutexGuard<'_, ()> {
        let stripe = usize::try_from(hash(self.secret, name) % STRIPES as u64);
        self.stripes[stripe.expect("a small number")].lock().await
    }
}

fn hash(secret: [u8; 16], name: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (secret, name).hash(&mut hasher);
    hasher.finish()
}

/// Turns at names of one kind. A task holds at most one of each kind.
///
/// Invariant: a name has a queue only while a task holds or awaits its turn. So the number of
/// queues is at most that of running operations.
pub(crate) struct Turns {
    queues: parking_lot::Mutex<HashMap<u64, Queue>>,
    /// Random hash key, so that clients can't choose names that share a queue.
    secret: [u8; 16],
}

#[derive(Default)]
struct Queue {
    turn: Arc<Mutex<()>>,
    /// Tasks that hold or await the turn.
    users: usize,
}

/// A turn, or an expired wait for it. Dropping it ends the turn.
pub(crate) struct Turn<'a> {
    /// None after the deadline.
    turn: Option<OwnedMutexGuard<()>>,
    /// Dropped after the turn.
    _seat: Seat<'a>,
}

/// Membership in a queue.
struct Seat<'a> {
    turns: &'a Turns,
    name: u64,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { queues: parking_lot::Mutex::default(), secret: random_bytes() }
    }

    /// Waits for the turn at `name` until a deadline; then goes on without it.
    pub(crate) async fn wait(&self, name: impl Hash, deadline: Instant) -> Turn<'_> {
        let name = hash(self.secret, name);
        let turn = {
            let mut queues = self.queues.lock();
            let queue = queues.entry(name).or_default();
            queue.users += 1;
            queue.turn.clone()
        };
        // From now on, a dropped wait leaves its queue.
        let seat = Seat { turns: self, name };
        let turn = timeout_at(deadline, turn.lock_owned()).await.ok();
        Turn { turn, _seat: seat }
    }
}

impl Turn<'_> {
    /// Returns true if this is a turn and not an expired wait.
    #[cfg(test)]
    fn is_held(&self) -> bool {
        self.turn.is_some()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.turn.take());
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.queues.lock();
        let Some(queue) = queues.get_mut(&self.name) else { return };
        queue.users -= 1;
        if queue.users == 0 {
            queues.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn turns_at_one_name_come_one_after_the_other_and_those_at_others_at_once() {
        let turns = Turns::new();
        let first = turns.wait("a", soon()).await;
        let others: Vec<_> = (0..50).map(|name| turns.wait(name, soon()).now_or_never()).collect();
        assert!(others.iter().flatten().all(Turn::is_held) && others.iter().all(Option::is_some));
        let mut second = Box::pin(turns.wait("a", soon()));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_deadline_without_the_turn() {
        let turns = Turns::new();
        let _first = turns.wait("a", soon()).await;
        let begun = Instant::now();
        assert!(!turns.wait("a", soon()).await.is_held());
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn no_queue_is_kept_for_unused_names() {
        let turns = Turns::new();
        let first = turns.wait("a", soon()).await;
        let mut dropped = Box::pin(turns.wait("a", soon()));
        assert!(dropped.as_mut().now_or_never().is_none());
        drop(dropped);
        drop(turns.wait("a", soon()).await);
        assert_eq!(turns.queues.lock().len(), 1);
        drop(first);
        assert!(turns.queues.lock().is_empty());
    }
}
