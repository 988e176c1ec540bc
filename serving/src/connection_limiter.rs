//! Places for connections at a port, and the choice of the connection that is closed for a new one.
//!
//! Clients without a key could take all places by mere silence. So connections without a request
//! signed by a valid key are *keyless* and have bounds of their own: in total, and from one
//! address. Beyond these bounds the oldest idle keyless connection is closed for the new one. After
//! a restart, or through a load balancer, many clients may connect at once. So each has
//! [`MOMENT_MS`] to show a key. When all places are taken, the oldest idle keyless connection is
//! closed. If none is idle, the connection with a key that has been idle for longest is closed, and
//! failing that the oldest keyless connection.
//!
//! Invariants:
//! * No more connections hold a place than there are places.
//! * A new connection is refused only if all connections have keys and requests under way.
//! * A connection with a key is never closed while a request is under way on it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use martlet_protocol::http::AuthenticatedFlag;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Milliseconds for which the bounds on keyless connections spare a new connection.
const MOMENT_MS: u64 = 1000;

/// Bounds on the connections that hold a place.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// All connections.
    pub all: usize,
    /// Keyless connections.
    pub keyless: usize,
    /// Keyless connections from one address.
    pub keyless_per_address: usize,
}

/// Places at a port. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionLimiter(Arc<LimitedPort>);

struct LimitedPort {
    bounds: ConnectionLimits,
    opened: Instant,
    taken: Mutex<OpenConnections>,
}

/// Connections that hold a place, in the order of their arrival.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// Connections that had no key at the last check.
    keyless: BTreeMap<u64, Arc<PermitState>>,
    /// Number of keyless connections from each address.
    by_address: HashMap<IpAddr, usize>,
    known: BTreeMap<u64, Arc<PermitState>>,
}

/// State of a connection, shared by its task and the port.
struct PermitState {
    address: IpAddr,
    proven: AuthenticatedFlag,
    /// Milliseconds from the port's opening to the connection's arrival.
    came_ms: u64,
    /// Number of requests under way.
    requests: AtomicUsize,
    /// Milliseconds from the port's opening to the end of the last request.
    idle_since_ms: AtomicU64,
    is_dismissed: AtomicBool,
    dismissal: Notify,
}

/// Place of one connection, released on drop.
pub struct ConnectionPermit {
    port: Arc<LimitedPort>,
    number: u64,
    guest: Arc<PermitState>,
}

/// Request under way on a connection, until its reply is sent or dropped.
pub struct RequestGuard {
    port: Arc<LimitedPort>,
    guest: Arc<PermitState>,
}

impl ConnectionLimiter {
    pub(super) fn new(bounds: ConnectionLimits) -> Self {
        let (opened, taken) = (Instant::now(), Mutex::default());
        Self(Arc::new(LimitedPort { bounds, opened, taken }))
    }

    /// Takes a place for a connection from `address`, and closes other connections if needed.
    /// Returns `None` if no connection may be closed.
    pub(super) fn take(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let bounds = self.0.bounds;
        let mut taken = self.0.taken.lock();
        let now_ms = self.0.now_ms();
        let of_address =
            |taken: &OpenConnections| taken.by_address.get(&address).copied().unwrap_or(0);
        let is_full = |taken: &OpenConnections| taken.count() >= bounds.all;
        let is_crowded = |taken: &OpenConnections| taken.keyless.len() >= bounds.keyless;
        let is_crowd = |taken: &OpenConnections| of_address(taken) >= bounds.keyless_per_address;
        if is_full(&taken) || is_crowded(&taken) || is_crowd(&taken) {
            taken.sort();
        }
        while is_crowd(&taken) && taken.dismiss_keyless(now_ms, Some(address)) {}
        while is_crowded(&taken) && taken.dismiss_keyless(now_ms, None) {}
        if is_full(&taken) && !taken.make_room() {
            return None;
        }
        let guest = Arc::new(PermitState {
            address,
            proven: AuthenticatedFlag::default(),
            came_ms: now_ms,
            requests: AtomicUsize::new(0),
            idle_since_ms: AtomicU64::new(now_ms),
            is_dismissed: AtomicBool::new(false),
            dismissal: Notify::new(),
        });
        let number = taken.next;
        taken.next += 1;
        taken.keyless.insert(number, guest.clone());
        *taken.by_address.entry(address).or_default() += 1;
        Some(ConnectionPermit { port: self.0.clone(), number, guest })
    }

