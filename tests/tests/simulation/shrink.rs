//! Shrinking of failed runs: leaves out load, faults, ring changes and background work, as long as
//! the run fails in the same way, and describes what remains.
//!
//! A part that is left out also changes what comes after it, so a candidate is run with several
//! draws of the network.

use std::collections::BTreeSet;

use super::planted::Bug;
use super::reduction::Reduction;
use super::run::{RunOutcome, Subject, run};

/// Draws of the network that each candidate is run with.
const DRAWS: u64 = 3;
/// Maximum number of lines of an account that has the calls between proxies and nodes.
const LINES_WITH_CALLS_MAX: usize = 150;
/// Number of lines shown of the checks after recovery.
const LAST_LINES: usize = 10;

/// A failed run that is being shrunk.
pub(crate) struct Shrinking {
    subject: Subject,
    bug: Bug,
    /// Kind of the failure, which every smaller run must have.
    kind: String,
    smallest: RunOutcome,
    runs_left: usize,
}

/// Returns the smallest run found in `runs_max` runs which fails as `failed` does.
pub(crate) fn shrink(
    failed: RunOutcome,
    (subject, bug): (Subject, Bug),
    runs_max: usize,
) -> RunOutcome {
    let Err(wrong) = &failed.verdict else { return failed };
    let kind = kind_of(wrong);
    let mut shrinking = Shrinking { subject, bug, kind, smallest: failed, runs_left: runs_max };
    loop {
        let before = shrinking.smallest.reduction.clone();
        shrinking.round();
        if shrinking.runs_left == 0 || shrinking.smallest.reduction == before {
            return shrinking.smallest;
        }
    }
}

/// Kind of a failure: its beginning, without names and numbers.
fn kind_of(wrong: &str) -> String {
    let beginning = wrong.lines().next().unwrap_or_default().split(": ").next().unwrap_or_default();
    let words = beginning.split_whitespace().filter(|word| {
        word.chars().all(|letter| letter.is_alphabetic() || matches!(letter, ',' | '-' | '\''))
    });
    words.take(6).collect::<Vec<_>>().join(" ")
}

impl Shrinking {
    /// Tries to leave out each part once.
    fn round(&mut self) {
        self.leave_out(|it| it.is_idle = true);
        self.leave_out(|it| it.ring_changes = Some(0));
        self.leave_out(|it| it.faults = Some(BTreeSet::new()));
        self.leave_out(|it| it.is_calm = true);
        let operations = self.smallest.setup.parts.operations.clone();
        minimise(operations, |kept| self.leave_out(|it| it.operations = Some(kept.clone())));
        let faults = self.smallest.setup.parts.faults.clone();
        minimise(faults, |kept| self.leave_out(|it| it.faults = Some(kept.clone())));
        while let Some(fewer) = self.smallest.setup.parts.ring_changes.checked_sub(1)
            && self.leave_out(|it| it.ring_changes = Some(fewer))
        {}
    }

    /// Runs the smallest run with a further part left out. If the failure is still there, the run
    /// becomes the smallest one.
    fn leave_out(&mut self, change: impl Fn(&mut Reduction)) -> bool {
        let mut reduction = self.smallest.reduction.clone();
        change(&mut reduction);
        if reduction == self.smallest.reduction {
            return true;
        }
        let first = reduction.draws;
        for draws in (0..DRAWS).map(|more| first + more) {
            let Some(left) = self.runs_left.checked_sub(1) else { return false };
            self.runs_left = left;
            let candidate = Reduction { draws, ..reduction.clone() };
            let ran = run(self.smallest.seed, self.subject, self.bug, candidate);
            if ran.verdict.as_ref().is_err_and(|wrong| kind_of(wrong) == self.kind) {
                self.smallest = ran;
                return true;
            }
        }
        false
    }
}

/// Removes items in chunks, which get smaller down to one item, as long as `holds` for the rest.
fn minimise<T: Copy + Ord>(
    mut items: BTreeSet<T>,
    mut holds: impl FnMut(&BTreeSet<T>) -> bool,
) -> BTreeSet<T> {
    let mut size = items.len();
    while size > 0 {
        let all: Vec<T> = items.iter().copied().collect();
        for chunk in all.chunks(size) {
            let rest: BTreeSet<T> =
                items.iter().filter(|item| !chunk.contains(item)).copied().collect();
            if holds(&rest) {
                items = rest;
            }
        }
        size = if size == 1 { 0 } else { size.min(items.len()).div_ceil(2) };
    }
    items
}

impl RunOutcome {
    /// Account of a run for people: the load, the faults, and the end of the checks. Calls between
    /// proxies and nodes are there if they are few.
    pub(crate) fn account(&self) -> String {
        let lines: Vec<&str> = self.trace.lines().collect();
        let healed = lines.iter().position(|line| line.ends_with(" HEALED"));
        let (during, after) = lines.split_at(healed.unwrap_or(lines.len()));
        let mut shown: Vec<&str> =
            during.iter().filter(|line| !is_of(line, "Worker(")).copied().collect();
        if shown.len() > LINES_WITH_CALLS_MAX {
            shown.retain(|line| {
                is_of(line, "client ") || is_of(line, "FAULT ") || is_of(line, "RING ")
            });
        }
        let checks: Vec<&str> = after
            .iter()
            .filter(|line| !is_of(line, "Worker(") && !is_of(line, "Proxy("))
            .copied()
            .collect();
        shown.extend(&checks[checks.len().saturating_sub(LAST_LINES)..]);
        shown.join("\n")
    }
}

/// Returns true if a line of a trace begins so behind its time.
fn is_of(line: &str, begins: &str) -> bool {
    line.trim_start().split_once(' ').is_some_and(|(_, what)| what.starts_with(begins))
}

#[test]
fn sets_shrink_to_what_is_needed() {
    let all: BTreeSet<u32> = (0..100).collect();
    let mut tries = 0;
    let needed = [17, 18, 91];
    let left = minimise(all.clone(), |kept| {
        tries += 1;
        needed.iter().all(|one| kept.contains(one))
    });
    assert_eq!(left, needed.into());
    assert!(tries < 120, "{tries} tries");
    assert_eq!(minimise(all.clone(), |_| true), BTreeSet::new());
    assert_eq!(minimise(all.clone(), |_| false), all);
    assert_eq!(minimise(BTreeSet::<u32>::new(), |_| false), BTreeSet::new());
}

#[test]
fn kinds_of_failures_have_no_names_and_numbers() {
    let one = kind_of("linearizability: no order explains \"a\"\n  12 … 13 client 1");
    assert_eq!(one, "linearizability");
    assert_eq!(
        kind_of("replicas of \"b/1\" differ at last: [(1, None)]"),
        "replicas of differ at last"
    );
    assert_eq!(
        kind_of("put v3 failed: Full"),
        kind_of("put v4 if v3 failed: Full").replace("if ", "")
    );
    assert_ne!(kind_of("panicked: x"), kind_of("the run hangs"));
}
