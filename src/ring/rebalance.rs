//! Commands that make rings: plan, rebalance and write-ring.

use std::path::{Path, PathBuf};

use martlet_ring::{Builder, Error, MovePace, RebalanceContext, RebalancePlan, Report, Ring};
use martlet_serving::Failure;
use serde_json::json;

use super::args::PlanArgs;
use super::output::CommandOutput;
use super::plan as print;
use super::text::{count, counted};

fn occasion(builder: &Builder, args: &PlanArgs, now_ms: u64) -> RebalanceContext {
    RebalanceContext { now_ms, seed: args.seed.unwrap_or(builder.epoch() + 1) }
}

/// Rebalances the builder. Returns the result and the next steps for the operator.
pub(super) fn rebalance(
    builder: &mut Builder,
    args: &PlanArgs,
    now_ms: u64,
) -> Result<CommandOutput, Failure> {
    let before = builder.epoch();
    let report = builder.rebalance(occasion(builder, args, now_ms))?;
    builder.validate()?;
    let mut answer = CommandOutput::done(&sentence(&report, before), &notes(builder, &report));
    answer.json["report"] = json!(report);
    Ok(answer)
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

/// Rehearses a rebalance. Returns its plan and the ring that it would make.
pub(super) fn plan(
    builder: &Builder,
    args: &PlanArgs,
    now_ms: u64,
) -> Result<(CommandOutput, Ring), Failure> {
    if !(args.high_water > 0.0 && args.high_water <= 1.0) {
        return Err(Failure::usage(format!(
            "--high-water must be above 0 and at most 1, such as 0.9, not {}",
            args.high_water
        )));
    }
    let usage = match &args.usage {
        Some(file) => print::read_usage(file)?,
        None => std::collections::BTreeMap::new(),
    };
    let (rehearsal, report) = builder.rehearse(occasion(builder, args, now_ms))?;
    let after = rehearsal.ring()?;
    let pace = MovePace { bytes_per_second: args.bandwidth.0, high_water: args.high_water };
    // Before the first rebalance no device holds a replica, so nothing moves.
    let before = builder.current_ring().or_else(|_: Error| rehearsal.current_ring())?;
    let plan = RebalancePlan::new(&before, &after, &usage, pace);
    let mut text = sentence(&report, builder.epoch()).replacen("made", "would make", 1) + "\n";
    text += &print::plan(&plan, &usage, args);
    Ok((CommandOutput::new(text, &json!({ "report": report, "plan": plan })), after))
}

/// Writes the ring file that servers read.
pub(super) fn write_ring(
    builder: &Builder,
    path: &Path,
    file: Option<&Path>,
) -> Result<CommandOutput, Failure> {
    let ring = builder.ring()?;
    let to = file.map_or_else(|| ring_path(path), Path::to_path_buf);
    if to == path {
        return Err(Failure::refused(format!(
            "{} is the builder file: choose another name for the ring file, such as {}",
            path.display(),
            ring_path(&path.with_extension("builder")).display()
        )));
    }
    check_replaced(&ring, &to)?;
    ring.save(&to)?;
    let sentence = format!("wrote the ring of epoch {} to {}", ring.epoch(), to.display());
    let mut answer = CommandOutput::done(&sentence, &[]);
    answer.json["epoch"] = json!(ring.epoch());
    answer.json["file"] = json!(to);
    answer.json["blake3"] = json!(hex::encode(ring.hash()));
    Ok(answer)
}

/// Checks that the new ring may replace an existing ring file. Only a later ring of the same
/// builder may, because servers would refuse any other ring.
fn check_replaced(ring: &Ring, file: &Path) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    let old = Ring::load(file).map_err(|error| {
        Failure::refused(format!(
            "{error}. If the old file is no longer needed, move it away and repeat"
        ))
    })?;
    old.check_successor(ring, |_| true).map_err(|error| {
        Failure::refused(format!(
            "this ring can't replace {}: {error}. If the old file is no longer needed, move it \
             away and repeat",
            file.display()
        ))
    })
}

/// Returns the path of the ring file that belongs to a builder file.
fn ring_path(builder: &Path) -> PathBuf {
    builder.with_extension("ring")
}
