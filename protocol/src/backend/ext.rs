//! Typed methods of every backend, one for each [`Call`].

use std::borrow::Cow;

use super::call::Call;
use super::reply_future::ReplyFuture;
use super::{
    AgedPage, AgedWalk, ArrivedHints, AuditResult, Backend, BucketFence, ClaimsReply,
    ClaimsRequest, DeleteCondition, DeviceCondition, EntryWrite, ExtentStat, Garbage, GarbageId,
    HeldBuckets, Hint, Holding, ListReply, ListRequest, OldList, OldPage, OldPlace, Presence,
    PromiseReply, QuarantinePage, RegisterDrop, RegisterView, ReleaseCondition, RingEpoch,
    RowSelection, Sought, StrayCondition, Walk, Want, WriteReply,
};
use crate::extent::{ExtentRecord, ExtentRef};
use crate::extent_sums::PolicySums;
use crate::id::{BucketId, DeviceId, ExtentId, PolicyId};
use crate::key::RegisterKey;
use crate::run_usage::{Run, RunUsage};
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// Sends a call. The future of the backend is the only allocation.
fn send<'a, T>(
    backend: &'a (impl Backend + ?Sized),
    device: DeviceId,
    call: Call<'a>,
) -> ReplyFuture<'a, T> {
    ReplyFuture::of(backend.call(device, call))
}

