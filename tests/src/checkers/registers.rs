//! Linearizability of every key: one order of its operations exists in which every reply is right,
//! and each operation lies between its request and its reply.
//!
//! A listing counts as a read of each key in its range. A failure is reported by the smallest part
//! of the history that still fails: see [`smallest`].

use std::collections::HashSet;

use super::history::{History, Operation, Response, Value};
use super::search::{SearchResult, search};
use super::violation::Violation;

/// Maximum number of steps of the search for one key. A history of a few hundred operations takes
/// about as many steps as operations.
const STEPS_MAX: usize = 300_000;
/// Maximum number of steps of a search while a failure is reduced. A reduction whose search gives
/// up is discarded.
const STEPS_TO_SHRINK_MAX: usize = 5_000;

/// Checks every key by itself. Returns a violation if the search gives up.
pub fn check(history: &History) -> Result<(), Violation> {
    let history = history.with_listings_as_reads();
    for (key, operations) in history.by_key() {
        let operations = relevant(&operations);
        match verdict(&operations) {
            SearchResult::Linearizable => {}
            SearchResult::Impossible => {
                let message = format!("no order of what happened to {key:?} explains this");
                let smallest = smallest(&operations);
                return Err(Violation::new("not linearizable", message, &refer(&smallest)));
            }
            SearchResult::GaveUp => {
                let message = format!(
                    "{} operations of {key:?} were not understood in {STEPS_MAX} steps",
                    operations.len()
                );
                return Err(Violation::new("gave up", message, &operations));
            }
        }
    }
    Ok(())
}

/// Searches first without unseen writes of unknown outcome, then with the deletes among these, then
/// with all operations. An order without some of the unknown writes is an order of the whole, and a
/// history with many of them is solved in few steps. Only the search over all operations can refuse
/// a history.
fn verdict(operations: &[&Operation]) -> SearchResult {
    let seen = seen(operations);
    let unseen = |operation: &Operation| {
        let value = operation.call.writes();
        operation.outcome == Response::Unknown && value.is_none_or(|value| !seen.contains(&value))
    };
    let fewest = without(operations, unseen);
    let fewer = without(operations, |operation| unseen(operation) && !operation.call.deletes());
    for fewer in [fewest, fewer] {
        let is_less = fewer.len() < operations.len();
        if is_less && search(&fewer, STEPS_MAX) == SearchResult::Linearizable {
            return SearchResult::Linearizable;
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

/// Returns the values that replies name, and transitively the values that conditional writes of
/// these values expected.
fn seen(operations: &[&Operation]) -> HashSet<Value> {
    let known = operations.iter().filter(|operation| operation.outcome != Response::Unknown);
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

/// Omits operations that certainly had no effect, and reads without a reply.
fn relevant<'a>(operations: &[&'a Operation]) -> Vec<&'a Operation> {
    let matters = |operation: &&&Operation| match operation.outcome {
        Response::Failed => false,
        Response::Unknown => operation.call.leaves().is_some(),
        _ => true,
    };
    operations.iter().filter(matters).copied().collect()
}

fn refer(operations: &[Operation]) -> Vec<&Operation> {
    operations.iter().collect()
}

/// Returns a part of a failing history that fails by itself.
///
/// Reads and refusals are removed one by one. Removing a write could make a good history fail, so a
/// write stays but loses its times: it may take effect at any time or never. The rest is the cause
/// of the failure, with the writes of the values that it names.
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

/// Returns the operations answered up to the first failure. Writes sent but unanswered by then get
/// an unknown outcome.
fn up_to_first_failure(operations: &[&Operation]) -> Vec<Operation> {
    let until = |time: u64| -> Vec<Operation> {
        let sent = operations.iter().filter(|operation| operation.invoked_at <= time);
        let known = sent.filter_map(|operation| {
            if operation.returned_at <= time {
                return Some((*operation).clone());
            }
            let outcome = Response::Unknown;
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
    search(&sorted, STEPS_TO_SHRINK_MAX) == SearchResult::Impossible
}

/// Returns the operations with the writes of a range loosened, and the other operations of that
/// range removed.
fn loosened(operations: &[Operation], from: usize, until: usize) -> Vec<Operation> {
    let loosen = |(at, operation): (usize, &Operation)| {
        if !(from..until).contains(&at) {
            return Some(operation.clone());
        }
        let outcome = Response::Unknown;
        let loose = || Operation { outcome, invoked_at: 0, ..operation.clone() };
        operation.may_have_written().then(loose)
    };
    operations.iter().enumerate().filter_map(loosen).collect()
}

fn is_loose(operation: &Operation) -> bool {
    operation.outcome == Response::Unknown && operation.invoked_at == 0
}

fn is_same(one: &Operation, other: &Operation) -> bool {
    (one.client, &one.call, one.returned_at) == (other.client, &other.call, other.returned_at)
}

/// Returns the values that an operation's call or reply names.
fn names(operation: &Operation) -> Vec<Value> {
    use super::Invocation;
    let expected = match operation.call {
        Invocation::Replace { expected, .. }
        | Invocation::DeleteIf(expected)
        | Invocation::DeleteIfThere(expected) => Some(expected),
        _ => None,
    };
    let read = match operation.outcome {
        Response::Read(found) => found,
        _ => None,
    };
    [expected, read].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
