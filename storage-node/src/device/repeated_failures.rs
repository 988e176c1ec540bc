//! Failures that count as damage only once they repeat, over minutes.

use std::collections::BTreeMap;

/// Number of failures after which a thing counts as lost.
const TIMES: u32 = 3;
/// Failures of a thing that are closer together count as one; in milliseconds.
const APART_MS: u64 = 60_000;

/// Failures of things, at most as many as given.
#[derive(Debug)]
pub(crate) struct RepeatedFailures<K> {
    failures: BTreeMap<K, Failures>,
    things_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    times: u32,
    last_ms: u64,
}

impl Failures {
    fn is_due(self, now_ms: u64) -> bool {
        now_ms >= self.last_ms.saturating_add(APART_MS)
    }
}

impl<K: Ord + Clone> RepeatedFailures<K> {
    /// Tracks `things_max` things. Further things never count as lost.
    pub(crate) fn new(things_max: usize) -> Self {
        Self { failures: BTreeMap::new(), things_max }
    }

    /// Records a failure at `now_ms`, in milliseconds since 1970. Returns true if the thing is lost.
    pub(crate) fn record(&mut self, thing: K, now_ms: u64) -> bool {
        if !self.failures.contains_key(&thing) && self.failures.len() >= self.things_max {
            return false;
        }
        let failures = self.failures.entry(thing).or_insert(Failures { times: 0, last_ms: 0 });
        if failures.times == 0 || failures.is_due(now_ms) {
            *failures = Failures { times: failures.times + 1, last_ms: now_ms };
        }
        failures.times >= TIMES
    }

    /// Returns up to `limit` things whose next failure counts.
    pub(crate) fn due(&self, now_ms: u64, limit: usize) -> Vec<K> {
        let due = self.failures.iter().filter(|(_, failures)| failures.is_due(now_ms));
        due.map(|(thing, _)| thing.clone()).take(limit).collect()
    }

    /// Forgets the failures of a thing: it can be read, or is gone.
    pub(crate) fn forget(&mut self, thing: &K) {
        self.failures.remove(thing);
    }

    /// Forgets all failures.
    pub(crate) fn clear(&mut self) {
        self.failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_lost_once_it_failed_three_times_over_minutes() {
        let mut failures = RepeatedFailures::new(2);
        for (now_ms, is_lost) in [(5, false), (60_004, false), (60_005, false), (120_005, true)] {
            assert_eq!(failures.record('a', now_ms), is_lost, "at {now_ms}");
        }
        assert!(failures.record('a', 120_006), "it stays lost");
        assert!(!failures.record('b', 120_006));
        assert_eq!(failures.due(180_005, 9), ['a']);
        assert_eq!(failures.due(180_006, 9), ['a', 'b']);
        assert_eq!(failures.due(180_006, 1), ['a']);
        failures.forget(&'a');
        assert!(!failures.record('a', 180_006), "from the beginning");
    }

    #[test]
    fn more_things_than_are_tracked_are_never_lost() {
        let mut failures = RepeatedFailures::new(1);
        for minutes in 0..9 {
            failures.record('a', minutes * APART_MS);
            assert!(!failures.record('b', minutes * APART_MS));
        }
        failures.clear();
        assert!(failures.due(u64::MAX, 9).is_empty());
    }
}
