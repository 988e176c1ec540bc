//! Retention: of a series of sets, the newest generations stay.
//!
//! A series is all sets in one parent folder that one rule covers. Generations are ordered by their
//! commits, not by names: a step that is saved again counts as new.
//!
//! ```text
//! walk ──▶ newest generations ──read again──▶ those that count ──▶ bound ──▶ older ones withdrawn
//!                          20 minutes later: bound again ──▶ objects deleted, or left
//! ```
//!
//! Invariants:
//! * A generation counts only if its record, read after the walk, has it as committed, and an object of its folder
//!   is current or the generation was published.
//! * A rule deletes objects of a generation only if as many later ones as the rule keeps count, at its withdrawal
//!   and again 10 to 20 minutes later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;

use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, Value};

use super::commit::Committer;
use super::records::{ENOUGH, Generation, SetRecord, Withdrawal, WithdrawalCause};
use super::rules::{CheckpointRule, CheckpointRules, series_of};
use super::series::{BoundPurpose, KeptBound, Member, NewestMembers, OldestMembers, Series};
use super::set_store::{RECORDS, SetName, companion_of};
use crate::error::Result;
use crate::walk::text;

/// Records read at once.
const RECORDS_AT_ONCE: usize = 100;
/// Withdrawal by `keep`.
pub(super) const RETIRED: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Retention,
    reason: ENOUGH,
    deletes_objects: true,
    waits_for_holds: true,
};

/// Number of generations that a rule keeps, if it has one.
fn kept_by(rule: &CheckpointRule) -> Option<usize> {
    rule.keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX).max(1))
}

/// Newest generations of a series, and the older ones that its rule may withdraw at a time.
struct Ranking<'a> {
    rule: &'a CheckpointRule,
    keep: usize,
    now_ms: u64,
    newest: NewestMembers,
    due: OldestMembers,
}

impl<'a> Ranking<'a> {
    fn new(rule: &'a CheckpointRule, keep: usize, now_ms: u64) -> Self {
        let newest = NewestMembers::new(keep, usize::MAX);
        Self { rule, keep, now_ms, newest, due: OldestMembers::default() }
    }

    fn add(&mut self, member: Member) -> Result<()> {
        if let Some(older) = self.newest.add(member)?
            && older.due_ms(self.rule) <= self.now_ms
        {
            self.due.add(older);
        }
        Ok(())
    }

    /// Returns the newest generations, the newest first, and those that are due if all of the newest count.
    fn finish(self) -> (Vec<Member>, OldestMembers) {
        let Self { rule, keep, now_ms, newest, mut due } = self;
        let newest = newest.ranked();
        for older in newest.iter().skip(keep).filter(|it| it.due_ms(rule) <= now_ms) {
            due.add(older.clone());
        }
        (newest, due)
    }
}

impl Committer {
    /// Withdraws what the rule of a series doesn't keep, at most 1,000 generations, the oldest first; returns how
    /// many. Memory is that of the generations that the rule keeps, and of these.
    pub(super) async fn retire(
        &self,
        bucket: &Bucket,
        bucket_name: &str,
        rules: &CheckpointRules,
        set: &str,
    ) -> Result<u64> {
        let Some(series) = Series::of(bucket, rules, set) else { return Ok(0) };
        let Some(keep) = kept_by(series.rule) else { return Ok(0) };
        let now_ms = self.sets.now_ms();
        let mut ranking = Ranking::new(series.rule, keep, now_ms);
        let visit = |set: &str, record: &SetRecord| {
            Member::of_record(set, record).try_for_each(|member| ranking.add(member))?;
            Ok(ControlFlow::Continue(()))
        };
        self.each_record(series, None, visit).await?;
        let (newest, due) = ranking.finish();
        if due.is_empty() {
            return Ok(0);
        }
        let bound = self.counted_bound(series, keep, &newest).await?;
        let mut withdrawn = 0;
        for member in due.ranked().into_iter().filter(|it| bound.excludes(it)) {
            let set = SetName::of(bucket, bucket_name, member.set());
            withdrawn += u64::from(self.withdraw(set, member.number, RETIRED).await?);
        }
        Ok(withdrawn)
    }

