//! Every key is a linearizable register: there is one order of its operations, each within the time
//! between its being sent and its being answered, in which every answer is right.
//!
//! A listing counts as a read of each key that it speaks of. What comes of a failure is the smallest
//! part of the history that was found to fail by itself: see [`smallest`].

use std::collections::HashSet;

use super::history::{History, Operation, Outcome, Value};
use super::search::{Verdict, search};
use super::violation::Violation;

/// Steps of the search for one key. A history of a few hundred operations takes as many steps.
const STEPS_MAX: usize = 300_000;
/// Steps of a search while a failure is made small; one that gives up keeps what it was to drop.
const STEPS_TO_SHRINK_MAX: usize = 5_000;

/// Checks every key by itself. Giving up is a failure too.
pub fn check(history: &History) -> Result<(), Violation> {
    let history = history.with_listings_as_reads();
    for (key, operations) in history.by_key() {
        let operations = relevant(&operations);
        match verdict(&operations) {
            Verdict::Linearizable => {}
            Verdict::Impossible => {
                let said = format!("no order of what happened to {key:?} explains this");
                let smallest = smallest(&operations);
                return Err(Violation::new("not linearizable", said, &refer(&smallest)));
            }
            Verdict::GaveUp => {
                let said = format!(
                    "{} operations of {key:?} were not understood in {STEPS_MAX} steps",
                    operations.len()
                );
                return Err(Violation::new("gave up", said, &operations));
            }
        }
    }
    Ok(())
}

/// Searches first as if no write of unknown outcome had taken effect that nobody saw, then as if of
/// those the deletes may have, then all: an order without some of them is an order of the whole, and a
/// history with many is understood in few steps. Nothing is refused before all were tried.
fn verdict(operations: &[&Operation]) -> Verdict {
    let seen = seen(operations);
    let unseen = |operation: &Operation| {
        let value = operation.call.writes();
        operation.outcome == Outcome::Unknown && value.is_none_or(|value| !seen.contains(&value))
    };
    let fewest = without(operations, unseen);
    let fewer = without(operations, |operation| unseen(operation) && !operation.call.deletes());
    for fewer in [fewest, fewer] {
        let is_less = fewer.len() < operations.len();
        if is_less && search(&fewer, STEPS_MAX) == Verdict::Linearizable {
            return Verdict::Linearizable;
        }
    }
    search(operations, STEPS_MAX)
}

fn without<'a>(
    operations: &[&'a Operation],
    left_out: impl Fn(&Operation) -> bool,
) -> Vec<&'a Operation> {
    operations.iter().filter(|operation| !left_out(operation)).copied().collect()
}

/// The values that answers name, and those that had to be there for one of them to be written.
fn seen(operations: &[&Operation]) -> HashSet<Value> {
    let known = operations.iter().filter(|operation| operation.outcome != Outcome::Unknown);
    let mut seen: HashSet<Value> = known.flat_map(|operation| names(operation)).collect();
    loop {
        let was_seen =
            |operation: &&&Operation| operation.call.writes().is_some_and(|it| seen.contains(&it));
        let behind = operations.iter().filter(was_seen).flat_map(|operation| names(operation));
        let behind: Vec<Value> = behind.filter(|value| !seen.contains(value)).collect();
        if behind.is_empty() {
            return seen;
        }
        seen.extend(behind);
    }
}

/// Without what surely had no effect, and reads that were not answered.
fn relevant<'a>(operations: &[&'a Operation]) -> Vec<&'a Operation> {
    let matters = |operation: &&&Operation| match operation.outcome {
        Outcome::Failed => false,
        Outcome::Unknown => operation.call.leaves().is_some(),
        _ => true,
    };
    operations.iter().filter(matters).copied().collect()
}

fn refer(operations: &[Operation]) -> Vec<&Operation> {
    operations.iter().collect()
}

/// A part of a failing history that fails by itself.
///
/// Reads and refusals are left out one by one; writes are not left out, which could make a failure
/// of a good history, but their times are forgotten: such a write may have taken effect at any time
/// or never. Those that stay are what the failure rests on, with the writes of the values they name.
fn smallest(operations: &[&Operation]) -> Vec<Operation> {
    let mut loose: Vec<Operation> = up_to_first_failure(operations);
    let mut step = loose.len().next_power_of_two() / 2;
    while step > 0 {
        let mut from = 0;
        while from < loose.len() {
            let until = (from + step).min(loose.len());
            let fewer = loosened(&loose, from, until);
            let kept = loose.len() - fewer.len();
            if fewer != loose && fails(&fewer) {
                loose = fewer;
                from = until - kept;
            } else {
                from = until;
            }
        }
        step /= 2;
    }
    let named: Vec<_> = loose.iter().filter(|it| !is_loose(it)).flat_map(names).collect();
    let matters = |operation: &&&Operation| {
        let now = loose.iter().find(|it| is_same(it, operation));
        let named = operation.call.writes().is_some_and(|value| named.contains(&value));
        now.is_some_and(|now| !is_loose(now) || named)
    };
    operations.iter().filter(matters).map(|operation| (*operation).clone()).collect()
}

/// What had been answered when the history first failed; of the rest, that it had been sent.
fn up_to_first_failure(operations: &[&Operation]) -> Vec<Operation> {
    let until = |time: u64| -> Vec<Operation> {
        let sent = operations.iter().filter(|operation| operation.invoked_at <= time);
        let known = sent.filter_map(|operation| {
            if operation.returned_at <= time {
                return Some((*operation).clone());
            }
            let outcome = Outcome::Unknown;
            operation.may_have_written().then(|| Operation { outcome, ..(*operation).clone() })
        });
        known.collect()
    };
    let mut times: Vec<u64> = operations.iter().map(|operation| operation.returned_at).collect();
    times.sort_unstable();
    let first = times.partition_point(|time| !fails(&until(*time)));
    times.get(first).map_or_else(|| until(u64::MAX), |time| until(*time))
}

fn fails(operations: &[Operation]) -> bool {
    let mut sorted = refer(operations);
    sorted.sort_by_key(|operation| operation.invoked_at);
    search(&sorted, STEPS_TO_SHRINK_MAX) == Verdict::Impossible
}

/// The same, with the writes of a range loose and whatever else was there left out.
fn loosened(operations: &[Operation], from: usize, until: usize) -> Vec<Operation> {
    let loosen = |(at, operation): (usize, &Operation)| {
        if !(from..until).contains(&at) {
            return Some(operation.clone());
        }
        let outcome = Outcome::Unknown;
        let loose = || Operation { outcome, invoked_at: 0, ..operation.clone() };
        operation.may_have_written().then(loose)
    };
    operations.iter().enumerate().filter_map(loosen).collect()
}

fn is_loose(operation: &Operation) -> bool {
    operation.outcome == Outcome::Unknown && operation.invoked_at == 0
}

fn is_same(one: &Operation, other: &Operation) -> bool {
    (one.client, &one.call, one.returned_at) == (other.client, &other.call, other.returned_at)
}

/// The values that an operation's call or answer names.
fn names(operation: &Operation) -> Vec<Value> {
    use super::Call;
    let expected = match operation.call {
        Call::Replace { expected, .. }
        | Call::DeleteIf(expected)
        | Call::DeleteIfThere(expected) => Some(expected),
        _ => None,
    };
    let read = match operation.outcome {
        Outcome::Read(found) => found,
        _ => None,
    };
    [expected, read].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
