//! Series of checkpoint sets: the generations of a series, and the oldest that a rule keeps.
//!
//! The oldest generation that a rule keeps is found in one walk, with the places of those that it keeps in memory.
//! Whatever is older is withdrawn. So a plan needs no list of a series.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use martlet_protocol::BucketId;
use martlet_protocol::entry::Bucket;
use parking_lot::Mutex;

use super::records::SetRecord;
use super::rules::{CheckpointRule, CheckpointRules, series_of};
use crate::error::{Error, Result};

/// Most generations of one series that a rule may keep in a plan: their places are held in memory, some
/// 10 MiB.
const KEPT_MAX: usize = 100_000;
/// Bounds of series that are remembered, and the milliseconds for which they are.
const BOUNDS_MAX: usize = 64;
const BOUND_AGE_MS_MAX: u64 = 60_000;

/// A committed generation of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) set: String,
    pub(super) number: u64,
    pub(super) order: u64,
    /// Time of its commit, in milliseconds since 1970.
    pub(super) committed_ms: u64,
    /// End of its longest hold, in milliseconds since 1970; zero for none.
    pub(super) held_until_ms: u64,
}

/// Place of a generation among those of its series: later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesPlace {
    pub(super) order: u64,
    pub(super) set: String,
    pub(super) number: u64,
}

/// Oldest place of a series that a rule keeps by the number of generations; none if it keeps all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptBound(Option<SeriesPlace>);

impl KeptBound {
    /// Returns true if all generations are kept.
    pub(super) fn keeps_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a generation is older than all that are kept.
    pub(super) fn excludes(&self, member: &Member) -> bool {
        let Member { order, set, number, .. } = member;
        self.0.as_ref().is_some_and(|it| (order, set, number) < (&it.order, &it.set, &it.number))
    }
}

/// A series of sets.
#[derive(Clone, Copy)]
pub(super) struct Series<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) rules: &'a CheckpointRules,
    pub(super) rule: &'a CheckpointRule,
    /// Parent folder of its sets.
    pub(super) folder: &'a str,
}

/// Identity of a series.
#[derive(Clone, Copy)]
pub(super) struct SeriesKey<'a> {
    bucket: BucketId,
    rule: &'a CheckpointRule,
    folder: &'a str,
}

impl<'a> Series<'a> {
    /// Returns the identity of the series.
    pub(super) fn key(&self) -> SeriesKey<'a> {
        SeriesKey { bucket: self.bucket.id, rule: self.rule, folder: self.folder }
    }

    /// Returns the series of a set, if a rule covers the set.
    pub(super) fn of(bucket: &'a Bucket, rules: &'a CheckpointRules, set: &'a str) -> Option<Self> {
        let rule = rules.of_set(set)?;
        Some(Self { bucket, rules, rule, folder: series_of(set) })
    }
}

/// Newest places of a series, as many as its rule keeps.
pub(super) struct NewestPlaces {
    keep: usize,
    pub(super) places: BinaryHeap<Reverse<SeriesPlace>>,
}

impl NewestPlaces {
    /// Creates an empty set that keeps so many places.
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, places: BinaryHeap::new() }
    }

    /// Adds a place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more than [`KEPT_MAX`] places to keep.
    pub(super) fn add(&mut self, place: SeriesPlace) -> Result<()> {
        self.places.push(Reverse(place));
        if self.places.len() > self.keep {
            self.places.pop();
        }
        if self.places.len() > KEPT_MAX {
            let message = format!(
                "a rule keeps more than {KEPT_MAX} generations of a series: they can't be planned"
            );
            return Err(Error::InvalidArgument(message));
        }
        Ok(())
    }

    pub(super) fn bound(mut self) -> KeptBound {
        let is_full = self.places.len() == self.keep;
        KeptBound(self.places.pop().filter(|_| is_full).map(|Reverse(place)| place))
    }
}

/// Bounds of series that requests for the first page of a plan found, for requests for later pages.
#[derive(Default)]
pub(super) struct KnownBounds(Mutex<VecDeque<KnownBound>>);

