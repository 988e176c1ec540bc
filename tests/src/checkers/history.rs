//! What clients did and what they were told: the one type that recorders write and checkers read.
//!
//! * Every write of a history has a [`Value`] of its own, so a read says which write it saw.
//! * Times are of any clock that never goes back and is the same for all clients; an operation that
//!   returned at the very instant another began counts as concurrent with it.

use std::collections::BTreeMap;
use std::fmt;

use martlet_protocol::consistency::Given;

/// Which write: an id that no other write of the history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A plain write of this value.
    Put(Value),
    /// A plain delete.
    Delete,
    /// A write with `If-None-Match: *`.
    Create(Value),
    /// A write with `If-Match`.
    Replace {
        /// The value that must be there.
        expected: Value,
        /// The value written.
        value: Value,
    },
    /// A delete with `If-Match`; of an absent key it is done, too.
    DeleteIf(Value),
    /// The same in a bucket of versions, where a delete marker is there and no object that matches.
    DeleteIfThere(Value),
    /// A read.
    Get,
    /// A listing; the operation's key is its prefix.
    List,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write took effect.
    Done,
    /// The read found this, or nothing.
    Read(Option<Value>),
    /// The listing.
    Listed(Listing),
    /// The condition did not hold, so nothing was written.
    Refused,
    /// It surely had no effect.
    Failed,
    /// No answer, or one that leaves it open: it may have taken effect, may still, or never.
    Unknown,
}

/// What a listing said of the keys above `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Where it began; empty for the very beginning.
    pub after: String,
    /// What it found, in its order.
    pub found: Vec<Found>,
    /// Whether it stops at its last key rather than at the end.
    pub truncated: bool,
}

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub key: String,
    /// Which write it names, where the listing tells (by its `ETag`).
    pub value: Option<Value>,
}

/// One call of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who called.
    pub client: u32,
    /// Of which key; the prefix for listings.
    pub key: String,
    /// What for.
    pub call: Call,
    /// When it was sent.
    pub invoked_at: u64,
    /// When it was answered; for one that never was, when the client gave up.
    pub returned_at: u64,
    /// The answer.
    pub outcome: Outcome,
    /// What the answer rested on, by its own word.
    pub given: Given,
}

/// Everything that clients did, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Call {
    /// What is under the key after it took effect; nothing for calls that only look.
    pub fn leaves(&self) -> Option<Option<Value>> {
        match *self {
            Self::Put(value) | Self::Create(value) | Self::Replace { value, .. } => {
                Some(Some(value))
            }
            Self::Delete | Self::DeleteIf(_) | Self::DeleteIfThere(_) => Some(None),
            Self::Get | Self::List => None,
        }
    }

    /// The value that it writes.
    pub fn writes(&self) -> Option<Value> {
        self.leaves().flatten()
    }

    /// Whether it leaves nothing under the key.
    pub fn deletes(&self) -> bool {
        self.leaves() == Some(None)
    }

    /// Whether it takes effect whatever is there.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete)
    }

    /// Whether its condition holds of what is there.
    pub fn allows(&self, state: Option<Value>) -> bool {
        match *self {
            Self::Create(_) => state.is_none(),
            Self::Replace { expected, .. } | Self::DeleteIfThere(expected) => {
                state == Some(expected)
            }
            // One that finds nothing has what it wanted, and is told so.
            Self::DeleteIf(expected) => state.is_none_or(|state| state == expected),
            Self::Put(_) | Self::Delete | Self::Get | Self::List => true,
        }
    }
}

impl Operation {
    /// Whether it was answered before another was asked.
    pub fn precedes(&self, other: &Self) -> bool {
        let answered = !matches!(self.outcome, Outcome::Unknown);
        answered && self.returned_at < other.invoked_at
    }

    /// Whether it is a write that took effect.
    pub fn is_acknowledged_write(&self) -> bool {
        self.outcome == Outcome::Done && self.call.leaves().is_some()
    }

    /// Whether it is a write that took effect, or may have, or may yet.
    pub fn may_have_written(&self) -> bool {
        matches!(self.outcome, Outcome::Done | Outcome::Unknown) && self.call.leaves().is_some()
    }
}

impl Listing {
    /// Whether it says anything of a key: whether the key is there, or that it is not.
    pub fn covers(&self, key: &str) -> bool {
        let last = self.found.last().map_or(self.after.as_str(), |last| last.key.as_str());
        key > self.after.as_str() && (!self.truncated || key <= last)
    }

    /// What it says of a key.
    pub fn of(&self, key: &str) -> Option<&Found> {
        self.found.iter().find(|found| found.key == key)
    }
}

impl History {
    /// The same, but for what degraded replies promise (rule A1): a write acknowledged on less than
    /// a quorum may be unseen for ever, and a read of less than a quorum may show anything old.
    #[must_use]
    pub fn firm(&self) -> Self {
        let firm = |operation: &Operation| {
            if operation.given == Given::Quorum {
                return Some(operation.clone());
            }
            operation.may_have_written().then(|| {
                let outcome = Outcome::Unknown;
                Operation { outcome, given: Given::Quorum, ..operation.clone() }
            })
        };
        Self { operations: self.operations.iter().filter_map(firm).collect() }
    }

    /// The operations of each key, by the time they were sent. Listings are not among them.
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Operation>> {
        let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in self.operations.iter().filter(|it| it.call != Call::List) {
            keys.entry(&operation.key).or_default().push(operation);
        }
        for operations in keys.values_mut() {
            operations.sort_by_key(|operation| operation.invoked_at);
        }
        keys
    }

    /// With every listing taken as reads of the keys that it speaks of: each is a quorum read
    /// (rule R5). A key whose value the listing does not tell is left out where it was found.
    #[must_use]
    pub fn with_listings_as_reads(&self) -> Self {
        let keys = self.by_key();
        let mut operations = Vec::new();
        for operation in &self.operations {
            let Outcome::Listed(listing) = &operation.outcome else {
                operations.extend((operation.call != Call::List).then(|| operation.clone()));
                continue;
            };
            for key in keys.keys().filter(|key| key.starts_with(&operation.key)) {
                let said = match listing.of(key) {
                    Some(found) => found.value.map(Some),
                    None => listing.covers(key).then_some(None),
                };
                operations.extend(said.map(|value| Operation {
                    key: (*key).to_owned(),
                    call: Call::Get,
                    outcome: Outcome::Read(value),
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

impl fmt::Display for Call {
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

impl fmt::Display for Outcome {
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
            Outcome::Unknown => "?".to_owned(),
            _ => self.returned_at.to_string(),
        };
        let Self { client, key, call, invoked_at, outcome, .. } = self;
        write!(f, "{invoked_at:>12} … {until:<12} client {client:<3} {key}: {call} → {outcome}")
    }
}
