//! Retention: of a series of sets, the newest generations stay.
//!
//! A series is all sets in one parent folder that one rule covers. Generations are ordered by their
//! commits, not by names: a step that is saved again counts as new.

use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, Value};

use super::commit::{Committer, SetName};
use super::records::Withdrawal;
use super::rules::{CheckpointRule, CheckpointRules, series_of};
use super::set_store::{RECORDS, companion_of};
use crate::error::Result;
use crate::walk::text;

/// Records read at once.
const RECORDS_AT_ONCE: usize = 100;

pub(super) const RETIRED: Withdrawal<'_> = Withdrawal {
    reason: "later generations of the series are enough",
    deletes_objects: true,
    waits_for_holds: true,
};

/// A committed generation of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    set: String,
    pub(super) number: u64,
    order: u64,
    /// Time of its commit, in milliseconds since 1970.
    committed_ms: u64,
    /// End of its longest hold, in milliseconds since 1970; zero for none.
    held_until_ms: u64,
}

impl Member {
    /// Name of its set.
    pub(super) fn set(&self) -> &str {
        &self.set
    }

    /// Time from which the rule no longer keeps it, if it is beyond the number.
    pub(super) fn due_ms(&self, rule: &CheckpointRule) -> u64 {
        self.committed_ms.saturating_add(rule.min_age_ms).max(self.held_until_ms)
    }
}

/// Generations beyond the number that the rule keeps, young and held ones too. The newest one is
/// never among them.
pub(super) fn beyond(mut members: Vec<Member>, rule: &CheckpointRule) -> Vec<Member> {
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
        let Some(rule) = rules.of_set(set).filter(|rule| rule.keep.is_some()) else {
            return Ok(0);
        };
        let members = self.members(bucket, rules, rule, series_of(set)).await?;
        let mut withdrawn = 0;
        for member in retired(members, rule, self.sets.now_ms()) {
            let set = SetName { bucket: bucket.id, bucket_name, set: member.set() };
            withdrawn += u64::from(self.withdraw(set, member.number, RETIRED).await?);
        }
        Ok(withdrawn)
    }

    /// All committed generations of a series.
    pub(super) async fn members(
        &self,
        bucket: &Bucket,
        rules: &CheckpointRules,
        rule: &CheckpointRule,
        series: &str,
    ) -> Result<Vec<Member>> {
        let context = self.sets.context();
        let companion = self.sets.catalog.bucket(&context, &companion_of(bucket.id)).await?;
        let start = ListStart::First;
        let mut walk = self.sets.records(&context, &companion, series, start, RECORDS_AT_ONCE)?;
        let mut members = Vec::new();
        while let Some((name, entry)) = walk.next().await? {
            if !matches!(entry.value, Value::Object(_)) {
                continue;
            }
            let set = text(name.slice(RECORDS.len()..))?;
            let is_own = rules.of_set(&set).is_some_and(|of| std::ptr::eq(of, rule));
            if series_of(&set) != series || !is_own {
                continue;
            }
            let Some((record, _)) = self.sets.record(bucket.id, &set).await? else { continue };
            members.extend(record.committed().map(|it| Member {
                set: set.clone(),
                number: it.number,
                order: it.order,
                committed_ms: it.changed_ms,
                held_until_ms: it.held_until_ms,
            }));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
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
