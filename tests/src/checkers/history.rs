//! Operations of clients with their outcomes: the one type that recorders write and checkers read.
//!
//! * Every write of a history has a unique [`Value`], so a read identifies the write that it saw.
//! * Times are of any monotonic clock that all clients share. Two operations are concurrent if one
//!   returned at the instant at which the other began.

use std::collections::BTreeMap;
use std::fmt;

use martlet_protocol::consistency::AchievedLevel;

/// Id of a write. No two writes of a history share a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// A plain write of a value.
    Put(Value),
    /// A plain delete.
    Delete,
    /// A write with `If-None-Match: *`.
    Create(Value),
    /// A write with `If-Match`.
    Replace {
        /// The value that the key must have.
        expected: Value,
        /// The value written.
        value: Value,
    },
    /// A delete with `If-Match`. It succeeds on an absent key, too.
    DeleteIf(Value),
    /// A delete with `If-Match` in a versioned bucket: refused if the key is absent, because a
    /// delete marker matches no `ETag`.
    DeleteIfThere(Value),
    /// A read.
    Get,
    /// A listing; the operation's key is its prefix.
    List,
}

/// Outcome of a call, as the client received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The write took effect.
    Done,
    /// The read found this value, or nothing.
    Read(Option<Value>),
    /// The reply of a listing.
    Listed(Listing),
    /// The condition did not hold, so nothing was written.
    Refused,
    /// The call certainly had no effect.
    Failed,
    /// No reply, or an ambiguous reply. The call may have taken effect, may do so later, or never.
    Unknown,
}

/// Reply of a listing for the keys above `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Key after which the listing began; empty for the very beginning.
    pub after: String,
    /// Keys found, in the order of the reply.
    pub found: Vec<ListedKey>,
    /// True if the listing stops at its last key because more keys may follow.
    pub truncated: bool,
}

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The key.
    pub key: String,
    /// Write that the listing's `ETag` identifies, if the recorder knows that `ETag`.
    pub value: Option<Value>,
}

/// One call of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Number of the client.
    pub client: u32,
    /// Key of the call; the prefix for listings.
    pub key: String,
    /// The request.
    pub call: Invocation,
    /// Time at which the request was sent.
    pub invoked_at: u64,
    /// Time at which the reply arrived, or at which the client gave up.
    pub returned_at: u64,
    /// The outcome.
    pub outcome: Response,
    /// Consistency that the reply claims.
    pub given: AchievedLevel,
}

/// All operations of all clients, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Invocation {
    /// Returns the state of the key after the call took effect; `None` for reads and listings.
    pub fn leaves(&self) -> Option<Option<Value>> {
        match *self {
            Self::Put(value) | Self::Create(value) | Self::Replace { value, .. } => {
                Some(Some(value))
            }
            Self::Delete | Self::DeleteIf(_) | Self::DeleteIfThere(_) => Some(None),
            Self::Get | Self::List => None,
        }
    }

    /// Returns the value that the call writes.
    pub fn writes(&self) -> Option<Value> {
        self.leaves().flatten()
    }

    /// Returns true if the call leaves the key absent.
    pub fn deletes(&self) -> bool {
        self.leaves() == Some(None)
    }

    /// Returns true for an unconditional write or delete.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete)
    }

    /// Returns true if the call's condition holds for a state of the key.
    pub fn allows(&self, state: Option<Value>) -> bool {
        match *self {
            Self::Create(_) => state.is_none(),
            Self::Replace { expected, .. } | Self::DeleteIfThere(expected) => {
                state == Some(expected)
            }
            // S3 answers success when the key is already absent.
            Self::DeleteIf(expected) => state.is_none_or(|state| state == expected),
            Self::Put(_) | Self::Delete | Self::Get | Self::List => true,
        }
    }
}

impl Operation {
    /// Returns true if this operation was answered before the other was sent.
    pub fn precedes(&self, other: &Self) -> bool {
        let answered = !matches!(self.outcome, Response::Unknown);
        answered && self.returned_at < other.invoked_at
    }

