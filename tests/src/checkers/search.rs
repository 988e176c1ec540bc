//! Search for a linearization of one key's operations (Wing and Gong): depth first, over the set of
//! operations that have taken effect and the state of the key.
//!
//! Invariants that keep the search small without losing orders:
//!
//! * A read or a refusal that agrees with the state is taken at once: taking it changes nothing,
//!   and later it could only be harder to place.
//! * A state never returns once its value is overwritten, because no two writes share a value. So a
//!   write may not come while an operation that needs the present value is still to come.
//! * An operation whose outcome is unknown may be taken at any time after it was sent, or never. Of
//!   two ways to the same point, the way that used a subset of the other's unknowns is as good.
//! * Unknown writes whose values no operation names are alike, and so are unknown plain deletes:
//!   one write or delete represents all of its kind.
//!
//! The search counts its steps and returns [`SearchResult::GaveUp`] at a limit.

use std::collections::{HashMap, HashSet};

use super::history::{Invocation, Operation, Response, Value};

/// Result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// A linearization exists.
    Linearizable,
    /// No linearization exists.
    Impossible,
    /// The limit of steps was reached before a result.
    GaveUp,
}

/// Definite operations taken (lowest one not taken, and those taken beyond it), and the state.
type Point = (usize, Vec<usize>, Option<Value>);

struct LinearizationSearch<'a> {
    /// Operations in the order of their requests.
    operations: &'a [&'a Operation],
    taken: Vec<bool>,
    /// All definite operations below this index are taken.
    lowest: usize,
    definite_left: usize,
    state: Option<Value>,
    /// Number of definite operations still to come that need a value, by value.
    needs: HashMap<Value, usize>,
    /// Values that conditions expect or reads returned.
    named: HashSet<Value>,
    /// Points seen, each with the sets of unknown operations used on the way.
    seen: HashMap<Point, Vec<Vec<usize>>>,
    trail: Vec<SearchStep>,
    branches: Vec<Branch>,
}

/// An operation taken, with the state and `lowest` before it.
struct SearchStep {
    operation: usize,
    state: Option<Value>,
    lowest: usize,
}

/// Choices left at a point of the search.
struct Branch {
    trail: usize,
    choices: Vec<usize>,
}

/// Searches for a linearization of one key's operations, which are sorted by the time of their
/// requests.
pub(super) fn search(operations: &[&Operation], steps_max: usize) -> SearchResult {
    let mut search = LinearizationSearch::new(operations);
    for _ in 0..steps_max {
        search.look();
        if search.definite_left == 0 {
            return SearchResult::Linearizable;
        }
        let choices = if search.is_known() { Vec::new() } else { search.choices() };
        search.branches.push(Branch { trail: search.trail.len(), choices });
        if !search.choose() {
            return SearchResult::Impossible;
        }
    }
    SearchResult::GaveUp
}

/// Returns the value that the key must have for the operation to take effect as it was answered.
fn needs(operation: &Operation) -> Option<Value> {
    match (&operation.outcome, &operation.call) {
        (Response::Read(found), _) => *found,
        (Response::Refused, _) => None,
        (_, Invocation::Replace { expected, .. }) => Some(*expected),
        _ => None,
    }
}

fn is_unknown(operation: &Operation) -> bool {
    operation.outcome == Response::Unknown
}

