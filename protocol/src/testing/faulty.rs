//! A backend whose chosen calls fail or are delayed.
//!
//! Fault model: a call is refused before it has any effect; takes effect but loses its reply; is
//! delayed; hangs; or its stream is cut, or changed by a bit. Corrupt bytes and torn writes on a disk
//! belong to the tests of the disk.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;

use crate::backend::{
    self, Backend, ByteStream, CallKind, DeviceStatus, EntryWrite, NewExtent, Reply,
};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::ExtentRef;
use crate::id::{DeviceId, ExtentId};
use crate::key::RegisterKey;

/// A call before its execution.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Kind of the call.
    pub op: CallKind,
    /// Device of the call.
    pub device: DeviceId,
    /// Register of the call, for calls with one.
    pub key: Option<&'a RegisterKey>,
    /// Write of the call, for [`CallKind::Write`] and [`CallKind::KeepHint`].
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
    /// A bit of this byte of a written extent flips on the way; the reply never comes.
    FlipByte(u64),
}

/// Hook of a [`FaultyBackend`], for tests that record calls, keep them back or alter replies. Streams of extents
/// pass by.
pub trait CallHook: Send + Sync {
    /// Receives each call before its fault is chosen, and returns the call that is made in its place.
    ///
    /// # Errors
    /// The caller's error: no call is made.
    fn before<'a>(&self, _device: DeviceId, call: backend::Call<'a>) -> Result<backend::Call<'a>> {
        Ok(call)
    }

    /// Receives each reply, and returns the reply in its place.
    fn after(&self, reply: Reply) -> Reply {
        reply
    }

    /// Notes a request for the state of the node.
    fn note_devices(&self) {}
}

/// Hook that does nothing.
struct NoHook;

impl CallHook for NoHook {}

type FaultChooser = dyn Fn(&Call<'_>) -> Fault + Send + Sync;

/// A backend that injects a chosen fault into each call.
pub struct FaultyBackend {
    inner: Arc<dyn Backend>,
    choose: Box<FaultChooser>,
    hook: Box<dyn CallHook>,
}

impl FaultyBackend {
    /// Wraps `inner`; `choose` returns the fault of each call.
    pub fn new(
        inner: Arc<dyn Backend>,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self { inner, choose: Box::new(choose), hook: Box::new(NoHook) }
    }

    /// Wraps `inner` without faults; `hook` receives all calls.
    pub fn hooked(inner: Arc<dyn Backend>, hook: impl CallHook + 'static) -> Self {
        Self { hook: Box::new(hook), ..Self::new(inner, |_| Fault::None) }
    }

    /// Returns the fault of a stream's call.
    fn choose_stream(&self, op: CallKind, device: DeviceId) -> Fault {
        (self.choose)(&Call { op, device, key: None, write: None })
    }
}

async fn through<T>(
    fault: Fault,
    op: CallKind,
    effect: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    match fault {
        Fault::None | Fault::CutBody(_) | Fault::FlipByte(_) => effect.await,
        Fault::Refuse(kind) => Err(Error::new(kind, format!("{op:?} was refused"))),
        Fault::LoseReply(kind) => {
            effect.await?;
            Err(Error::new(kind, format!("the reply to {op:?} was lost")))
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

/// Flips a bit of the byte at `at`.
fn flip(body: ByteStream, at: u64) -> ByteStream {
    let mut left = usize::try_from(at).ok();
    let pieces = body.map(move |piece| {
        let piece = piece?;
        let Some(at) = left else { return Ok(piece) };
        left = at.checked_sub(piece.len());
        let mut bytes = piece.to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        Ok(bytes.into())
    });
    pieces.boxed()
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn call(&self, device: DeviceId, call: backend::Call<'_>) -> Result<Reply> {
        let call = self.hook.before(device, call)?;
        let (op, key, write) = (call.kind(), call.key(), call.entry_write());
        let fault = (self.choose)(&Call { op, device, key, write });
        let reply = through(fault, op, self.inner.call(device, call)).await;
        reply.map(|reply| self.hook.after(reply))
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        match self.choose_stream(CallKind::WriteExtent, device) {
            Fault::CutBody(after) => {
                self.inner.write_extent(device, extent, cut(body, after)).await
            }
            Fault::FlipByte(at) => {
                // The outcome is lost with the reply.
                let _ = self.inner.write_extent(device, extent, flip(body, at)).await;
                std::future::pending().await
            }
            fault => {
                let effect = self.inner.write_extent(device, extent, body);
                through(fault, CallKind::WriteExtent, effect).await
            }
        }
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let effect = self.inner.read_extent(device, id, range);
        match self.choose_stream(CallKind::ReadExtent, device) {
            Fault::CutBody(after) => Ok(cut(effect.await?, after)),
            fault => through(fault, CallKind::ReadExtent, effect).await,
        }
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.hook.note_devices();
        self.inner.devices().await
    }
}
