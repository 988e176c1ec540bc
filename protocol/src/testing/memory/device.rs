//! One device: its registers, hints and fences, and its decisions about writes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use super::listing;
use crate::backend::{
    ArrivedHints, BucketFence, EntryWrite, Hint, ListReply, ListRequest, PromiseReply, RecentHints,
    RecentPage, RegisterView, RowSelection, Want, WriteReply,
};
use crate::entry::{Body, Entry};
use crate::error::{Error, Result};
use crate::extent::ExtentRecord;
use crate::id::{BucketId, DeviceIdentity, ExtentId};
use crate::key::RegisterKey;
use crate::limits;
use crate::register::{Register, Verdict, WriteMode};
use crate::run_usage::head_of;
use crate::stamp::Stamp;
use crate::term::Term;

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent state of a device")]
pub(super) struct MemoryDevice {
    /// Identity; zeros if none was set.
    pub(super) identity: Option<DeviceIdentity>,
    pub(super) full: bool,
    pub(super) offline: bool,
    /// True without votes: the device stores writes, but doesn't count in quorums.
    pub(super) mute: bool,
    /// True until the device has received the fences of its peers (rule M2).
    pub(super) lacks_fences: bool,
    pub(super) floor: Stamp,
    pub(super) term: Term,
    pub(super) joined: u64,
    /// True for a device of an earlier version, which keeps no usage, no lists and no arrivals of hints.
    pub(super) is_earlier: bool,
    pub(super) collectable: BTreeSet<RegisterKey>,
    /// Deleted extents with their deletion times in milliseconds.
    pub(super) deleted: BTreeMap<ExtentId, u64>,
    pub(super) registers: BTreeMap<RegisterKey, Cell>,
    pub(super) hints: BTreeMap<RegisterKey, Hint>,
    pub(super) arrivals: RecentHints<RegisterKey>,
    pub(super) fences: BTreeMap<BucketId, BucketFence>,
    pub(super) extents: BTreeMap<ExtentId, (ExtentRecord, Bytes)>,
    pub(super) garbage: BTreeMap<u64, (u64, RegisterKey, Body)>,
    pub(super) garbage_made: u64,
}

#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) promise: Stamp,
    pub(super) entry: Option<Entry>,
    pub(super) inline: Option<Bytes>,
}

impl Cell {
    /// State of the register; its promise is at least the device's floor.
    pub(super) fn register(&self, floor: Stamp) -> Register {
        let held = self.entry.as_ref().map(|entry| (entry.order, entry.write_id));
        Register { promise: self.promise.max(floor), held }
    }

    pub(super) fn view(&self, want: Want, floor: Stamp) -> RegisterView {
        RegisterView {
            promise: self.promise.max(floor),
            entry: self.entry.clone(),
            inline: self.inline.clone().filter(|_| want == Want::EntryAndInline),
        }
    }
}

impl MemoryDevice {
    /// Refuses callers with a lower term (rule P1).
    pub(super) fn check_term(&self, term: Term) -> Result<()> {
        if term < self.term { Err(Error::outdated(self.term)) } else { Ok(()) }
    }

    /// Returns the refusal of a write by its time or its bucket's fence, if any.
    fn objection(&self, write: &EntryWrite, held: Stamp, now_ms: u64) -> Option<WriteReply> {
        let late = now_ms > write.commit_by_ms;
        if !write.mode.is_first_hand() {
            return late.then_some(WriteReply::OutOfTime);
        }
        let fence = self.fences.get(&write.key.bucket);
        if fence.is_some_and(|fence| !fence.open || write.generation < fence.generation) {
            return Some(WriteReply::Fenced);
        }
        let order_ms = write.entry.order.time_ms();
        let ahead = order_ms > now_ms.max(held.time_ms()) + limits::CLOCK_SKEW_MS_MAX;
        let behind =
            write.mode != WriteMode::Settled && order_ms + limits::FIRST_HAND_AGE_MS_MAX < now_ms;
        (ahead || behind || late).then_some(WriteReply::OutOfTime)
    }

