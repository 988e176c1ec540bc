//! Registers: quorum reads, plain writes and ballots (rules R3, R4, R5, R7).
//!
//! Replies that agree need no second round. Replies that differ are settled before the caller
//! receives a result, so that the winner is on a quorum. No operation waits for a dispensable
//! replica, and every call has a timeout.
//!
//! The members of a register decide about it. They are its primaries; while replicas move, they are
//! both the previous and the next holders. Each set decides by a quorum of its own (rule P2). Every
//! request names its term. A device at a later term refuses it; then the proxy stores that term,
//! places the register anew, and repeats requests without a quorum (rule P1).
//!
//! * [`place`]: devices of a register, and calls to them.
//! * [`read`]: reads at a level; [`asking`]: order of requests; [`settle`]: settlement of differing
//!   replies; [`degraded`]: operation without a quorum of primaries.
//! * [`after`]: reads with a read-after token.
//! * [`plain`]: plain writes; [`contended`]: keys with recent conflicts; [`ballot`]: conditional
//!   writes.
//! * [`judge`]: decisions in the middle of a ballot; [`beside`]: writes next to a ballot's
//!   register.
//! * [`verdicts`]: replies of replicas to one write, counted.

mod after;
mod asking;
mod ballot;
mod beside;
mod contended;
mod degraded;
mod judge;
mod place;
mod plain;
mod read;
mod settle;
mod verdicts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::{Backend, EntryWrite, RegisterView};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Level, RegisterKey, Stamp, Term, WriteId};
use tokio::time::Instant;

pub(crate) use self::contended::Contended;
pub(crate) use self::judge::{Judge, Round};
pub(crate) use self::place::{Calls, Place, Role, call_in_time};
pub(crate) use self::read::weightier;
use self::verdicts::Verdicts;
use crate::store::Inner;

/// Maximum number of rounds of one write.
const ROUNDS: u32 = 12;

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

impl Intent<'_> {
    fn claim(&self) {
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
pub(crate) enum Landed {
    /// Written, at this order.
    At(Stamp),
    /// Nothing written; this view stays.
    Kept(RegisterView),
    /// The bucket has changed.
    Fenced,
}

/// Error of a write, and its possible effects.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: crate::Error,
    /// True if a replica may hold the write.
    pub(crate) maybe_written: bool,
    /// True if a replica refused the write as fenced.
    pub(crate) fenced: bool,
    /// True if concurrent writes won every round.
    contended: bool,
}

impl Failed {
    pub(crate) fn clean(error: impl Into<crate::Error>) -> Self {
        Self { error: error.into(), maybe_written: false, fenced: false, contended: false }
    }

    fn unknown(error: impl Into<crate::Error>) -> Self {
        Self { maybe_written: true, ..Self::clean(error) }
    }

    /// The failure after concurrent writes won every round.
    fn contended() -> Self {
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

impl From<Failed> for crate::Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The winning view, and true if all agree on it.
fn winner(views: Vec<RegisterView>) -> (RegisterView, bool) {
    let id = |view: &RegisterView| view.entry.as_ref().map(|entry| (entry.order, entry.write_id));
    let agree = views.windows(2).all(|pair| id(&pair[0]) == id(&pair[1]));
    (views.into_iter().max_by_key(id).unwrap_or_default(), agree)
}

impl Inner {
    pub(crate) fn call_time(&self) -> Duration {
        Duration::from_millis(self.options.index_call_ms)
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.options.index_patience_ms)
    }

    pub(crate) fn hedge_time(&self) -> Duration {
        Duration::from_millis(self.options.index_hedge_ms)
    }

    /// Time limit of an operation on a register, including its turn.
    pub(crate) fn operation_time(&self) -> Duration {
        Duration::from_millis(self.options.index_operation_ms)
    }

    /// Deadline of the wait for a turn. It leaves half of the operation's time for the operation.
    pub(crate) fn turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() / 2
    }

    /// Deadline of the turn of an operation that ends an upload. Its only competitors end that
    /// upload too, which takes several operations.
    pub(crate) fn upload_turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() * 2
    }

    /// Sends a write to all members. Returns once a quorum has it, or at the deadline. Slower
    /// members receive it in the background.
    async fn tell<'p>(&self, place: &'p Place, write: &EntryWrite) -> Verdicts<'p> {
        let mut verdicts = Verdicts::of(&place.sets);
        let mut calls = Calls::new();
        for device in place.members() {
            let write = write.clone();
            let call = move |node: Arc<dyn Backend>| async move { node.write(device, write).await };
            calls.push(device, Role::Member, place.call(device, self.call_time(), call));
        }
        let began = Instant::now();
        let mut deadline = began + self.patience();
        while let Ok(Some((device, _, reply))) = self.reply(&mut calls, deadline).await {
            verdicts.push(device, reply);
            deadline = deadline.min(self.give_up_at(&calls, began));
            if verdicts.is_taken() {
                return verdicts;
            }
            if verdicts.is_answered() {
                // Enough replies to go on; a short wait may still complete the quorum.
                deadline = deadline.min(Instant::now() + self.hedge_time());
            }
        }
        if !calls.waiting().is_empty() {
            self.note_silence(&calls, began);
            verdicts.leave_silent();
        }
        verdicts
    }
}

fn unknown_outcome() -> Error {
    Error::unavailable("the outcome of the write is unknown")
}

fn entry_write(
    intent: Intent<'_>,
    term: Term,
    (order, mode): (Stamp, WriteMode),
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
