//! Failures that count as damage only once they repeat, over minutes.

use std::collections::BTreeMap;

use super::moment::Moment;

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
    last: Moment,
}

impl Failures {
    fn is_due(self, now: Moment) -> bool {
        now.is_after(self.last, APART_MS)
    }
}

impl<K: Ord + Clone> RepeatedFailures<K> {
    /// Tracks `things_max` things. Further things never count as lost.
    pub(crate) fn new(things_max: usize) -> Self {
        Self { failures: BTreeMap::new(), things_max }
    }

    /// Records a failure. Returns true if the thing is lost.
    pub(crate) fn record(&mut self, thing: K, now: Moment) -> bool {
        if !self.failures.contains_key(&thing) && self.failures.len() >= self.things_max {
            return false;
        }
        let failures = self.failures.entry(thing).or_insert(Failures { times: 0, last: now });
        if failures.times == 0 || failures.is_due(now) {
            *failures = Failures { times: failures.times + 1, last: now };
        }
        failures.times >= TIMES
    }

    /// Returns up to `limit` things whose next failure counts.
    pub(crate) fn due(&self, now: Moment, limit: usize) -> Vec<K> {
        let due = self.failures.iter().filter(|(_, failures)| failures.is_due(now));
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
        let start = Moment::now(0);
        let at = |ms| start.later(ms, 0);
        for (now_ms, is_lost) in [(5, false), (60_004, false), (60_005, false), (120_005, true)] {
            assert_eq!(failures.record('a', at(now_ms)), is_lost, "at {now_ms}");
        }
        assert!(failures.record('a', at(120_006)), "it stays lost");
        assert!(!failures.record('b', at(120_006)));
        assert_eq!(failures.due(at(180_005), 9), ['a']);
        assert_eq!(failures.due(at(180_006), 9), ['a', 'b']);
        assert_eq!(failures.due(at(180_006), 1), ['a']);
        failures.forget(&'a');
        assert!(!failures.record('a', at(180_006)), "from the beginning");
    }

    #[test]
    fn a_clock_that_stands_still_keeps_nothing_from_being_lost() {
        let mut failures = RepeatedFailures::new(1);
        let start = Moment::now(1_000_000);
        for (steady_ms, is_lost) in [(0, false), (59_999, false), (60_000, false), (120_000, true)]
        {
            assert_eq!(failures.record('a', start.later(0, steady_ms)), is_lost, "at {steady_ms}");
        }
    }

    #[test]
    fn more_things_than_are_tracked_are_never_lost() {
        let mut failures = RepeatedFailures::new(1);
        let start = Moment::now(0);
        for minutes in 0..9 {
            let now = start.later(minutes * APART_MS, 0);
            failures.record('a', now);
            assert!(!failures.record('b', now));
        }
        failures.clear();
        assert!(failures.due(start.later(u64::MAX, 0), 9).is_empty());
    }
}