    /// Returns the oldest place of a series that its rule keeps by their number. Walks the whole series, unless the
    /// bound was found recently enough for the purpose.
    ///
    /// # Errors
    /// As of the record reads; [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a plan would keep more
    /// than 100,000 generations.
    pub(super) async fn bound(
        &self,
        series: Series<'_>,
        purpose: BoundPurpose,
    ) -> Result<KeptBound> {
        let Some(keep) = kept_by(series.rule) else { return Ok(KeptBound::default()) };
        let now_ms = self.sets.now_ms();
        if let Some(known) = self.bounds.get(series.key(), now_ms, purpose.age_ms_max()) {
            return Ok(known);
        }
        let mut newest = NewestMembers::new(keep, purpose.kept_max());
        let visit = |set: &str, record: &SetRecord| {
            Member::of_record(set, record).try_for_each(|it| newest.add(it).map(drop))?;
            Ok(ControlFlow::Continue(()))
        };
        self.each_record(series, None, visit).await?;
        let bound = self.counted_bound(series, keep, &newest.ranked()).await?;
        self.bounds.put(series.key(), now_ms, bound.clone());
        Ok(bound)
    }

    /// Returns the oldest of the `keep` newest generations that count. Reads the record and lists the folder of each
    /// set again, the newest first, until so many count. With too few, all generations are kept for now.
    async fn counted_bound(
        &self,
        series: Series<'_>,
        keep: usize,
        newest: &[Member],
    ) -> Result<KeptBound> {
        if newest.len() < keep {
            return Ok(KeptBound::default());
        }
        let (mut counted, mut numbers_of) = (0, HashMap::new());
        for member in newest {
            let numbers: &Vec<u64> = match numbers_of.entry(member.set()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    place.insert(self.counting(series.bucket, member.set()).await?)
                }
            };
            counted += usize::from(numbers.contains(&member.number));
            if counted == keep {
                return Ok(KeptBound::at(member));
            }
        }
        Ok(KeptBound::default())
    }

    /// Numbers of the generations of a set that count: committed ones, unless all objects of their folder were
    /// deleted.
    async fn counting(&self, bucket: &Bucket, set: &str) -> Result<Vec<u64>> {
        let Some((record, _)) = self.sets.record(bucket.id, set).await? else {
            return Ok(Vec::new());
        };
        let is_deleted = self.is_deleted(bucket, &record).await?;
        let counting = record.committed().filter(|it| it.is_published || !is_deleted);
        Ok(counting.map(|it| it.number).collect())
    }

    /// Returns true if the present rule of a set's series withdraws a generation because of later ones, which may
    /// have been looked at up to 10 minutes ago.
    pub(super) async fn would_retire_now(
        &self,
        bucket: &Bucket,
        set: &str,
        generation: &Generation,
    ) -> Result<bool> {
        let Some(rules) = CheckpointRules::of(bucket)? else { return Ok(false) };
        let Some(series) = Series::of(bucket, &rules, set) else { return Ok(false) };
        let bound = self.bound(series, BoundPurpose::Deletion).await?;
        Ok(bound.excludes_place(generation.order, set, generation.number))
    }

    /// Calls `visit` with each set of a series that follows `after`, and its record, until it breaks off. Holds
    /// a page of names and one record at a time.
    pub(super) async fn each_record(
        &self,
        series: Series<'_>,
        after: Option<&str>,
        mut visit: impl FnMut(&str, &SetRecord) -> Result<ControlFlow<()>> + Send,
    ) -> Result<()> {
        let Series { bucket, rules, rule, folder } = series;
        let context = self.sets.context();
        let companion = self.sets.catalog.bucket(&context, &companion_of(bucket.id)).await?;
        let start = match after {
            Some(set) if set > folder => ListStart::After(format!("{RECORDS}{set}").into()),
            _ => ListStart::First,
        };
        let mut walk = self.sets.records(&context, &companion, folder, start, RECORDS_AT_ONCE)?;
        while let Some((name, entry)) = walk.next().await? {
            if !matches!(entry.value, Value::Object(_)) {
                continue;
            }
            let set = text(name.slice(RECORDS.len()..))?;
            let is_own = rules.of_set(&set).is_some_and(|of| std::ptr::eq(of, rule));
            if series_of(&set) != folder || !is_own {
                continue;
            }
            let Some((record, _)) = self.sets.record(bucket.id, &set).await? else { continue };
            if visit(&set, &record)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::RESERVE;
    use super::*;

    fn rule(keep: &str) -> CheckpointRules {
        let document = format!(
            r#"{{"rules": [{{"pattern": "run-*/step-*/", "profile": "dcp", "min_age": 10{keep}}}]}}"#
        );
        CheckpointRules::parse(document.as_bytes()).unwrap()
    }

    fn member(set: &str, order: u64) -> Member {
        Member { set: set.into(), number: 1, order, committed_ms: 1000, held_until_ms: 0 }
    }

    /// Generations that a rule withdraws at a time if all of them count.
    fn retired(members: Vec<Member>, rule: &CheckpointRule, now_ms: u64) -> Vec<Member> {
        let mut ranking = Ranking::new(rule, kept_by(rule).unwrap(), now_ms);
        for member in members {
            ranking.add(member).unwrap();
        }
        ranking.finish().1.ranked()
    }

    #[test]
    fn commits_count_and_not_names() {
        let rules = rule(r#", "keep": 2"#);
        let rule = rules.of_set("run-1/step-1/").unwrap();
        let members = || vec![member("step-30/", 3), member("step-10/", 5), member("step-20/", 4)];
        let late_ms = 11_000;
        let gone = retired(members(), rule, late_ms);
        assert_eq!(gone.iter().map(Member::set).collect::<Vec<_>>(), ["step-30/"]);
        assert!(retired(members(), rule, late_ms - 1).is_empty(), "it is too young");
        assert!(retired(members()[..2].to_vec(), rule, late_ms).is_empty());
        let held = |mut it: Member| {
            it.held_until_ms = late_ms + 1;
            it
        };
        let held: Vec<_> = members().into_iter().map(held).collect();
        assert!(retired(held.clone(), rule, late_ms).is_empty(), "a reader holds it");
        assert_eq!(retired(held, rule, late_ms + 1)[0].due_ms(rule), late_ms + 1);
    }

    /// The worker withdraws the oldest of those beyond the number, with few generations in memory.
    #[test]
    fn the_oldest_go_first_and_the_newest_stay() {
        for keep in 1..12 {
            let rules = rule(&format!(r#", "keep": {keep}"#));
            let rule = rules.of_set("run-1/step-1/").unwrap();
            let orders = (0..100).map(|at| at * 37 % 101);
            let members: Vec<_> =
                orders.map(|order| member(&format!("s-{}/", order % 3), order)).collect();
            let mut sorted = members.clone();
            sorted.sort();
            let gone = retired(members.clone(), rule, u64::MAX);
            assert_eq!(gone, sorted[..20], "{keep}");
            let mut newest = NewestMembers::new(keep, usize::MAX);
            for member in members {
                newest.add(member).unwrap();
            }
            sorted.reverse();
            assert_eq!(newest.ranked(), sorted[..keep + RESERVE], "{keep}");
            let bound = KeptBound::at(&sorted[keep - 1]);
            assert!(!bound.excludes(&sorted[keep - 1]) && bound.excludes(&sorted[keep]));
        }
    }

    #[test]
    fn without_a_number_all_stay() {
        assert_eq!(kept_by(rule("").of_set("run-1/step-1/").unwrap()), None);
    }

    #[test]
    fn a_series_is_a_parent_folder() {
        for (set, series) in [("run-1/step-1/", "run-1/"), ("a/", ""), ("a/b/c/", "a/b/"), ("", "")]
        {
            assert_eq!(series_of(set), series);
        }
    }
}
