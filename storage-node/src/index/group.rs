//! A group of operations that becomes one synced batch.
//!
//! The group is the latch of rule R2. One thread reads, judges and stages a register, on top of the
//! group's earlier operations. No reply, refusals included, is sent before the batch is on disk. So
//! no reply reports a state that a power cut could undo.

use std::collections::HashMap;

use martlet_protocol::backend::{BucketFence, WriteReply};
use martlet_protocol::entry::Entry;
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::register::{Register, Verdict, WriteMode};
use martlet_protocol::tree::{Sum, TreeKey};
use martlet_protocol::{Error, RegisterKey, Result, Stamp, Term, WriteId};
use rocksdb::WriteBatch;

use super::database::{Database, Family};
use super::fences::Fences;
use super::queue::{Op, PromiseOp, Promised, Reply, WriteOp};
use super::rows::{self, RegisterRow};
use super::standing::Standing;
use super::tree::Deltas;
use crate::device::ballast::Level;

/// Inputs for judging the operations of a group.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub(super) database: &'a Database,
    pub(super) fences: &'a Fences,
    pub(super) standing: &'a Standing,
    pub(super) name: &'a str,
    pub(super) now_ms: u64,
    pub(super) level: Level,
    /// Secret that keys the leaves.
    pub(super) secret: &'a TreeKey,
    /// True if other devices hold copies of the device's registers.
    pub(super) peers: bool,
}

/// Operations that become durable together.
pub(super) struct Group<'a> {
    pub(super) conditions: Conditions<'a>,
    pub(super) batch: WriteBatch,
    /// Registers after the group's operations so far.
    pub(super) rows: HashMap<Vec<u8>, RegisterRow>,
    /// Changes of the sums.
    pub(super) sums: Deltas,
    /// Hints after the group's operations so far.
    pub(super) hints: HashMap<Vec<u8>, Option<(Stamp, WriteId)>>,
    /// Change of the number of hints.
    pub(super) hints_more: i64,
    pub(super) change: Option<Change>,
    answers: Vec<Answer>,
}

/// Change of the device's state that takes effect once the group is on disk.
pub(super) enum Change {
    Fence(BucketFence),
    Floor(Stamp),
    Votes(bool),
    Term(Term),
    Joined(u64),
}

/// Reply to an operation, sent once the group is on disk.
enum Answer {
    Write(Reply<WriteReply>, Result<WriteReply>),
    Promise(Reply<Promised>, Result<Promised>),
    Done(Reply<()>, Result<()>),
}

/// Statistics of a committed group.
pub(super) struct Committed {
    pub(super) ops: usize,
    pub(super) bytes: usize,
    /// True if the batch was not empty, and so was synced.
    pub(super) synced: bool,
}

impl<'a> Group<'a> {
    pub(super) fn new(conditions: Conditions<'a>) -> Self {
        Self {
            conditions,
            batch: WriteBatch::default(),
            rows: HashMap::new(),
            sums: Deltas::default(),
            hints: HashMap::new(),
            hints_more: 0,
            change: None,
            answers: Vec::new(),
        }
    }

    /// Judges an operation and stages its changes.
    pub(super) fn stage(&mut self, op: Op) {
        let answer = match op {
            Op::Write(write, reply) => Answer::Write(reply, self.write(write)),
            Op::Promise(promise, reply) => Answer::Promise(reply, self.promise(promise)),
            Op::Fence(fence, reply) => {
                self.set_fence(fence);
                Answer::Done(reply, Ok(()))
            }
            Op::KeepHint(write, reply) => Answer::Write(reply, self.keep_hint(write)),
            Op::ForgetHint(key, order, reply) => Answer::Done(reply, self.forget_hint(key, order)),
            Op::RaiseFloor(floor, reply) => {
                self.raise_floor(floor);
                Answer::Done(reply, Ok(()))
            }
            Op::SetVoting(voting, reply) => {
                self.set_voting(voting);
                Answer::Done(reply, Ok(()))
            }
            Op::RaiseTerm(term, reply) => {
                self.raise_term(term);
                Answer::Done(reply, Ok(()))
            }
            Op::SetJoined(change, reply) => {
                self.set_joined(change);
                Answer::Done(reply, Ok(()))
            }
            Op::MarkCollectable(marks, reply) => Answer::Done(reply, self.mark_collectable(marks)),
            Op::Drop(drops, reply) => Answer::Done(reply, self.drop_registers(drops)),
            Op::MendSums(sums, reply) => {
                self.mend_sums(sums);
                Answer::Done(reply, Ok(()))
            }
            Op::CheckClosed(bucket, reply) => {
                Answer::Done(reply, self.conditions.fences.check_closed(bucket))
            }
            Op::Purge(bucket, reply) => Answer::Done(reply, self.purge(bucket)),
            Op::Leave(garbage, reply) => {
                let family = self.conditions.database.family(Family::Garbage);
                for (key, row) in garbage {
                    self.batch.put_cf(family, key, row);
                }
                Answer::Done(reply, Ok(()))
            }
            Op::Forget(garbage, reply) => {
                let family = self.conditions.database.family(Family::Garbage);
                for id in garbage {
                    self.batch.delete_cf(family, id.0);
                }
                Answer::Done(reply, Ok(()))
            }
        };
        self.answers.push(answer);
    }

