//! Histories of a simulated atomic register, optionally with one planted fault. They test the
//! checkers.
//!
//! Each operation takes effect at one instant between its request and its reply; the register is a
//! map. A fault changes the effect or the outcome of about half the operations that it can affect.

use std::collections::BTreeMap;

use martlet_protocol::consistency::Given;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::history::{Call, Found, History, Listing, Operation, Outcome, Value};

/// Fault of the simulated register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
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

pub(super) const FAULTS: [Fault; 8] = [
    Fault::LosesWrites,
    Fault::UndoesDeletes,
    Fault::ReadsOld,
    Fault::IgnoresConditions,
    Fault::WritesThoughRefused,
    Fault::ListsTooLittle,
    Fault::ListsTheDeleted,
    Fault::ListsTwice,
];

/// History of the single key `k`: client, time of request, time of reply, call, outcome.
pub(super) fn of(operations: &[(u32, u64, u64, Call, Outcome)]) -> History {
    let operation =
        |(client, invoked_at, returned_at, call, outcome): &(_, _, _, Call, Outcome)| {
            let key = if *call == Call::List { "" } else { "k" }.to_owned();
            let (call, outcome) = (call.clone(), outcome.clone());
            let (client, invoked_at, returned_at) = (*client, *invoked_at, *returned_at);
            Operation { client, key, call, invoked_at, returned_at, outcome, given: Given::Quorum }
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
pub(super) fn history(seed: u64, shape: Shape, fault: Fault) -> History {
    let mut maker = Maker {
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
struct Time {
    client: u32,
    invoked_at: u64,
    effect: u64,
    returned_at: u64,
    unknown: bool,
}

struct Maker {
    chance: SmallRng,
    shape: Shape,
    fault: Fault,
    now: BTreeMap<String, Value>,
    past: BTreeMap<String, Vec<Value>>,
    written: u64,
    /// Deletes to undo: number of operations before the undo, key, value to restore.
    undo: Vec<(usize, String, Value)>,
}

impl Maker {
    fn times(&mut self) -> Vec<Time> {
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
                times.push(Time { client, invoked_at, effect, returned_at, unknown });
                at = returned_at;
            }
        }
        times
    }

    fn operation(&mut self, time: Time) -> Operation {
        let key = format!("k{}", self.chance.random_range(0..self.shape.keys));
        let call = self.call(&key);
        let has_effect = !time.unknown || self.chance.random();
        let mut outcome = Outcome::Unknown;
        if has_effect {
            outcome = self.apply(&key, &call);
        }
        if time.unknown {
            outcome = Outcome::Unknown;
        }
        self.undo_deletes();
        let key = if call == Call::List { "k".to_owned() } else { key };
        let Time { client, invoked_at, returned_at, .. } = time;
        Operation { client, key, call, invoked_at, returned_at, outcome, given: Given::Quorum }
    }

    fn call(&mut self, key: &str) -> Call {
        let value = Value(self.written + 1);
        let current = self.now.get(key).copied();
        let old = self.past.get(key).and_then(|past| past.choose(&mut self.chance)).copied();
        let expected = if self.chance.random() { current } else { old };
        let call = match (self.chance.random_range(0..10), expected) {
            (0 | 1, _) => Call::Put(value),
            (2, _) => Call::Delete,
            (3, _) => Call::Create(value),
            (4, Some(expected)) => Call::Replace { expected, value },
            (5, Some(expected)) => Call::DeleteIf(expected),
            (6, _) => Call::List,
            _ => Call::Get,
        };
        self.written += u64::from(call.writes().is_some());
        call
    }

    fn apply(&mut self, key: &str, call: &Call) -> Outcome {
        match call {
            Call::Get => Outcome::Read(self.read(key)),
            Call::List => Outcome::Listed(self.list()),
            _ => self.write(key, call),
        }
    }

    fn is_faulty(&mut self, fault: Fault) -> bool {
        self.fault == fault && self.chance.random()
    }

    fn read(&mut self, key: &str) -> Option<Value> {
        if self.is_faulty(Fault::ReadsOld)
            && let [.., before, _] = self.past.get(key).map_or(&[][..], Vec::as_slice)
        {
            return Some(*before);
        }
        self.now.get(key).copied()
    }

    fn list(&mut self) -> Listing {
        let mut shown = self.now.clone();
        if self.is_faulty(Fault::ListsTooLittle) {
            shown.pop_first();
        }
        if self.is_faulty(Fault::ListsTheDeleted) {
            for (key, past) in &self.past {
                shown.entry(key.clone()).or_insert(past[past.len() - 1]);
            }
        }
        let found = |(key, value)| Found { key, value: Some(value) };
        let mut found: Vec<Found> = shown.into_iter().map(found).collect();
        if self.is_faulty(Fault::ListsTwice) {
            found.extend(found.last().cloned());
        }
        Listing { found, ..Listing::default() }
    }

    fn write(&mut self, key: &str, call: &Call) -> Outcome {
        let state = self.now.get(key).copied();
        let allowed = call.allows(state);
        if !allowed
            && !self.is_faulty(Fault::IgnoresConditions)
            && !self.is_faulty(Fault::WritesThoughRefused)
        {
            return Outcome::Refused;
        }
        let outcome = if !allowed && self.fault == Fault::WritesThoughRefused {
            Outcome::Refused
        } else {
            Outcome::Done
        };
        if self.is_faulty(Fault::LosesWrites) {
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
            && self.is_faulty(Fault::UndoesDeletes)
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
            let given = Given::Quorum;
            Operation { client: 99, key, call, invoked_at, returned_at, outcome, given }
        };
        let found: Vec<Found> = self
            .now
            .iter()
            .map(|(key, value)| Found { key: key.clone(), value: Some(*value) })
            .collect();
        let listing = Outcome::Listed(Listing { found, ..Listing::default() });
        let keys = (0..self.shape.keys).map(|key| format!("k{key}"));
        let reads = keys.enumerate().map(|(at, key)| {
            let value = self.now.get(&key).copied();
            read(key, Call::Get, Outcome::Read(value), end + 10 * at as u64)
        });
        let last = read("k".to_owned(), Call::List, listing, end + 10_000);
        reads.chain([last]).collect()
    }
}
