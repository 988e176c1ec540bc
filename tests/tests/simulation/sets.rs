//! Checkpoint sets: clients that save, commit, delete and purge, readers of the view, the worker, and
//! the checks of what was seen (rules S1 to S7).
//!
//! * [`saver`]: saves in several orders, explicit commits, withdrawals and holds.
//! * [`reader`]: reads of the view, of the newest generation and by number.
//! * [`end`]: what must hold once all faults are over.
//!
//! Retention deletes objects of its own accord, twenty minutes after a withdrawal at the earliest.
//! The history of the bucket gets such a delete, of unknown outcome, for each value of a set.

mod end;
mod reader;
mod saver;

use std::collections::BTreeMap;

use martlet_protocol::entry::{ETag, Object};
use martlet_proxy::{CheckpointOutcome, Error};
use martlet_tests::checkers::sets::{
    Objects, SetCall, SetHistory, SetOperation, SetReply, SetRules,
};
use martlet_tests::checkers::{History, Invocation, Operation, Response, Value};
use md5::{Digest, Md5};
use parking_lot::Mutex;

pub(crate) use self::end::check;
use super::chance::SharedRng;
use super::client::BUCKET;
use super::cluster::SimulatedCluster;
use super::planted::Bug;

/// Folders that savers write.
pub(crate) const SETS: [&str; 2] = ["s/1/", "s/2/"];
/// Parent folder of all sets.
const SERIES: &str = "s/";
/// Set that explicit commits publish, and the folder of its objects, which no rule covers.
const PUBLISHED: &str = "s/3/";
const UNRULED: &str = "t/";
/// Objects of a set.
const MARKER: &str = ".metadata";
const SHARDS: [&str; 2] = ["__0_0.distcp", "__1_0.distcp"];
/// Time after a write from which retention may have deleted it, in microseconds: less than the grace
/// time of a withdrawal, by more than clocks err.
const DELETED_AFTER_US: u64 = 15 * 60 * 1_000_000;

/// Number of generations that a run keeps; all if none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedRules {
    keep: Option<usize>,
}

impl SimulatedRules {
    /// Draws rules. Pins released too early are seen only where generations are retired.
    pub(crate) fn drawn(chance: &SharedRng, bug: Bug) -> Self {
        match bug {
            Bug::UnpinsBeforeHiding => Self { keep: Some(1) },
            _ => Self { keep: chance.pick(&[None, None, Some(2)]) },
        }
    }

    /// The document of the rules. With a planted bug, each object is a marker.
    fn document(self, bug: Bug) -> String {
        let keep = self.keep.map_or_else(String::new, |keep| format!(r#", "keep": {keep}"#));
        let kind = match bug {
            Bug::CommitsAtEachWrite => {
                let [one, other] = SHARDS;
                format!(
                    r#""profile": "custom", "markers": ["{MARKER}", "{one}", "{other}"], "check": "none""#
                )
            }
            _ => r#""profile": "dcp""#.to_owned(),
        };
        format!(r#"{{"rules": [{{"pattern": "s/*/", {kind}{keep}}}]}}"#)
    }

    /// Enables versions, and sets the rules.
    pub(crate) async fn set(self, simulated: &SimulatedCluster, bug: Bug) -> Result<(), String> {
        super::versions::enable(simulated).await?;
        let sets = &simulated.proxy(0).store;
        let set = sets.checkpoints().set_rules(BUCKET, self.document(bug).into()).await;
        set.map_err(|error| format!("no rules in calm weather: {error}"))
    }

    fn checked(self) -> SetRules {
        let named = SHARDS.map(str::to_owned).to_vec();
        let keep = self.keep.map(|keep| (SERIES.to_owned(), keep)).into_iter().collect();
        SetRules { marker: MARKER.to_owned(), named, keep }
    }
}

/// Keys of all objects that clients write.
pub(crate) fn keys() -> Vec<String> {
    let names = || SHARDS.into_iter().chain([MARKER]);
    let of_sets = SETS.iter().flat_map(|set| names().map(move |name| format!("{set}{name}")));
    of_sets.chain(SHARDS.map(|name| format!("{UNRULED}{name}"))).collect()
}

/// Requests on sets, and the values of bodies by their MD5.
#[derive(Default)]
pub(crate) struct SetLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    operations: Vec<SetOperation>,
    values: BTreeMap<[u8; 16], Value>,
}

impl SetLog {
    /// Records the body of a value before it is sent.
    pub(crate) fn body(&self, value: Value, body: &[u8]) {
        self.0.lock().values.insert(Md5::digest(body).into(), value);
    }

    /// The value of an object in a listing of the view, which has no metadata.
    fn value_of(&self, object: &Object) -> Value {
        let ETag::Md5(md5) = object.etag else { return Value(0) };
        self.0.lock().values.get(&md5).copied().unwrap_or(Value(0))
    }

    fn record(&self, operation: SetOperation) {
        self.0.lock().operations.push(operation);
    }

    /// The requests on sets, for the checker.
    fn history(&self, rules: SimulatedRules) -> SetHistory {
        let operations = self.0.lock().operations.clone();
        SetHistory { rules: rules.checked(), operations }
    }
}

/// Reply to a commit.
fn reply_of(outcome: &CheckpointOutcome) -> SetReply {
    match *outcome {
        CheckpointOutcome::Committed { generation } => SetReply::Committed(generation),
        CheckpointOutcome::Pending { generation, .. } => SetReply::Pending(generation),
        CheckpointOutcome::Refused { .. } => SetReply::Refused,
    }
}

/// Objects of a set by the writes that they are of, from pairs of key and value.
fn objects_of(set: &str, all: impl IntoIterator<Item = (String, Value)>) -> Objects {
    let rest = |key: String| key.strip_prefix(set).unwrap_or(&key).to_owned();
    all.into_iter().map(|(key, value)| (rest(key), value)).collect()
}

/// Returns true if a failure leaves the outcome open.
fn is_ambiguous(error: &Error) -> bool {
    matches!(error, Error::Backend(_) | Error::ConditionalConflict)
}

/// The history of the bucket, with the deletes of retention.
pub(crate) fn with_retention(mut history: History) -> History {
    let last = history.operations.iter().map(|it| it.returned_at).max().unwrap_or_default();
    let deletes = history.operations.iter().filter_map(|write| {
        let value = write.call.writes().filter(|_| write.may_have_written())?;
        let invoked_at = write.invoked_at + DELETED_AFTER_US;
        (invoked_at < last).then(|| Operation {
            client: 9000,
            call: Invocation::DeleteIfThere(value),
            invoked_at,
            returned_at: invoked_at,
            outcome: Response::Unknown,
            ..write.clone()
        })
    });
    let deletes: Vec<_> = deletes.collect();
    history.operations.extend(deletes);
    history
}

/// An operation on a set before its end.
struct BegunSetOperation {
    client: u32,
    set: String,
    call: SetCall,
    invoked_at: u64,
}

impl BegunSetOperation {
    fn end(self, returned_at: u64, reply: SetReply) -> SetOperation {
        let Self { client, set, call, invoked_at } = self;
        SetOperation { client, set, call, invoked_at, returned_at, reply }
    }
}