    /// Writes the batch, then sends all replies.
    pub(super) fn commit(mut self) -> Committed {
        let ops = self.answers.len();
        self.sums.stage(self.conditions.database.family(Family::Tree), &mut self.batch);
        let bytes = self.batch.size_in_bytes();
        let synced = !self.batch.is_empty();
        let outcome = if synced {
            self.conditions.database.write_synced(self.batch)
        } else {
            self.conditions.database.healthy()
        };
        if outcome.is_ok() {
            let Conditions { fences, standing, .. } = self.conditions;
            standing.count_hints(self.hints_more);
            match self.change {
                None => {}
                Some(Change::Fence(fence)) => fences.apply(fence),
                Some(Change::Floor(floor)) => standing.raise_floor(floor),
                Some(Change::Votes(voting)) => standing.set_voting(voting),
                Some(Change::Term(term)) => standing.raise_term(term),
                Some(Change::Joined(change)) => standing.set_joined(change),
            }
        }
        for answer in self.answers {
            answer.send(outcome.as_ref().err());
        }
        Committed { ops, bytes, synced }
    }

    fn write(&mut self, write: WriteOp) -> Result<WriteReply> {
        self.conditions.standing.check_term(write.term)?;
        let old = self.row(&write.key)?;
        let before = self.register(&old)?;
        let mut register = before;
        match register.write(write.order, write.write_id, write.mode) {
            Verdict::Held => return Ok(self.stored(WriteReply::Stored)),
            Verdict::Superseded => {
                // With `keep_body` the extents may belong to the held entry. Repairs leave no
                // garbage: the device that superseded the write recorded it.
                if !write.keep_body && write.mode.is_first_hand() {
                    self.leave_garbage(&write.key, &write.row)?;
                }
                return Ok(self.stored(WriteReply::Superseded));
            }
            verdict => {
                if let Some(refusal) = self.refusal(&write, &before) {
                    return Ok(refusal);
                }
                if let Verdict::Behind(floor) = verdict {
                    return Ok(WriteReply::Behind(floor));
                }
            }
        }
        self.check_room(&write)?;
        self.store(write, &old)?;
        Ok(self.stored(WriteReply::Stored))
    }

    /// Returns the reply to a write that is on disk; without votes the write doesn't count (rule
    /// G1).
    fn stored(&self, reply: WriteReply) -> WriteReply {
        if self.conditions.standing.voting() { reply } else { WriteReply::Unvoted }
    }

    /// Returns a register, with its promise raised to the device's floor (rule G2).
    fn register(&self, row: &RegisterRow) -> Result<Register> {
        let Register { promise, held } = row.register()?;
        Ok(Register { promise: promise.max(self.conditions.standing.floor()), held })
    }

    /// Returns the reason if a write must be refused, whatever its order (rules M2, X2, C1, T2).
    /// For writes that are not first-hand, only `commit_by_ms` is judged.
    pub(super) fn refusal(&self, write: &WriteOp, before: &Register) -> Option<WriteReply> {
        let Conditions { fences, now_ms, .. } = self.conditions;
        let late = now_ms > write.commit_by_ms;
        if !write.mode.is_first_hand() {
            return late.then_some(WriteReply::OutOfTime);
        }
        if !fences.admits(write.bucket, write.generation) {
            return Some(WriteReply::Fenced);
        }
        // A settled write was accepted in time by other devices: only `commit_by_ms` limits it.
        let old = write.mode != WriteMode::Settled && is_too_old(write.order, now_ms);
        let out_of_time = late || old || is_ahead(write.order, before, now_ms);
        out_of_time.then_some(WriteReply::OutOfTime)
    }

    /// Returns `Full` for writes that may not use the reserve. The reserve serves deletes, and
    /// entries whose bytes are on disk already.
    pub(super) fn check_room(&self, write: &WriteOp) -> Result<()> {
        match self.conditions.level {
            Level::Ready => Ok(()),
            Level::Full if write.inline.is_none() => Ok(()),
            Level::Critical if write.tombstone => Ok(()),
            Level::Full | Level::Critical => {
                Err(Error::full("the device is full").without_effect("no space left for entries"))
            }
        }
    }

