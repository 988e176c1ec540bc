//! Bodies on their way out: extents in order, the next one opened ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use martlet_protocol::backend::ExtentStat;
use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::extent::{ExtentRef, overlap};
use martlet_protocol::{ByteStream, DeviceId, Error, ErrorKind, PolicyId, Result};

use crate::store::Inner;

/// Handoffs that are asked for an extent which its primaries don't have.
const HANDOFFS_MAX: usize = 8;

impl Inner {
    /// The manifest of a body in extents, loaded if it was spilled.
    pub(crate) async fn manifest(self: &Arc<Self>, body: &Body) -> Result<Option<Arc<Manifest>>> {
        match body {
            Body::Empty | Body::Inline { .. } => Ok(None),
            Body::Extents(manifest) => Ok(Some(Arc::new(manifest.clone()))),
            Body::Spilled { policy, manifest } => self.spilled(*policy, manifest).await.map(Some),
        }
    }

    /// A manifest that lies in extents of its own.
    pub(crate) async fn spilled(
        self: &Arc<Self>,
        policy: PolicyId,
        extents: &[ExtentRef],
    ) -> Result<Arc<Manifest>> {
        let first = extents.first().ok_or_else(|| Error::corrupt("a manifest lies nowhere"))?.id;
        if let Some(known) = self.manifests.get(first) {
            return Ok(known);
        }
        let length = extents.iter().map(|extent| u64::from(extent.length)).sum();
        let mut stream = self.read_extents(policy, extents, 0..length).await?;
        let mut bytes = BytesMut::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        let manifest = Arc::new(Manifest::decode(&bytes)?);
        self.manifests.put(first, manifest.clone());
        Ok(manifest)
    }

    /// Bytes `range` of what `extents` hold together. The first extent is open when this returns.
    pub(crate) async fn read_extents(
        self: &Arc<Self>,
        policy: PolicyId,
        extents: &[ExtentRef],
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let mut pieces = VecDeque::new();
        let mut start = 0;
        for extent in extents {
            let length = u64::from(extent.length);
            if let Some(piece) = overlap(&range, start, length) {
                pieces.push_back((*extent, piece));
            }
            start += length;
        }
        if range.end > start {
            return Err(Error::corrupt("a manifest is shorter than its object"));
        }
        let Some((first, piece)) = pieces.pop_front() else {
            return Ok(futures::stream::empty().boxed());
        };
        let left = piece.end - piece.start;
        let current = self.open_extent(policy, first, piece).await?;
        if pieces.is_empty() {
            return Ok(current);
        }
        let mut reader =
            Reader { inner: self.clone(), policy, pieces, current, left, ahead: Ahead::Nothing };
        reader.open_ahead();
        Ok(Box::pin(reader))
    }

    /// The devices that may have an extent: primaries, then handoffs.
    fn holders(
        &self,
        policy: PolicyId,
        extent: &ExtentRef,
    ) -> Result<impl Iterator<Item = DeviceId> + '_> {
        let ring = self.cluster.data(policy)?;
        let partition = ring.partition(extent.id.placement());
        let handoffs = std::iter::once(()).flat_map(move |()| ring.handoffs(partition));
        Ok(ring.primaries(partition).chain(handoffs.take(HANDOFFS_MAX)))
    }

    /// Opens an extent on the first device that has it whole.
    async fn open_extent(
        &self,
        policy: PolicyId,
        extent: ExtentRef,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let mut failure = None;
        for device in self.holders(policy, &extent)? {
            let node = self.cluster.node(device)?;
            match node.read_extent(device, extent.id, range.clone()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(worse(failure, error)),
            }
        }
        Err(lost(&extent, failure))
    }

    /// Where an extent lies, and on which device.
    pub(crate) async fn stat_extent(
        &self,
        policy: PolicyId,
        extent: ExtentRef,
    ) -> Result<(DeviceId, ExtentStat)> {
        let mut failure = None;
        for device in self.holders(policy, &extent)? {
            match self.cluster.node(device)?.stat_extent(device, extent.id).await {
                Ok(stat) => return Ok((device, stat)),
                Err(error) => failure = Some(worse(failure, error)),
            }
        }
        Err(lost(&extent, failure))
    }
}

/// The failure that says more: a copy that is damaged or can't be reached, over one that isn't there.
fn worse(before: Option<Error>, error: Error) -> Error {
    match before {
        Some(before) if error.kind() == ErrorKind::NotFound => before,
        _ => error,
    }
}

/// An entry names the extent, so "not found" is no answer to a client.
fn lost(extent: &ExtentRef, failure: Option<Error>) -> Error {
    match failure {
        Some(error) if error.kind() != ErrorKind::NotFound => error,
        _ => Error::internal(format!("extent {} is on none of its devices", extent.id)),
    }
}

enum Ahead {
    Nothing,
    Opening(BoxFuture<'static, Result<ByteStream>>, u64),
    Open(ByteStream, u64),
    Failed(Error),
}

/// Extents one after another.
struct Reader {
    inner: Arc<Inner>,
    policy: PolicyId,
    pieces: VecDeque<(ExtentRef, Range<u64>)>,
    current: ByteStream,
    /// Bytes that the current extent still owes.
    left: u64,
    ahead: Ahead,
}

impl Reader {
    fn open_ahead(&mut self) {
        self.ahead = match self.pieces.pop_front() {
            None => Ahead::Nothing,
            Some((extent, piece)) => {
                let (inner, policy) = (self.inner.clone(), self.policy);
                let length = piece.end - piece.start;
                let open = async move { inner.open_extent(policy, extent, piece).await };
                Ahead::Opening(open.boxed(), length)
            }
        };
    }

    fn poll_ahead(&mut self, context: &mut Context<'_>) {
        if let Ahead::Opening(opening, length) = &mut self.ahead
            && let Poll::Ready(opened) = opening.poll_unpin(context)
        {
            let length = *length;
            self.ahead = match opened {
                Ok(stream) => Ahead::Open(stream, length),
                Err(error) => Ahead::Failed(error),
            };
        }
    }
}

impl Stream for Reader {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_ahead(context);
        loop {
            match self.current.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => {
                    let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
                        return Poll::Ready(Some(Err(Error::corrupt("an extent is too long"))));
                    };
                    self.left = left;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) if self.left > 0 => {
                    return Poll::Ready(Some(Err(Error::corrupt("an extent ended early"))));
                }
                Poll::Ready(None) => self.current = futures::stream::empty().boxed(),
            }
            match std::mem::replace(&mut self.ahead, Ahead::Nothing) {
                Ahead::Nothing => return Poll::Ready(None),
                Ahead::Failed(error) => return Poll::Ready(Some(Err(error))),
                opening @ Ahead::Opening(..) => {
                    self.ahead = opening;
                    return Poll::Pending;
                }
                Ahead::Open(stream, length) => {
                    self.current = stream;
                    self.left = length;
                    self.open_ahead();
                    self.poll_ahead(context);
                }
            }
        }
    }
}