impl<'a> LinearizationSearch<'a> {
    fn new(operations: &'a [&'a Operation]) -> Self {
        let definite = || operations.iter().filter(|operation| !is_unknown(operation));
        let mut counts = HashMap::new();
        for value in definite().filter_map(|operation| needs(operation)) {
            *counts.entry(value).or_default() += 1;
        }
        let expected = operations.iter().filter_map(|operation| match operation.call {
            Invocation::Replace { expected, .. }
            | Invocation::DeleteIf(expected)
            | Invocation::DeleteIfThere(expected) => Some(expected),
            _ => needs(operation),
        });
        Self {
            operations,
            taken: vec![false; operations.len()],
            lowest: 0,
            definite_left: definite().count(),
            state: None,
            needs: counts,
            named: expected.collect(),
            seen: HashMap::new(),
            trail: Vec::new(),
            branches: Vec::new(),
        }
        .settled()
    }

    fn settled(mut self) -> Self {
        self.raise_lowest();
        self
    }

    fn raise_lowest(&mut self) {
        while let Some(operation) = self.operations.get(self.lowest)
            && (self.taken[self.lowest] || is_unknown(operation))
        {
            self.lowest += 1;
        }
    }

    /// Returns the definite operations that may come next, and the earliest return among the open
    /// ones: no operation of the result was sent after another open one had returned.
    fn open(&self) -> (Vec<usize>, u64) {
        let (mut open, mut first_return) = (Vec::new(), u64::MAX);
        for (at, operation) in self.operations.iter().enumerate().skip(self.lowest) {
            if operation.invoked_at > first_return {
                break;
            }
            if !self.taken[at] && !is_unknown(operation) {
                open.push(at);
                first_return = first_return.min(operation.returned_at);
            }
        }
        open.retain(|at| self.operations[*at].invoked_at <= first_return);
        (open, first_return)
    }

    /// Takes all reads and refusals that agree with the state.
    fn look(&mut self) {
        loop {
            let agreeing: Vec<usize> =
                self.open().0.into_iter().filter(|at| self.only_looks(*at)).collect();
            if agreeing.is_empty() {
                return;
            }
            for at in agreeing {
                self.take(at);
            }
        }
    }

    fn only_looks(&self, at: usize) -> bool {
        let operation = self.operations[at];
        match operation.outcome {
            Response::Read(found) => found == self.state,
            Response::Refused => !operation.call.allows(self.state),
            _ => false,
        }
    }

    /// Returns the writes that may come next; the last one is tried first.
    fn choices(&self) -> Vec<usize> {
        let (open, first_return) = self.open();
        let mut choices: Vec<usize> = open.into_iter().filter(|at| self.may_write(*at)).collect();
        let (mut has_other, mut has_delete) = (false, false);
        for (at, operation) in self.operations.iter().enumerate() {
            if operation.invoked_at > first_return {
                break;
            }
            if self.taken[at] || !is_unknown(operation) || !self.may_write(at) {
                continue;
            }
            let stands_for_all = match operation.call {
                Invocation::Delete => Some(&mut has_delete),
                Invocation::Put(value) if !self.named.contains(&value) => Some(&mut has_other),
                _ => None,
            };
            if stands_for_all.is_none_or(|seen| !std::mem::replace(seen, true)) {
                choices.push(at);
            }
        }
        // `choose` pops from the end, so definite writes come last.
        choices.reverse();
        choices
    }

    fn may_write(&self, at: usize) -> bool {
        let operation = self.operations[at];
        if !operation.may_have_written() || !operation.call.allows(self.state) {
            return false;
        }
        let own = usize::from(!is_unknown(operation) && needs(operation).is_some());
        let left = self.state.and_then(|value| self.needs.get(&value)).copied();
        left.unwrap_or(0) <= own
    }

    fn take(&mut self, at: usize) {
        self.trail.push(SearchStep { operation: at, state: self.state, lowest: self.lowest });
        let operation = self.operations[at];
        self.taken[at] = true;
        if !is_unknown(operation) {
            self.definite_left -= 1;
            self.count(operation, |count| *count -= 1);
        }
        if operation.may_have_written()
            && let Some(left) = operation.call.leaves()
        {
            self.state = left;
        }
        self.raise_lowest();
    }

    fn count(&mut self, operation: &Operation, change: impl FnOnce(&mut usize)) {
        if let Some(value) = needs(operation) {
            change(self.needs.entry(value).or_default());
        }
    }

    /// Takes the next choice of the youngest branch that has one; returns false if no branch has
    /// any.
    fn choose(&mut self) -> bool {
        while let Some(branch) = self.branches.last_mut() {
            let (trail, choice) = (branch.trail, branch.choices.pop());
            while self.trail.len() > trail {
                self.untake();
            }
            if let Some(at) = choice {
                self.take(at);
                return true;
            }
            self.branches.pop();
        }
        false
    }

    fn untake(&mut self) {
        let Some(SearchStep { operation: at, state, lowest }) = self.trail.pop() else { return };
        let operation = self.operations[at];
        self.taken[at] = false;
        (self.state, self.lowest) = (state, lowest);
        if !is_unknown(operation) {
            self.definite_left += 1;
            self.count(operation, |count| *count += 1);
        }
    }

    /// Returns true if an equally good way led to this point before; records this way otherwise.
    fn is_known(&mut self) -> bool {
        let taken = |at: &usize| self.taken[*at];
        let beyond = (self.lowest..self.operations.len()).filter(taken);
        let beyond = beyond.filter(|at| !is_unknown(self.operations[*at])).collect();
        let used: Vec<usize> = (0..self.operations.len())
            .filter(taken)
            .filter(|at| is_unknown(self.operations[*at]))
            .collect();
        let ways = self.seen.entry((self.lowest, beyond, self.state)).or_default();
        let as_good = |way: &Vec<usize>| way.iter().all(|at| used.binary_search(at).is_ok());
        if ways.iter().any(as_good) {
            return true;
        }
        ways.push(used);
        false
    }
}
