//! What clients did and were told, as it happens; and what must never be told to anyone.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{ErrorKind, Given};
use martlet_proxy::{Error, ReadAfter};
use martlet_tests::checkers::{Call, History, Operation, Outcome, Value};
use parking_lot::Mutex;

use super::trace::Trace;
use super::versions::{Versions, is_absence};

/// The record of a run.
pub(crate) struct Record {
    trace: Trace,
    /// Of a bucket that keeps them.
    pub(crate) versions: Versions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    values: u64,
    copies: BTreeSet<Value>,
    etags: BTreeMap<Value, String>,
    tokens: BTreeMap<String, Vec<(ReadAfter, u64)>>,
    surprises: Vec<String>,
}

impl Record {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { trace, versions: Versions::default(), state: Mutex::default() }
    }

    /// A value that no other write has.
    pub(crate) fn value(&self) -> Value {
        let mut state = self.state.lock();
        state.values += 1;
        Value(state.values)
    }

    /// Notes that a value is a copy: it has the body, and so the tag, of another.
    pub(crate) fn is_copy(&self, value: Value) {
        self.state.lock().copies.insert(value);
    }

    /// Notes the tag of a value, once anybody has been told of it.
    pub(crate) fn tag(&self, value: Value, etag: String) {
        self.state.lock().etags.insert(value, etag);
    }

    /// The tag of a value that nothing else under its key has.
    pub(crate) fn tag_of(&self, value: Value) -> Option<String> {
        let state = self.state.lock();
        state.etags.get(&value).filter(|_| !state.copies.contains(&value)).cloned()
    }

    /// Whether a body may stand under a value.
    pub(crate) fn may_have_body(&self, value: Value, body: Option<Value>) -> bool {
        let state = self.state.lock();
        match body {
            Some(body) => body == value || state.copies.contains(&value),
            None => false,
        }
    }

    /// Keeps a token, and when it was given.
    pub(crate) fn token(&self, key: &str, token: ReadAfter) {
        let at = self.trace.moment();
        self.state.lock().tokens.entry(key.to_owned()).or_default().push((token, at));
    }

    /// The last tokens of a key.
    pub(crate) fn tokens(&self, key: &str) -> Vec<(ReadAfter, u64)> {
        let state = self.state.lock();
        let all = state.tokens.get(key).map_or(&[][..], Vec::as_slice);
        all[all.len().saturating_sub(3)..].to_vec()
    }

    /// Notes an operation that has ended.
    pub(crate) fn operation(&self, operation: Operation) {
        self.trace.note(format_args!("{operation} ({})", operation.given));
        self.state.lock().history.operations.push(operation);
    }

    /// Notes something that should never be.
    pub(crate) fn surprise(&self, what: String) {
        self.trace.note(format_args!("SURPRISE {what}"));
        self.state.lock().surprises.push(what);
    }

    pub(crate) fn surprises(&self) -> Vec<String> {
        self.state.lock().surprises.clone()
    }

    pub(crate) fn history(&self) -> History {
        self.state.lock().history.clone()
    }

    /// Every key that anyone has spoken of.
    pub(crate) fn keys(&self) -> Vec<String> {
        let history = self.history();
        history.by_key().keys().map(|key| (*key).to_owned()).collect()
    }

    /// What an error says of a write.
    pub(crate) fn failure(&self, error: &Error, call: &Call) -> Outcome {
        self.trace.note(format_args!("{call} failed: {error}"));
        match error {
            Error::PreconditionFailed(_) => Outcome::Refused,
            absence if is_absence(absence) && !call.is_plain() => Outcome::Refused,
            Error::ConditionalConflict => Outcome::Failed,
            Error::Backend(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::NotFound) =>
            {
                Outcome::Unknown
            }
            other => {
                self.surprise(format!("{call} failed: {other} ({other:?})"));
                Outcome::Unknown
            }
        }
    }
}

/// An operation without its end.
pub(crate) struct Begun {
    pub(crate) client: u32,
    pub(crate) key: String,
    pub(crate) call: Call,
    pub(crate) invoked_at: u64,
}

impl Begun {
    pub(crate) fn end(self, returned_at: u64, outcome: Outcome, given: Given) -> Operation {
        let Self { client, key, call, invoked_at } = self;
        Operation { client, key, call, invoked_at, returned_at, outcome, given }
    }
}
