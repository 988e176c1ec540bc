//! Recent use of an account or a key, against its rates.
//!
//! Each rate is a token bucket with a burst of one second. A request needs one token for itself
//! when it begins. Bytes are taken as they pass, in both directions, and may be owed: while bytes
//! are owed, requests are refused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use martlet_proxy::{Holder, Rate, Tenant};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Capacity of a bucket, as time: one second of its rate.
const BURST: Duration = Duration::from_secs(1);

/// A bucket that refills at a constant rate, stored as the time when it will be full. `None` is
/// full.
#[derive(Clone, Copy, Debug, Default)]
struct TokenBucket {
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Time to refill `amount`.
    fn cost(amount: u64, per_second: u64) -> Duration {
        let ns = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Time until `amount` can be taken.
    fn wait(self, now: Instant, amount: u64, per_second: u64) -> Duration {
        let owed = self.full_at.unwrap_or(now).saturating_duration_since(now);
        owed.saturating_add(Self::cost(amount, per_second)).saturating_sub(BURST)
    }

    /// Takes `amount`, even beyond the content.
    fn spend(&mut self, now: Instant, amount: u64, per_second: u64) {
        let from = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = Some(from.checked_add(Self::cost(amount, per_second)).unwrap_or(from));
    }
}

/// Recent use of an account or a key.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Name of the account or key; empty for fixed keys and anonymous requests.
    name: Box<str>,
    /// Requests in progress.
    pub(super) turns: AtomicUsize,
    /// Requests that wait for a turn.
    pub(super) waiting: AtomicUsize,
    /// Bytes of documents that its requests hold.
    pub(super) document_bytes: AtomicUsize,
    is_limited: AtomicBool,
    paces: Mutex<TokenBuckets>,
}

#[derive(Debug, Default)]
struct TokenBuckets {
    rate: Rate,
    requests: TokenBucket,
    bytes: TokenBucket,
}

impl TokenBuckets {
    fn wait(&self, now: Instant) -> Duration {
        let requests = self.rate.requests.map(|rate| self.requests.wait(now, 1, rate));
        let bytes = self.rate.bytes.map(|rate| self.bytes.wait(now, 0, rate));
        requests.max(bytes).unwrap_or_default()
    }
}

impl Meter {
    /// Sets the rate. Earlier use still counts.
    fn set(&self, rate: Rate) {
        self.paces.lock().rate = rate;
        self.is_limited.store(rate != Rate::default(), Ordering::Release);
    }

    fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    fn spend_request(&self, now: Instant) {
        let paces = &mut *self.paces.lock();
        if let Some(rate) = paces.rate.requests {
            paces.requests.spend(now, 1, rate);
        }
    }

    fn spend_bytes(&self, now: Instant, bytes: u64) {
        let paces = &mut *self.paces.lock();
        if let Some(rate) = paces.rate.bytes {
            paces.bytes.spend(now, bytes, rate);
        }
    }
}

/// Meters of a principal: of its account, and of its key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    pub(super) account: Arc<Meter>,
    key: Option<Arc<Meter>>,
}

/// Meters don't affect the equality of principals.
impl PartialEq for Meters {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Meters {}

impl Meters {
    /// Meters of an account with a rate.
    #[cfg(test)]
    pub(crate) fn at(rate: Rate) -> Self {
        let meters = Self::default();
        meters.account.set(rate);
        meters
    }

    fn limited(&self) -> impl Iterator<Item = &Arc<Meter>> {
        std::iter::once(&self.account).chain(&self.key).filter(|meter| meter.is_limited())
    }

    /// Number of the key, or of the account without one. Nothing else that is alive has it.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(self.key.as_ref().unwrap_or(&self.account)).addr()
    }

    /// Name of the key, or of the account without one; empty for fixed keys.
    pub(super) fn name(&self) -> &str {
        &self.key.as_ref().unwrap_or(&self.account).name
    }

    /// True if any rate applies.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited().next().is_some()
    }

    /// True if a rate of bytes applies.
    pub(crate) fn limits_bytes(&self) -> bool {
        self.limited().any(|meter| meter.paces.lock().rate.bytes.is_some())
    }

    /// Admits a request, or returns the time to wait.
    ///
    /// # Errors
    /// The time after which a retry may succeed.
    pub(crate) fn admit(&self) -> Result<(), Duration> {
        if !self.is_limited() {
            return Ok(());
        }
        let now = Instant::now();
        let waits = self.limited().map(|meter| meter.paces.lock().wait(now));
        if let Some(wait) = waits.max().filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        self.limited().for_each(|meter| meter.spend_request(now));
        Ok(())
    }

    /// Records bytes that have passed.
    pub(crate) fn charge(&self, bytes: u64) {
        if bytes > 0 && self.is_limited() {
            let now = Instant::now();
            self.limited().for_each(|meter| meter.spend_bytes(now, bytes));
        }
    }
}

/// Meters of accounts and keys, shared by all cached keys of an account.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    meters: HashMap<(MeterOwner, Box<str>), Weak<Meter>>,
    /// Number of entries at which unused meters are removed.
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MeterOwner {
    Account,
    Key,
}