    pub(super) fn read(&self, key: &RegisterKey, want: Want, term: Term) -> Result<RegisterView> {
        self.check_term(term)?;
        let absent = RegisterView { promise: self.floor, ..RegisterView::default() };
        Ok(self.registers.get(key).map_or(absent, |cell| cell.view(want, self.floor)))
    }

    pub(super) fn promise(
        &mut self,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        self.check_term(term)?;
        let floor = self.floor;
        let cell = self.registers.entry(key.clone()).or_default();
        let mut register = cell.register(floor);
        match register.promise(ballot) {
            Ok(()) => {
                cell.promise = register.promise;
                Ok(PromiseReply::Promised(cell.view(Want::EntryAndInline, floor)))
            }
            Err(floor) => Ok(PromiseReply::Behind(floor)),
        }
    }

    pub(super) fn write(&mut self, write: EntryWrite, now_ms: u64) -> Result<WriteReply> {
        self.check_term(write.term)?;
        let identity = (write.entry.order, write.entry.write_id);
        let held = self.registers.get(&write.key).and_then(|it| it.register(Stamp::ZERO).held);
        if write.mode.is_first_hand() && held < Some(identity) {
            self.check_fenced(&write)?;
        }
        Ok(self.decide(write, now_ms))
    }

    /// Refuses first-hand writes of buckets until the device has received the fences of its peers.
    fn check_fenced(&self, write: &EntryWrite) -> Result<()> {
        if !self.lacks_fences || write.key.bucket == BucketId::ROOT {
            return Ok(());
        }
        let reason = "the device has not received the fences of its peers yet";
        Err(Error::unavailable(reason).without_effect("a fence may refuse the write"))
    }

    fn decide(&mut self, write: EntryWrite, now_ms: u64) -> WriteReply {
        let floor = self.floor;
        let stored = if self.mute { WriteReply::Unvoted } else { WriteReply::Stored };
        let absent = Register { promise: floor, held: None };
        let mut register = self.registers.get(&write.key).map_or(absent, |c| c.register(floor));
        let held = register.floor();
        if write.mode == WriteMode::Fresh
            && let Some((head, _)) = head_of(&write.key)
            && let Some(head) = self.registers.get(&head)
        {
            register.promise = register.promise.max(head.promise);
        }
        let verdict = register.write(write.entry.order, write.entry.write_id, write.mode);
        if let Verdict::Store | Verdict::Behind(_) = verdict
            && let Some(objection) = self.objection(&write, held, now_ms)
        {
            return objection;
        }
        match verdict {
            Verdict::Held => stored,
            Verdict::Superseded => WriteReply::Superseded,
            Verdict::Behind(floor) => WriteReply::Behind(floor),
            Verdict::Store => {
                let cell = self.registers.entry(write.key.clone()).or_default();
                let same = cell.entry.as_ref().is_some_and(|e| e.write_id == write.entry.write_id);
                let before = cell.entry.replace(write.entry);
                self.collectable.remove(&write.key);
                cell.inline = write.inline;
                let body = before.as_ref().and_then(|entry| entry.value.body());
                self.discard(write.key, body.filter(|_| !same && !write.keep_body), now_ms);
                stored
            }
        }
    }

    pub(super) fn keep_hint(&mut self, write: EntryWrite, now_ms: u64) -> Result<WriteReply> {
        if self.mute {
            let refusal = Error::unavailable("the device has no vote yet");
            return Err(refusal.without_effect("a hint needs a device with votes"));
        }
        self.check_fenced(&write)?;
        let kept = self.hints.get(&write.key).map_or(Stamp::ZERO, |hint| hint.entry.order);
        if let Some(objection) = self.objection(&write, kept, now_ms) {
            return Ok(objection);
        }
        let EntryWrite { key, entry, inline, keep_body, .. } = write;
        if kept > entry.order {
            return Ok(WriteReply::Superseded);
        }
        self.arrivals.push(key.clone());
        self.hints.insert(key.clone(), Hint { key, entry, inline, keep_body, since_ms: now_ms });
        Ok(WriteReply::Stored)
    }

