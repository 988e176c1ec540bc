//! A backend whose chosen calls fail or are delayed.
//!
//! Fault model: a call is refused before it has any effect; takes effect but loses its reply; is
//! delayed; hangs; or its stream is cut. Corrupt bytes and torn writes belong to the tests of the
//! disk.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;

use crate::backend::{
    AuditResult, Backend, BucketFence, ByteStream, DeviceStatus, EntryWrite, ExtentStat, Garbage,
    GarbageId, Hint, Holding, ListReply, ListRequest, NewExtent, Presence, PromiseReply,
    RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// The calls of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after its method")]
pub enum Op {
    Read,
    Write,
    Promise,
    List,
    Fence,
    PurgeBucket,
    WriteExtent,
    ReadExtent,
    StatExtent,
    DeleteExtents,
    ListExtents,
    Garbage,
    ForgetGarbage,
    KeepHint,
    ReadHint,
    ListHints,
    Hints,
    ForgetHint,
    Registers,
    Fences,
    RaiseFloor,
    SetVoting,
    ReleaseExtents,
    Presence,
    AuditExtents,
    Sums,
    Bins,
    Walk,
    Holdings,
    MarkCollectable,
    DropRegisters,
    AuditRegisters,
    RaiseTerm,
    SetJoined,
}

/// A call before its execution.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The called method.
    pub op: Op,
    /// Device of the call.
    pub device: DeviceId,
    /// Register of the call, for calls with one.
    pub key: Option<&'a RegisterKey>,
    /// Write of the call, for [`Op::Write`] and [`Op::KeepHint`].
    pub write: Option<&'a EntryWrite>,
}

/// Fault of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Refused without any effect.
    Refuse(ErrorKind),
    /// Takes effect; the reply is lost.
    LoseReply(ErrorKind),
    /// Delayed, then executed.
    Delay(Duration),
    /// Takes effect; never returns.
    Hang,
    /// The stream of an extent, read or written, fails after this number of bytes.
    CutBody(u64),
}

type FaultChooser = dyn Fn(&Call<'_>) -> Fault + Send + Sync;

/// A backend that injects a chosen fault into each call.
pub struct FaultyBackend {
    inner: Arc<dyn Backend>,
    choose: Box<FaultChooser>,
}

impl FaultyBackend {
    /// Wraps `inner`; `choose` returns the fault of each call.
    pub fn new(
        inner: Arc<dyn Backend>,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self { inner, choose: Box::new(choose) }
    }

    async fn through<T>(
        &self,
        call: Call<'_>,
        effect: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        through((self.choose)(&call), &call, effect).await
    }
}

async fn through<T>(
    fault: Fault,
    call: &Call<'_>,
    effect: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    match fault {
        Fault::None | Fault::CutBody(_) => effect.await,
        Fault::Refuse(kind) => Err(Error::new(kind, format!("{:?} was refused", call.op))),
        Fault::LoseReply(kind) => {
            effect.await?;
            Err(Error::new(kind, format!("the reply to {:?} was lost", call.op)))
        }
        Fault::Delay(by) => {
            tokio::time::sleep(by).await;
            effect.await
        }
        Fault::Hang => {
            effect.await?;
            std::future::pending().await
        }
    }
}

/// Cuts the stream with an error after `after` bytes.
fn cut(mut body: ByteStream, after: u64) -> ByteStream {
    let mut left = usize::try_from(after).unwrap_or(usize::MAX);
    let mut is_cut = false;
    let pieces = futures::stream::poll_fn(move |context| {
        if is_cut {
            return Poll::Ready(None);
        }
        if left == 0 {
            is_cut = true;
            return Poll::Ready(Some(Err(Error::unavailable("the bytes broke off"))));
        }
        let next = ready!(body.as_mut().poll_next(context));
        Poll::Ready(next.map(|piece| {
            piece.map(|mut piece| {
                piece.truncate(left);
                left -= piece.len();
                piece
            })
        }))
    });
    pieces.boxed()
}

fn on(op: Op, device: DeviceId) -> Call<'static> {
    Call { op, device, key: None, write: None }
}

