//! Bound on failed logins, by network of the client.
//!
//! Clients of one network can't lock out those of another: each network has a count of its own. The
//! table of counts is bounded. Beyond the bound the network that failed first is forgotten, so an
//! attacker needs more addresses than the table has places to forget its own count early.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use martlet_protocol::Clock;
use parking_lot::Mutex;

/// Time over which failures count, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Failed logins of one network in that time.
pub(crate) const FAILURES_MAX: u32 = 10;
/// Failed logins in that time of all IPv6 networks of one site, whose first 48 bits are equal. A
/// site has 65,536 networks.
const SITE_FAILURES_MAX: u32 = 100;
/// Bits of an IPv6 address that name a network, and a site.
const NETWORK_BITS: u32 = 64;
const SITE_BITS: u32 = 48;
/// Maximum number of counts, about 1 MiB.
const COUNTS_MAX: usize = 16_384;

/// Failed logins of the last minute.
pub(crate) struct Attempts {
    window: Mutex<Window>,
    clock: Arc<dyn Clock>,
}

/// Origin of logins whose failures are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Network(IpAddr),
    Site(Ipv6Addr),
}

#[derive(Default)]
struct Window {
    began_ms: u64,
    of: HashMap<Source, u32>,
    /// Sources in the order of their first failure.
    order: VecDeque<Source>,
}

impl Window {
    fn add(&mut self, source: Source) {
        if let Some(count) = self.of.get_mut(&source) {
            *count += 1;
            return;
        }
        if self.order.len() >= COUNTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.of.remove(&first);
        }
        self.of.insert(source, 1);
        self.order.push_back(source);
    }

    fn is_full(&self, source: Source) -> bool {
        let bound = match source {
            Source::Network(_) => FAILURES_MAX,
            Source::Site(_) => SITE_FAILURES_MAX,
        };
        self.of.get(&source).is_some_and(|count| *count >= bound)
    }
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
        if sources(client).any(|source| window.is_full(source)) {
            return false;
        }
        sources(client).for_each(|source| window.add(source));
        true
    }

    /// Takes back the count of a login that succeeded.
    pub(crate) fn give_back(&self, client: Option<IpAddr>) {
        let mut window = self.window.lock();
        for source in sources(client) {
            if let Some(count) = window.of.get_mut(&source) {
                *count = count.saturating_sub(1);
            }
        }
    }
}

/// Sources of a client: its IPv4 address, or the network and the site of its IPv6 address.
fn sources(client: Option<IpAddr>) -> impl Iterator<Item = Source> {
    let (network, site) = match client.map(|client| client.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let site = Source::Site(prefix(address, SITE_BITS));
            (prefix(address, NETWORK_BITS).into(), Some(site))
        }
        Some(address) => (address, None),
        None => (Ipv6Addr::UNSPECIFIED.into(), None),
    };
    std::iter::once(Source::Network(network)).chain(site)
}

fn prefix(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    let rest = Ipv6Addr::BITS - bits;
    Ipv6Addr::from_bits(address.to_bits() >> rest << rest)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ManualClock;

    use super::*;

    fn attempts() -> (Attempts, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(WINDOW_MS));
        (Attempts::new(clock.clone()), clock)
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn failures_of_one_network_refuse_that_network_alone() {
        let (attempts, clock) = attempts();
        for _ in 0..100 {
            assert!(attempts.take(Some(client(1))));
            attempts.give_back(Some(client(1)));
        }
        for _ in 0..FAILURES_MAX {
            assert!(attempts.take(Some(client(1))));
        }
        assert!(!attempts.take(Some(client(1))) && attempts.take(Some(client(2))));
        clock.advance_ms(WINDOW_MS);
        assert!(attempts.take(Some(client(1))));
    }

    #[test]
    fn hostile_networks_lock_no_other_network_out() {
        let (attempts, _) = attempts();
        let networks = u32::try_from(3 * COUNTS_MAX).unwrap();
        for number in 1..=networks {
            assert!(attempts.take(Some(client(number))));
        }
        let window = attempts.window.lock();
        assert_eq!((window.of.len(), window.order.len()), (COUNTS_MAX, COUNTS_MAX));
        drop(window);
        assert!(attempts.take(Some(client(networks + 1))));
    }

    #[test]
    fn a_site_of_ipv6_has_a_bound_over_its_networks() {
        let (attempts, _) = attempts();
        let of = |site: u16, network: u16| {
            let address = Ipv6Addr::new(0x2001, 0xdb8, site, network, 0, 0, 0, network);
            Some(IpAddr::from(address))
        };
        let taken = (0..1000).filter(|network| attempts.take(of(1, *network))).count();
        assert_eq!(taken, SITE_FAILURES_MAX as usize);
        assert!(attempts.take(of(2, 1)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| sources(Some(text.parse().unwrap())).next().unwrap();
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
