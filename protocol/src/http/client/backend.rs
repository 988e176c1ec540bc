//! Calls of [`Backend`] over HTTP.
//!
//! A request's body is the postcard of the call's arguments as a tuple; a reply's body is the
//! postcard of the call's result. `server` has the matching table.

use std::ops::Range;

use async_trait::async_trait;
use futures::StreamExt;
use http::{Method, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exchange::SmallRequest;
use super::{HttpBackend, RemoteNode};
use crate::backend::{
    AuditResult, Backend, BucketFence, ByteStream, DeviceStatus, EntryWrite, ExtentStat, Garbage,
    GarbageId, Hint, Holding, ListReply, ListRequest, NewExtent, Presence, PromiseReply,
    RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use crate::error::{Error, Result};
use crate::extent::{ExtentRecord, ExtentRef};
use crate::http::calls::{self, BackendCall, GARBAGE_IDS_MAX, IDS_MAX, KEYS_MAX};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

impl RemoteNode {
    /// Sends a call and decodes its reply.
    async fn call<T: DeserializeOwned>(
        &self,
        device: DeviceId,
        call: BackendCall,
        arguments: &(impl Serialize + Sync),
    ) -> Result<T> {
        let body = calls::encode(arguments)
            .map_err(|error| Error::internal("a request can't be encoded").with_source(error))?;
        let reply = self.call_once(SmallRequest {
            method: Method::POST,
            uri: path(&format!("/v1/d/{}/{}", device.0, call.name())),
            body,
            reply_bytes_max: call.reply_bytes_max(),
            again: call.is_read(),
            wait: if call.reads_much() { self.options.finish } else { self.options.call },
        });
        decode(&reply.await?)
    }
}

pub(super) fn path(text: &str) -> Uri {
    text.parse().expect("paths of numbers and names can be parsed")
}

pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body)
        .map_err(|error| Error::internal("the node's reply can't be read").with_source(error))
}

#[async_trait]
impl Backend for HttpBackend {
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.0.call(device, BackendCall::Read, &(key, want, term)).await
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        self.0.call(device, BackendCall::Write, &write).await
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        self.0.call(device, BackendCall::Promise, &(key, ballot, term)).await
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.0.call(device, BackendCall::List, request).await
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        self.0.call(device, BackendCall::Fence, &fence).await
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        self.0.call(device, BackendCall::PurgeBucket, &bucket).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.0.write_extent(device, &extent, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        Ok(self.0.read_extent(device, id, range).await?.boxed())
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        self.0.call(device, BackendCall::StatExtent, &id).await
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        for ids in ids.chunks(IDS_MAX) {
            self.0.call::<()>(device, BackendCall::DeleteExtents, &ids).await?;
        }
        Ok(())
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        self.0.call(device, BackendCall::ListExtents, &(after, limit)).await
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        self.0.call(device, BackendCall::Garbage, &(before_ms, limit)).await
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        for garbage in garbage.chunks(GARBAGE_IDS_MAX) {
            self.0.call::<()>(device, BackendCall::ForgetGarbage, &garbage).await?;
        }
        Ok(())
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        self.0.call(device, BackendCall::KeepHint, &write).await
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        self.0.call(device, BackendCall::ReadHint, &(key, want)).await
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.0.call(device, BackendCall::ListHints, request).await
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        self.0.call(device, BackendCall::Hints, &(after, limit)).await
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        self.0.call(device, BackendCall::ForgetHint, &(key, order)).await
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.0.call(device, BackendCall::Registers, &(after, limit)).await
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        self.0.call(device, BackendCall::Fences, &()).await
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        self.0.call(device, BackendCall::RaiseFloor, &floor).await
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        self.0.call(device, BackendCall::SetVoting, &voting).await
    }

    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        for ids in ids.chunks(IDS_MAX) {
            self.0.call::<()>(device, BackendCall::ReleaseExtents, &ids).await?;
        }
        Ok(())
    }

    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_MAX) {
            let some: Vec<Presence> = self.0.call(device, BackendCall::Presence, &ids).await?;
            all.extend(some);
        }
        Ok(all)
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        self.0.call(device, BackendCall::AuditExtents, &(after, bytes_max)).await
    }

    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
        let mut all = Vec::with_capacity(spans.len());
        for spans in spans.chunks(IDS_MAX) {
            let some: Vec<Sum> = self.0.call(device, BackendCall::Sums, &spans).await?;
            all.extend(some);
        }
        Ok(all)
    }

    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        self.0.call(device, BackendCall::Bins, &(span, after, limit)).await
    }

    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.0.call(device, BackendCall::Walk, &(walk, after, limit)).await
    }

    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_MAX) {
            let some: Vec<Holding> = self.0.call(device, BackendCall::Holdings, &keys).await?;
            all.extend(some);
        }
        Ok(all)
    }

    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()> {
        for tombstones in tombstones.chunks(KEYS_MAX) {
            self.0.call::<()>(device, BackendCall::MarkCollectable, &tombstones).await?;
        }
        Ok(())
    }

    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()> {
        for drops in drops.chunks(KEYS_MAX) {
            self.0.call::<()>(device, BackendCall::DropRegisters, &drops).await?;
        }
        Ok(())
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        self.0.call(device, BackendCall::AuditRegisters, &after).await
    }

    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()> {
        self.0.call(device, BackendCall::RaiseTerm, &term).await
    }

    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()> {
        self.0.call(device, BackendCall::SetJoined, &change).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let ask = SmallRequest {
            method: Method::GET,
            uri: Uri::from_static("/v1/devices"),
            body: bytes::Bytes::new(),
            reply_bytes_max: BackendCall::Fences.reply_bytes_max(),
            again: true,
            wait: self.0.options.call,
        };
        decode(&self.0.call_once(ask).await?)
    }
}
