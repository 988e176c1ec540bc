//! A group of operations that becomes one synced batch.
//!
//! The group is the latch of rule R2. One thread reads, judges and stages a register, on top of the
//! group's earlier operations. No reply, refusals included, is sent before the batch is on disk. So
//! no reply reports a state that a power cut could undo.

mod eviction;
mod fences;
mod hints;
mod kept_rows;
mod room;
mod voting;

use std::collections::{HashMap, HashSet};

use martlet_protocol::backend::{BucketFence, WriteReply};
use martlet_protocol::entry::Entry;
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::register::{Register, Verdict, WriteMode};
use martlet_protocol::run_usage::head_of;
use martlet_protocol::tree::{Sum, TreeKey};
use martlet_protocol::{
    BucketId, DeviceIdentity, Error, RegisterKey, Result, Stamp, Term, WriteId,
};
use rocksdb::WriteBatch;

use super::counting::Counting;
use super::database::Database;
use super::family::Family;
use super::fences::Fences;
use super::queue::{IndexOp, PromiseOp, PromiseOutcome, ReplySender, WriteOp};
use super::rows::{self, RegisterRow};
use super::tree::Deltas;
use super::usage::{self, RUN_BYTES, UsageDeltas, usage_key_of};
use super::voting::VotingState;
use crate::device::ballast::FillLevel;

/// Inputs for judging the operations of a group.
#[derive(Clone, Copy)]
pub(super) struct GroupInputs<'a> {
    pub(super) database: &'a Database,
    pub(super) fences: &'a Fences,
    pub(super) voting_state: &'a VotingState,
    pub(super) counting: &'a Counting,
    pub(super) name: &'a str,
    /// Formatting of the device.
    pub(super) identity: DeviceIdentity,
    pub(super) now_ms: u64,
    pub(super) level: FillLevel,
    /// Secret that keys the leaves.
    pub(super) secret: &'a TreeKey,
    /// True if other devices hold copies of the device's registers.
    pub(super) peers: bool,
}

/// Operations that become durable together.
pub(super) struct Group<'a> {
    conditions: GroupInputs<'a>,
    batch: WriteBatch,
    /// Registers after the group's operations so far.
    rows: HashMap<Vec<u8>, RegisterRow>,
    /// Changes of the sums.
    sums: Deltas,
    /// Changes of the usage of runs.
    usage: UsageDeltas,
    /// Runs with a register beside a head among the changed ones.
    with_besides: HashSet<[u8; RUN_BYTES]>,
    /// True if the group corrects or removes rows of usage.
    corrects: bool,
    /// Position of the count, if the group moves it.
    counted: Option<Vec<u8>>,
    /// Hints after the group's operations so far.
    hints: HashMap<Vec<u8>, Option<(Stamp, WriteId)>>,
    /// Change of the number of hints.
    hints_more: i64,
    /// Fences that the group sets.
    fences: HashMap<BucketId, BucketFence>,
    change: Option<StateChange>,
    answers: Vec<GroupReply>,
}

/// Change of the device's state that takes effect once the group is on disk.
enum StateChange {
    Floor(Stamp),
    Votes { voting: bool, fenced: bool },
    Term(Term),
    Joined(u64),
    Fenced,
}

/// Reply to an operation, sent once the group is on disk.
enum GroupReply {
    Write(ReplySender<WriteReply>, Result<WriteReply>),
    Promise(ReplySender<PromiseOutcome>, Result<PromiseOutcome>),
    Done(ReplySender<()>, Result<()>),
}

/// Statistics of a committed group.
pub(super) struct GroupStatistics {
    pub(super) ops: usize,
    pub(super) bytes: usize,
    /// True if the batch was not empty, and so was synced.
    pub(super) synced: bool,
}

impl<'a> Group<'a> {
    pub(super) fn new(conditions: GroupInputs<'a>) -> Self {
        Self {
            conditions,
            batch: WriteBatch::default(),
            rows: HashMap::new(),
            sums: Deltas::default(),
            usage: UsageDeltas::default(),
            with_besides: HashSet::new(),
            corrects: false,
            counted: None,
            hints: HashMap::new(),
            hints_more: 0,
            fences: HashMap::new(),
            change: None,
            answers: Vec::new(),
        }
    }

