//! Turns and latches on names, so that racers of one process wait for each other instead of outbidding
//! each other. They are a courtesy, not a safeguard: what makes a conditional write exact is its ballot.
//!
//! * [`Turns`]: one name doesn't wait for another, and nobody waits for longer than it has time.
//! * [`Latches`]: names share a fixed number of latches, which bounds how many are held at a time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use martlet_protocol::id::random_bytes;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

/// Names share this many latches.
const STRIPES: usize = 256;

/// Latches on names of one sort. Whoever holds one takes no second one of the same sort.
pub(crate) struct Latches {
    stripes: Vec<Mutex<()>>,
    /// So that nobody outside can tell which names share a latch.
    secret: [u8; 16],
}

impl Latches {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { stripes, secret: random_bytes() }
    }

    /// Waits for the latch on `name`, and holds it until the guard is dropped.
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

/// Turns at names of one sort. Whoever has one takes no second one of the same sort.
///
/// Invariant: a name has a queue while somebody has its turn or waits for it, and not for longer. So
/// there are at most as many queues as there are operations under way.
pub(crate) struct Turns {
    queues: parking_lot::Mutex<HashMap<u64, Queue>>,
    /// So that nobody outside can make names meet in one queue.
    secret: [u8; 16],
}

#[derive(Default)]
struct Queue {
    turn: Arc<Mutex<()>>,
    /// Who has the turn and who waits for it.
    users: usize,
}

/// A turn, or the end of the wait for one. It is over when this is dropped.
pub(crate) struct Turn<'a> {
    /// None of one who goes on without.
    turn: Option<OwnedMutexGuard<()>>,
    /// Dropped after the turn.
    _seat: Seat<'a>,
}

/// A user of a queue.
struct Seat<'a> {
    turns: &'a Turns,
    name: u64,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { queues: parking_lot::Mutex::default(), secret: random_bytes() }
    }

    /// Waits for the turn at `name` until a deadline, and goes on without it then.
    pub(crate) async fn wait(&self, name: impl Hash, deadline: Instant) -> Turn<'_> {
        let name = hash(self.secret, name);
        let turn = {
            let mut queues = self.queues.lock();
            let queue = queues.entry(name).or_default();
            queue.users += 1;
            queue.turn.clone()
        };
        // From here on a wait that is dropped leaves its queue.
        let seat = Seat { turns: self, name };
        let turn = timeout_at(deadline, turn.lock_owned()).await.ok();
        Turn { turn, _seat: seat }
    }
}

impl Turn<'_> {
    /// Returns true when nobody else has the turn.
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
    async fn nothing_is_kept_of_names_that_nobody_uses() {
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
