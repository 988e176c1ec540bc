//! A caller's connection to a node: a [`Backend`] that sends every call over the simulated network.
//!
//! * [`carry`]: the way of a call and its reply.
//! * [`deciding`]: reads, writes, promises and lists, with planted bugs.
//! * This file: all other calls of the trait, most of them unchanged.

mod carry;
mod deciding;

use std::ops::Range;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{
    AuditResult, BucketFence, DeviceStatus, EntryWrite, ExtentStat, Garbage, GarbageId, Hint,
    Holding, ListReply, ListRequest, NewExtent, Presence, PromiseReply, RegisterDrop, RegisterView,
    Walk, Want, WriteReply,
};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{
    Backend, BucketId, ByteStream, DeviceId, ExtentId, RegisterKey, Result, Stamp, Term,
};

pub(crate) use self::carry::Link;
use self::carry::whole;
use super::network::Caller;
use super::shown;

/// Carries a call. Arguments: the text for the trace, the values to keep until the call arrives
/// (possibly twice), and the call.
macro_rules! carry {
    ($link:ident, $what:expr, [$($kept:ident),*], $node:ident => $call:expr) => {{
        $link.carry($what.into(), move |$node| {
            $(let $kept = $kept.clone();)*
            async move { $call.await }
        })
        .await
    }};
}

type ViewPage = Vec<(RegisterKey, RegisterView)>;

#[async_trait]
impl Backend for Link {
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.read_entry(device, key, (want, term)).await
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        self.write_entry(device, write).await
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        self.promise_ballot(device, key, (ballot, term)).await
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.list_entries(device, request).await
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        let what = format!("fence {} open {}", fence.generation, fence.open);
        carry!(self, what, [], node => node.fence(device, fence))
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        let what = format!("purge {bucket}");
        carry!(self, what, [], node => node.purge_bucket(device, bucket))
    }

    /// Reads the whole body first, so nothing arrives of a body that is dropped half-way.
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.living().await;
        let bytes = whole(body).await?;
        let what = format!("write extent {} of {} bytes", extent.id, bytes.len());
        self.carry(what, move |node| {
            let (extent, bytes) = (extent.clone(), bytes.clone());
            let body = stream::once(std::future::ready(Ok(bytes))).boxed();
            async move { node.write_extent(device, extent, body).await }
        })
        .await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let what = format!("read extent {id} {range:?}");
        let bytes = self.carry(what, move |node| {
            let range = range.clone();
            async move { whole(node.read_extent(device, id, range).await?).await }
        });
        Ok(self.stream(bytes.await?))
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        carry!(self, format!("stat extent {id}"), [], node => node.stat_extent(device, id))
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let ids = ids.to_vec();
        let what = format!("delete extents {ids:?}");
        carry!(self, what, [ids], node => node.delete_extents(device, &ids))
    }

    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let ids = ids.to_vec();
        let what = format!("release extents {ids:?}");
        carry!(self, what, [ids], node => node.release_extents(device, &ids))
    }

    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        self.presence_of(device, ids).await
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        carry!(self, "audit extents", [], node => node.audit_extents(device, after, bytes_max))
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        carry!(self, "list extents", [], node => node.list_extents(device, after, limit))
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        carry!(self, "garbage", [], node => node.garbage(device, before_ms, limit))
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        let garbage = garbage.to_vec();
        carry!(self, "forget garbage", [garbage], node => node.forget_garbage(device, &garbage))
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let what = format!("keep hint {}", shown::write(&write));
        carry!(self, what, [write], node => node.keep_hint(device, write))
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        let key = key.clone();
        let what = format!("read hint {}", shown::key(&key));
        carry!(self, what, [key], node => node.read_hint(device, &key, want))
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        let request = request.clone();
        carry!(self, "list hints", [request], node => node.list_hints(device, &request))
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        let after = after.cloned();
        carry!(self, "hints", [after], node => node.hints(device, after.as_ref(), limit))
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        let key = key.clone();
        let what = format!("forget hint {} {}", shown::key(&key), shown::order(order));
        carry!(self, what, [key], node => node.forget_hint(device, &key, order))
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<ViewPage> {
        let after = after.cloned();
        carry!(self, "registers", [after], node => node.registers(device, after.as_ref(), limit))
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        carry!(self, "fences", [], node => node.fences(device))
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        let what = format!("raise floor {}", shown::order(floor));
        carry!(self, what, [], node => node.raise_floor(device, floor))
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        let what = format!("set voting {voting}");
        carry!(self, what, [], node => node.set_voting(device, voting))
    }

    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
        let spans = spans.to_vec();
        carry!(self, "sums", [spans], node => node.sums(device, &spans))
    }

    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        carry!(self, "bins", [], node => node.bins(device, span, after, limit))
    }

    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<ViewPage> {
        let (walk, after) = (*walk, after.cloned());
        carry!(self, "walk", [after], node => node.walk(device, &walk, after.as_ref(), limit))
    }

    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        self.holdings_of(device, keys).await
    }

    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()> {
        let all = tombstones.to_vec();
        let what = shown::keys("mark collectable", all.iter().map(|(key, _)| key));
        self.consent(carry!(self, what, [all], node => node.mark_collectable(device, &all)))
    }

    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()> {
        let drops = drops.to_vec();
        let what = shown::keys("drop", drops.iter().map(|drop| &drop.key));
        self.consent(carry!(self, what, [drops], node => node.drop_registers(device, &drops)))
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        carry!(self, "audit registers", [], node => node.audit_registers(device, after))
    }

    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()> {
        let what = format!("raise term {term}");
        carry!(self, what, [], node => node.raise_term(device, term))
    }

    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()> {
        let what = format!("set joined {change}");
        carry!(self, what, [], node => node.set_joined(device, change))
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let Caller::Worker(_) = self.caller else {
            return carry!(self, "devices", [], node => node.devices());
        };
        self.statuses().await
    }
}
