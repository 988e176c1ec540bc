//! Turns of concurrent requests, and the shares of accounts.
//!
//! While at least an eighth of the turns is free, every request gets one. The last eighth is for
//! accounts below their share. A share is all turns, divided by the accounts that have some, plus
//! one for an account still to come. So no account holds all turns, and turns beyond a share pass
//! to others as their requests end.
//!
//! Anonymous requests have a bound of their own at all times, so that they can't block requests
//! with a key.
//!
//! A request that finds no turn takes a *seat*. It is authenticated in its seat, and then waits in a
//! queue that is fair by key, client and object. Seats have the same shares as turns. A request that
//! leaves the queue without a turn is as old when its client repeats it, within
//! [`REPEATED_MAX`](super::repeats::REPEATED_MAX).
//!
//! Invariants:
//! * A request counts for its account until its reply was sent or abandoned.
//! * An account without a turn gets one while any of the last eighth is free.
//! * Anonymous requests hold no more turns than their bound, and an eighth of the seats.
//! * No request passes one that waits and may have the free turn.
//! * A request that is dropped leaves the queue, and gives back what it was just granted.
//! * No more requests are remembered than may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::fair_queue::{FairQueue, NewRequest, Position, RequestKind};
use super::meter::Meters;
use super::repeats::{Repeats, RequestId};

/// Divisor for the part of the turns that is reserved for accounts below their share.
const KEPT: usize = 8;
/// Number of waiting keys that metrics name, so that a crowd of keys makes no crowd of series.
const WAITING_KEYS_MAX: usize = 16;

/// Bounds of an HTTP service's concurrent requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrencyLimits {
    /// Number of turns.
    pub(crate) turns: usize,
    /// Bound of anonymous requests with a turn. They may always have one.
    pub(crate) anonymous: usize,
    /// Number of requests that may wait for a turn.
    pub(crate) waiting: usize,
}

/// Turns of an HTTP service. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyLimiter(Arc<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    limits: ConcurrencyLimits,
    /// Meters of all anonymous requests.
    anonymous: Meters,
    turns: Mutex<Turns>,
    figures: [Counters; 3],
}

#[derive(Debug)]
struct Turns {
    free: usize,
    /// Number of accounts that have a turn.
    accounts: usize,
    free_seats: usize,
    /// Number of accounts with a request in the queue.
    waiting_accounts: usize,
    queue: FairQueue<MetersKey, Waiter>,
    repeats: Repeats,
}

/// Meters by identity. The waiters keep them alive.
type MetersKey = usize;

#[derive(Debug)]
struct Waiter {
    meters: Meters,
    granted: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Counters {
    waits: AtomicU64,
    waited_us: AtomicU64,
    expired: AtomicU64,
}

/// Counters of the queue, for one kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFigures {
    /// Kind of the requests.
    pub kind: RequestKind,
    /// Requests that wait now.
    pub waiting: u64,
    /// Waits that ended with a turn.
    pub waits: u64,
    /// Time of these waits together, in microseconds.
    pub waited_us: u64,
    /// Waits that ended without a turn, at the time limit or because the client left.
    pub expired: u64,
}

/// Requests of one key that wait now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingKey {
    /// Access key; `root` for fixed keys, `anonymous` for unsigned requests.
    pub access_key: String,
    /// Requests that wait.
    pub waiting: u64,
}

/// A turn, not yet counted for an account.
#[derive(Debug)]
pub(crate) struct Turn(Arc<LimiterState>);

/// Permission to wait for a turn.
#[derive(Debug)]
pub(crate) struct Seat(Arc<LimiterState>);

/// Place of a request from its arrival.
#[derive(Debug)]
pub(crate) enum Place {
    Turn(Turn),
    Seat(Seat),
}

/// A turn that counts for an account.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    shared: Arc<LimiterState>,
    meters: Meters,
}

/// A request in the queue, or one that was granted a turn and hasn't taken it.
struct Ticket {
    shared: Arc<LimiterState>,
    position: Position<MetersKey>,
    id: RequestId,
    meters: Meters,
    is_taken: bool,
    /// Given back with the ticket.
    _seat: Seat,
}

/// A request that wants to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitRequest<'a> {
    /// Meters of the signer; none for an anonymous request.
    pub(crate) whose: Option<&'a Meters>,
    pub(crate) kind: RequestKind,
    /// Client and object of the request.
    pub(crate) flow: u64,
    /// The request, for when its client repeats it.
    pub(crate) id: u64,
    pub(crate) deadline: Instant,
}