/// The calls of a storage node as typed methods.
pub trait BackendExt: Backend {
    /// [`Call::Read`].
    fn read<'a>(
        &'a self,
        device: DeviceId,
        key: &'a RegisterKey,
        want: Want,
        term: Term,
    ) -> ReplyFuture<'a, RegisterView> {
        send(self, device, Call::Read { key: Cow::Borrowed(key), want, term })
    }

    /// [`Call::Write`].
    fn write(&self, device: DeviceId, write: EntryWrite) -> ReplyFuture<'_, WriteReply> {
        send(self, device, Call::Write(write))
    }

    /// [`Call::Promise`].
    fn promise<'a>(
        &'a self,
        device: DeviceId,
        key: &'a RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> ReplyFuture<'a, PromiseReply> {
        send(self, device, Call::Promise { key: Cow::Borrowed(key), ballot, term })
    }

    /// [`Call::List`].
    fn list<'a>(
        &'a self,
        device: DeviceId,
        request: &'a ListRequest,
    ) -> ReplyFuture<'a, ListReply> {
        send(self, device, Call::List(Cow::Borrowed(request)))
    }

    /// [`Call::ListRows`].
    fn list_rows<'a>(
        &'a self,
        device: DeviceId,
        request: &'a ListRequest,
        rows: RowSelection,
    ) -> ReplyFuture<'a, ListReply> {
        send(self, device, Call::ListRows { request: Cow::Borrowed(request), rows })
    }

    /// [`Call::Fence`].
    fn fence(&self, device: DeviceId, fence: BucketFence) -> ReplyFuture<'_, ()> {
        send(self, device, Call::Fence(fence))
    }

    /// [`Call::PurgeBucket`].
    fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> ReplyFuture<'_, ()> {
        send(self, device, Call::PurgeBucket(bucket))
    }

    /// [`Call::StatExtent`].
    fn stat_extent(&self, device: DeviceId, id: ExtentId) -> ReplyFuture<'_, ExtentStat> {
        send(self, device, Call::StatExtent(id))
    }

    /// [`Call::DeleteExtents`].
    fn delete_extents<'a>(&'a self, device: DeviceId, ids: &'a [ExtentId]) -> ReplyFuture<'a, ()> {
        send(self, device, Call::DeleteExtents(Cow::Borrowed(ids)))
    }

    /// [`Call::DeleteUnneeded`].
    fn delete_unneeded<'a>(
        &'a self,
        device: DeviceId,
        ids: &'a [ExtentId],
        condition: DeleteCondition,
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::DeleteUnneeded { ids: Cow::Borrowed(ids), condition })
    }

    /// [`Call::ReleaseExtents`].
    fn release_extents<'a>(&'a self, device: DeviceId, ids: &'a [ExtentId]) -> ReplyFuture<'a, ()> {
        send(self, device, Call::ReleaseExtents(Cow::Borrowed(ids)))
    }

    /// [`Call::Presence`].
    fn presence<'a>(
        &'a self,
        device: DeviceId,
        ids: &'a [ExtentId],
    ) -> ReplyFuture<'a, Vec<Presence>> {
        send(self, device, Call::Presence(Cow::Borrowed(ids)))
    }

    /// [`Call::AuditExtents`].
    fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> ReplyFuture<'_, AuditResult<ExtentId>> {
        send(self, device, Call::AuditExtents { after, bytes_max })
    }

    /// [`Call::ListExtents`].
    fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> ReplyFuture<'_, Vec<ExtentRecord>> {
        send(self, device, Call::ListExtents { after, limit })
    }

    /// [`Call::Garbage`].
    fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> ReplyFuture<'_, Vec<Garbage>> {
        send(self, device, Call::Garbage { before_ms, limit })
    }

    /// [`Call::ForgetGarbage`].
    fn forget_garbage<'a>(
        &'a self,
        device: DeviceId,
        garbage: &'a [GarbageId],
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::ForgetGarbage(Cow::Borrowed(garbage)))
    }

    /// [`Call::KeepHint`].
    fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> ReplyFuture<'_, WriteReply> {
        send(self, device, Call::KeepHint(write))
    }

    /// [`Call::ReadHint`].
    fn read_hint<'a>(
        &'a self,
        device: DeviceId,
        key: &'a RegisterKey,
        want: Want,
    ) -> ReplyFuture<'a, RegisterView> {
        send(self, device, Call::ReadHint { key: Cow::Borrowed(key), want })
    }

    /// [`Call::ListHints`].
    fn list_hints<'a>(
        &'a self,
        device: DeviceId,
        request: &'a ListRequest,
    ) -> ReplyFuture<'a, ListReply> {
        send(self, device, Call::ListHints(Cow::Borrowed(request)))
    }

    /// [`Call::Hints`].
    fn hints<'a>(
        &'a self,
        device: DeviceId,
        after: Option<&'a RegisterKey>,
        limit: usize,
    ) -> ReplyFuture<'a, Vec<Hint>> {
        send(self, device, Call::Hints { after: after.map(Cow::Borrowed), limit })
    }

    /// [`Call::HintArrivals`].
    fn hint_arrivals(
        &self,
        device: DeviceId,
        after: Option<u64>,
        limit: usize,
    ) -> ReplyFuture<'_, ArrivedHints> {
        send(self, device, Call::HintArrivals { after, limit })
    }

    /// [`Call::ForgetHint`].
    fn forget_hint<'a>(
        &'a self,
        device: DeviceId,
        key: &'a RegisterKey,
        order: Stamp,
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::ForgetHint { key: Cow::Borrowed(key), order })
    }

    /// [`Call::Registers`].
    fn registers<'a>(
        &'a self,
        device: DeviceId,
        after: Option<&'a RegisterKey>,
        limit: usize,
    ) -> ReplyFuture<'a, Vec<(RegisterKey, RegisterView)>> {
        send(self, device, Call::Registers { after: after.map(Cow::Borrowed), limit })
    }

    /// [`Call::Fences`].
    fn fences(&self, device: DeviceId) -> ReplyFuture<'_, Vec<BucketFence>> {
        send(self, device, Call::Fences)
    }

    /// [`Call::FencesAfter`].
    fn fences_after(
        &self,
        device: DeviceId,
        after: Option<BucketId>,
        limit: usize,
    ) -> ReplyFuture<'_, Vec<BucketFence>> {
        send(self, device, Call::FencesAfter { after, limit })
    }

    /// [`Call::FencesOf`].
    fn fences_of<'a>(
        &'a self,
        device: DeviceId,
        buckets: &'a [BucketId],
    ) -> ReplyFuture<'a, Vec<BucketFence>> {
        send(self, device, Call::FencesOf(Cow::Borrowed(buckets)))
    }

    /// [`Call::RaiseFloor`].
    fn raise_floor(&self, device: DeviceId, floor: Stamp) -> ReplyFuture<'_, ()> {
        send(self, device, Call::RaiseFloor(floor))
    }

    /// [`Call::SetVoting`].
    fn set_voting(&self, device: DeviceId, voting: bool) -> ReplyFuture<'_, ()> {
        send(self, device, Call::SetVoting(voting))
    }

    /// [`Call::Sums`].
    fn sums<'a>(&'a self, device: DeviceId, spans: &'a [Span]) -> ReplyFuture<'a, Vec<Sum>> {
        send(self, device, Call::Sums(Cow::Borrowed(spans)))
    }

    /// [`Call::Bins`].
    fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> ReplyFuture<'_, Vec<(BinKey, Sum)>> {
        send(self, device, Call::Bins { span, after, limit })
    }

    /// [`Call::Walk`].
    fn walk<'a>(
        &'a self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&'a RegisterKey>,
        limit: usize,
    ) -> ReplyFuture<'a, Vec<(RegisterKey, RegisterView)>> {
        send(self, device, Call::Walk { walk: *walk, after: after.map(Cow::Borrowed), limit })
    }

    /// [`Call::Holdings`].
    fn holdings<'a>(
        &'a self,
        device: DeviceId,
        keys: &'a [RegisterKey],
    ) -> ReplyFuture<'a, Vec<Holding>> {
        send(self, device, Call::Holdings(Cow::Borrowed(keys)))
    }

    /// [`Call::MarkCollectable`].
    fn mark_collectable<'a>(
        &'a self,
        device: DeviceId,
        tombstones: &'a [(RegisterKey, Stamp)],
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::MarkCollectable(Cow::Borrowed(tombstones)))
    }

    /// [`Call::DropRegisters`].
    fn drop_registers<'a>(
        &'a self,
        device: DeviceId,
        drops: &'a [RegisterDrop],
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::DropRegisters(Cow::Borrowed(drops)))
    }

    /// [`Call::AuditRegisters`].
    fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> ReplyFuture<'_, AuditResult<BinKey>> {
        send(self, device, Call::AuditRegisters(after))
    }

    /// [`Call::RaiseTerm`].
    fn raise_term(&self, device: DeviceId, term: Term) -> ReplyFuture<'_, ()> {
        send(self, device, Call::RaiseTerm(term))
    }

    /// [`Call::SetJoined`].
    fn set_joined(&self, device: DeviceId, change: u64) -> ReplyFuture<'_, ()> {
        send(self, device, Call::SetJoined(change))
    }

    /// [`Call::Claims`].
    fn claims<'a>(
        &'a self,
        device: DeviceId,
        request: &'a ClaimsRequest,
    ) -> ReplyFuture<'a, Vec<ClaimsReply>> {
        send(self, device, Call::Claims(Cow::Borrowed(request)))
    }

    /// [`Call::SeekExtents`].
    fn seek_extents<'a>(
        &'a self,
        device: DeviceId,
        ids: &'a [ExtentId],
    ) -> ReplyFuture<'a, Vec<Sought>> {
        send(self, device, Call::SeekExtents(Cow::Borrowed(ids)))
    }

    /// [`Call::GarbageAfter`].
    fn garbage_after(
        &self,
        device: DeviceId,
        after: Option<GarbageId>,
        before_ms: u64,
        limit: usize,
    ) -> ReplyFuture<'_, Vec<Garbage>> {
        send(self, device, Call::GarbageAfter { after, before_ms, limit })
    }

    /// [`Call::Aged`].
    fn aged<'a>(
        &'a self,
        device: DeviceId,
        walk: AgedWalk,
        after: Option<&'a RegisterKey>,
        limit: usize,
    ) -> ReplyFuture<'a, AgedPage> {
        send(self, device, Call::Aged { walk, after: after.map(Cow::Borrowed), limit })
    }

    /// [`Call::ExtentSums`].
    fn extent_sums<'a>(
        &'a self,
        device: DeviceId,
        policy: Option<PolicyId>,
        spans: &'a [Span],
    ) -> ReplyFuture<'a, Vec<PolicySums>> {
        send(self, device, Call::ExtentSums { policy, spans: Cow::Borrowed(spans) })
    }

    /// [`Call::Usage`].
    fn usage<'a>(
        &'a self,
        device: DeviceId,
        runs: &'a [Run],
        term: Term,
    ) -> ReplyFuture<'a, Vec<RunUsage>> {
        send(self, device, Call::Usage { runs: Cow::Borrowed(runs), term })
    }

    /// [`Call::OldRegisters`].
    fn old_registers(
        &self,
        device: DeviceId,
        list: OldList,
        after: Option<OldPlace>,
        limit: usize,
    ) -> ReplyFuture<'_, OldPage> {
        send(self, device, Call::OldRegisters { list, after, limit })
    }

    /// [`Call::HeldBuckets`].
    fn held_buckets(
        &self,
        device: DeviceId,
        before: Stamp,
        after: Option<BucketId>,
        limit: usize,
    ) -> ReplyFuture<'_, HeldBuckets> {
        send(self, device, Call::HeldBuckets { before, after, limit })
    }

    /// [`Call::RaiseFloorOf`].
    fn raise_floor_of(
        &self,
        device: DeviceId,
        condition: DeviceCondition,
        floor: Stamp,
    ) -> ReplyFuture<'_, ()> {
        send(self, device, Call::RaiseFloorOf { condition, floor })
    }

    /// [`Call::SetVotingOf`].
    fn set_voting_of(
        &self,
        device: DeviceId,
        condition: DeviceCondition,
        voting: bool,
    ) -> ReplyFuture<'_, ()> {
        send(self, device, Call::SetVotingOf { condition, voting })
    }

    /// [`Call::SetJoinedOf`].
    fn set_joined_of(
        &self,
        device: DeviceId,
        condition: DeviceCondition,
        change: u64,
    ) -> ReplyFuture<'_, ()> {
        send(self, device, Call::SetJoinedOf { condition, change })
    }

    /// [`Call::SetFencedOf`].
    fn set_fenced_of(&self, device: DeviceId, condition: DeviceCondition) -> ReplyFuture<'_, ()> {
        send(self, device, Call::SetFencedOf(condition))
    }

    /// [`Call::DropStrays`].
    fn drop_strays<'a>(
        &'a self,
        device: DeviceId,
        drops: &'a [RegisterDrop],
        condition: StrayCondition,
    ) -> ReplyFuture<'a, ()> {
        send(self, device, Call::DropStrays { drops: Cow::Borrowed(drops), condition })
    }

    /// [`Call::ReleaseCopies`].
    fn release_copies<'a>(
        &'a self,
        device: DeviceId,
        extents: &'a [ExtentRef],
        condition: &'a ReleaseCondition,
    ) -> ReplyFuture<'a, ()> {
        let (extents, condition) = (Cow::Borrowed(extents), Cow::Borrowed(condition));
        send(self, device, Call::ReleaseCopies { extents, condition })
    }

    /// [`Call::PresenceBy`].
    fn presence_by<'a>(
        &'a self,
        device: DeviceId,
        ids: &'a [ExtentId],
        rings: &'a [RingEpoch],
    ) -> ReplyFuture<'a, Vec<Presence>> {
        let (ids, rings) = (Cow::Borrowed(ids), Cow::Borrowed(rings));
        send(self, device, Call::PresenceBy { ids, rings })
    }

    /// [`Call::Quarantine`].
    fn quarantine<'a>(
        &'a self,
        device: DeviceId,
        after: Option<&'a str>,
        limit: usize,
    ) -> ReplyFuture<'a, QuarantinePage> {
        send(self, device, Call::Quarantine { after: after.map(Cow::Borrowed), limit })
    }
}

impl<B: Backend + ?Sized> BackendExt for B {}