struct KnownBound {
    bucket: BucketId,
    rule: CheckpointRule,
    folder: String,
    at_ms: u64,
    bound: KeptBound,
}

impl KnownBounds {
    /// Returns the bound of a series, if it was found less than [`BOUND_AGE_MS_MAX`] ago.
    pub(super) fn get(&self, series: SeriesKey<'_>, now_ms: u64) -> Option<KeptBound> {
        let is_young = |it: &KnownBound| now_ms.saturating_sub(it.at_ms) < BOUND_AGE_MS_MAX;
        let known = self.0.lock();
        let found = known.iter().find(|it| it.is_of(series) && is_young(it))?;
        Some(found.bound.clone())
    }

    /// Remembers the bound of a series, found at this time.
    pub(super) fn put(&self, series: SeriesKey<'_>, at_ms: u64, bound: KeptBound) {
        let mut known = self.0.lock();
        known.retain(|it| !it.is_of(series));
        if known.len() >= BOUNDS_MAX {
            known.pop_front();
        }
        let SeriesKey { bucket, rule, folder } = series;
        let (rule, folder) = (rule.clone(), folder.to_owned());
        known.push_back(KnownBound { bucket, rule, folder, at_ms, bound });
    }
}

impl KnownBound {
    fn is_of(&self, series: SeriesKey<'_>) -> bool {
        let of = (series.bucket, series.folder, series.rule);
        (self.bucket, self.folder.as_str(), &self.rule) == of
    }
}

impl Member {
    /// Committed generations of a set.
    pub(super) fn of_record<'a>(
        set: &'a str,
        record: &'a SetRecord,
    ) -> impl Iterator<Item = Self> + 'a {
        record.committed().map(move |it| Self {
            set: set.to_owned(),
            number: it.number,
            order: it.order,
            committed_ms: it.changed_ms,
            held_until_ms: it.held_until_ms,
        })
    }

    /// Name of its set.
    pub(super) fn set(&self) -> &str {
        &self.set
    }

    /// Time from which the rule no longer keeps it, if it is beyond the number.
    pub(super) fn due_ms(&self, rule: &CheckpointRule) -> u64 {
        self.committed_ms.saturating_add(rule.min_age_ms).max(self.held_until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(rule: &'a CheckpointRule, folder: &'a str) -> SeriesKey<'a> {
        SeriesKey { bucket: BucketId([7; 16]), rule, folder }
    }

    #[test]
    fn more_kept_generations_than_fit_into_memory_are_refused() {
        let mut newest = NewestPlaces::new(usize::MAX);
        let place = |order| SeriesPlace { order, set: String::new(), number: 1 };
        for order in 0..KEPT_MAX as u64 {
            newest.add(place(order)).unwrap();
        }
        let refused = newest.add(place(u64::MAX)).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    }

    #[test]
    fn bounds_are_remembered_for_a_minute_and_for_few_series() {
        let document = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 2}]}"#;
        let rules = CheckpointRules::parse(document.as_bytes()).unwrap();
        let rule = rules.of_set("run-1/step-1/").unwrap();
        let known = KnownBounds::default();
        let bound = KeptBound(Some(SeriesPlace { order: 3, set: "s/".into(), number: 1 }));
        known.put(key(rule, "run-1/"), 1000, bound.clone());
        assert_eq!(known.get(key(rule, "run-1/"), 1000 + BOUND_AGE_MS_MAX - 1), Some(bound));
        assert_eq!(known.get(key(rule, "run-1/"), 1000 + BOUND_AGE_MS_MAX), None);
        assert_eq!(known.get(key(rule, "run-2/"), 1000), None);
        for run in 0..BOUNDS_MAX {
            let folder = format!("run-{run}-/");
            known.put(key(rule, &folder), 1000, KeptBound::default());
        }
        assert_eq!(known.get(key(rule, "run-1/"), 1000), None);
        assert_eq!(known.0.lock().len(), BOUNDS_MAX);
    }
}