    pub(super) fn discard(&mut self, key: RegisterKey, body: Option<&Body>, now_ms: u64) {
        if let Some(body) = body.filter(|body| body.has_extents()) {
            self.garbage_made += 1;
            self.garbage.insert(self.garbage_made, (now_ms, key, body.clone()));
        }
    }

    pub(super) fn fence(&mut self, fence: BucketFence) {
        let held = self.fences.entry(fence.bucket).or_insert(fence);
        if fence.generation >= held.generation {
            *held = fence;
        }
    }

    pub(super) fn fences_after(&self, after: Option<BucketId>, limit: usize) -> Vec<BucketFence> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.fences.range((above, Bound::Unbounded)).take(limit).map(|(_, fence)| *fence).collect()
    }

    pub(super) fn purge(&mut self, bucket: BucketId, now_ms: u64) -> Result<()> {
        if self.fences.get(&bucket).is_none_or(|fence| fence.open) {
            return Err(Error::conflict("only a bucket that is closed may be purged"));
        }
        let gone = self.registers.extract_if(.., |key, _| key.bucket == bucket);
        for (key, cell) in gone.collect::<Vec<_>>() {
            let body = cell.entry.as_ref().and_then(|entry| entry.value.body());
            self.discard(key, body, now_ms);
        }
        self.collectable.retain(|key| key.bucket != bucket);
        self.hints.retain(|key, _| key.bucket != bucket);
        self.fences.insert(bucket, BucketFence::of_deleted(bucket));
        Ok(())
    }

    pub(super) fn read_hint(&self, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        check_hints(self)?;
        Ok(self.hints.get(key).map(|hint| hint_view(hint, want)).unwrap_or_default())
    }

    pub(super) fn hints(&self, after: Option<&RegisterKey>, limit: usize) -> Result<Vec<Hint>> {
        check_hints(self)?;
        let run = self.hints.range(above(after)).take(limit);
        Ok(run.map(|(_, hint)| hint.clone()).collect())
    }

    pub(super) fn forget_hint(&mut self, key: &RegisterKey, order: Stamp) {
        if self.hints.get(key).is_some_and(|hint| hint.entry.order <= order) {
            self.hints.remove(key);
        }
    }

    pub(super) fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.check_term(request.term)?;
        let entry = |cell: &Cell| cell.entry.clone();
        Ok(listing::page(&self.registers, entry, request))
    }

    pub(super) fn list_rows(&self, request: &ListRequest, rows: RowSelection) -> Result<ListReply> {
        self.check_term(request.term)?;
        let entry = |cell: &Cell| cell.entry.clone();
        Ok(listing::selected(&self.registers, entry, request, rows))
    }

    pub(super) fn list_hints(&self, request: &ListRequest) -> Result<ListReply> {
        check_hints(self)?;
        Ok(listing::page(&self.hints, |hint| Some(hint.entry.clone()), request))
    }
}

/// Returns the hints that a device got after an arrival.
pub(super) fn hint_arrivals(
    device: &MemoryDevice,
    after: Option<u64>,
    limit: usize,
) -> Result<ArrivedHints> {
    if device.is_earlier {
        return Err(Error::unavailable("the device doesn't know the call"));
    }
    check_hints(device)?;
    let RecentPage { keys, last, missed } = device.arrivals.after(after, limit);
    let hints = keys.iter().filter_map(|key| device.hints.get(key).cloned()).collect();
    Ok(ArrivedHints { hints, last, missed })
}

/// Refuses to give hints away without votes. A device that keeps none reports that.
fn check_hints(device: &MemoryDevice) -> Result<()> {
    if device.mute && !device.hints.is_empty() {
        return Err(Error::unavailable("the device has no vote yet"));
    }
    Ok(())
}

/// Range of the registers above `after`.
pub(super) fn above(after: Option<&RegisterKey>) -> (Bound<RegisterKey>, Bound<RegisterKey>) {
    let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
    (from, Bound::Unbounded)
}

fn hint_view(hint: &Hint, want: Want) -> RegisterView {
    let inline = hint.inline.clone().filter(|_| want == Want::EntryAndInline);
    RegisterView { promise: Stamp::ZERO, entry: Some(hint.entry.clone()), inline }
}
