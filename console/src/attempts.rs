//! Bound on failed logins: by network of the client, and of all clients together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use martlet_protocol::Clock;
use parking_lot::Mutex;

/// Time over which failures count, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Failed logins of one network in that time.
pub(crate) const FAILURES_MAX: u32 = 10;
/// Failed logins of all networks in that time; also bounds the table.
const ALL_FAILURES_MAX: u32 = 300;

/// Failed logins of the last minute.
pub(crate) struct Attempts {
    window: Mutex<Window>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Window {
    began_ms: u64,
    all: u32,
    of: HashMap<IpAddr, u32>,
}

impl Attempts {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { window: Mutex::default(), clock }
    }

    /// Counts a login as failed before it is checked. Returns false if too many have failed.
    pub(crate) fn take(&self, client: Option<IpAddr>) -> bool {
        let now_ms = self.clock.now_ms();
        let mut window = self.window.lock();
        if now_ms.abs_diff(window.began_ms) >= WINDOW_MS {
            *window = Window { began_ms: now_ms, ..Window::default() };
        }
        let own = window.of.get(&network(client)).copied().unwrap_or_default();
        if own >= FAILURES_MAX || window.all >= ALL_FAILURES_MAX {
            return false;
        }
        window.all += 1;
        *window.of.entry(network(client)).or_default() += 1;
        true
    }

    /// Takes back the count of a login that succeeded.
    pub(crate) fn give_back(&self, client: Option<IpAddr>) {
        let mut window = self.window.lock();
        window.all = window.all.saturating_sub(1);
        if let Some(own) = window.of.get_mut(&network(client)) {
            *own = own.saturating_sub(1);
        }
    }
}

/// Network of a client: its IPv4 address, or the first 64 bits of its IPv6 address.
fn network(client: Option<IpAddr>) -> IpAddr {
    match client.map(|client| client.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let bits = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(bits).into()
        }
        Some(address) => address,
        None => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ManualClock;

    use super::*;

    #[test]
    fn failures_are_bounded_by_network_and_together() {
        let clock = Arc::new(ManualClock::at(WINDOW_MS));
        let attempts = Attempts::new(clock.clone());
        let client = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        for _ in 0..100 {
            assert!(attempts.take(client(1)));
            attempts.give_back(client(1));
        }
        for _ in 0..FAILURES_MAX {
            assert!(attempts.take(client(1)));
        }
        assert!(!attempts.take(client(1)) && attempts.take(client(2)));
        let taken = (3..1000).filter(|number| attempts.take(client(*number))).count();
        assert_eq!(taken, (ALL_FAILURES_MAX - FAILURES_MAX - 1) as usize);
        clock.advance_ms(WINDOW_MS);
        assert!(attempts.take(client(1)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
