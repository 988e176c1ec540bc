//! Quotas: limits on the usage of an owner's buckets, checked before a body is read.
//!
//! ```text
//! PUT ─▶ charge ─ counted + written here since + under way + requested ≤ quota? ─▶ body ─▶ entry
//!           │                                                                        │
//!           └── no: QuotaExceeded                            returned, or written here ┘
//! ```
//!
//! * [`ledger`]: usage known to one proxy; pure.
//! * [`count`]: counts of buckets, for the usage worker.
//! * [`charge`]: usage requested by a write; [`set`]: quotas of buckets.
//!
//! The usage of buckets is counted periodically and stored in documents beside the accounts. A
//! proxy adds what it has written since the start of the count. Overwritten and deleted bytes stay
//! in that sum until the next count. So a quota is exceeded at most by what other proxies have
//! written since the last count. If this proxy was restarted since, its writes before that add to
//! the excess. Before the first count, only this proxy's writes count. Reads and deletes are never
//! checked.
//!
//! Invariants:
//! * Buckets without a quota, of owners without one, are neither counted nor stored.
//! * A cached quota is at most [`account_cache_ms`](crate::StoreOptions::account_cache_ms) old
//!   while a quorum replies. Otherwise the last known quota applies: quotas cost no availability.
//! * A charge under way is always returned, whatever the result of the write.

mod charge;
mod count;
mod ledger;
mod set;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::entry::Bucket;
use martlet_protocol::usage::{Excess, Quota, Usage};
use martlet_protocol::{BucketId, Setting};
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::time::{Instant, timeout};

pub(crate) use self::charge::{Asked, Charge};
use self::ledger::{Counted, Ledger};
use crate::accounts::BucketUsage;
use crate::error::Result;
use crate::store::{Inner, ObjectStore};

/// Maximum number of cached owners.
const OWNERS_MAX: usize = 10_000;
/// Minimum interval between reads of counts. Reads take at most a tenth of the time.
const COUNTS_KEPT_FOR: Duration = Duration::from_secs(1);
const SHARE_OF_TIME: u32 = 10;
/// Longest wait of a write for a quota before the last known one applies.
const PATIENCE: Duration = Duration::from_secs(2);

/// A write would exceed a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the quota of the {} would be exceeded: {excess}", .whose.name())]
pub struct Exceeded {
    /// Owner of the quota.
    pub whose: Whose,
    /// The exceeded limit.
    pub excess: Excess,
}

/// Owner of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One bucket.
    Bucket,
    /// All buckets of a tenant together.
    Tenant,
}

impl Whose {
    /// Name of the owner's kind, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Tenant => "tenant",
        }
    }
}

/// Quotas that apply to a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) bucket: Quota,
    pub(crate) tenant: Quota,
}

impl Bounds {
    fn is_none(&self) -> bool {
        self.bucket.is_none() && self.tenant.is_none()
    }
}

/// Owners of recently written buckets.
#[derive(Default)]
pub(crate) struct Quotas(RwLock<HashMap<String, Arc<Account>>>);

/// An owner of buckets.
pub(crate) struct Account {
    owner: String,
    known: Mutex<Known>,
    /// Held during a lookup of the quota and counts.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    quota: Quota,
    /// Start of the read of the quota.
    since: Option<Instant>,
    /// Start of the read of the counts, and their lifetime.
    counts: Option<(Instant, Duration)>,
    ledger: Ledger,
    /// True while a background lookup runs.
    is_asked: bool,
}