    /// Closes an idle connection or, if there is none, the oldest keyless one.
    pub(super) fn make_room(&self) {
        let mut taken = self.0.taken.lock();
        taken.sort();
        taken.make_room();
    }
}

impl LimitedPort {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl OpenConnections {
    fn count(&self) -> usize {
        self.keyless.len() + self.known.len()
    }

    /// Moves connections that have shown a key since the last check to `known`.
    fn sort(&mut self) {
        let Self { keyless, by_address, known, .. } = self;
        keyless.retain(|number, guest| {
            let is_keyless = !guest.proven.is_set();
            if !is_keyless {
                forget(by_address, guest.address);
                known.insert(*number, guest.clone());
            }
            is_keyless
        });
    }

    /// Closes the oldest keyless connection that has had its moment, preferably an idle one. An
    /// address restricts the choice to its connections.
    fn dismiss_keyless(&mut self, now_ms: u64, address: Option<IpAddr>) -> bool {
        let had_moment = |guest: &PermitState| now_ms.saturating_sub(guest.came_ms) >= MOMENT_MS;
        let is_meant = |guest: &PermitState| address.is_none_or(|address| address == guest.address);
        let old = self.keyless.iter().take_while(|(_, guest)| had_moment(guest));
        let mut meant = old.filter(|(_, guest)| is_meant(guest));
        let oldest = meant.clone().find(|(_, guest)| guest.is_idle()).or_else(|| meant.next());
        let number = oldest.map(|(number, _)| *number);
        number.is_some_and(|number| self.dismiss(number))
    }

    /// Closes one connection: the oldest idle keyless one, else the longest idle one with a key,
    /// else the oldest keyless one. Returns false if there is none of these.
    fn make_room(&mut self) -> bool {
        let idle = self.keyless.iter().find(|(_, guest)| guest.is_idle());
        let mut number = idle.map(|(number, _)| *number);
        if number.is_none() {
            let idle = self.known.iter().filter(|(_, guest)| guest.is_idle());
            let longest = idle.min_by_key(|(_, guest)| guest.idle_since_ms.load(Ordering::Acquire));
            number = longest.map(|(number, _)| *number);
        }
        let number = number.or_else(|| self.keyless.keys().next().copied());
        number.is_some_and(|number| self.dismiss(number))
    }

    fn dismiss(&mut self, number: u64) -> bool {
        let Some(guest) = self.remove(number) else { return false };
        guest.is_dismissed.store(true, Ordering::Release);
        guest.dismissal.notify_one();
        true
    }

    fn remove(&mut self, number: u64) -> Option<Arc<PermitState>> {
        if let Some(guest) = self.keyless.remove(&number) {
            forget(&mut self.by_address, guest.address);
            return Some(guest);
        }
        self.known.remove(&number)
    }
}

fn forget(by_address: &mut HashMap<IpAddr, usize>, address: IpAddr) {
    if let Some(count) = by_address.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            by_address.remove(&address);
        }
    }
}

impl PermitState {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }
}

impl ConnectionPermit {
    /// Mark that the connection's requests carry; set once a key has signed one.
    pub fn proven(&self) -> &AuthenticatedFlag {
        &self.guest.proven
    }

    /// Counts a request as under way.
    pub fn begin(&self) -> RequestGuard {
        self.guest.requests.fetch_add(1, Ordering::AcqRel);
        RequestGuard { port: self.port.clone(), guest: self.guest.clone() }
    }

