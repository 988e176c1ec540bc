//! Series of checkpoint sets: the generations of a series, and the oldest that a rule keeps.
//!
//! The oldest generation that a rule keeps is found in one walk, with those that it keeps in memory. Whatever is
//! older is withdrawn. So neither a plan nor the worker needs a list of a series.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use martlet_protocol::BucketId;
use martlet_protocol::entry::Bucket;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use parking_lot::Mutex;

use super::records::SetRecord;
use super::rules::{CheckpointRule, CheckpointRules, series_of};
use crate::error::{Error, Result};

/// Most generations of one series that a rule may keep in a plan: they are held in memory, some 10 MiB.
const KEPT_MAX: usize = 100_000;
/// Generations that are held beyond those that a rule keeps: some of the newest may not count.
pub(super) const RESERVE: usize = if cfg!(test) { 3 } else { 100 };
/// Withdrawals of a series in one pass.
const WITHDRAWALS_MAX: usize = if cfg!(test) { 20 } else { 1000 };
/// Bounds of series that are remembered.
const BOUNDS_MAX: usize = 64;
/// Time for which a plan uses the bound of its first page, in milliseconds.
const PLAN_AGE_MS_MAX: u64 = 60_000;
/// Time for which deletions use a bound, in milliseconds: half of the time for which a withdrawn generation
/// keeps its objects, so that the bound is later than the withdrawal.
const DELETION_AGE_MS_MAX: u64 = FIRST_HAND_AGE_MS_MAX;

/// A committed generation of a series. Later ones are greater, as their places are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) order: u64,
    pub(super) set: String,
    pub(super) number: u64,
    /// Time of its commit, in milliseconds since 1970.
    pub(super) committed_ms: u64,
    /// End of its longest hold, in milliseconds since 1970; zero for none.
    pub(super) held_until_ms: u64,
}

/// Place of a generation among those of its series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeriesPlace {
    order: u64,
    set: String,
    number: u64,
}

/// Oldest place of a series that a rule keeps by the number of generations; none if it keeps all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptBound(Option<SeriesPlace>);

impl KeptBound {
    /// Makes the bound of a series whose oldest kept generation this is.
    pub(super) fn at(oldest: &Member) -> Self {
        let Member { order, set, number, .. } = oldest;
        Self(Some(SeriesPlace { order: *order, set: set.clone(), number: *number }))
    }

    /// Returns true if all generations are kept.
    pub(super) fn keeps_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a generation is older than all that are kept.
    pub(super) fn excludes(&self, member: &Member) -> bool {
        self.excludes_place(member.order, &member.set, member.number)
    }

    /// Returns true if a place is older than those of all generations that are kept.
    pub(super) fn excludes_place(&self, order: u64, set: &str, number: u64) -> bool {
        self.0.as_ref().is_some_and(|it| (order, set, number) < (it.order, &it.set, it.number))
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

/// Purpose for which the bound of a series is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundPurpose {
    /// First page of a plan.
    FirstPage,
    /// Later page of a plan.
    LaterPage,
    /// Deletion of the objects of generations that were withdrawn 20 minutes ago or earlier.
    Deletion,
}

impl BoundPurpose {
    /// Age from which a bound that was found before is too old, in milliseconds.
    pub(super) fn age_ms_max(self) -> u64 {
        match self {
            Self::FirstPage => 0,
            Self::LaterPage => PLAN_AGE_MS_MAX,
            Self::Deletion => DELETION_AGE_MS_MAX,
        }
    }

    /// Maximum number of generations that the rule of the series may keep.
    pub(super) fn kept_max(self) -> usize {
        match self {
            Self::FirstPage | Self::LaterPage => KEPT_MAX,
            Self::Deletion => usize::MAX,
        }
    }
}

/// Newest generations of a series: as many as its rule keeps, and a reserve for those that don't count.
pub(super) struct NewestMembers {
    keep: usize,
    kept_max: usize,
    members: BinaryHeap<Reverse<Member>>,
}

impl NewestMembers {
    /// Creates an empty set for a rule that keeps so many generations, of at most `kept_max`.
    pub(super) fn new(keep: usize, kept_max: usize) -> Self {
        Self { keep, kept_max, members: BinaryHeap::new() }
    }

    /// Adds a generation; returns the oldest one if there are too many.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more than `kept_max` generations to keep.
    pub(super) fn add(&mut self, member: Member) -> Result<Option<Member>> {
        self.members.push(Reverse(member));
        if self.keep > self.kept_max && self.members.len() > self.kept_max {
            let message = format!(
                "a rule keeps more than {KEPT_MAX} generations of a series: they can't be planned"
            );
            return Err(Error::InvalidArgument(message));
        }
        if self.members.len() <= self.keep.saturating_add(RESERVE) {
            return Ok(None);
        }
        Ok(self.members.pop().map(|Reverse(oldest)| oldest))
    }