/// Lookup needed before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Nobody,
    Behind,
    First,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Quotas {
    fn account(&self, owner: &str) -> Arc<Account> {
        if let Some(account) = self.0.read().get(owner) {
            return account.clone();
        }
        let mut all = self.0.write();
        if all.len() >= OWNERS_MAX {
            // A write under way holds its account itself.
            all.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let account = || Account {
            owner: owner.to_owned(),
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        all.entry(owner.to_owned()).or_insert_with(|| Arc::new(account())).clone()
    }
}

impl Known {
    /// Lookup needed now; `is_counted` is true if counts are needed.
    fn ask(&mut self, kept_for: Duration, is_counted: bool) -> Ask {
        let age = self.since.map(|since| since.elapsed());
        let Some(age) = age.filter(|age| *age < kept_for) else { return Ask::First };
        let counts_are_old = match self.counts {
            None if is_counted => return Ask::First,
            None => false,
            Some((since, good_for)) => since.elapsed() >= good_for,
        };
        let is_due = age >= kept_for / 2 || (is_counted && counts_are_old);
        if !is_due || std::mem::replace(&mut self.is_asked, true) {
            return Ask::Nobody;
        }
        Ask::Behind
    }
}

/// Returns true for a tenant's canonical id: 64 hexadecimal digits. No other owner has a quota of
/// its own.
pub fn is_of_tenant(owner: &str) -> bool {
    owner.len() == 64 && owner.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Quota of a bucket. An unreadable quota limits nothing, and is logged.
pub(crate) fn quota_of(bucket: &Bucket) -> Quota {
    let Some(document) = bucket.settings.get(Setting::Quota) else { return Quota::default() };
    Quota::decode(document).unwrap_or_else(|error| {
        tracing::error!(bucket = %bucket.id, %error, "could not read a quota, not enforcing it");
        Quota::default()
    })
}

impl Inner {
    /// Charges the usage of a write against the quotas. Needs no lookup without a quota.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) async fn charge(&self, bucket: &Bucket, asked: Asked) -> Result<Charge> {
        let own = quota_of(bucket);
        if own.is_none() && !is_of_tenant(&bucket.owner) {
            return Ok(Charge::free());
        }
        let account = self.quotas.account(&bucket.owner);
        let tenant = self.store().quota_of_owner(&account, &own).await;
        let bounds = Bounds { bucket: own, tenant };
        if bounds.is_none() {
            return Ok(Charge::free());
        }
        Ok(Charge::take(account, bucket.id, bounds, asked)?)
    }
}

impl ObjectStore {
    /// Quota of a bucket's owner. Refreshes the counts too if any quota applies.
    async fn quota_of_owner(&self, account: &Arc<Account>, of_bucket: &Quota) -> Quota {
        let kept_for = Duration::from_millis(self.inner().options.account_cache_ms);
        let look = || {
            let mut known = account.known.lock();
            let is_counted = !(known.quota.is_none() && of_bucket.is_none());
            (known.ask(kept_for, is_counted), known.quota)
        };
        match look() {
            (Ask::Nobody, quota) => return quota,
            (Ask::Behind, quota) => {
                let (store, account, of_bucket) = (self.clone(), account.clone(), *of_bucket);
                tokio::spawn(async move { store.learn(&account, &of_bucket).await });
                return quota;
            }
            (Ask::First, _) => {}
        }
        let _turn = account.turn.lock().await;
        // An earlier holder of the turn may have looked it up.
        if look().0 == Ask::First {
            self.learn(account, of_bucket).await;
        }
        account.known.lock().quota
    }

    /// Reads the quota of an owner, and the counts if any quota applies.
    async fn learn(&self, account: &Account, of_bucket: &Quota) {
        let since = Instant::now();
        let before = account.known.lock().quota;
        let quota = match timeout(PATIENCE, self.quota_by_id(&account.owner)).await {
            Ok(Ok(quota)) => quota,
            outcome => {
                tracing::debug!(?outcome, "could not read a quota, using the last one");
                before
            }
        };
        let is_counted = !(quota.is_none() && of_bucket.is_none());
        let counts = if is_counted { self.counts(&account.owner).await } else { None };
        let now_ms = self.inner().stamps.now_ms();
        let mut known = account.known.lock();
        (known.quota, known.since, known.is_asked) = (quota, Some(since), false);
        let good_for = COUNTS_KEPT_FOR.max(since.elapsed() * SHARE_OF_TIME);
        known.counts = is_counted.then_some((since, good_for));
        if let Some(counts) = counts {
            known.ledger.learn(counts, now_ms);
        }
    }

    async fn quota_by_id(&self, owner: &str) -> Result<Quota> {
        if !is_of_tenant(owner) {
            return Ok(Quota::default());
        }
        Ok(self.tenant_of(owner).await?.map(|tenant| tenant.quota).unwrap_or_default())
    }

    /// Counts of an owner's buckets; none if they can't be read, so the last ones stay.
    async fn counts(&self, owner: &str) -> Option<Vec<(BucketId, Counted)>> {
        let read = |it: BucketUsage| {
            let counted = Counted { usage: it.usage, began_ms: it.began_ms };
            Some((it.bucket_id.parse().ok()?, counted))
        };
        match self.usages(Some(owner)).await {
            Ok(usages) => Some(usages.into_iter().filter_map(read).collect()),
            Err(error) => {
                tracing::debug!(%error, "could not read counts, using the last ones");
                None
            }
        }
    }

    /// Usage of a tenant's buckets at their last counts, and the earliest start of these counts in
    /// milliseconds since 1970; none without counts.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn tenant_usage(&self, canonical_id: &str) -> Result<(Usage, Option<u64>)> {
        let usages = self.usages(Some(canonical_id)).await?;
        let usage = usages.iter().fold(Usage::default(), |sum, it| sum.plus(it.usage));
        Ok((usage, usages.iter().map(|it| it.began_ms).min()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_tenants_are_told_from_other_owners() {
        assert!(is_of_tenant(&"0f".repeat(32)));
        for other in ["root", "me", "", &"0g".repeat(32), &"0".repeat(63)] {
            assert!(!is_of_tenant(other), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_asked_for_again_before_it_is_old() {
        let kept_for = Duration::from_secs(1);
        let mut known = Known::default();
        assert_eq!(known.ask(kept_for, false), Ask::First, "nothing is known");
        known.since = Some(Instant::now());
        assert_eq!(known.ask(kept_for, false), Ask::Nobody);
        assert_eq!(known.ask(kept_for, true), Ask::First, "there are no counts");
        known.counts = Some((Instant::now(), Duration::from_millis(300)));
        assert_eq!(known.ask(kept_for, true), Ask::Nobody);
        tokio::time::advance(Duration::from_millis(350)).await;
        assert_eq!(known.ask(kept_for, true), Ask::Behind, "the counts are old");
        assert_eq!(known.ask(kept_for, true), Ask::Nobody, "somebody asks");
        known.is_asked = false;
        assert_eq!(known.ask(kept_for, false), Ask::Nobody, "counts are of no concern");
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(
            known.ask(kept_for, false),
            Ask::Behind,
            "the quota is half as old as it may be"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(known.ask(kept_for, false), Ask::First, "whoever asked has not come back");
    }

    #[test]
    fn a_refusal_says_whose_quota_of_what() {
        let exceeded = Exceeded { whose: Whose::Tenant, excess: Excess::Bytes(7) };
        assert_eq!(exceeded.to_string(), "the quota of the tenant would be exceeded: 7 bytes");
        let exceeded = Exceeded { whose: Whose::Bucket, excess: Excess::Objects(3) };
        assert_eq!(exceeded.to_string(), "the quota of the bucket would be exceeded: 3 objects");
    }
}
