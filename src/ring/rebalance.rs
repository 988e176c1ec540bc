//! Commands that make rings: plan, rebalance and write-ring.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use martlet_admin_api::ring_builder::StepLine;
use martlet_ring::{ASSIGNMENTS_MAX, Builder, MovePace, Ring};
use martlet_ring_steps::{self as steps, PlanOccasion, Rehearsal};
use martlet_serving::Failure;
use serde_json::json;

use super::args::PlanArgs;
use super::output::CommandOutput;
use super::plan as print;
use crate::progress::CountedWork;

/// Rebalances the builder. Returns the result and the next steps for the operator.
pub(super) fn rebalance(
    builder: &mut Builder,
    args: &PlanArgs,
    now_ms: u64,
    json: bool,
) -> Result<CommandOutput, Failure> {
    let assignments = Assignments::begin("ring rebalance", json);
    let next = || assignments.next();
    let (line, report) = steps::rebalance(builder, args.seed, now_ms, &next)?;
    let mut answer = CommandOutput::done(&line);
    answer.json["report"] = json!(report);
    Ok(answer)
}

/// Rehearses a rebalance. Returns its plan and the ring that it would make.
pub(super) fn plan(
    builder: &Builder,
    args: &PlanArgs,
    now_ms: u64,
    json: bool,
) -> Result<(CommandOutput, Ring), Failure> {
    let usage = match &args.usage {
        Some(file) => print::read_usage(file)?,
        None => std::collections::BTreeMap::new(),
    };
    let pace = MovePace { bytes_per_second: args.bandwidth.0, high_water: args.high_water };
    let assignments = Assignments::begin("ring plan", json);
    let goes_on = || {
        assignments.next();
        true
    };
    let when = PlanOccasion { seed: args.seed, now_ms, goes_on: &goes_on };
    let Rehearsal { sentence, report, plan, after, .. } = steps::plan(builder, when, &usage, pace)?;
    let text = sentence + "\n" + &print::plan(&plan, &usage, args);
    Ok((CommandOutput::new(text, &json!({ "report": report, "plan": plan })), after))
}

/// Display of the assignments that a rebalance or its rehearsal computes. Those of large rings take
/// minutes.
struct Assignments {
    work: RefCell<CountedWork>,
    begun: Cell<u64>,
}

impl Assignments {
    fn begin(name: &str, json: bool) -> Self {
        Self { work: RefCell::new(CountedWork::begin(name, json)), begun: Cell::new(0) }
    }

    /// Shows that another assignment begins.
    fn next(&self) {
        let done = self.begun.replace(self.begun.get() + 1);
        let max = u64::from(ASSIGNMENTS_MAX);
        let text = format!("{done} assignments computed, {max} at most");
        self.work.borrow_mut().show(&text, "assignments", done, Some(max));
    }
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
    let mut answer = CommandOutput::done(&StepLine { done: sentence, ..StepLine::default() });
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
