//! Histories of a simulated atomic register, optionally with one planted fault. They test the
//! checkers.
//!
//! Each operation takes effect at one instant between its request and its reply; the register is a
//! map. A fault changes the effect or the outcome of about half the operations that it can affect.

use std::collections::BTreeMap;

use martlet_protocol::consistency::AchievedLevel;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::history::{History, Invocation, ListedKey, Listing, Operation, Response, Value};

/// Fault of the simulated register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterFault {
    None,
    /// A write is acknowledged and lost.
    LosesWrites,
    /// A delete is undone later.
    UndoesDeletes,
    /// A read returns an older value.
    ReadsOld,
    /// A conditional write ignores its condition.
    IgnoresConditions,
    /// A conditional write is refused, but takes effect.
    WritesThoughRefused,
    /// A listing omits a key.
    ListsTooLittle,
    /// A listing contains a deleted key.
    ListsTheDeleted,
    /// A listing contains a key twice.
    ListsTwice,
}

pub(super) const FAULTS: [RegisterFault; 8] = [
    RegisterFault::LosesWrites,
    RegisterFault::UndoesDeletes,
    RegisterFault::ReadsOld,
    RegisterFault::IgnoresConditions,
    RegisterFault::WritesThoughRefused,
    RegisterFault::ListsTooLittle,
    RegisterFault::ListsTheDeleted,
    RegisterFault::ListsTwice,
];

/// History of the single key `k`: client, time of request, time of reply, call, outcome.
pub(super) fn of(operations: &[(u32, u64, u64, Invocation, Response)]) -> History {
    let operation =
        |(client, invoked_at, returned_at, call, outcome): &(_, _, _, Invocation, Response)| {
            let key = if *call == Invocation::List { "" } else { "k" }.to_owned();
            let (call, outcome) = (call.clone(), outcome.clone());
            let (client, invoked_at, returned_at) = (*client, *invoked_at, *returned_at);
            Operation {
                client,
                key,
                call,
                invoked_at,
                returned_at,
                outcome,
                given: AchievedLevel::Quorum,
            }
        };
    History { operations: operations.iter().map(operation).collect() }
}

/// Makes a value from its number.
pub(super) const V: fn(u64) -> Value = Value;

/// Size of a generated history, and the share of operations without a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) clients: u32,
    pub(super) operations: usize,
    pub(super) keys: u32,
    pub(super) unknown_percent: u32,
}

pub(super) const SMALL: Shape = Shape { clients: 5, operations: 120, keys: 2, unknown_percent: 5 };

/// Generates the history of a seed, with a census of all keys at its end.
pub(super) fn history(seed: u64, shape: Shape, fault: RegisterFault) -> History {
    let mut maker = HistoryMaker {
        chance: SmallRng::seed_from_u64(seed),
        shape,
        fault,
        now: BTreeMap::new(),
        past: BTreeMap::new(),
        written: 0,
        undo: Vec::new(),
    };
    let mut times = maker.times();
    times.sort_by_key(|time| time.effect);
    let mut operations: Vec<Operation> =
        times.into_iter().map(|time| maker.operation(time)).collect();
    let end = operations.iter().map(|it| it.returned_at).max().unwrap_or(0) + 1_000_000;
    operations.extend(maker.census(end));
    History { operations }
}

#[derive(Clone, Copy)]
struct OperationTimes {
    client: u32,
    invoked_at: u64,
    effect: u64,
    returned_at: u64,
    unknown: bool,
}

struct HistoryMaker {
    chance: SmallRng,
    shape: Shape,
    fault: RegisterFault,
    now: BTreeMap<String, Value>,
    past: BTreeMap<String, Vec<Value>>,
    written: u64,
    /// Deletes to undo: number of operations before the undo, key, value to restore.
    undo: Vec<(usize, String, Value)>,
}

impl HistoryMaker {
    fn times(&mut self) -> Vec<OperationTimes> {
        let each = self.shape.operations / self.shape.clients as usize;
        let mut times = Vec::new();
        for client in 0..self.shape.clients {
            let mut at = self.chance.random_range(0..100);
            for _ in 0..each {
                let invoked_at = at + self.chance.random_range(1..40);
                let returned_at = invoked_at + self.chance.random_range(1..100);
                let unknown = self.chance.random_range(0..100) < self.shape.unknown_percent;
                let latest = if unknown { returned_at + 2_000 } else { returned_at };
                let effect = self.chance.random_range(invoked_at..=latest);
                times.push(OperationTimes { client, invoked_at, effect, returned_at, unknown });
                at = returned_at;
            }
        }
        times
    }