    /// Returns the generations, the newest first.
    pub(super) fn ranked(self) -> Vec<Member> {
        self.members.into_sorted_vec().into_iter().map(|Reverse(member)| member).collect()
    }
}

/// Oldest generations of a series that its rule may withdraw now, of a bounded number.
#[derive(Default)]
pub(super) struct OldestMembers(BinaryHeap<Member>);

impl OldestMembers {
    /// Adds a generation; drops the newest one if there are too many.
    pub(super) fn add(&mut self, member: Member) {
        self.0.push(member);
        if self.0.len() > WITHDRAWALS_MAX {
            self.0.pop();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the generations, the oldest first.
    pub(super) fn ranked(self) -> Vec<Member> {
        self.0.into_sorted_vec()
    }
}

/// Bounds of series that were found before, for later pages of plans and for deletions.
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
    /// Returns the bound of a series, if it was found less than `age_ms_max` ago.
    pub(super) fn get(
        &self,
        series: SeriesKey<'_>,
        now_ms: u64,
        age_ms_max: u64,
    ) -> Option<KeptBound> {
        let is_young = |it: &KnownBound| now_ms.saturating_sub(it.at_ms) < age_ms_max;
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

/// Series of one bucket that a pass of the worker has ranked. Sets of several series may alternate, and each series
/// is walked once.
#[derive(Default)]
pub(super) struct RankedSeries(Mutex<Option<RankedInBucket>>);

struct RankedInBucket {
    bucket: BucketId,
    /// Rules and folders of the series. Folders that no later set lies in are dropped.
    series: Vec<(CheckpointRule, String)>,
}

impl RankedSeries {
    /// Begins the pass over a bucket, or goes on with it after a set. `last` is the series of that set.
    pub(super) fn resume(&self, bucket: BucketId, after: Option<&str>, last: Option<Series<'_>>) {
        let mut ranked = self.0.lock();
        if after.is_none() || ranked.as_ref().is_none_or(|it| it.bucket != bucket) {
            let series = last.map(|it| (it.rule.clone(), it.folder.to_owned()));
            *ranked = Some(RankedInBucket { bucket, series: series.into_iter().collect() });
        }
    }

    /// Notes that the series of a set is ranked. Returns false if it was before. Sets come in order of name.
    pub(super) fn add(&self, series: Series<'_>, set: &str) -> bool {
        let mut ranked = self.0.lock();
        let Some(ranked) = ranked.as_mut().filter(|it| it.bucket == series.bucket.id) else {
            return true;
        };
        ranked.series.retain(|(_, folder)| set.starts_with(folder));
        let is_known = |(rule, folder): &(CheckpointRule, String)| {
            rule == series.rule && folder == series.folder
        };
        if ranked.series.iter().any(is_known) {
            return false;
        }
        ranked.series.push((series.rule.clone(), series.folder.to_owned()));
        true
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
        let member = |order| Member {
            order,
            set: String::new(),
            number: 1,
            committed_ms: 0,
            held_until_ms: 0,
        };
        for (keep, purpose) in [
            (usize::MAX, BoundPurpose::FirstPage),
            (KEPT_MAX, BoundPurpose::FirstPage),
            (usize::MAX, BoundPurpose::Deletion),
        ] {
            let mut newest = NewestMembers::new(keep, purpose.kept_max());
            for order in 0..KEPT_MAX as u64 {
                newest.add(member(order)).unwrap();
            }
            let added = newest.add(member(u64::MAX));
            let is_refused = keep > purpose.kept_max();
            assert_eq!(added.is_err(), is_refused, "{purpose:?}");
            if let Err(refused) = added {
                assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
            }
        }
    }

    #[test]
    fn bounds_are_remembered_for_a_minute_and_for_few_series() {
        const AGE_MS: u64 = PLAN_AGE_MS_MAX;
        let document = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 2}]}"#;
        let rules = CheckpointRules::parse(document.as_bytes()).unwrap();
        let rule = rules.of_set("run-1/step-1/").unwrap();
        let known = KnownBounds::default();
        let bound = KeptBound(Some(SeriesPlace { order: 3, set: "s/".into(), number: 1 }));
        known.put(key(rule, "run-1/"), 1000, bound.clone());
        assert_eq!(
            known.get(key(rule, "run-1/"), 1000, BoundPurpose::FirstPage.age_ms_max()),
            None
        );
        assert_eq!(known.get(key(rule, "run-1/"), 1000 + AGE_MS - 1, AGE_MS), Some(bound));
        assert_eq!(known.get(key(rule, "run-1/"), 1000 + AGE_MS, AGE_MS), None);
        assert_eq!(known.get(key(rule, "run-2/"), 1000, AGE_MS), None);
        for run in 0..BOUNDS_MAX {
            let folder = format!("run-{run}-/");
            known.put(key(rule, &folder), 1000, KeptBound::default());
        }
        assert_eq!(known.get(key(rule, "run-1/"), 1000, AGE_MS), None);
        assert_eq!(known.0.lock().len(), BOUNDS_MAX);
    }
}