impl Registry {
    /// Returns the meters of a key's holder, at its current rates.
    pub(crate) fn of(&self, holder: &Holder) -> Meters {
        let Holder { key, tenant, .. } = holder;
        let account = self.meter(MeterOwner::Account, &tenant.canonical_id, tenant.rate);
        let key = self.meter(MeterOwner::Key, &key.access_key, key.rate);
        Meters { account, key: Some(key) }
    }

    /// Returns the meters of a session of a tenant's role: the tenant's, and those of the key that
    /// began the session.
    pub(crate) fn of_session(&self, tenant: &Tenant, began: Option<&Meters>) -> Meters {
        let account = self.meter(MeterOwner::Account, &tenant.canonical_id, tenant.rate);
        Meters { account, key: began.and_then(|began| began.key.clone()) }
    }

    /// Meters of a key without limits.
    #[cfg(test)]
    pub(crate) fn named(&self, key: &str) -> Meters {
        let meter = |of| self.meter(of, key, Rate::default());
        Meters { account: meter(MeterOwner::Account), key: Some(meter(MeterOwner::Key)) }
    }

    fn meter(&self, of: MeterOwner, name: &str, rate: Rate) -> Arc<Meter> {
        const SWEEP_AT_MIN: usize = 1024;
        let mut known = self.0.lock();
        if known.meters.len() >= known.sweep_at.max(SWEEP_AT_MIN) {
            known.meters.retain(|_, meter| meter.strong_count() > 0);
            known.sweep_at = known.meters.len() * 2;
        }
        let slot = known.meters.entry((of, name.into())).or_default();
        let meter = slot.upgrade().unwrap_or_else(|| {
            let meter = Arc::new(Meter { name: name.into(), ..Meter::default() });
            *slot = Arc::downgrade(&meter);
            meter
        });
        meter.set(rate);
        meter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn meters(registry: &Registry, key: &str, tenant: Rate, of_key: Rate) -> Meters {
        let account = registry.meter(MeterOwner::Account, "c1", tenant);
        Meters { account, key: Some(registry.meter(MeterOwner::Key, key, of_key)) }
    }

    fn requests(rate: u64) -> Rate {
        Rate { requests: Some(rate), bytes: None }
    }

    fn admitted(meters: &Meters) -> usize {
        (0..1000).take_while(|_| meters.admit().is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_seconds_worth_of_requests_comes_at_once_and_then_one_after_another() {
        let meters = meters(&Registry::default(), "a", requests(10), Rate::default());
        assert_eq!(admitted(&meters), 10);
        assert_eq!(meters.admit(), Err(SECOND / 10));
        tokio::time::advance(SECOND / 10).await;
        assert_eq!(admitted(&meters), 1);
        tokio::time::advance(SECOND * 60).await;
        assert_eq!(admitted(&meters), 10, "no more than a second's worth is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_may_be_owed_and_are_paid_before_anything_else() {
        let rate = Rate { requests: None, bytes: Some(100) };
        let meters = meters(&Registry::default(), "a", rate, Rate::default());
        meters.charge(100);
        assert!(meters.limits_bytes());
        assert_eq!(meters.admit(), Ok(()));
        meters.charge(250);
        assert_eq!(meters.admit(), Err(SECOND * 5 / 2));
        tokio::time::advance(SECOND * 2).await;
        assert_eq!(meters.admit(), Err(SECOND / 2));
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(meters.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_share_what_their_tenant_has_and_have_rates_of_their_own() {
        let registry = Registry::default();
        let slow = meters(&registry, "slow", requests(5), requests(2));
        let other = meters(&registry, "other", requests(5), Rate::default());
        assert_eq!(admitted(&slow), 2);
        assert_eq!(admitted(&other), 3, "the tenant's five are spent");
        tokio::time::advance(SECOND).await;
        assert_eq!(admitted(&other), 5);
        assert_eq!(admitted(&slow), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_changed_and_taken_away_while_it_is_in_use() {
        let registry = Registry::default();
        let meters = meters(&registry, "a", requests(1), Rate::default());
        assert_eq!(admitted(&meters), 1);
        registry.meter(MeterOwner::Account, "c1", requests(100));
        tokio::time::advance(SECOND).await;
        assert_eq!(admitted(&meters), 100);
        registry.meter(MeterOwner::Account, "c1", Rate::default());
        assert!(!meters.is_limited());
        assert_eq!(admitted(&meters), 1000);
    }

    #[test]
    fn unused_meters_are_dropped() {
        let registry = Registry::default();
        let kept = registry.meter(MeterOwner::Key, "kept", requests(1));
        for key in 0..10_000 {
            drop(registry.meter(MeterOwner::Key, &key.to_string(), Rate::default()));
        }
        assert!(registry.0.lock().meters.len() <= 1024);
        assert!(Arc::ptr_eq(&kept, &registry.meter(MeterOwner::Key, "kept", requests(1))));
        let tenant = registry.meter(MeterOwner::Account, "kept", requests(1));
        assert!(!Arc::ptr_eq(&kept, &tenant), "a tenant may be called like a key");
    }
}
