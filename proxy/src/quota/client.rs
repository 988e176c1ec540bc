//! Quotas of owners, looked up and charged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::entry::Bucket;
use martlet_protocol::stamp::StampSource;
use martlet_protocol::usage::Quota;
use martlet_protocol::{BucketId, Setting};
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};

use super::account::{Account, Refresh};
use super::charge::{Charge, RequestedUsage};
use super::exceeded::Bounds;
use super::ledger::Counted;
use crate::accounts::directory::Directory;
use crate::accounts::usage::BucketUsage;
use crate::error::Result;

/// Maximum number of cached owners.
const OWNERS_MAX: usize = 10_000;
/// Minimum interval between reads of counts. Reads take at most a tenth of the time.
const COUNTS_KEPT_FOR: Duration = Duration::from_secs(1);
const SHARE_OF_TIME: u32 = 10;
/// Longest wait of a write for a quota before the last known one applies.
const PATIENCE: Duration = Duration::from_secs(2);

/// Quotas and usage of the owners of recently written buckets.
pub(crate) struct Quotas {
    directory: Arc<Directory>,
    stamps: Arc<StampSource>,
    /// Lifetime of a cached quota.
    kept_for: Duration,
    accounts: RwLock<HashMap<String, Arc<Account>>>,
}

impl Quotas {
    pub(crate) fn new(
        directory: Arc<Directory>,
        stamps: Arc<StampSource>,
        kept_ms: u64,
    ) -> Arc<Self> {
        let kept_for = Duration::from_millis(kept_ms);
        Arc::new(Self { directory, stamps, kept_for, accounts: RwLock::default() })
    }

    fn account(&self, owner: &str) -> Arc<Account> {
        if let Some(account) = self.accounts.read().get(owner) {
            return account.clone();
        }
        let mut all = self.accounts.write();
        if all.len() >= OWNERS_MAX {
            // A write under way holds its account itself.
            all.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let account = || Account {
            owner: owner.to_owned(),
            cached: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        all.entry(owner.to_owned()).or_insert_with(|| Arc::new(account())).clone()
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

impl Quotas {
    /// Charges the usage of a write against the quotas. Needs no lookup without a quota.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) async fn charge(
        self: &Arc<Self>,
        bucket: &Bucket,
        requested: RequestedUsage,
    ) -> Result<Charge> {
        let own = quota_of(bucket);
        if own.is_none() && !is_of_tenant(&bucket.owner) {
            return Ok(Charge::free());
        }
        let account = self.account(&bucket.owner);
        let tenant = self.quota_of_owner(&account, &own).await;
        let bounds = Bounds { bucket: own, tenant };
        if bounds.is_none() {
            return Ok(Charge::free());
        }
        Ok(Charge::take(account, bucket.id, bounds, requested)?)
    }

    /// Quota of a bucket's owner. Refreshes the counts too if any quota applies.
    async fn quota_of_owner(self: &Arc<Self>, account: &Arc<Account>, of_bucket: &Quota) -> Quota {
        let look = || {
            let mut cached = account.cached.lock();
            let is_counted = !(cached.quota.is_none() && of_bucket.is_none());
            (cached.refresh(self.kept_for, is_counted), cached.quota)
        };
        match look() {
            (Refresh::NotNeeded, quota) => return quota,
            (Refresh::InBackground, quota) => {
                let (quotas, account, of_bucket) = (self.clone(), account.clone(), *of_bucket);
                tokio::spawn(async move { quotas.learn(&account, &of_bucket).await });
                return quota;
            }
            (Refresh::Needed, _) => {}
        }
        let _turn = account.turn.lock().await;
        // An earlier holder of the turn may have looked it up.
        if look().0 == Refresh::Needed {
            self.learn(account, of_bucket).await;
        }
        account.cached.lock().quota
    }

    /// Reads the quota of an owner, and the counts if any quota applies.
    async fn learn(&self, account: &Account, of_bucket: &Quota) {
        let since = Instant::now();
        let before = account.cached.lock().quota;
        let quota = match timeout(PATIENCE, self.quota_by_id(&account.owner)).await {
            Ok(Ok(quota)) => quota,
            outcome => {
                tracing::debug!(?outcome, "could not read a quota, using the last one");
                before
            }
        };
        let is_counted = !(quota.is_none() && of_bucket.is_none());
        let counts = if is_counted { self.counts(&account.owner).await } else { None };
        let now_ms = self.stamps.now_ms();
        let mut cached = account.cached.lock();
        (cached.quota, cached.since, cached.is_refreshing) = (quota, Some(since), false);
        let good_for = COUNTS_KEPT_FOR.max(since.elapsed() * SHARE_OF_TIME);
        cached.counts = is_counted.then_some((since, good_for));
        if let Some(counts) = counts {
            cached.ledger.learn(counts, now_ms);
        }
    }

    async fn quota_by_id(&self, owner: &str) -> Result<Quota> {
        if !is_of_tenant(owner) {
            return Ok(Quota::default());
        }
        Ok(self.directory.tenant_of(owner).await?.map(|tenant| tenant.quota).unwrap_or_default())
    }

    /// Counts of an owner's buckets; none if they can't be read, so the last ones stay.
    async fn counts(&self, owner: &str) -> Option<Vec<(BucketId, Counted)>> {
        let read = |it: BucketUsage| {
            let counted = Counted { usage: it.usage, began_ms: it.began_ms };
            Some((it.bucket_id.parse().ok()?, counted))
        };
        match self.directory.usages(Some(owner)).await {
            Ok(usages) => Some(usages.into_iter().filter_map(read).collect()),
            Err(error) => {
                tracing::debug!(%error, "could not read counts, using the last ones");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_tenants_differ_from_those_of_other_owners() {
        assert!(is_of_tenant(&"0f".repeat(32)));
        for other in ["root", "me", "", &"0g".repeat(32), &"0".repeat(63)] {
            assert!(!is_of_tenant(other), "{other}");
        }
    }
}
