//! Requests on sets and on the view, and their replies.

use std::collections::BTreeMap;
use std::fmt;

use crate::checkers::history::Value;

/// Objects of a generation: names below the folder, and the writes that they are of.
pub type Objects = BTreeMap<String, Value>;

/// Request on a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCall {
    /// A write of the marker.
    Marker(Value),
    /// An explicit commit of these objects.
    Commit(Objects),
    /// A listing of the set in the view on one page: of this generation, or of the newest.
    List(Option<u64>),
    /// A read of an object in the view.
    Get {
        /// Name below the folder.
        rest: String,
        /// The generation; the newest if none.
        generation: Option<u64>,
    },
    /// A withdrawal of this generation, or of all.
    Withdraw(Option<u64>),
    /// A hold on this generation that outlasts the history.
    Hold(u64),
}

/// Reply to a request on a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// The generation is in the view.
    Committed(u64),
    /// It may come; its number, if known.
    Pending(Option<u64>),
    /// The write makes no generation.
    Refused,
    /// The objects of a listing; none if the view has no such set or generation.
    Listed(Objects),
    /// The write that a read found.
    Found(Value),
    /// The view has no such object.
    Absent,
    /// The view named a version that doesn't exist.
    Gone,
    /// The withdrawal or the hold took effect.
    Done,
    /// No reply, or an ambiguous one.
    Unknown,
}

/// One request of one client on a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOperation {
    /// Number of the client.
    pub client: u32,
    /// Name of the set, with its last slash.
    pub set: String,
    /// The request.
    pub call: SetCall,
    /// Time at which the request was sent.
    pub invoked_at: u64,
    /// Time at which the reply arrived, or at which the client gave up.
    pub returned_at: u64,
    /// The reply.
    pub reply: SetReply,
}

/// Rules of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetRules {
    /// Name of the marker below the folder.
    pub marker: String,
    /// Names of all objects that every marker names.
    pub named: Vec<String>,
    /// Number of newest generations to keep of these series, which are parent folders; of all others
    /// every generation stays.
    pub keep: BTreeMap<String, usize>,
}

/// All requests on the sets of a bucket, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetHistory {
    /// The rules, for the whole history.
    pub rules: SetRules,
    /// The requests.
    pub operations: Vec<SetOperation>,
}

/// A history that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetViolation {
    /// Short name of the broken rule.
    pub kind: &'static str,
    /// Description in one sentence.
    pub message: String,
    /// Requests that prove the violation.
    pub operations: Vec<SetOperation>,
}

impl SetOperation {
    /// Returns true if this request was answered before the other was sent.
    pub fn precedes(&self, other: &Self) -> bool {
        self.reply != SetReply::Unknown && self.returned_at < other.invoked_at
    }

    /// Returns true if the request makes a generation, or may do so.
    pub(super) fn may_make(&self) -> bool {
        matches!(self.call, SetCall::Marker(_) | SetCall::Commit(_))
            && self.reply != SetReply::Refused
    }
}

impl SetViolation {
    pub(super) fn new(kind: &'static str, message: String, operations: &[&SetOperation]) -> Self {
        let mut operations: Vec<SetOperation> = operations.iter().map(|it| (*it).clone()).collect();
        operations.sort_by_key(|operation| operation.invoked_at);
        operations.dedup();
        Self { kind, message, operations }
    }
}

/// Checks that no read of the view named a version that doesn't exist: versions are pinned for longer
/// than a read takes.
pub(super) fn none_gone(sets: &SetHistory) -> Result<(), SetViolation> {
    match sets.operations.iter().find(|it| it.reply == SetReply::Gone) {
        Some(read) => {
            let message = format!("the view of {:?} names a version that is gone", read.set);
            Err(SetViolation::new("unpinned", message, &[read]))
        }
        None => Ok(()),
    }
}

impl fmt::Display for SetOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, set, call, invoked_at, returned_at, reply } = self;
        write!(f, "{invoked_at:>12} … {returned_at:<12} client {client:<3} {set}: ")?;
        write!(f, "{call:?} → {reply:?}")
    }
}

impl fmt::Display for SetViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checkpoint sets: {}: {}", self.kind, self.message)?;
        self.operations.iter().try_for_each(|operation| writeln!(f, "  {operation}"))
    }
}