impl ConcurrencyLimiter {
    pub(crate) fn new(limits: ConcurrencyLimits) -> Self {
        let anonymous = limits.anonymous.max(1);
        let turns = Turns {
            free: limits.turns,
            accounts: 0,
            free_seats: limits.waiting,
            waiting_accounts: 0,
            queue: FairQueue::default(),
            repeats: Repeats::new(limits.waiting),
        };
        Self(Arc::new(LimiterState {
            limits: ConcurrencyLimits { anonymous, ..limits },
            anonymous: Meters::default(),
            turns: Mutex::new(turns),
            figures: std::array::from_fn(|_| Counters::default()),
        }))
    }

    /// Takes a free turn for a request that isn't authenticated yet, or a free seat.
    pub(crate) fn enter(&self) -> Option<Place> {
        let mut turns = self.0.turns.lock();
        if turns.free > 0 {
            turns.free -= 1;
            return Some(Place::Turn(Turn(self.0.clone())));
        }
        turns.free_seats = turns.free_seats.checked_sub(1)?;
        Some(Place::Seat(Seat(self.0.clone())))
    }

    /// Takes a seat for a request that gives its turn back.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let mut turns = self.0.turns.lock();
        turns.free_seats = turns.free_seats.checked_sub(1)?;
        Some(Seat(self.0.clone()))
    }

    /// Counts a taken turn for an account. Returns `None` if other accounts need the turn more, or
    /// if anonymous requests have reached their bound.
    pub(crate) fn count(&self, whose: Option<&Meters>) -> Option<RequestPermit> {
        let shared = &self.0;
        let meters = whose.unwrap_or(&shared.anonymous);
        let mut turns = shared.turns.lock();
        turns.add(meters);
        // The request itself is counted by now.
        if meters.account.turns.load(Ordering::Relaxed) <= shared.turns_max(&turns, meters) {
            return Some(RequestPermit { shared: shared.clone(), meters: meters.clone() });
        }
        turns.subtract(meters);
        None
    }

    /// Waits for a turn until the deadline. None if it passes, or if the account has its share of
    /// the seats and others need theirs.
    ///
    /// Dropping the future early leaves the queue.
    pub(crate) async fn wait(
        &self,
        seat: Seat,
        request: WaitRequest<'_>,
    ) -> Option<(Turn, RequestPermit)> {
        let WaitRequest { kind, deadline, .. } = request;
        let counters = &self.0.figures[kind as usize];
        let begun = Instant::now();
        let (ticket, granted) = self.enqueue(seat, request)?;
        let expiry = ExpiryCount(Some(counters));
        timeout_at(deadline, granted).await.ok()?.ok()?;
        expiry.cancel();
        let waited_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        counters.waits.fetch_add(1, Ordering::Relaxed);
        counters.waited_us.fetch_add(waited_us, Ordering::Relaxed);
        Some(ticket.take())
    }

    fn enqueue(
        &self,
        seat: Seat,
        request: WaitRequest<'_>,
    ) -> Option<(Ticket, oneshot::Receiver<()>)> {
        let shared = &self.0;
        let WaitRequest { whose, kind, flow, id, .. } = request;
        let meters = whose.unwrap_or(&shared.anonymous).clone();
        let (granted, grant) = oneshot::channel();
        let mut turns = shared.turns.lock();
        if meters.account.waiting.load(Ordering::Relaxed) >= shared.seats_max(&turns, &meters) {
            // The seat needs the lock.
            drop(turns);
            drop(seat);
            return None;
        }
        turns.add_waiting(&meters);
        let waiter = Waiter { meters: meters.clone(), granted };
        let id = RequestId { whose: meters.identity(), kind, id };
        let since = turns.repeats.take(&id, Instant::now());
        let new = NewRequest { kind, flow, since };
        let position = turns.queue.push(meters.identity(), new, waiter);
        shared.dispatch(&mut turns);
        drop(turns);
        let shared = shared.clone();
        Some((Ticket { shared, position, id, meters, is_taken: false, _seat: seat }, grant))
    }

    /// The keys with the most waiting requests, the longest queue first.
    pub(crate) fn waiting_keys(&self) -> Vec<WaitingKey> {
        let turns = self.0.turns.lock();
        let named = |(waiter, count): (&Waiter, usize)| {
            let access_key = match waiter.meters.name() {
                _ if self.0.is_anonymous(&waiter.meters) => "anonymous",
                "" => "root",
                name => name,
            };
            WaitingKey { access_key: access_key.to_owned(), waiting: count as u64 }
        };
        let mut keys: Vec<WaitingKey> = turns.queue.waiting_keys().map(named).collect();
        drop(turns);
        keys.sort_by(|one, another| {
            (another.waiting, &one.access_key).cmp(&(one.waiting, &another.access_key))
        });
        keys.truncate(WAITING_KEYS_MAX);
        keys
    }

    /// Counters of the queue by kind of requests.
    pub(crate) fn figures(&self) -> [QueueFigures; 3] {
        let turns = self.0.turns.lock();
        RequestKind::ALL.map(|kind| {
            let Counters { waits, waited_us, expired } = &self.0.figures[kind as usize];
            QueueFigures {
                kind,
                waiting: turns.queue.waiting(kind) as u64,
                waits: waits.load(Ordering::Relaxed),
                waited_us: waited_us.load(Ordering::Relaxed),
                expired: expired.load(Ordering::Relaxed),
            }
        })
    }
}

