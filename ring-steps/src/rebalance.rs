//! Rebalances: rehearsed with their cost, or carried out.

use std::collections::BTreeMap;

use martlet_admin_api::ring_builder::StepLine;
use martlet_protocol::DeviceId;
use martlet_ring::{
    Builder, Error, MovePace, RebalanceContext, RebalancePlan, Report, Ring, Usage,
    rebalance_observed,
};
use martlet_serving::Failure;

use crate::policy::{INDEX_NAME, may_be_index};
use crate::text::{count, counted};

/// Rehearsal of a rebalance. The builder that was rehearsed is unchanged.
pub struct Rehearsal {
    /// Sentence that announces the result, without notes.
    pub sentence: String,
    /// Result of the rebalance.
    pub report: Report,
    /// Cost of the rebalance.
    pub plan: RebalancePlan,
    /// Ring that the rebalance makes.
    pub after: Ring,
    /// Builder after the rebalance.
    pub builder: Builder,
    /// Sentence and notes of the rebalance, once it is carried out.
    pub done: StepLine,
}

fn occasion(builder: &Builder, seed: Option<u64>, now_ms: u64) -> RebalanceContext {
    RebalanceContext { now_ms, seed: seed.unwrap_or(builder.epoch().wrapping_add(1)) }
}

/// Rebalances the builder. Returns the sentence with the next steps for the operator, and the report.
/// The seed is derived from the epoch by default, so that a rebalance follows its plan. `observe` is called
/// before each assignment, of which a rebalance computes 1 to 33.
///
/// # Errors
/// The devices are too few, an earlier move is too recent, or nodes would refuse the ring of the
/// index.
pub fn rebalance(
    builder: &mut Builder,
    seed: Option<u64>,
    now_ms: u64,
    observe: &dyn Fn(),
) -> Result<(StepLine, Report), Failure> {
    let (before, context) = (builder.clone(), occasion(builder, seed, now_ms));
    let report = rebalance_observed(builder, context, observe)?;
    builder.validate()?;
    Ok((step_line(builder, &report, &before)?, report))
}

fn step_line(after: &Builder, report: &Report, before: &Builder) -> Result<StepLine, Failure> {
    let mut notes = Vec::from_iter(judge_index(before, &after.ring()?)?);
    notes.extend(self::notes(after, report));
    Ok(StepLine { done: sentence(report, before.epoch()), notes, added: Vec::new() })
}

/// Judges a ring as nodes do, if it may be one of the index. Returns a note where they would refuse
/// it and it may be one of extents too.
///
/// # Errors
/// Nodes would refuse the ring, and it is one of the index.
fn judge_index(before: &Builder, after: &Ring) -> Result<Option<String>, Failure> {
    if !may_be_index(before.settings()) {
        return Ok(None);
    }
    // There is none before the first rebalance.
    let Ok(current) = before.current_ring() else { return Ok(None) };
    let Err(error) = current.check_index_change(after) else { return Ok(None) };
    if before.settings().policy_name == INDEX_NAME {
        return Err(Failure::refused(format!("nodes would refuse this ring: {error}")));
    }
    Ok(Some(format!("as a ring of the index, nodes refuse this one: {error}")))
}

fn sentence(report: &Report, before: u64) -> String {
    if report.epoch == before {
        let (what, how) = if report.rebalances_to_go == 0 {
            ("nothing to do", "can't be improved")
        } else {
            ("nothing moved", "stays")
        };
        return format!(
            "{what}: the ring of epoch {before} {how} (balance {:.2} %, dispersion {:.2} %)",
            report.balance, report.dispersion
        );
    }
    format!(
        "made the ring of epoch {}: {} moved, {} placed, balance {:.2} %, dispersion {:.2} %",
        report.epoch,
        counted(report.moved, "replica"),
        count(report.placed),
        report.balance,
        report.dispersion
    )
}

fn notes(builder: &Builder, report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.locked > 0 {
        notes.push(format!(
            "{} skipped, because their earlier moves aren't settled: after `martlet admin census` \
             is clean, run `settle` and rebalance again",
            counted(report.locked, "partition")
        ));
    }
    if report.rebalances_to_go > 0 {
        notes.push(format!(
            "{} to go, each after the moves of the previous one: at most one replica of a \
             partition moves at a time",
            counted(u64::from(report.rebalances_to_go), "more rebalance")
        ));
    }
    let (required, overload) = (builder.required_overload(), builder.settings().overload);
    if report.dispersion > 0.0 && required > overload {
        notes.push(format!(
            "replicas are closer together than necessary: `set-overload {:.2}` spreads them as far \
             as the devices allow, at the cost of balance",
            (required * 100.0).ceil() / 100.0
        ));
    }
    notes.extend(builder.advice());
    notes.push("`write-ring` writes the file that servers read".to_owned());
    notes
}

/// Rehearses a rebalance while `goes_on` returns true. Without `usage` of devices the plan has no
/// bytes and hours.
///
/// # Errors
/// `pace.high_water` isn't above 0 and at most 1, the devices are too few, an earlier move is too
/// recent, nodes would refuse the ring of the index, or `goes_on` returned false.
pub fn plan(
    builder: &Builder,
    when: PlanOccasion<'_>,
    usage: &BTreeMap<DeviceId, Usage>,
    pace: MovePace,
) -> Result<Rehearsal, Failure> {
    if !(pace.high_water > 0.0 && pace.high_water <= 1.0) {
        return Err(Failure::usage(format!(
            "--high-water must be above 0 and at most 1, such as 0.9, not {}",
            pace.high_water
        )));
    }
    let PlanOccasion { seed, now_ms, goes_on } = when;
    let (rehearsed, report) = builder.rehearse_while(occasion(builder, seed, now_ms), goes_on)?;
    rehearsed.validate()?;
    let after = rehearsed.ring()?;
    // Before the first rebalance no device holds a replica, so nothing moves.
    let before = builder.current_ring().or_else(|_: Error| rehearsed.current_ring())?;
    let plan = RebalancePlan::new(&before, &after, usage, pace);
    let sentence = sentence(&report, builder.epoch()).replacen("made", "would make", 1);
    let done = step_line(&rehearsed, &report, builder)?;
    Ok(Rehearsal { sentence, report, plan, after, builder: rehearsed, done })
}

/// Seed and time of a plan, and the condition under which its computation goes on.
#[derive(Clone, Copy)]
pub struct PlanOccasion<'a> {
    /// Seed for ties. By default it is derived from the epoch.
    pub seed: Option<u64>,
    /// Present time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Returns false to end the computation. Called before each assignment, of which a plan computes 1
    /// to 33.
    pub goes_on: &'a dyn Fn() -> bool,
}