    /// Returns true for a write that was acknowledged.
    pub fn is_acknowledged_write(&self) -> bool {
        self.outcome == Response::Done && self.call.leaves().is_some()
    }

    /// Returns true for a write that took effect, or that may have taken effect or do so later.
    pub fn may_have_written(&self) -> bool {
        matches!(self.outcome, Response::Done | Response::Unknown) && self.call.leaves().is_some()
    }
}

impl Listing {
    /// Returns true if the key is within the range of this listing, so that its absence means
    /// something.
    pub fn covers(&self, key: &str) -> bool {
        let last = self.found.last().map_or(self.after.as_str(), |last| last.key.as_str());
        key > self.after.as_str() && (!self.truncated || key <= last)
    }

    /// Returns the listing's record of a key.
    pub fn of(&self, key: &str) -> Option<&ListedKey> {
        self.found.iter().find(|found| found.key == key)
    }
}

impl History {
    /// Returns the history reduced to the promises of degraded replies (rule A1): a write
    /// acknowledged by less than a quorum may stay unseen, so its outcome becomes unknown. A read
    /// by less than a quorum may return any old value and is omitted.
    #[must_use]
    pub fn firm(&self) -> Self {
        let firm = |operation: &Operation| {
            if operation.given == AchievedLevel::Quorum {
                return Some(operation.clone());
            }
            operation.may_have_written().then(|| {
                let outcome = Response::Unknown;
                Operation { outcome, given: AchievedLevel::Quorum, ..operation.clone() }
            })
        };
        Self { operations: self.operations.iter().filter_map(firm).collect() }
    }

    /// Returns the operations of each key, sorted by the time of their requests, without listings.
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Operation>> {
        let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in self.operations.iter().filter(|it| it.call != Invocation::List) {
            keys.entry(&operation.key).or_default().push(operation);
        }
        for operations in keys.values_mut() {
            operations.sort_by_key(|operation| operation.invoked_at);
        }
        keys
    }

    /// Returns the history with every listing replaced by reads of the keys in its range; each is a
    /// quorum read (rule R5). A key that was found without a known value gives no read.
    #[must_use]
    pub fn with_listings_as_reads(&self) -> Self {
        let keys = self.by_key();
        let mut operations = Vec::new();
        for operation in &self.operations {
            let Response::Listed(listing) = &operation.outcome else {
                operations.extend((operation.call != Invocation::List).then(|| operation.clone()));
                continue;
            };
            for key in keys.keys().filter(|key| key.starts_with(&operation.key)) {
                let listed = match listing.of(key) {
                    Some(found) => found.value.map(Some),
                    None => listing.covers(key).then_some(None),
                };
                operations.extend(listed.map(|value| Operation {
                    key: (*key).to_owned(),
                    call: Invocation::Get,
                    outcome: Response::Read(value),
                    ..operation.clone()
                }));
            }
        }
        Self { operations }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(value) => write!(f, "put {value}"),
            Self::Delete => f.write_str("delete"),
            Self::Create(value) => write!(f, "put {value} if absent"),
            Self::Replace { expected, value } => write!(f, "put {value} if {expected}"),
            Self::DeleteIf(expected) | Self::DeleteIfThere(expected) => {
                write!(f, "delete if {expected}")
            }
            Self::Get => f.write_str("get"),
            Self::List => f.write_str("list"),
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Read(Some(value)) => write!(f, "{value}"),
            Self::Read(None) => f.write_str("absent"),
            Self::Listed(listing) => {
                let keys: Vec<&str> = listing.found.iter().map(|it| it.key.as_str()).collect();
                let (after, more) = (&listing.after, if listing.truncated { " …" } else { "" });
                write!(f, "above {after:?}: {}{more}", keys.join(" "))
            }
            Self::Refused => f.write_str("refused"),
            Self::Failed => f.write_str("failed"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = match self.outcome {
            Response::Unknown => "?".to_owned(),
            _ => self.returned_at.to_string(),
        };
        let Self { client, key, call, invoked_at, outcome, .. } = self;
        write!(f, "{invoked_at:>12} … {until:<12} client {client:<3} {key}: {call} → {outcome}")
    }
}