    /// Waits until the connection must close. Requests of a connection with a key are finished
    /// first.
    pub(super) async fn dismissed(&self) {
        loop {
            self.guest.dismissal.notified().await;
            if self.guest.is_idle() || !self.guest.proven.is_set() {
                return;
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.port.taken.lock().remove(self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.guest.idle_since_ms.store(self.port.now_ms(), Ordering::Release);
        let is_last = self.guest.requests.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && self.guest.is_dismissed.load(Ordering::Acquire) {
            self.guest.dismissal.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const BOUNDS: ConnectionLimits =
        ConnectionLimits { all: 8, keyless: 4, keyless_per_address: 2 };

    fn from(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_dismissed(place: &ConnectionPermit) -> bool {
        place.dismissed().now_or_never().is_some()
    }

    async fn after_a_moment() {
        tokio::time::advance(std::time::Duration::from_millis(MOMENT_MS)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_may_come_at_once_and_go_after_a_moment_without_a_key() {
        let places = ConnectionLimiter::new(BOUNDS);
        let crowd: Vec<ConnectionPermit> = (0..8).map(|_| places.take(from(1)).unwrap()).collect();
        assert!(!crowd.iter().any(is_dismissed));
        let ninth = places.take(from(2)).unwrap();
        assert!(is_dismissed(&crowd[0]), "all places are taken");
        after_a_moment().await;
        let tenth = places.take(from(1)).unwrap();
        assert_eq!(crowd.iter().filter(|place| is_dismissed(place)).count(), 6);
        assert!(!is_dismissed(&ninth) && !is_dismissed(&tenth));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_without_a_key_goes_of_the_same_address_first() {
        let places = ConnectionLimiter::new(BOUNDS);
        let take = |last| places.take(from(last)).unwrap();
        let (first, second, third) = (take(1), take(2), take(2));
        after_a_moment().await;
        let fourth = take(2);
        assert!(is_dismissed(&second) && !is_dismissed(&first));
        let fifth = take(3);
        assert!([&first, &third, &fourth, &fifth].iter().all(|place| !is_dismissed(place)));
        after_a_moment().await;
        let sixth = take(4);
        assert!(is_dismissed(&first), "the oldest of all");
        drop((second, third, fourth, fifth, sixth, first));
        assert!(places.0.taken.lock().by_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_with_a_key_are_evicted_last_and_by_idleness() {
        let places = ConnectionLimiter::new(BOUNDS);
        let known: Vec<ConnectionPermit> = (0..7)
            .map(|_| {
                let place = places.take(from(1)).unwrap();
                place.proven().set();
                place
            })
            .collect();
        let anonymous = places.take(from(1)).unwrap();
        after_a_moment().await;
        let other = places.take(from(2)).unwrap();
        assert!(is_dismissed(&anonymous) && !known.iter().any(is_dismissed));
        other.proven().set();
        let request = known[0].begin();
        let _others: Vec<RequestGuard> =
            known[2..].iter().chain([&other]).map(ConnectionPermit::begin).collect();
        let last = places.take(from(2)).unwrap();
        last.proven().set();
        let _busy = last.begin();
        assert!(is_dismissed(&known[1]), "the only one that is idle");
        assert!(places.take(from(3)).is_none(), "all are busy");
        drop(request);
        assert!(places.take(from(3)).is_some());
        assert!(is_dismissed(&known[0]));
    }

    #[tokio::test]
    async fn requests_with_a_key_are_finished_and_others_are_not() {
        let bounds = ConnectionLimits { all: 2, keyless: 2, keyless_per_address: 2 };
        let places = ConnectionLimiter::new(bounds);
        let (known, anonymous) = (places.take(from(1)).unwrap(), places.take(from(1)).unwrap());
        let (request, _anonymous) = (known.begin(), anonymous.begin());
        known.proven().set();
        let _newcomer = places.take(from(2)).unwrap();
        assert!(is_dismissed(&anonymous) && !is_dismissed(&known));
        // A request may begin between the choice of a connection and its dismissal.
        places.0.taken.lock().dismiss(known.number);
        assert!(!is_dismissed(&known));
        drop(request);
        assert!(is_dismissed(&known));
    }
}
