//! Logins that browsers have begun at the identity provider, in memory.
//!
//! Invariants:
//! * A login ends once: by its callback, after ten minutes, or when it makes room for another one.
//! * Only the browser that began a login can end it: its cookie and the state belong together.
//! * Logins are bounded in number. Beyond the bound the network with the most logins forgets one, so
//!   that a flood of one network forgets no login of another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use martlet_oidc::CodeVerifier;
use martlet_protocol::Clock;
use martlet_protocol::id::random_bytes;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use crate::attempts::prefixes;

/// Time in which a login must end, in milliseconds.
const PENDING_MS: u64 = 10 * 60 * 1000;
/// Maximum number of logins under way, about 2 MiB.
const PENDING_MAX: usize = 4096;
/// Maximum number of logins of one network, and of all networks of its wider prefixes. One more
/// forgets the oldest of them.
const PREFIX_MAX: [usize; 4] = [256, 512, 768, 1024];
/// Bytes of a state, in hexadecimal digits.
pub(super) const STATE_BYTES: usize = 64;

/// Login that is under way.
pub(crate) struct PendingLogin {
    /// Value of the browser's cookie.
    browser: String,
    /// Text that the ID token must repeat.
    pub(crate) nonce: String,
    /// Secret of the code.
    pub(crate) verifier: CodeVerifier,
    /// URL of the callback, as the provider received it.
    pub(crate) redirect_uri: String,
    prefixes: Vec<IpAddr>,
    began_ms: u64,
    /// Order of logins that began in one millisecond.
    number: u64,
}

/// Login that has begun.
pub(crate) struct NewLogin {
    /// Text that the callback must repeat.
    pub(crate) state: String,
    /// Value of the browser's cookie.
    pub(crate) browser: String,
    pub(crate) nonce: String,
    pub(crate) verifier: CodeVerifier,
    pub(crate) redirect_uri: String,
}

/// Logins by their state.
pub(crate) struct PendingLogins {
    open: Mutex<OpenLogins>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct OpenLogins {
    by_state: HashMap<String, PendingLogin>,
    count: u64,
}

impl OpenLogins {
    /// Removes the oldest login that `is_meant` accepts, if it accepts `max` at least.
    fn make_room(&mut self, max: usize, is_meant: impl Fn(&PendingLogin) -> bool) {
        if self.by_state.values().filter(|login| is_meant(login)).count() < max {
            return;
        }
        let meant = self.by_state.iter().filter(|(_, login)| is_meant(login));
        let oldest = meant.min_by_key(|(_, login)| login.number).map(|(state, _)| state.clone());
        if let Some(oldest) = oldest {
            self.by_state.remove(&oldest);
        }
    }

    /// Removes the oldest login of the widest prefix with the most logins, if the table is full.
    fn make_room_in_fullest(&mut self) {
        if self.by_state.len() < PENDING_MAX {
            return;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for prefix in self.by_state.values().filter_map(|login| login.prefixes.last()) {
            *counts.entry(*prefix).or_default() += 1;
        }
        let fullest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(prefix, _)| prefix);
        self.make_room(0, |login| login.prefixes.last() == fullest.as_ref());
    }
}

impl PendingLogins {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { open: Mutex::default(), clock }
    }

    /// Begins a login of a client.
    pub(crate) fn begin(&self, client: Option<IpAddr>, redirect_uri: String) -> NewLogin {
        let now_ms = self.clock.now_ms();
        let new = NewLogin {
            state: hex::encode(random_bytes::<{ STATE_BYTES / 2 }>()),
            browser: hex::encode(random_bytes::<32>()),
            nonce: hex::encode(random_bytes::<32>()),
            verifier: CodeVerifier::new(),
            redirect_uri,
        };
        let prefixes = prefixes(client);
        let mut open = self.open.lock();
        open.by_state.retain(|_, login| login.is_open(now_ms));
        for (at, max) in PREFIX_MAX.into_iter().enumerate().take(prefixes.len()) {
            open.make_room(max, |login| login.prefixes.get(at) == prefixes.get(at));
        }
        open.make_room_in_fullest();
        open.count += 1;
        let login = PendingLogin {
            browser: new.browser.clone(),
            nonce: new.nonce.clone(),
            verifier: new.verifier.clone(),
            redirect_uri: new.redirect_uri.clone(),
            prefixes,
            began_ms: now_ms,
            number: open.count,
        };
        open.by_state.insert(new.state.clone(), login);
        new
    }

