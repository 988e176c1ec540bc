//! Quota and usage of one owner of buckets, as known to one proxy.

use std::fmt;
use std::time::Duration;

use martlet_protocol::usage::Quota;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ledger::Ledger;

/// An owner of buckets.
pub(crate) struct Account {
    pub(super) owner: String,
    pub(super) known: Mutex<Known>,
    /// Held during a lookup of the quota and counts.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) quota: Quota,
    /// Start of the read of the quota.
    pub(super) since: Option<Instant>,
    /// Start of the read of the counts, and their lifetime.
    pub(super) counts: Option<(Instant, Duration)>,
    pub(super) ledger: Ledger,
    /// True while a background lookup runs.
    pub(super) is_asked: bool,
}

/// Lookup needed before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Nobody,
    Behind,
    First,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Known {
    /// Lookup needed now; `is_counted` is true if counts are needed.
    pub(super) fn ask(&mut self, kept_for: Duration, is_counted: bool) -> Ask {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
