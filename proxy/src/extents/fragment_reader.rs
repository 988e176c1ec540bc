//! Stream of a range of an extent from one device.
//!
//! Invariants: never returns more bytes than requested; a device that sends nothing for too long is
//! given up; the end of the stream is awaited only briefly.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_protocol::{Backend, ByteStream, DeviceId, Error, ErrorKind, ExtentId, Result};
use tokio::time::{Sleep, sleep};

/// Longest pause of a stream before its read resumes elsewhere.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the end of the stream after all bytes.
const END_MAX: Duration = Duration::from_millis(100);

/// A stream whose first bytes have arrived.
pub(crate) struct FragmentReader {
    first: Option<Bytes>,
    rest: ByteStream,
    idle: Option<Pin<Box<Sleep>>>,
}

impl FragmentReader {
    /// Requests a non-empty `range` of an extent from a device. The first bytes have arrived when
    /// this returns.
    pub(crate) async fn open(
        node: Arc<dyn Backend>,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<Self> {
        let mut rest = node.read_extent(device, id, range).await?;
        let first = rest.next().await.unwrap_or_else(ended_early)?;
        Ok(Self { first: Some(first), rest, idle: None })
    }

    /// Returns true if the stream has been waiting for the device since the last bytes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.idle.is_some()
    }

    /// Next non-empty bytes, of which `left` are still due; none at the end.
    pub(crate) fn poll_bytes(
        &mut self,
        left: u64,
        idle_max: Duration,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        loop {
            let idle_max = if left == 0 { END_MAX } else { idle_max };
            let next = match ready!(self.poll_device(idle_max, context)) {
                None if left > 0 => Some(ended_early()),
                Some(Ok(bytes)) if bytes.len() as u64 > left => {
                    Some(Err(Error::corrupt("an extent is too long")))
                }
                Some(Ok(bytes)) => {
                    self.idle = None;
                    if bytes.is_empty() {
                        continue;
                    }
                    Some(Ok(bytes))
                }
                Some(Err(error)) if left == 0 && error.kind() != ErrorKind::Corrupt => None,
                end => end,
            };
            return Poll::Ready(next);
        }
    }

    fn poll_device(
        &mut self,
        idle_max: Duration,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Poll::Ready(next) = self.rest.poll_next_unpin(context) {
            return Poll::Ready(next);
        }
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        ready!(idle.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::unavailable("a device stopped sending an extent"))))
    }

    /// Reads the whole range, `length` bytes.
    pub(crate) async fn collect(mut self, length: u64) -> Result<Bytes> {
        let (mut left, mut chunks) = (length, Vec::new());
        while let Some(chunk) =
            poll_fn(|context| self.poll_bytes(left, IDLE_MAX, context)).await.transpose()?
        {
            left -= chunk.len() as u64;
            chunks.push(chunk);
        }
        if chunks.len() == 1 {
            return Ok(chunks.remove(0));
        }
        let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
        for chunk in &chunks {
            whole.extend_from_slice(chunk);
        }
        Ok(whole.freeze())
    }
}

fn ended_early() -> Result<Bytes> {
    Err(Error::corrupt("an extent ended early"))
}
