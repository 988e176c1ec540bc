//! Record of the clients' operations and their outcomes, and of states that must never occur.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{AchievedLevel, ErrorKind};
use martlet_proxy::{Error, ReadAfter};
use martlet_tests::checkers::{History, Invocation, Operation, Response, Value};
use parking_lot::Mutex;

use super::sets::SetLog;
use super::trace::Trace;
use super::versions::{Versions, is_absence};

/// The record of a run.
pub(crate) struct RunRecord {
    trace: Trace,
    /// Versions of a bucket that keeps them.
    pub(crate) versions: Versions,
    /// Requests on checkpoint sets.
    pub(crate) sets: SetLog,
    state: Mutex<RecordState>,
}

#[derive(Default)]
struct RecordState {
    history: History,
    values: u64,
    copies: BTreeSet<Value>,
    etags: BTreeMap<Value, String>,
    tokens: BTreeMap<String, Vec<(ReadAfter, u64)>>,
    surprises: Vec<String>,
}

impl RunRecord {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            trace,
            versions: Versions::default(),
            sets: SetLog::default(),
            state: Mutex::default(),
        }
    }

    /// Returns a value that no other write has.
    pub(crate) fn value(&self) -> Value {
        let mut state = self.state.lock();
        state.values += 1;
        Value(state.values)
    }

    /// Marks a value as a copy, which has the body and the `ETag` of another value.
    pub(crate) fn is_copy(&self, value: Value) {
        self.state.lock().copies.insert(value);
    }

    /// Records the `ETag` of a value once a client has received it.
    pub(crate) fn tag(&self, value: Value, etag: String) {
        self.state.lock().etags.insert(value, etag);
    }

    /// Returns the `ETag` of a value, if no other value of its key has that `ETag`.
    pub(crate) fn tag_of(&self, value: Value) -> Option<String> {
        let state = self.state.lock();
        state.etags.get(&value).filter(|_| !state.copies.contains(&value)).cloned()
    }

    /// Returns true if a body is valid for a value.
    pub(crate) fn may_have_body(&self, value: Value, body: Option<Value>) -> bool {
        let state = self.state.lock();
        match body {
            Some(body) => body == value || state.copies.contains(&value),
            None => false,
        }
    }

    /// Records a token and its time.
    pub(crate) fn token(&self, key: &str, token: ReadAfter) {
        let at = self.trace.moment();
        self.state.lock().tokens.entry(key.to_owned()).or_default().push((token, at));
    }

    /// Returns the last three tokens of a key.
    pub(crate) fn tokens(&self, key: &str) -> Vec<(ReadAfter, u64)> {
        let state = self.state.lock();
        let all = state.tokens.get(key).map_or(&[][..], Vec::as_slice);
        all[all.len().saturating_sub(3)..].to_vec()
    }

    /// Records an operation that has ended.
    pub(crate) fn operation(&self, operation: Operation) {
        self.trace.note(format_args!("{operation} ({})", operation.given));
        self.state.lock().history.operations.push(operation);
    }

    /// Records a state that must never occur.
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

    /// Returns all keys of the history.
    pub(crate) fn keys(&self) -> Vec<String> {
        let history = self.history();
        history.by_key().keys().map(|key| (*key).to_owned()).collect()
    }

    /// Returns the outcome of a failed write.
    pub(crate) fn failure(&self, error: &Error, call: &Invocation) -> Response {
        self.trace.note(format_args!("{call} failed: {error}"));
        match error {
            Error::PreconditionFailed(_) => Response::Refused,
            absence if is_absence(absence) && !call.is_plain() => Response::Refused,
            Error::ConditionalConflict => Response::Failed,
            Error::Backend(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::NotFound) =>
            {
                Response::Unknown
            }
            other => {
                self.surprise(format!("{call} failed: {other} ({other:?})"));
                Response::Unknown
            }
        }
    }
}

/// An operation before its end.
pub(crate) struct BegunOperation {
    pub(crate) client: u32,
    pub(crate) key: String,
    pub(crate) call: Invocation,
    pub(crate) invoked_at: u64,
}

impl BegunOperation {
    pub(crate) fn end(
        self,
        returned_at: u64,
        outcome: Response,
        given: AchievedLevel,
    ) -> Operation {
        let Self { client, key, call, invoked_at } = self;
        Operation { client, key, call, invoked_at, returned_at, outcome, given }
    }
}
