//! The bytes of one extent, from whoever has them.
//!
//! Invariants:
//! * What comes out is the range that was asked for, each byte once and in order, or ends in an error.
//! * A device whose stream broke, stalled or was found corrupt is not asked again for this read,
//!   unless bytes have come from another since and it had merely been out of reach.
//! * Nothing is asked of a node after the stream is dropped.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{ByteStream, DeviceId, Error, ErrorKind, PolicyId, Result};
use tokio::time::{Instant, Sleep, sleep};

use super::seek::Sought;
use crate::store::Inner;

/// How long a stream may give nothing before it is taken up elsewhere.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The same where there is no elsewhere.
const IDLE_ALONE_MAX: Duration = Duration::from_mins(1);
/// The same when all bytes have come, and only the end is missing.
const END_MAX: Duration = Duration::from_millis(100);
/// A reader that came back after so long may find its stream closed through no fault of the node's.
const READER_IDLE_MAX: Duration = Duration::from_secs(3);

/// A stream whose first bytes have come.
struct Opened {
    first: Option<Bytes>,
    rest: ByteStream,
}

type Opening = BoxFuture<'static, Result<(DeviceId, Opened)>>;

enum Source {
    Flowing(DeviceId, Opened),
    Opening(Opening),
    Ended,
}

/// Bytes of one extent.
pub(crate) struct ExtentStream {
    inner: Arc<Inner>,
    policy: PolicyId,
    extent: ExtentRef,
    /// What is still owed.
    range: Range<u64>,
    source: Source,
    /// Devices that failed this read, and whether for good.
    barred: Vec<(DeviceId, bool)>,
    /// Whether bytes came from the present device.
    progressed: bool,
    /// Whether extents have one copy only.
    alone: bool,
    idle: Option<Pin<Box<Sleep>>>,
    given_at: Instant,
}

impl ExtentStream {
    /// Opens `range` of an extent, which isn't empty: its first bytes are there when this returns.
    pub(crate) async fn open(
        inner: &Arc<Inner>,
        policy: PolicyId,
        extent: ExtentRef,
        range: Range<u64>,
    ) -> Result<Self> {
        let sought = Sought { policy, extent, barred: &[], failure: None };
        let (device, opened) = open(inner, sought, range.clone()).await?;
        Ok(Self {
            inner: inner.clone(),
            policy,
            extent,
            range,
            source: Source::Flowing(device, opened),
            barred: Vec::new(),
            progressed: false,
            alone: inner.cluster().data(policy)?.replicas() == 1,
            idle: None,
            given_at: Instant::now(),
        })
    }

    /// Bytes that are still owed.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Takes bytes for given.
    fn advance(&mut self, bytes: &Bytes) -> Result<()> {
        let length = bytes.len() as u64;
        if length > self.left() {
            return Err(Error::corrupt("an extent is too long"));
        }
        self.range.start += length;
        self.progressed |= length > 0;
        Ok(())
    }

    /// Goes on elsewhere, where the bytes end that have come.
    fn resume(&mut self, device: DeviceId, error: Error) {
        let is_corrupt = error.kind() == ErrorKind::Corrupt;
        let reader_was_away = self.given_at.elapsed() > READER_IDLE_MAX && self.idle.is_none();
        if std::mem::take(&mut self.progressed) {
            self.barred.retain(|(_, for_good)| *for_good);
        }
        if is_corrupt || !reader_was_away {
            self.barred.push((device, is_corrupt));
        }
        if !is_corrupt && !reader_was_away {
            self.inner.extents.health.failed(device);
        }
        tracing::debug!(extent = %self.extent.id, %device, %error, "a read goes on elsewhere");
        let (inner, policy, extent) = (self.inner.clone(), self.policy, self.extent);
        let (barred, range) = (self.barred.clone(), self.range.clone());
        self.idle = None;
        self.source = Source::Opening(Box::pin(async move {
            let barred: Vec<_> = barred.into_iter().map(|(device, _)| device).collect();
            let sought = Sought { policy, extent, barred: &barred, failure: Some(error) };
            open(&inner, sought, range).await
        }));
    }

    /// The next bytes of the present device.
    fn poll_device(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let Source::Flowing(_, opened) = &mut self.source else { return Poll::Ready(None) };
        if let Some(first) = opened.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Poll::Ready(next) = opened.rest.poll_next_unpin(context) {
            return Poll::Ready(next);
        }
        let idle_max = match self.range.is_empty() {
            true => END_MAX,
            false if self.alone => IDLE_ALONE_MAX,
            false => IDLE_MAX,
        };
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        ready!(idle.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::unavailable("a device gives no more bytes of an extent"))))
    }

    /// The end of the present device's stream, when all bytes have come: a connection is fit for the
    /// next call only once it has been seen.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let end = ready!(self.poll_device(context));
        self.source = Source::Ended;
        match end {
            Some(Ok(bytes)) if !bytes.is_empty() => {
                Poll::Ready(Some(Err(Error::corrupt("an extent is too long"))))
            }
            Some(Err(error)) if error.kind() == ErrorKind::Corrupt => Poll::Ready(Some(Err(error))),
            _ => Poll::Ready(None),
        }
    }
}

/// Opens an extent on the first device that gives bytes of it.
async fn open(inner: &Inner, sought: Sought<'_>, range: Range<u64>) -> Result<(DeviceId, Opened)> {
    let id = sought.extent.id;
    let ask = move |device, node: Arc<dyn martlet_protocol::Backend>| {
        let range = range.clone();
        let opened = async move {
            let mut rest = node.read_extent(device, id, range).await?;
            let first = rest.next().await.unwrap_or_else(ended_early)?;
            Ok(Opened { first: Some(first), rest })
        };
        opened.boxed()
    };
    inner.seek(sought, ask).await
}

fn ended_early() -> Result<Bytes> {
    Err(Error::corrupt("an extent ended early"))
}

impl Stream for ExtentStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let is_whole = self.range.is_empty();
            let device = match &mut self.source {
                Source::Ended => return Poll::Ready(None),
                Source::Opening(opening) => {
                    match ready!(opening.poll_unpin(context)) {
                        Ok((device, opened)) => self.source = Source::Flowing(device, opened),
                        Err(error) => {
                            self.source = Source::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    continue;
                }
                Source::Flowing(..) if is_whole => return self.poll_end(context),
                Source::Flowing(device, _) => *device,
            };
            let next = ready!(self.poll_device(context)).unwrap_or_else(ended_early);
            match next.and_then(|bytes| self.advance(&bytes).map(|()| bytes)) {
                Ok(bytes) => {
                    self.idle = None;
                    if !bytes.is_empty() {
                        self.given_at = Instant::now();
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Err(error) => self.resume(device, error),
            }
        }
    }
}
