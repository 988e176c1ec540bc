//! Parameters and results of a write of one register.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use martlet_protocol::backend::{EntryWrite, RegisterView};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Level, RegisterKey, Stamp, Term, WriteId};

/// Maximum number of rounds of one write.
pub(super) const ROUNDS: u32 = 12;

/// Parameters of a write of one register.
#[derive(Clone, Copy)]
pub(crate) struct Intent<'a> {
    pub(crate) key: &'a RegisterKey,
    pub(crate) write_id: WriteId,
    /// Generation of the bucket (rule M2).
    pub(crate) generation: u64,
    /// Deadline of the commit, in milliseconds since 1970 (rule X2).
    pub(crate) commit_by_ms: u64,
    /// Behavior without a quorum of primaries; ballots need a quorum at every level.
    pub(crate) level: Level,
    /// Set before the first replica receives the write.
    pub(crate) claim: Option<&'a AtomicBool>,
}

impl<'a> Intent<'a> {
    /// A ballot on a register of the root bucket.
    pub(crate) fn of_root(key: &'a RegisterKey, write_id: WriteId, now_ms: u64) -> Self {
        let commit_by_ms = now_ms + COMMIT_WINDOW_MS;
        Self { key, write_id, generation: 0, commit_by_ms, level: Level::Strict, claim: None }
    }

    /// Records that a replica may receive the write from here on.
    pub(crate) fn claim(&self) {
        if let Some(claim) = self.claim {
            claim.store(true, Ordering::Release);
        }
    }
}

/// Value that a ballot proposes.
#[derive(Clone)]
pub(crate) struct Proposal {
    pub(crate) value: Value,
    pub(crate) inline: Option<Bytes>,
    pub(crate) keep_body: bool,
}

impl Proposal {
    /// Proposes a value without inline bytes.
    pub(crate) fn of(value: Value) -> Self {
        Self { value, inline: None, keep_body: false }
    }

    /// Proposes the found value again. The device that took it first tracks its garbage.
    pub(crate) fn again(value: Value, inline: Option<Bytes>) -> Self {
        Self { value, inline, keep_body: true }
    }
}

/// Decision about the view that a ballot found.
pub(crate) enum Step {
    Write(Proposal),
    Keep,
    /// A write beside the register needs a ballot above this one.
    Above(Stamp),
    /// The bucket has changed.
    Fenced,
}

/// Result of a write.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// Written, at this order.
    At(Stamp),
    /// Nothing written; this view stays.
    Kept(RegisterView),
    /// The bucket has changed.
    Fenced,
}

/// Error of a write, and its possible effects.
#[derive(Debug)]
pub(crate) struct WriteError {
    pub(crate) error: crate::Error,
    /// True if a replica may hold the write.
    pub(crate) maybe_written: bool,
    /// True if a replica refused the write as fenced.
    pub(crate) fenced: bool,
    /// True if concurrent writes won every round.
    pub(super) contended: bool,
}

impl WriteError {
    pub(crate) fn clean(error: impl Into<crate::Error>) -> Self {
        Self { error: error.into(), maybe_written: false, fenced: false, contended: false }
    }

    pub(super) fn unknown(error: impl Into<crate::Error>) -> Self {
        Self { maybe_written: true, ..Self::clean(error) }
    }

    /// The failure after concurrent writes won every round.
    pub(super) fn contended() -> Self {
        let error = Error::unavailable("too many concurrent writes to this key");
        Self { contended: true, ..Self::clean(error) }
    }

    /// The failure of a conditional request. Contention without an effect becomes S3's conditional
    /// conflict.
    pub(crate) fn of_conditions(self) -> Self {
        match self {
            Self { contended: true, maybe_written: false, .. } => {
                Self::clean(crate::Error::ConditionalConflict)
            }
            failed => failed,
        }
    }
}

impl From<WriteError> for crate::Error {
    fn from(failed: WriteError) -> Self {
        failed.error
    }
}

pub(super) fn unknown_outcome() -> Error {
    Error::unavailable("the outcome of the write is unknown")
}

pub(super) fn entry_write(
    intent: Intent<'_>,
    term: Term,
    order: Stamp,
    mode: WriteMode,
    proposal: Proposal,
) -> EntryWrite {
    EntryWrite {
        key: intent.key.clone(),
        entry: Entry { order, write_id: intent.write_id, value: proposal.value },
        inline: proposal.inline,
        mode,
        generation: intent.generation,
        commit_by_ms: intent.commit_by_ms,
        keep_body: proposal.keep_body,
        term,
    }
}
