//! Quota and usage of one owner of buckets, as cached by one proxy.

use std::fmt;
use std::time::Duration;

use martlet_protocol::usage::Quota;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ledger::Ledger;

/// An owner of buckets.
pub(crate) struct Account {
    pub(super) owner: String,
    pub(super) cached: Mutex<CachedQuota>,
    /// Held during a lookup of the quota and counts.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct CachedQuota {
    pub(super) quota: Quota,
    /// Start of the read of the quota.
    pub(super) since: Option<Instant>,
    /// Start of the read of the counts, and their lifetime.
    pub(super) counts: Option<(Instant, Duration)>,
    pub(super) ledger: Ledger,
    /// True while a background lookup runs.
    pub(super) is_refreshing: bool,
}

/// Lookup needed before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refresh {
    /// The cached quota is recent.
    NotNeeded,
    /// The cached quota decides; a lookup runs in the background.
    InBackground,
    /// The decision waits for the lookup.
    Needed,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl CachedQuota {
    /// Lookup needed now; `is_counted` is true if counts are needed.
    pub(super) fn refresh(&mut self, kept_for: Duration, is_counted: bool) -> Refresh {
        let age = self.since.map(|since| since.elapsed());
        let Some(age) = age.filter(|age| *age < kept_for) else { return Refresh::Needed };
        let counts_are_old = match self.counts {
            None if is_counted => return Refresh::Needed,
            None => false,
            Some((since, good_for)) => since.elapsed() >= good_for,
        };
        let is_due = age >= kept_for / 2 || (is_counted && counts_are_old);
        if !is_due || std::mem::replace(&mut self.is_refreshing, true) {
            return Refresh::NotNeeded;
        }
        Refresh::InBackground
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cached_quota_is_refreshed_before_it_is_old() {
        let kept_for = Duration::from_secs(1);
        let mut cached = CachedQuota::default();
        assert_eq!(cached.refresh(kept_for, false), Refresh::Needed, "nothing is known");
        cached.since = Some(Instant::now());
        assert_eq!(cached.refresh(kept_for, false), Refresh::NotNeeded);
        assert_eq!(cached.refresh(kept_for, true), Refresh::Needed, "there are no counts");
        cached.counts = Some((Instant::now(), Duration::from_millis(300)));
        assert_eq!(cached.refresh(kept_for, true), Refresh::NotNeeded);
        tokio::time::advance(Duration::from_millis(350)).await;
        assert_eq!(cached.refresh(kept_for, true), Refresh::InBackground, "the counts are old");
        assert_eq!(cached.refresh(kept_for, true), Refresh::NotNeeded, "a refresh is under way");
        cached.is_refreshing = false;
        assert_eq!(cached.refresh(kept_for, false), Refresh::NotNeeded, "counts are of no concern");
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(
            cached.refresh(kept_for, false),
            Refresh::InBackground,
            "the quota is half as old as it may be"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cached.refresh(kept_for, false), Refresh::Needed, "the refresh has not ended");
    }
}