    /// Takes the login of a state out of the table, if the browser's cookie belongs to it.
    pub(crate) fn take(&self, state: &str, cookie: &str) -> Option<PendingLogin> {
        let now_ms = self.clock.now_ms();
        let mut open = self.open.lock();
        let login = open.by_state.get(state).filter(|login| login.is_open(now_ms))?;
        let is_own: bool = cookie.as_bytes().ct_eq(login.browser.as_bytes()).into();
        if !is_own {
            return None;
        }
        open.by_state.remove(state)
    }
}

impl PendingLogin {
    fn is_open(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.began_ms) < PENDING_MS
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ManualClock;

    use super::*;

    fn logins() -> (PendingLogins, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(1000));
        (PendingLogins::new(clock.clone()), clock)
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    impl PendingLogins {
        fn new_login(&self, number: u32) -> NewLogin {
            self.begin(Some(client(number)), "http://localhost/cb".to_owned())
        }

        fn is_taken(&self, login: &NewLogin) -> bool {
            self.take(&login.state, &login.browser).is_some()
        }
    }

    #[test]
    fn a_login_ends_once_and_in_its_own_browser() {
        let (logins, clock) = logins();
        let (one, other) = (logins.new_login(1), logins.new_login(1));
        assert!(logins.take(&one.state, "").is_none());
        assert!(logins.take(&one.state, &other.browser).is_none());
        assert!(logins.take("", &one.browser).is_none());
        let taken = logins.take(&one.state, &one.browser).unwrap();
        assert_eq!(
            (taken.nonce, taken.redirect_uri),
            (one.nonce.clone(), one.redirect_uri.clone())
        );
        assert!(taken.verifier == one.verifier && !logins.is_taken(&one), "it was used");
        clock.advance_ms(PENDING_MS);
        assert!(!logins.is_taken(&other), "it took too long");
    }

    #[test]
    fn networks_forget_their_own_logins_first() {
        let (logins, _) = logins();
        let other = logins.new_login(2);
        let own: Vec<NewLogin> = (0..500).map(|_| logins.new_login(1)).collect();
        assert_eq!(logins.open.lock().by_state.len(), 1 + PREFIX_MAX[0]);
        assert!(logins.is_taken(&other) && logins.is_taken(&own[499]) && !logins.is_taken(&own[0]));
        // An owner of a /32 has 1,024 at most.
        for number in 0..4000_u32 {
            let [a, b] = [number >> 16, number].map(|it| u16::try_from(it & 0xffff).unwrap());
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, b * 13, a, 0, 0, 0, 1);
            logins.begin(Some(address.into()), String::new());
        }
        let len = logins.open.lock().by_state.len();
        assert!(len <= PREFIX_MAX[3] + PREFIX_MAX[0], "{len}");
    }

    #[test]
    fn a_full_table_forgets_logins_of_the_fullest_network() {
        let (logins, _) = logins();
        let other = logins.new_login(0);
        // Networks with 250 logins each, below the bound of one network.
        for number in 1..30 {
            for _ in 0..250 {
                logins.new_login(number);
            }
        }
        assert_eq!(logins.open.lock().by_state.len(), PENDING_MAX);
        assert!(logins.is_taken(&other), "although it is the oldest");
    }

    #[test]
    fn the_number_of_logins_is_bounded() {
        let (logins, clock) = logins();
        for number in 0..u32::try_from(PENDING_MAX + 10).unwrap() {
            logins.new_login(number);
        }
        assert_eq!(logins.open.lock().by_state.len(), PENDING_MAX);
        clock.advance_ms(PENDING_MS);
        logins.new_login(0);
        assert_eq!(logins.open.lock().by_state.len(), 1);
    }
}