fn at(op: Op, device: DeviceId, key: &RegisterKey) -> Call<'_> {
    Call { op, device, key: Some(key), write: None }
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.through(at(Op::Read, device, key), self.inner.read(device, key, want, term)).await
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let copy = write.clone();
        let call = Call { op: Op::Write, device, key: Some(&copy.key), write: Some(&copy) };
        self.through(call, self.inner.write(device, write)).await
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        self.through(at(Op::Promise, device, key), self.inner.promise(device, key, ballot, term))
            .await
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.through(on(Op::List, device), self.inner.list(device, request)).await
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        self.through(on(Op::Fence, device), self.inner.fence(device, fence)).await
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        self.through(on(Op::PurgeBucket, device), self.inner.purge_bucket(device, bucket)).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let call = on(Op::WriteExtent, device);
        match (self.choose)(&call) {
            Fault::CutBody(after) => {
                self.inner.write_extent(device, extent, cut(body, after)).await
            }
            fault => through(fault, &call, self.inner.write_extent(device, extent, body)).await,
        }
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let call = on(Op::ReadExtent, device);
        let effect = self.inner.read_extent(device, id, range);
        match (self.choose)(&call) {
            Fault::CutBody(after) => Ok(cut(effect.await?, after)),
            fault => through(fault, &call, effect).await,
        }
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        self.through(on(Op::StatExtent, device), self.inner.stat_extent(device, id)).await
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        self.through(on(Op::DeleteExtents, device), self.inner.delete_extents(device, ids)).await
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        let effect = self.inner.list_extents(device, after, limit);
        self.through(on(Op::ListExtents, device), effect).await
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        let effect = self.inner.garbage(device, before_ms, limit);
        self.through(on(Op::Garbage, device), effect).await
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        let effect = self.inner.forget_garbage(device, garbage);
        self.through(on(Op::ForgetGarbage, device), effect).await
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let (key, copy) = (write.key.clone(), write.clone());
        let call = Call { write: Some(&copy), ..at(Op::KeepHint, device, &key) };
        self.through(call, self.inner.keep_hint(device, write)).await
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        let effect = self.inner.read_hint(device, key, want);
        self.through(at(Op::ReadHint, device, key), effect).await
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        let effect = self.inner.list_hints(device, request);
        self.through(on(Op::ListHints, device), effect).await
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        let effect = self.inner.hints(device, after, limit);
        self.through(on(Op::Hints, device), effect).await
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        let effect = self.inner.forget_hint(device, key, order);
        self.through(at(Op::ForgetHint, device, key), effect).await
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let effect = self.inner.registers(device, after, limit);
        self.through(on(Op::Registers, device), effect).await
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        self.through(on(Op::Fences, device), self.inner.fences(device)).await
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        self.through(on(Op::RaiseFloor, device), self.inner.raise_floor(device, floor)).await
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        self.through(on(Op::SetVoting, device), self.inner.set_voting(device, voting)).await
    }

    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let effect = self.inner.release_extents(device, ids);
        self.through(on(Op::ReleaseExtents, device), effect).await
    }

    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        let effect = self.inner.presence(device, ids);
        self.through(on(Op::Presence, device), effect).await
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        let effect = self.inner.audit_extents(device, after, bytes_max);
        self.through(on(Op::AuditExtents, device), effect).await
    }

    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
        let effect = self.inner.sums(device, spans);
        self.through(on(Op::Sums, device), effect).await
    }

    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        let effect = self.inner.bins(device, span, after, limit);
        self.through(on(Op::Bins, device), effect).await
    }

    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let effect = self.inner.walk(device, walk, after, limit);
        self.through(on(Op::Walk, device), effect).await
    }

    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let effect = self.inner.holdings(device, keys);
        self.through(on(Op::Holdings, device), effect).await
    }

    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()> {
        let effect = self.inner.mark_collectable(device, tombstones);
        self.through(on(Op::MarkCollectable, device), effect).await
    }

    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()> {
        let effect = self.inner.drop_registers(device, drops);
        self.through(on(Op::DropRegisters, device), effect).await
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        let effect = self.inner.audit_registers(device, after);
        self.through(on(Op::AuditRegisters, device), effect).await
    }

    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()> {
        let effect = self.inner.raise_term(device, term);
        self.through(on(Op::RaiseTerm, device), effect).await
    }

    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()> {
        let effect = self.inner.set_joined(device, change);
        self.through(on(Op::SetJoined, device), effect).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.inner.devices().await
    }
}
