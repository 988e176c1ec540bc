//! Registers, over those who decide about them: quorum reads, plain writes and ballots (rules R3, R4, R5, R7).
//!
//! Replies that agree need no second round; replies that differ are settled before anyone is told
//! of them, so that the winner is on a quorum. Nothing waits for a replica that others can do
//! without, and every call ends in time.
//!
//! Who decides are the holders by the ring and, while replicas of the register move, those before and
//! those after, each by a quorum of their own (rule P2). Every request names the term that this
//! goes by. A device that is further refuses it: then the term is taken in, the register placed
//! anew, and what no quorum had answered is asked again (rule P1).
//!
//! * [`place`]: where a register lives, and calls to the devices there.
//! * [`read`]: reads at a level, [`asking`] a few at a time; [`settle`]: what replicas differ on; [`degraded`]: what happens when
//!   primaries are out.
//! * [`after`]: reads that wait for what their client has seen.
//! * [`plain`]: plain writes, with [`contended`] keys; [`ballot`]: conditional ones.
//! * [`judge`]: who says what to do about what a ballot found; [`beside`]: what is written with it.
//! * [`verdicts`]: what came of one write on each replica, counted.

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

/// Rounds that one write may take before it gives way.
const ROUNDS: u32 = 12;

/// A write of one register.
#[derive(Clone, Copy)]
pub(crate) struct Intent<'a> {
    pub(crate) key: &'a RegisterKey,
    pub(crate) write_id: WriteId,
    /// The bucket's generation (rule M2).
    pub(crate) generation: u64,
    /// Refused past this time (rule X2).
    pub(crate) commit_by_ms: u64,
    /// What to do when a quorum of primaries is out; ballots need one at every level.
    pub(crate) level: Level,
    /// Set before the first replica is told.
    pub(crate) claim: Option<&'a AtomicBool>,
}

impl Intent<'_> {
    fn claim(&self) {
        if let Some(claim) = self.claim {
            claim.store(true, Ordering::Release);
        }
    }
}

/// What a ballot proposes.
#[derive(Clone)]
pub(crate) struct Proposal {
    pub(crate) value: Value,
    pub(crate) inline: Option<Bytes>,
    pub(crate) keep_body: bool,
}

impl Proposal {
    /// A value without inline bytes.
    pub(crate) fn of(value: Value) -> Self {
        Self { value, inline: None, keep_body: false }
    }

    /// What is there already, once more: who took it first-hand knows what it left behind.
    pub(crate) fn again(value: Value, inline: Option<Bytes>) -> Self {
        Self { value, inline, keep_body: true }
    }
}

/// What to do about what a ballot found.
pub(crate) enum Step {
    Write(Proposal),
    Keep,
    /// Something beside it needs a ballot above this.
    Above(Stamp),
    /// The bucket has moved on.
    Fenced,
}

/// Where a write ended up.
#[derive(Debug)]
pub(crate) enum Landed {
    /// It is written, at this order.
    At(Stamp),
    /// Nothing was written: this is what is there.
    Kept(RegisterView),
    /// The bucket has moved on.
    Fenced,
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: crate::Error,
    /// Some replica may hold it all the same.
    pub(crate) maybe_written: bool,
    /// Some replica says that the bucket has moved on.
    pub(crate) fenced: bool,
    /// Others came between every time.
    contended: bool,
}

impl Failed {
    pub(crate) fn clean(error: impl Into<crate::Error>) -> Self {
        Self { error: error.into(), maybe_written: false, fenced: false, contended: false }
    }

    fn unknown(error: impl Into<crate::Error>) -> Self {
        Self { maybe_written: true, ..Self::clean(error) }
    }

    /// Others came between every time.
    fn contended() -> Self {
        let error = Error::unavailable("too many writes at once to this key");
        Self { contended: true, ..Self::clean(error) }
    }

    /// The same of a request that named conditions: S3 has an answer for those whose condition could
    /// not be decided in time, and none of them was written.
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

/// The view that wins, and whether all agree on it.
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

    /// How long an operation on a register may go on trying, its turn included.
    pub(crate) fn operation_time(&self) -> Duration {
        Duration::from_millis(self.options.index_operation_ms)
    }

    /// Until when an operation that begins now waits for its turn: half of its time is left for what
    /// it is to do then.
    pub(crate) fn turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() / 2
    }

    /// The same of one that ends an upload. It waits for nobody but others who end that upload, which
    /// takes them several operations.
    pub(crate) fn upload_turn_deadline(&self) -> Instant {
        Instant::now() + self.operation_time() * 2
    }

    /// Tells all who decide, and waits until a quorum has the write, or until it can be told that
    /// this takes too long. Those who are slower get it behind the reply.
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
                // Enough have spoken to go on; the others may make that unnecessary.
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
    Error::unavailable("nobody can tell who won")
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
