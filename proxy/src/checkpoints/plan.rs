//! Dry run of the worker: generations that rules would withdraw, now or later. Nothing is changed.
//!
//! A request holds the records of one page of sets, one after another, and the generations that a rule keeps,
//! whatever the length of a series. Few requests are under way at once, and no marker is read. The first page of a
//! series walks it whole, and lists the folders of those that the rule keeps.

use std::ops::ControlFlow;

use martlet_protocol::entry::Bucket;

use super::completion::PendingGeneration;
use super::records::{GenerationState, SetRecord, Withdrawal};
use super::requests::{Checkpoints, SetRange};
use super::retention::RETIRED;
use super::rules::CheckpointRules;
use super::series::{BoundPurpose, KeptBound, Member, Series};
use super::set_store::{SetName, companion_of};
use super::upkeep::{EMPTY, UNCOVERED, UNCOVERED_MS, Visit};
use crate::error::{Error, Result};

/// Sets on a page of a plan. Each may be listed, as the worker does.
const SETS_AT_ONCE: usize = 20;
/// Withdrawals on a page of one series, beside those of its last set.
const WITHDRAWALS_AT_ONCE: usize = if cfg!(test) { 10 } else { 1000 };

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
    /// True for later pages, which use what the first one found.
    is_later: bool,
}

/// Withdrawals of a page, and the name of the set after which more follow.
type PlanPage = (Vec<PlannedWithdrawal>, Option<String>);

/// Bounds of the series of a page.
#[derive(Default)]
struct PageBounds<'a>(Vec<(Series<'a>, KeptBound)>);

impl PageBounds<'_> {
    /// Returns the place of a series.
    fn at(&self, series: Series<'_>) -> Option<usize> {
        let is_one =
            |it: &Series<'_>| it.folder == series.folder && std::ptr::eq(it.rule, series.rule);
        self.0.iter().position(|(it, _)| is_one(it))
    }
}

/// Purpose of the bounds of a page.
fn page_purpose(is_later: bool) -> BoundPurpose {
    if is_later { BoundPurpose::LaterPage } else { BoundPurpose::FirstPage }
}

/// Adds the generations of a set that are beyond the number that the rule of its series keeps.
fn plan_kept(
    series: Series<'_>,
    set: &str,
    record: &SetRecord,
    bound: &KeptBound,
    plan: &mut Vec<PlannedWithdrawal>,
) {
    let members = Member::of_record(set, record).filter(|it| bound.excludes(it));
    plan.extend(
        members.map(|it| PlannedWithdrawal::of(set, it.number, RETIRED, it.due_ms(series.rule))),
    );
}

impl Checkpoints<'_> {
    /// Withdrawals that are due, now or later, of the sets of a bucket whose names begin with `prefix`
    /// and follow `after`, with their times; and the name after which more sets follow. A page has the
    /// withdrawals of 20 sets, by all rules.
    ///
    /// Sets of a bucket whose rules were removed are withdrawn too, as no rule covers them.
    ///
    /// Memory is that of 20 records and of 100,000 places at most; time is that of a walk over the series that
    /// begin on the page, or had their last walk a minute before a later page.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied; [`Error::InvalidArgument`] if a rule keeps more than
    /// 100,000 generations of a series.
    pub async fn plan(self, bucket: &str, prefix: &str, after: Option<&str>) -> Result<PlanPage> {
        let name = bucket;
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, name).await?;
        let rules = CheckpointRules::of(&bucket)?.unwrap_or_default();
        let _turn = self.committer.plans.acquire(&bucket.owner).await?;
        let is_later = after.is_some();
        let planned = Planned { bucket: &bucket, name, rules: &rules, is_later };
        let part = SetRange { prefix, after, limit: SETS_AT_ONCE };
        let (sets, more) = match self.names(&companion_of(bucket.id), part).await {
            Err(Error::NoSuchBucket) => return Ok((Vec::new(), None)),
            names => names?,
        };
        let (mut plan, mut bounds) = (Vec::new(), PageBounds::default());
        for set in &sets {
            self.plan_set(&planned, set, &mut bounds, &mut plan).await?;
        }
        Ok((plan, sets.last().filter(|_| more).cloned()))
    }

    /// Withdrawals of a set's series by the number of generations that its rule keeps, with their
    /// times, of the sets that follow `after`; and the name after which more sets follow. A page ends with the set
    /// that brings it to 1,000 withdrawals. Memory is bounded as in [`Self::plan`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a set that no rule covers, and as in [`Self::plan`];
    /// [`Error::NoSuchBucket`].
    pub async fn would_retire(
        self,
        bucket: &str,
        set: &str,
        after: Option<&str>,
    ) -> Result<PlanPage> {
        let (bucket, rules) = self.ruled(bucket).await?;
        let Some(series) = Series::of(&bucket, &rules, set) else {
            let message = format!("no checkpoint rule covers the set {set:?}");
            return Err(Error::InvalidArgument(message));
        };
        let bound = self.committer.bound(series, page_purpose(after.is_some())).await?;
        if bound.keeps_all() {
            return Ok((Vec::new(), None));
        }
        let (mut plan, mut last, mut next) = (Vec::new(), None, None);
        let visit = |set: &str, record: &SetRecord| {
            if plan.len() >= WITHDRAWALS_AT_ONCE {
                next = last.take();
                return Ok(ControlFlow::Break(()));
            }
            plan_kept(series, set, record, &bound, &mut plan);
            last = Some(set.to_owned());
            Ok(ControlFlow::Continue(()))
        };
        self.committer.each_record(series, after, visit).await?;
        Ok((plan, next))
    }

    /// Withdrawals of one set.
    async fn plan_set<'a>(
        self,
        planned: &Planned<'a>,
        set: &'a str,
        bounds: &mut PageBounds<'a>,
        plan: &mut Vec<PlannedWithdrawal>,
    ) -> Result<()> {
        let &Planned { bucket, name, rules, is_later } = planned;
        let Some((record, _)) = self.committer.sets.record(bucket.id, set).await? else {
            return Ok(());
        };
        let rule = rules.of_set(set);
        if let Some(series) = Series::of(bucket, rules, set) {
            let at = if let Some(at) = bounds.at(series) {
                at
            } else {
                bounds
                    .0
                    .push((series, self.committer.bound(series, page_purpose(is_later)).await?));
                bounds.0.len() - 1
            };
            plan_kept(series, set, &record, &bounds.0[at].1, plan);
        }
        let named = SetName::of(bucket, name, set);
        let visit = Visit { committer: self.committer, bucket, rule, set: named };
        let is_deleted = rule.is_some() && self.committer.is_deleted(bucket, &record).await?;
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