    fn store(&mut self, mut write: WriteOp, old: &RegisterRow) -> Result<()> {
        let database = self.conditions.database;
        let before = old.register()?;
        let same_write = before.held.map(|(_, id)| id) == Some(write.write_id);
        let keeps_inline = write.inline.is_none() && write.row.has_inline();
        if keeps_inline && !(same_write && old.has_inline()) {
            return Err(Error::invalid("an inline entry came without its bytes"));
        }
        if !same_write && !write.keep_body {
            self.leave_garbage(&write.key, old)?;
        }
        let inline = database.family(Family::Inline);
        match &write.inline {
            Some(bytes) => self.batch.put_cf(inline, &write.key, bytes),
            None if old.has_inline() && !keeps_inline => self.batch.delete_cf(inline, &write.key),
            None => {}
        }
        if let Some(gone) = self.leaf(&write.key, old)? {
            self.sums.take(write.leaf.at, gone);
        }
        self.sums.add(write.leaf.at, write.leaf.sum);
        // The register's own promise: reads raise it to the floor.
        write.row.set_promise(before.promise);
        self.batch.put_cf(database.family(Family::Entries), &write.key, write.row.bytes());
        self.rows.insert(write.key, write.row);
        Ok(())
    }

    /// Returns the leaf of a row, if the row counts in the sums.
    pub(super) fn leaf(&self, key: &[u8], row: &RegisterRow) -> Result<Option<Sum>> {
        let Some((order, write_id)) = row.counted()? else { return Ok(None) };
        let key = RegisterKey::decode(key)?;
        Ok(Some(Sum::leaf(self.conditions.secret, &key, order, write_id)))
    }

    /// Records the extents of a row that is not, or no longer, held.
    fn leave_garbage(&mut self, key: &[u8], row: &RegisterRow) -> Result<()> {
        if !row.has_extents() {
            return Ok(());
        }
        let Some(entry) = row.entry()? else { return Ok(()) };
        if let Some((garbage_key, garbage_row)) = garbage_of(key, &entry, self.conditions.now_ms) {
            let family = self.conditions.database.family(Family::Garbage);
            self.batch.put_cf(family, garbage_key, garbage_row);
        }
        Ok(())
    }

    fn promise(&mut self, promise: PromiseOp) -> Result<Promised> {
        let Conditions { now_ms, standing, name, .. } = self.conditions;
        standing.check_votes(name)?;
        standing.check_term(promise.term)?;
        let mut row = self.row(&promise.key)?;
        let mut register = self.register(&row)?;
        if is_ahead(promise.ballot, &register, now_ms) {
            return Err(Error::invalid("the ballot is too far ahead of this node's clock"));
        }
        if is_too_old(promise.ballot, now_ms) {
            let oldest_ms = now_ms - FIRST_HAND_AGE_MS_MAX;
            return Ok(Promised::Behind(register.floor().max(Stamp::at_ms(oldest_ms))));
        }
        if let Err(floor) = register.promise(promise.ballot) {
            return Ok(Promised::Behind(floor));
        }
        row.set_promise(promise.ballot);
        let family = self.conditions.database.family(Family::Entries);
        self.batch.put_cf(family, &promise.key, row.bytes());
        self.rows.insert(promise.key, row.clone());
        Ok(Promised::Granted(row))
    }

    pub(super) fn row(&self, key: &[u8]) -> Result<RegisterRow> {
        if let Some(row) = self.rows.get(key) {
            return Ok(row.clone());
        }
        match self.conditions.database.get_pinned(Family::Entries, key)? {
            Some(row) => RegisterRow::parse(&row),
            None => Ok(RegisterRow::empty()),
        }
    }
}

impl Answer {
    fn send(self, failed: Option<&Error>) {
        fn tell<T>(reply: Reply<T>, answer: Result<T>, failed: Option<&Error>) {
            let answer = match failed {
                Some(error) => Err(Error::new(error.kind(), error.to_string())),
                None => answer,
            };
            // The caller may have gone; its write stays.
            drop(reply.send(answer));
        }
        match self {
            Self::Write(reply, answer) => tell(reply, answer, failed),
            Self::Promise(reply, answer) => tell(reply, answer, failed),
            Self::Done(reply, answer) => tell(reply, answer, failed),
        }
    }
}

/// Returns the garbage row of an entry that is removed at `now_ms`, if it has extents.
pub(super) fn garbage_of(key: &[u8], entry: &Entry, now_ms: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let body = entry.value.body().filter(|body| body.has_extents())?;
    Some((rows::garbage_key(now_ms, entry.write_id), rows::garbage_row(key, body)))
}

/// Returns true if a stamp lies too far ahead (rule C1). A writer that follows a stamp from a fast
/// clock can only stamp just above it, and is not judged for that.
fn is_ahead(order: Stamp, register: &Register, now_ms: u64) -> bool {
    order.time_ms() > now_ms + CLOCK_SKEW_MS_MAX
        && order.time_ms() > register.floor().time_ms().saturating_add(1)
}

/// Returns true if a stamp is too old for a first-hand write (rule T2).
fn is_too_old(order: Stamp, now_ms: u64) -> bool {
    order.time_ms().saturating_add(FIRST_HAND_AGE_MS_MAX) < now_ms
}
