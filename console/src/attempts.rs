//! Bound on failed logins, by network of the client.
//!
//! Clients of one network can't lock out those of another: each network has a count of its own. An
//! IPv6 client may own many networks, so wider prefixes have counts of their own, with larger bounds.
//!
//! Each width has a table of its own, and each table is bounded. Beyond the bound the prefix that
//! failed first is forgotten. So an attacker needs more addresses than a table has places to forget
//! its own count early, and a flood of networks forgets no count of a wider prefix.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use martlet_protocol::Clock;
use parking_lot::Mutex;

/// Time over which failures count, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Failed logins of one network in that time: an IPv4 address, or an IPv6 /64.
pub(crate) const FAILURES_MAX: u32 = 10;
/// Bits of an IPv6 prefix, and the failed logins of all its networks in that time. A site has a /48 at
/// most, a customer of many sites a /40, and a provider a /32.
const PREFIXES: [(u32, u32); 4] = [(64, FAILURES_MAX), (48, 100), (40, 300), (32, 1000)];
/// Maximum number of counts of one width, about 1 MiB for all.
const COUNTS_MAX: usize = 8192;

/// Failed logins of the last minute.
pub(crate) struct Attempts {
    window: Mutex<Window>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Window {
    began_ms: u64,
    /// Counts by width, in the order of [`PREFIXES`]. IPv4 addresses are in the first table.
    tables: [Counts; PREFIXES.len()],
}

/// Failed logins by prefix.
#[derive(Default)]
struct Counts {
    of: HashMap<IpAddr, u32>,
    /// Prefixes in the order of their first failure.
    order: VecDeque<IpAddr>,
}

impl Counts {
    fn add(&mut self, prefix: IpAddr) {
        if let Some(count) = self.of.get_mut(&prefix) {
            *count += 1;
            return;
        }
        if self.order.len() >= COUNTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.of.remove(&first);
        }
        self.of.insert(prefix, 1);
        self.order.push_back(prefix);
    }

    fn has(&self, prefix: IpAddr, count: u32) -> bool {
        self.of.get(&prefix).is_some_and(|of| *of >= count)
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
        let prefixes = prefixes(client);
        let is_full = prefixes
            .iter()
            .zip(PREFIXES)
            .zip(&window.tables)
            .any(|((prefix, (_, bound)), table)| table.has(*prefix, bound));
        if is_full {
            return false;
        }
        prefixes.iter().zip(&mut window.tables).for_each(|(prefix, table)| table.add(*prefix));
        true
    }

    /// Takes back the count of a login that succeeded.
    pub(crate) fn give_back(&self, client: Option<IpAddr>) {
        let mut window = self.window.lock();
        for (prefix, table) in prefixes(client).iter().zip(&mut window.tables) {
            if let Some(count) = table.of.get_mut(prefix) {
                *count = count.saturating_sub(1);
            }
        }
    }
}

/// Prefixes of a client whose failures are counted, in the order of [`PREFIXES`]: its IPv4 address
/// alone, or all prefixes of its IPv6 address.
pub(crate) fn prefixes(client: Option<IpAddr>) -> Vec<IpAddr> {
    match client.map(|client| client.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            PREFIXES.iter().map(|(bits, _)| prefix(address, *bits).into()).collect()
        }
        Some(address) => vec![address],
        None => vec![Ipv6Addr::UNSPECIFIED.into()],
    }
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
        let table = &window.tables[0];
        assert_eq!((table.of.len(), table.order.len()), (COUNTS_MAX, COUNTS_MAX));
        drop(window);
        assert!(attempts.take(Some(client(networks + 1))));
    }

    /// Client in the network of these 16 bits each, below `2001:db8::/32`.
    fn ipv6(second: u16, site: u16, network: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, second, site, network, 0, 0, 0, network).into()
    }

    #[test]
    fn a_site_of_ipv6_has_a_bound_over_its_networks() {
        let (attempts, _) = attempts();
        let taken =
            (0..1000).filter(|network| attempts.take(Some(ipv6(0xdb8, 1, *network)))).count();
        assert_eq!(taken, 100);
        assert!(attempts.take(Some(ipv6(0xdb8, 2, 1))));
    }

    #[test]
    fn wider_prefixes_of_ipv6_have_bounds_over_their_sites() {
        let (attempts, clock) = attempts();
        // A /40: 256 sites, whose networks are all new ones.
        let of_40 = |block: u16| {
            let sites = (0..256).flat_map(|site| (0..20).map(move |network| (site, network)));
            let taken = |&(site, network): &(u16, u16)| {
                attempts.take(Some(ipv6(0xdb8, (block << 8) | site, network)))
            };
            sites.filter(taken).count()
        };
        assert_eq!(of_40(1), 300);
        // The owner of the whole /32 has the rest of its bound, and another /32 has its own.
        assert_eq!((2..20).map(of_40).sum::<usize>(), 700);
        assert!(
            !attempts.take(Some(ipv6(0xdb8, 0xffff, 1))) && attempts.take(Some(ipv6(0xdb9, 0, 1)))
        );
        clock.advance_ms(WINDOW_MS);
        assert!(attempts.take(Some(ipv6(0xdb8, 0xffff, 1))));
    }

    #[test]
    fn a_flood_of_networks_forgets_no_count_of_a_wider_prefix() {
        let (attempts, _) = attempts();
        let full = (0..2000).filter(|site| attempts.take(Some(ipv6(0xdb8, site * 8, 0)))).count();
        assert_eq!(full, 1000);
        for number in 1..=u32::try_from(2 * COUNTS_MAX).unwrap() {
            assert!(attempts.take(Some(client(number))));
        }
        assert!(!attempts.take(Some(ipv6(0xdb8, 0xfff0, 7))), "the /32 is still full");
        for _ in 0..3 {
            attempts.give_back(Some(ipv6(0xdb8, 0xfff0, 7)));
        }
        assert!(attempts.take(Some(ipv6(0xdb8, 0xfff0, 7))));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| prefixes(Some(text.parse().unwrap()))[0];
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
