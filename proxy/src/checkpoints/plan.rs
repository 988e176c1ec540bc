//! Dry run of the worker: generations that rules would withdraw, now or later. Nothing is changed.

use martlet_protocol::entry::Bucket;

use super::commit::SetName;
use super::completion::PendingGeneration;
use super::records::{GenerationState, Withdrawal};
use super::requests::{Checkpoints, SetRange};
use super::retention::{RETIRED, beyond};
use super::rules::{CheckpointRules, series_of};
use super::set_store::companion_of;
use super::upkeep::{EMPTY, UNCOVERED, UNCOVERED_MS, Visit};
use crate::error::{Error, Result};

/// Sets on a page of a plan. Each may be listed, as the worker does.
const SETS_AT_ONCE: usize = 20;

/// Withdrawal that is to come, if nothing changes until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWithdrawal {
    /// Name of the set.
    pub set: String,
    /// Number of the generation.
    pub number: u64,
    /// Reason of the withdrawal.
    pub reason: String,
    /// Time from which the worker does it, in milliseconds since 1970.
    pub due_ms: u64,
    /// True if the objects of the generation are deleted too.
    pub deletes_objects: bool,
}

impl PlannedWithdrawal {
    fn of(set: &str, number: u64, why: Withdrawal<'_>, due_ms: u64) -> Self {
        Self {
            set: set.to_owned(),
            number,
            reason: why.reason.to_owned(),
            due_ms,
            deletes_objects: why.deletes_objects,
        }
    }
}

/// Bucket of a plan.
struct Planned<'a> {
    bucket: &'a Bucket,
    name: &'a str,
    rules: &'a CheckpointRules,
    /// Returns true for sets of earlier pages.
    is_earlier: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Checkpoints<'_> {
    /// Withdrawals that are due, now or later, of the sets of a bucket whose names begin with `prefix`
    /// and follow `after`, with their times; and the name after which more sets follow. A page is made
    /// from 20 sets. It has all withdrawals of the series that begin on it, for the number of
    /// generations to keep.
    ///
    /// Sets of a bucket whose rules were removed are withdrawn too, as no rule covers them.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied.
    pub async fn plan(
        self,
        bucket: &str,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<(Vec<PlannedWithdrawal>, Option<String>)> {
        let name = bucket;
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, name).await?;
        let rules = CheckpointRules::of(&bucket)?.unwrap_or_default();
        let is_earlier = |set: &str| set.starts_with(prefix) && after.is_some_and(|it| set <= it);
        let planned = Planned { bucket: &bucket, name, rules: &rules, is_earlier: &is_earlier };
        let part = SetRange { prefix, after, limit: SETS_AT_ONCE };
        let (sets, more) = match self.names(&companion_of(bucket.id), part).await {
            Err(Error::NoSuchBucket) => return Ok((Vec::new(), None)),
            names => names?,
        };
        let (mut plan, mut before) = (Vec::new(), after);
        let mut begun: Vec<&str> = Vec::new();
        for set in &sets {
            let goes_on = |before: &str| rules.are_one_series(before, set);
            // Sets of two series may alternate.
            if !before.is_some_and(goes_on) && !begun.iter().any(|begun| goes_on(begun)) {
                self.plan_series(&planned, set, &mut plan).await?;
                begun.push(set);
            }
            self.plan_set(&planned, set, &mut plan).await?;
            before = Some(set.as_str());
        }
        // A series is larger than the sets that a prefix selects of it.
        plan.retain(|withdrawal| withdrawal.set.starts_with(prefix));
        Ok((plan, sets.last().filter(|_| more).cloned()))
    }

    /// Withdrawals of a set's series by the number of generations that its rule keeps, with their
    /// times.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a set that no rule covers; [`Error::NoSuchBucket`].
    pub async fn would_retire(self, bucket: &str, set: &str) -> Result<Vec<PlannedWithdrawal>> {
        let name = bucket;
        let (bucket, rules) = self.ruled(name).await?;
        if rules.of_set(set).is_none() {
            let message = format!("no checkpoint rule covers the set {set:?}");
            return Err(Error::InvalidArgument(message));
        }
        let mut plan = Vec::new();
        let planned = Planned { bucket: &bucket, name, rules: &rules, is_earlier: &|_| false };
        self.plan_series(&planned, set, &mut plan).await?;
        Ok(plan)
    }

    async fn plan_series(
        self,
        planned: &Planned<'_>,
        set: &str,
        plan: &mut Vec<PlannedWithdrawal>,
    ) -> Result<()> {
        let Planned { bucket, rules, .. } = planned;
        let Some(rule) = rules.of_set(set).filter(|rule| rule.keep.is_some()) else {
            return Ok(());
        };
        let members = self.committer.members(bucket, rules, rule, series_of(set)).await?;
        // An earlier page has the withdrawals of this series.
        if members.iter().any(|member| (planned.is_earlier)(member.set())) {
            return Ok(());
        }
        plan.extend(beyond(members, rule).iter().map(|member| {
            PlannedWithdrawal::of(member.set(), member.number, RETIRED, member.due_ms(rule))
        }));
        Ok(())
    }

    /// Withdrawals of one set that don't depend on its series.
    async fn plan_set(
        self,
        planned: &Planned<'_>,
        set: &str,
        plan: &mut Vec<PlannedWithdrawal>,
    ) -> Result<()> {
        let &Planned { bucket, name, rules, .. } = planned;
        let Some((record, _)) = self.committer.sets.record(bucket.id, set).await? else {
            return Ok(());
        };
        let rule = rules.of_set(set);
        let named = SetName { bucket: bucket.id, bucket_name: name, set };
        let visit = Visit { committer: self.committer, bucket, rule, set: named };
        let is_deleted = rule.is_some() && visit.is_deleted(&record).await?;
        for generation in &record.generations {
            let due = match (generation.state, rule) {
                (GenerationState::Removing, _) => None,
                (_, None) => {
                    let since_ms = record.uncovered_since_ms.unwrap_or_else(|| visit.now_ms());
                    Some((UNCOVERED, since_ms.saturating_add(UNCOVERED_MS)))
                }
                (GenerationState::Committed, _) => {
                    (is_deleted && !generation.is_published).then_some((EMPTY, 0))
                }
                (GenerationState::Pinning, _) => None,
                (GenerationState::Pending, Some(rule)) => {
                    let pending = PendingGeneration { rule, record: &record, generation };
                    visit.pending_due(pending).await?
                }
            };
            plan.extend(due.map(|(why, due_ms)| {
                let due_ms = due_ms.max(generation.held_until_ms);
                PlannedWithdrawal::of(set, generation.number, why, due_ms)
            }));
        }
        Ok(())
    }
}