    fn operation(&mut self, time: OperationTimes) -> Operation {
        let key = format!("k{}", self.chance.random_range(0..self.shape.keys));
        let call = self.call(&key);
        let has_effect = !time.unknown || self.chance.random();
        let mut outcome = Response::Unknown;
        if has_effect {
            outcome = self.apply(&key, &call);
        }
        if time.unknown {
            outcome = Response::Unknown;
        }
        self.undo_deletes();
        let key = if call == Invocation::List { "k".to_owned() } else { key };
        let OperationTimes { client, invoked_at, returned_at, .. } = time;
        Operation {
            client,
            key,
            call,
            invoked_at,
            returned_at,
            outcome,
            given: AchievedLevel::Quorum,
        }
    }

    fn call(&mut self, key: &str) -> Invocation {
        let value = Value(self.written + 1);
        let current = self.now.get(key).copied();
        let old = self.past.get(key).and_then(|past| past.choose(&mut self.chance)).copied();
        let expected = if self.chance.random() { current } else { old };
        let call = match (self.chance.random_range(0..10), expected) {
            (0 | 1, _) => Invocation::Put(value),
            (2, _) => Invocation::Delete,
            (3, _) => Invocation::Create(value),
            (4, Some(expected)) => Invocation::Replace { expected, value },
            (5, Some(expected)) => Invocation::DeleteIf(expected),
            (6, _) => Invocation::List,
            _ => Invocation::Get,
        };
        self.written += u64::from(call.writes().is_some());
        call
    }

    fn apply(&mut self, key: &str, call: &Invocation) -> Response {
        match call {
            Invocation::Get => Response::Read(self.read(key)),
            Invocation::List => Response::Listed(self.list()),
            _ => self.write(key, call),
        }
    }

    fn is_faulty(&mut self, fault: RegisterFault) -> bool {
        self.fault == fault && self.chance.random()
    }

    fn read(&mut self, key: &str) -> Option<Value> {
        if self.is_faulty(RegisterFault::ReadsOld)
            && let [.., before, _] = self.past.get(key).map_or(&[][..], Vec::as_slice)
        {
            return Some(*before);
        }
        self.now.get(key).copied()
    }

    fn list(&mut self) -> Listing {
        let mut shown = self.now.clone();
        if self.is_faulty(RegisterFault::ListsTooLittle) {
            shown.pop_first();
        }
        if self.is_faulty(RegisterFault::ListsTheDeleted) {
            for (key, past) in &self.past {
                shown.entry(key.clone()).or_insert(past[past.len() - 1]);
            }
        }
        let found = |(key, value)| ListedKey { key, value: Some(value) };
        let mut found: Vec<ListedKey> = shown.into_iter().map(found).collect();
        if self.is_faulty(RegisterFault::ListsTwice) {
            found.extend(found.last().cloned());
        }
        Listing { found, ..Listing::default() }
    }

    fn write(&mut self, key: &str, call: &Invocation) -> Response {
        let state = self.now.get(key).copied();
        let allowed = call.allows(state);
        if !allowed
            && !self.is_faulty(RegisterFault::IgnoresConditions)
            && !self.is_faulty(RegisterFault::WritesThoughRefused)
        {
            return Response::Refused;
        }
        let outcome = if !allowed && self.fault == RegisterFault::WritesThoughRefused {
            Response::Refused
        } else {
            Response::Done
        };
        if self.is_faulty(RegisterFault::LosesWrites) {
            return outcome;
        }
        match call.writes() {
            Some(value) => {
                self.now.insert(key.to_owned(), value);
                self.past.entry(key.to_owned()).or_default().push(value);
            }
            None => self.delete(key),
        }
        outcome
    }

    fn delete(&mut self, key: &str) {
        let before = self.now.remove(key);
        if let Some(before) = before
            && self.is_faulty(RegisterFault::UndoesDeletes)
        {
            self.undo.push((5, key.to_owned(), before));
        }
    }

    fn undo_deletes(&mut self) {
        for (left, key, value) in &mut self.undo {
            *left -= 1;
            if *left == 0 {
                self.now.insert(key.clone(), *value);
            }
        }
        self.undo.retain(|(left, _, _)| *left > 0);
    }

    fn census(&mut self, end: u64) -> Vec<Operation> {
        let read = |key: String, call, outcome, at: u64| {
            let (invoked_at, returned_at) = (at, at + 1);
            let given = AchievedLevel::Quorum;
            Operation { client: 99, key, call, invoked_at, returned_at, outcome, given }
        };
        let found: Vec<ListedKey> = self
            .now
            .iter()
            .map(|(key, value)| ListedKey { key: key.clone(), value: Some(*value) })
            .collect();
        let listing = Response::Listed(Listing { found, ..Listing::default() });
        let keys = (0..self.shape.keys).map(|key| format!("k{key}"));
        let reads = keys.enumerate().map(|(at, key)| {
            let value = self.now.get(&key).copied();
            read(key, Invocation::Get, Response::Read(value), end + 10 * at as u64)
        });
        let last = read("k".to_owned(), Invocation::List, listing, end + 10_000);
        reads.chain([last]).collect()
    }
}