/// Counts a wait as expired unless it is cancelled.
struct ExpiryCount<'a>(Option<&'a Counters>);

impl ExpiryCount<'_> {
    fn cancel(mut self) {
        self.0 = None;
    }
}

impl Drop for ExpiryCount<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0 {
            counters.expired.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LimiterState {
    fn is_anonymous(&self, meters: &Meters) -> bool {
        meters.identity() == self.anonymous.identity()
    }

    /// Number of turns that an account may hold now.
    fn turns_max(&self, turns: &Turns, meters: &Meters) -> usize {
        let own = if self.is_anonymous(meters) { self.limits.anonymous } else { usize::MAX };
        share(self.limits.turns, turns.free, turns.accounts).min(own)
    }

    /// Number of requests of an account that may wait now.
    fn seats_max(&self, turns: &Turns, meters: &Meters) -> usize {
        let all = self.limits.waiting;
        let own = if self.is_anonymous(meters) { (all / KEPT).max(1) } else { usize::MAX };
        share(all, turns.free_seats, turns.waiting_accounts).min(own)
    }

    /// Gives free turns to waiting requests, as far as these may have one.
    fn dispatch(&self, turns: &mut Turns) {
        while turns.free > 0 {
            let (free, accounts) = (turns.free, turns.accounts);
            let anonymous = self.anonymous.identity();
            let may_have = |key: &MetersKey, waiter: &Waiter| {
                let held = waiter.meters.account.turns.load(Ordering::Relaxed);
                let newcomers = usize::from(held == 0);
                let own = if *key == anonymous { self.limits.anonymous } else { usize::MAX };
                // As if the turn was taken.
                held < share(self.limits.turns, free - 1, accounts + newcomers).min(own)
            };
            let Some(Waiter { meters, granted }) = turns.queue.pop(may_have) else { return };
            turns.subtract_waiting(&meters);
            turns.free -= 1;
            turns.add(&meters);
            // A request that has just left gives the turn back by its ticket.
            let _ = granted.send(());
        }
    }
}

/// Part of `all` that an account may hold while `free` are free and `accounts` accounts hold some.
fn share(all: usize, free: usize, accounts: usize) -> usize {
    if free >= all / KEPT {
        return usize::MAX;
    }
    (all / (accounts + 1)).max(1)
}

impl Turns {
    fn add(&mut self, meters: &Meters) {
        if meters.account.turns.fetch_add(1, Ordering::Relaxed) == 0 {
            self.accounts += 1;
        }
    }

    fn subtract(&mut self, meters: &Meters) {
        if meters.account.turns.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.accounts -= 1;
        }
    }

    fn add_waiting(&mut self, meters: &Meters) {
        if meters.account.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.waiting_accounts += 1;
        }
    }

    fn subtract_waiting(&mut self, meters: &Meters) {
        if meters.account.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.waiting_accounts -= 1;
        }
    }
}

impl RequestPermit {
    /// Meters of the principal that the turn counts for.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }
}

impl Ticket {
    fn take(mut self) -> (Turn, RequestPermit) {
        self.is_taken = true;
        let (shared, meters) = (self.shared.clone(), self.meters.clone());
        (Turn(shared.clone()), RequestPermit { shared, meters })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut turns = self.shared.turns.lock();
        if turns.queue.remove(&self.position).is_some() {
            turns.subtract_waiting(&self.meters);
            turns.repeats.remember(self.id, self.position.arrival(), Instant::now());
        } else {
            turns.subtract(&self.meters);
            turns.free += 1;
            self.shared.dispatch(&mut turns);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.0.turns.lock();
        turns.free += 1;
        self.0.dispatch(&mut turns);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.turns.lock().free_seats += 1;
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut turns = self.shared.turns.lock();
        turns.subtract(&self.meters);
        self.shared.dispatch(&mut turns);
    }
}

#[cfg(test)]
mod tests;