    /// Judges an operation and stages its changes.
    pub(super) fn stage(&mut self, op: IndexOp) {
        let answer = match op {
            IndexOp::Write(write, reply) => GroupReply::Write(reply, self.write(write)),
            IndexOp::Promise(promise, reply) => GroupReply::Promise(reply, self.promise(promise)),
            IndexOp::Fence(fence, reply) => {
                self.set_fence(fence);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::KeepHint(write, reply) => GroupReply::Write(reply, self.keep_hint(write)),
            IndexOp::ForgetHint(key, order, reply) => {
                GroupReply::Done(reply, self.forget_hint(key, order))
            }
            IndexOp::RaiseFloor(floor, reply) => {
                self.raise_floor(floor);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::SetVoting(voting, reply) => {
                self.set_voting(voting);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::RaiseTerm(term, reply) => {
                self.raise_term(term);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::SetJoined(change, reply) => {
                self.set_joined(change);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::OfDevice(condition, change, reply) => {
                GroupReply::Done(reply, self.change_device(condition, change))
            }
            IndexOp::MarkCollectable(marks, reply) => {
                GroupReply::Done(reply, self.mark_collectable(marks))
            }
            IndexOp::Drop(condition, drops, reply) => {
                GroupReply::Done(reply, self.drop_registers(condition, drops))
            }
            IndexOp::MendSums(sums, reply) => {
                self.repair_sums(sums);
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::MendUsage(mends, reply) => GroupReply::Done(reply, self.mend_usage(mends)),
            IndexOp::ListOld(listed, reply) => GroupReply::Done(reply, self.list_old(listed)),
            IndexOp::CheckClosed(bucket, reply) => {
                GroupReply::Done(reply, self.conditions.fences.check_closed(bucket))
            }
            IndexOp::Purge(bucket, reply) => GroupReply::Done(reply, self.purge(bucket)),
            IndexOp::Leave(garbage, reply) => {
                let family = self.conditions.database.family(Family::Garbage);
                for (key, row) in garbage {
                    self.batch.put_cf(family, key, row);
                }
                GroupReply::Done(reply, Ok(()))
            }
            IndexOp::Forget(garbage, reply) => {
                let family = self.conditions.database.family(Family::Garbage);
                for id in garbage {
                    self.batch.delete_cf(family, id.0);
                }
                GroupReply::Done(reply, Ok(()))
            }
        };
        self.answers.push(answer);
    }

    /// Writes the batch, then sends all replies.
    pub(super) fn commit(mut self) -> GroupStatistics {
        let ops = self.answers.len();
        let GroupInputs { database, .. } = self.conditions;
        std::mem::take(&mut self.sums).stage(database.family(Family::Tree), &mut self.batch);
        std::mem::take(&mut self.usage).stage(database.family(Family::Usage), &mut self.batch);
        let bytes = self.batch.size_in_bytes();
        let synced = !self.batch.is_empty();
        let outcome = if synced {
            database.write_synced(std::mem::take(&mut self.batch))
        } else {
            database.healthy()
        };
        if outcome.is_ok() {
            self.publish_rows();
            let GroupInputs { fences, voting_state, .. } = self.conditions;
            let stored = self.hints.into_iter().filter_map(|(key, kept)| kept.map(|_| key));
            voting_state.kept_hints().changed(self.hints_more, stored);
            for fence in self.fences.into_values() {
                fences.apply(fence);
            }
            match self.change {
                None => {}
                Some(StateChange::Floor(floor)) => voting_state.raise_floor(floor),
                Some(StateChange::Votes { voting, fenced }) => {
                    voting_state.set_voting(voting);
                    if fenced {
                        voting_state.set_fenced();
                    }
                }
                Some(StateChange::Term(term)) => voting_state.raise_term(term),
                Some(StateChange::Joined(change)) => {
                    voting_state.set_joined(change);
                    voting_state.set_fenced();
                }
                Some(StateChange::Fenced) => voting_state.set_fenced(),
            }
        }
        for answer in self.answers {
            answer.send(outcome.as_ref().err());
        }
        GroupStatistics { ops, bytes, synced }
    }

    fn write(&mut self, write: WriteOp) -> Result<WriteReply> {
        self.conditions.voting_state.check_term(write.term)?;
        let old = self.row(&write.key)?;
        let before = self.register(&old)?;
        let mut register = before;
        if write.mode == WriteMode::Fresh {
            register.promise = register.promise.max(self.promise_of_head(&write.key)?);
        }
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
                if write.mode.is_first_hand() && write.bucket != BucketId::ROOT {
                    self.conditions.voting_state.check_fenced()?;
                }
                if let Some(refusal) = self.refusal(&write, &before) {
                    return Ok(refusal);
                }
                if let Verdict::Behind(floor) = verdict {
                    return Ok(WriteReply::Behind(floor));
                }
            }
        }
        self.check_room(&write, &old)?;
        self.store(write, &old)?;
        Ok(self.stored(WriteReply::Stored))
    }

    /// Returns the reply to a write that is on disk; without votes the write doesn't count (rule
    /// G1).
    fn stored(&self, reply: WriteReply) -> WriteReply {
        if self.conditions.voting_state.voting() { reply } else { WriteReply::Unvoted }
    }

    /// Returns a register, with its promise raised to the device's floor (rule G2).
    fn register(&self, row: &RegisterRow) -> Result<Register> {
        let Register { promise, held } = row.register()?;
        Ok(Register { promise: promise.max(self.conditions.voting_state.floor()), held })
    }

    /// Returns the promise of the head of a register beside it; zero for other registers. A ballot on
    /// the head that promised, and only read beside the head, also shuts out slower ballots (rule R8).
    fn promise_of_head(&self, key: &[u8]) -> Result<Stamp> {
        if !usage::is_beside(key) {
            return Ok(Stamp::ZERO);
        }
        let Some((head, _)) = head_of(&RegisterKey::decode(key)?) else { return Ok(Stamp::ZERO) };
        Ok(self.row(&head.encode())?.register()?.promise)
    }

    /// Returns the reason if a write must be refused, whatever its order (rules M2, X2, C1, T2).
    /// For writes that are not first-hand, only `commit_by_ms` is judged.
    fn refusal(&self, write: &WriteOp, before: &Register) -> Option<WriteReply> {
        let GroupInputs { fences, now_ms, .. } = self.conditions;
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

    fn store(&mut self, mut write: WriteOp, old: &RegisterRow) -> Result<()> {
        let database = self.conditions.database;
        let before = old.register()?;
        let same_write = before.held.map(|(_, id)| id) == Some(write.write_id);
        let keeps_inline = write.inline.is_none() && write.row.has_inline();
        if keeps_inline && !(same_write && old.has_inline()) {
            return Err(Error::invalid("an inline entry came without its bytes"));
        }
        // The register's own promise: reads raise it to the floor.
        write.row.set_promise(before.promise);
        let kept = self.kept_rows(usage_key_of(&write.leaf.at), &write.key, old, &write.row)?;
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
        self.stage_kept(kept);
        self.batch.put_cf(database.family(Family::Entries), &write.key, write.row.bytes());
        self.rows.insert(write.key, write.row);
        Ok(())
    }

    /// Returns the leaf of a row, if the row counts in the sums.
    fn leaf(&self, key: &[u8], row: &RegisterRow) -> Result<Option<Sum>> {
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

    fn promise(&mut self, promise: PromiseOp) -> Result<PromiseOutcome> {
        let GroupInputs { now_ms, voting_state, name, .. } = self.conditions;
        voting_state.check_votes(name)?;
        voting_state.check_term(promise.term)?;
        let mut row = self.row(&promise.key)?;
        let mut register = self.register(&row)?;
        if is_ahead(promise.ballot, &register, now_ms) {
            return Err(Error::invalid("the ballot is too far ahead of this node's clock"));
        }
        if is_too_old(promise.ballot, now_ms) {
            let oldest_ms = now_ms - FIRST_HAND_AGE_MS_MAX;
            return Ok(PromiseOutcome::Behind(register.floor().max(Stamp::at_ms(oldest_ms))));
        }
        if let Err(floor) = register.promise(promise.ballot) {
            return Ok(PromiseOutcome::Behind(floor));
        }
        let before = row.clone();
        row.set_promise(promise.ballot);
        self.list_promise(&promise.key, &before, &row)?;
        let family = self.conditions.database.family(Family::Entries);
        self.batch.put_cf(family, &promise.key, row.bytes());
        self.rows.insert(promise.key, row.clone());
        Ok(PromiseOutcome::Granted(row))
    }

    fn row(&self, key: &[u8]) -> Result<RegisterRow> {
        if let Some(row) = self.rows.get(key) {
            return Ok(row.clone());
        }
        match self.conditions.database.get_pinned(Family::Entries, key)? {
            Some(row) => RegisterRow::parse(&row),
            None => Ok(RegisterRow::empty()),
        }
    }
}

impl GroupReply {
    fn send(self, failed: Option<&Error>) {
        fn send_reply<T>(reply: ReplySender<T>, answer: Result<T>, failed: Option<&Error>) {
            let answer = match failed {
                Some(error) => Err(Error::new(error.kind(), error.to_string())),
                None => answer,
            };
            // The caller may have gone; its write stays.
            drop(reply.send(answer));
        }
        match self {
            Self::Write(reply, answer) => send_reply(reply, answer, failed),
            Self::Promise(reply, answer) => send_reply(reply, answer, failed),
            Self::Done(reply, answer) => send_reply(reply, answer, failed),
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
