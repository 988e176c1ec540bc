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
use futures::{FutureExt, Stream};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ErrorKind, PolicyId, Result};
use tokio::time::Instant;

use super::flow::{Flow, IDLE_MAX};
use super::seek::Sought;
use crate::store::Inner;

/// How long a stream may give nothing where nobody else could.
const IDLE_ALONE_MAX: Duration = Duration::from_mins(1);
/// A reader that came back after so long may find its stream closed through no fault of the node's.
pub(crate) const READER_IDLE_MAX: Duration = Duration::from_secs(3);

type Opening = BoxFuture<'static, Result<(DeviceId, Flow)>>;

enum Source {
    Flowing(DeviceId, Flow),
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
        let (device, flow) = open(inner, sought, range.clone()).await?;
        Ok(Self {
            inner: inner.clone(),
            policy,
            extent,
            range,
            source: Source::Flowing(device, flow),
            barred: Vec::new(),
            progressed: false,
            alone: inner.cluster().data(policy)?.replicas() == 1,
            given_at: Instant::now(),
        })
    }

    /// Bytes that are still owed.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Goes on elsewhere, where the bytes end that have come.
    fn resume(&mut self, device: DeviceId, was_awaited: bool, error: Error) {
        let is_corrupt = error.kind() == ErrorKind::Corrupt;
        let reader_was_away = self.given_at.elapsed() > READER_IDLE_MAX && !was_awaited;
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
        self.source = Source::Opening(Box::pin(async move {
            let barred: Vec<_> = barred.into_iter().map(|(device, _)| device).collect();
            let sought = Sought { policy, extent, barred: &barred, failure: Some(error) };
            open(&inner, sought, range).await
        }));
    }
}

/// Opens an extent on the first device that gives bytes of it.
async fn open(inner: &Inner, sought: Sought<'_>, range: Range<u64>) -> Result<(DeviceId, Flow)> {
    let id = sought.extent.id;
    let ask = move |device, node| Flow::open(node, device, id, range.clone()).boxed();
    inner.seek(sought, ask).await
}

impl Stream for ExtentStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let idle_max = if self.alone { IDLE_ALONE_MAX } else { IDLE_MAX };
        loop {
            let left = self.left();
            let (device, flow) = match &mut self.source {
                Source::Ended => return Poll::Ready(None),
                Source::Opening(opening) => {
                    match ready!(opening.poll_unpin(context)) {
                        Ok((device, flow)) => self.source = Source::Flowing(device, flow),
                        Err(error) => {
                            self.source = Source::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    continue;
                }
                Source::Flowing(device, flow) => (*device, flow),
            };
            match ready!(flow.poll_bytes(left, idle_max, context)) {
                Some(Ok(bytes)) => {
                    self.range.start += bytes.len() as u64;
                    self.progressed = true;
                    self.given_at = Instant::now();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) if left > 0 => {
                    let was_awaited = flow.is_awaited();
                    self.resume(device, was_awaited, error);
                }
                end => {
                    self.source = Source::Ended;
                    return Poll::Ready(end);
                }
            }
        }
    }
}
