//! Retention: of a series of sets, the newest generations stay.
//!
//! A series is all sets in one parent folder that one rule covers. Generations are ordered by their
//! commits, not by names: a step that is saved again counts as new.

use std::ops::ControlFlow;

use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, Value};

use super::commit::{Committer, SetName};
use super::records::{SetRecord, Withdrawal};
use super::rules::{CheckpointRule, CheckpointRules, series_of};
use super::series::{KeptBound, Member, NewestPlaces, Series, SeriesPlace};
use super::set_store::{RECORDS, companion_of};
use crate::error::{Error, Result};
use crate::walk::text;

/// Records read at once.
const RECORDS_AT_ONCE: usize = 100;
pub(super) const RETIRED: Withdrawal<'_> = Withdrawal {
    reason: "later generations of the series are enough",
    deletes_objects: true,
    waits_for_holds: true,
};

/// Generations beyond the number that the rule keeps, young and held ones too. The newest one is
/// never among them.
fn beyond(mut members: Vec<Member>, rule: &CheckpointRule) -> Vec<Member> {
    let Some(keep) = rule.keep else { return Vec::new() };
    members.sort_by(|one, another| {
        (another.order, &another.set, another.number).cmp(&(one.order, &one.set, one.number))
    });
    let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
    members.into_iter().skip(keep).collect()
}

/// Generations that the rule doesn't keep at `now_ms`.
fn retired(members: Vec<Member>, rule: &CheckpointRule, now_ms: u64) -> Vec<Member> {
    beyond(members, rule).into_iter().filter(|it| it.due_ms(rule) <= now_ms).collect()
}

impl Committer {
    /// Withdraws what the rule of a series doesn't keep; returns how many generations.
    pub(super) async fn retire(
        &self,
        bucket: &Bucket,
        bucket_name: &str,
        rules: &CheckpointRules,
        set: &str,
    ) -> Result<u64> {
        let series = Series::of(bucket, rules, set).filter(|it| it.rule.keep.is_some());
        let Some(series) = series else { return Ok(0) };
        let members = self.members(series).await?;
        let mut withdrawn = 0;
        for member in retired(members, series.rule, self.sets.now_ms()) {
            let set = SetName { bucket: bucket.id, bucket_name, set: member.set() };
            withdrawn += u64::from(self.withdraw(set, member.number, RETIRED).await?);
        }
        Ok(withdrawn)
    }

    /// All committed generations of a series.
    async fn members(&self, series: Series<'_>) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        let visit = |set: &str, record: &SetRecord| {
            members.extend(Member::of_record(set, record));
            Ok(ControlFlow::Continue(()))
        };
        self.each_record(series, None, visit).await?;
        Ok(members)
    }

    /// Returns the oldest place of a series that its rule keeps by their number.
    /// Walks the whole series. `may_be_known` accepts the result of an earlier request of the last minute.
    ///
    /// # Errors
    /// As of the record reads; [`Error::InvalidArgument`] if more than 100,000 generations are kept.
    pub(super) async fn bound(&self, series: Series<'_>, may_be_known: bool) -> Result<KeptBound> {
        let Some(keep) = series.rule.keep else { return Ok(KeptBound::default()) };
        let now_ms = self.sets.now_ms();
        if let Some(known) = self.bounds.get(series.key(), now_ms).filter(|_| may_be_known) {
            return Ok(known);
        }
        let mut newest = NewestPlaces::new(usize::try_from(keep).unwrap_or(usize::MAX).max(1));
        let visit = |set: &str, record: &SetRecord| {
            for Member { set, order, number, .. } in Member::of_record(set, record) {
                newest.add(SeriesPlace { order, set, number })?;
            }
            Ok::<_, Error>(ControlFlow::Continue(()))
        };
        self.each_record(series, None, visit).await?;
        let bound = newest.bound();
        self.bounds.put(series.key(), now_ms, bound.clone());
        Ok(bound)
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
    use std::cmp::Reverse;

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
        assert_eq!(beyond(held, rule)[0].due_ms(rule), late_ms + 1);
    }

    /// The bound of a plan, found with few places in memory, retires what the worker retires.
    #[test]
    fn the_bound_of_a_plan_keeps_what_the_worker_keeps() {
        for keep in 1..12 {
            let rules = rule(&format!(r#", "keep": {keep}"#));
            let rule = rules.of_set("run-1/step-1/").unwrap();
            let sets = [7, 3, 9, 3, 1, 8, 2, 6].iter().enumerate();
            let members: Vec<_> =
                sets.map(|(at, order)| member(&format!("s-{}/", at % 3), *order)).collect();
            let mut newest = NewestPlaces::new(keep);
            for Member { set, order, number, .. } in members.clone() {
                newest.add(SeriesPlace { order, set, number }).unwrap();
                assert!(newest.places.len() <= keep);
            }
            let bound = newest.bound();
            let mut planned: Vec<_> =
                members.iter().filter(|it| bound.excludes(it)).cloned().collect();
            planned.sort_by_key(|it| Reverse((it.order, it.set.clone())));
            assert_eq!(planned, beyond(members, rule), "{keep}");
        }
    }

    #[test]
    fn without_a_number_all_stay() {
        let rules = rule("");
        let rule = rules.of_set("run-1/step-1/").unwrap();
        let members = (0..100).map(|at| member("s/", at)).collect();
        assert!(retired(members, rule, u64::MAX).is_empty());
    }

    #[test]
    fn a_series_is_a_parent_folder() {
        for (set, series) in [("run-1/step-1/", "run-1/"), ("a/", ""), ("a/b/c/", "a/b/"), ("", "")]
        {
            assert_eq!(series_of(set), series);
        }
    }
}
