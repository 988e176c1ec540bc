//! Reads of extents in order, with the next one opened ahead, and of manifests.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, join_all, try_join};
use futures::{FutureExt, Stream, StreamExt};
use martlet_protocol::backend::ExtentStat;
use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::extent::{ExtentRef, overlap};
use martlet_protocol::{Backend, BackendExt, ByteStream, DeviceId, Error, PolicyId, Result};
use tokio::sync::Semaphore;

use super::ranges::{RangeQueue, RangeStream};
use crate::coded::read::geometry;
use crate::extents::{ExtentClient, ReplicaSelection};
use crate::manifests::Manifests;
use crate::windows::{Pace, Windows};

/// The next range is opened when the current one has this many bytes left. That covers the lookup
/// of a device, and bounds the time for which a slow reader holds two streams.
const AHEAD_BYTES: u64 = 16 * 1024 * 1024;

/// Reads of bodies and manifests.
pub(crate) struct BodyReader {
    pub(super) extents: Arc<ExtentClient>,
    manifests: Manifests,
    pub(crate) windows: Arc<Windows>,
    /// Permits for hashing threads.
    pub(crate) hashers: Arc<Semaphore>,
}

impl BodyReader {
    /// Reads whose shared windows take at most `window_bytes_max` bytes.
    pub(crate) fn new(
        extents: Arc<ExtentClient>,
        window_bytes_max: usize,
        hashers: Arc<Semaphore>,
    ) -> Self {
        let windows = Windows::new(window_bytes_max);
        Self { extents, manifests: Manifests::default(), windows, hashers }
    }

    /// The manifest of a body in extents; loads a spilled one. None for empty and inline bodies.
    pub(crate) async fn manifest(&self, body: &Body) -> Result<Option<Arc<Manifest>>> {
        match body {
            Body::Empty | Body::Inline { .. } => Ok(None),
            Body::Extents(manifest) => Ok(Some(Arc::new(manifest.clone()))),
            Body::Spilled { policy, manifest } => self.spilled(*policy, manifest).await.map(Some),
        }
    }

    /// Reads a spilled manifest from its extents, or from the cache.
    pub(crate) async fn spilled(
        &self,
        policy: PolicyId,
        extents: &[ExtentRef],
    ) -> Result<Arc<Manifest>> {
        let first = extents.first().ok_or_else(|| Error::corrupt("a manifest has no extents"))?.id;
        let load = self.load_manifest(policy, extents);
        Box::pin(self.manifests.get_or_load(first, load)).await
    }

    /// Reads a spilled manifest from its extents, and caches it nowhere.
    pub(crate) async fn load_manifest(
        &self,
        policy: PolicyId,
        extents: &[ExtentRef],
    ) -> Result<Manifest> {
        let length = extents.iter().map(|extent| u64::from(extent.length)).sum();
        let mut stream = self.read_extents(policy, extents, 0..length).await?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk?);
        }
        Manifest::decode(&bytes)
    }

    /// Reads bytes `range` of a body's concatenated extents. Returns once the first range is open and
    /// the rest of the first extent is known to be readable.
    pub(crate) async fn read_extents(
        &self,
        policy: PolicyId,
        body: &[ExtentRef],
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let mut overlaps = VecDeque::new();
        let mut start = 0;
        for extent in body {
            let length = u64::from(extent.length);
            if let Some(overlap) = overlap(&range, start, length) {
                overlaps.push_back((*extent, overlap));
            }
            start += length;
        }
        if range.end > start {
            return Err(Error::corrupt("a manifest is shorter than its object"));
        }
        let mut ranges = RangeQueue::new(&self.extents, policy, overlaps);
        let Some(first) = ranges.next()? else {
            return Ok(futures::stream::empty().boxed());
        };
        let (windows, extents) = (self.windows.clone(), self.extents.clone());
        let first = first.open(windows, extents, policy, false);
        let (current, ()) = try_join(first, ranges.check()).await?;
        if ranges.is_empty() {
            return Ok(Box::pin(current));
        }
        let (windows, extents) = (self.windows.clone(), self.extents.clone());
        let (current, ahead) = (Some(current), Ahead::Nothing);
        let offset = range.start;
        let pace = body.first().and_then(|first| windows.join(first.id, range));
        Ok(Box::pin(Reader { windows, extents, policy, ranges, current, ahead, offset, pace }))
    }

    /// Locations for reads in place, each with its offset in the extent: one device of a copy, or
    /// the devices of its data fragments. Missing fragments are left out; a normal read
    /// reconstructs their bytes.
    pub(crate) async fn stat_parts(
        &self,
        policy: PolicyId,
        extent: ExtentRef,
    ) -> Result<Vec<(u64, DeviceId, ExtentStat)>> {
        let length = u64::from(extent.length);
        let Some(geometry) = geometry(&self.extents.cluster(), policy, length)? else {
            let (device, stat) = self.stat_extent(policy, extent).await?;
            return Ok(vec![(0, device, stat)]);
        };
        let stats = geometry.fragment_ranges(0..length)?.into_iter().map(|columns| async move {
            let id = extent.id.fragment(columns.fragment.0);
            let offset = geometry.offset(&columns)?;
            match self.stat_extent(policy, ExtentRef { id, ..extent }).await {
                Ok((device, stat)) => Some((offset, device, stat)),
                Err(error) => {
                    tracing::debug!(fragment = %id, %error, "bytes of an object are missing");
                    None
                }
            }
        });
        Ok(join_all(stats).await.into_iter().flatten().collect())
    }

    /// Device and location of a copy or fragment.
    async fn stat_extent(
        &self,
        policy: PolicyId,
        extent: ExtentRef,
    ) -> Result<(DeviceId, ExtentStat)> {
        let selection = ReplicaSelection { policy, extent, barred: &[], failure: None };
        let stat = move |device, node: Arc<dyn Backend>| {
            async move { node.stat_extent(device, extent.id).await }.boxed()
        };
        self.extents.seek(selection, stat).await
    }
}

enum Ahead {
    Nothing,
    Opening(BoxFuture<'static, Result<RangeStream>>),
    Open(Box<RangeStream>),
    Failed(Error),
}

/// Stream over consecutive ranges.
struct Reader {
    windows: Arc<Windows>,
    extents: Arc<ExtentClient>,
    policy: PolicyId,
    ranges: RangeQueue,
    /// None after an error.
    current: Option<RangeStream>,
    ahead: Ahead,
    /// Offset in the body of the next byte.
    offset: u64,
    /// None for a body that the cache of windows can hold.
    pace: Option<Pace>,
}

impl Reader {
    /// Opens the next range if the current one is near its end.
    fn open_ahead(&mut self) {
        let near = self.current.as_ref().is_some_and(|current| current.left() <= AHEAD_BYTES);
        if !near || !matches!(self.ahead, Ahead::Nothing) {
            return;
        }
        match self.ranges.next() {
            Ok(Some(range)) => {
                let (windows, extents) = (self.windows.clone(), self.extents.clone());
                let has_met = self.current.as_ref().is_some_and(RangeStream::has_met);
                let opening = range.open(windows, extents, self.policy, has_met);
                self.ahead = Ahead::Opening(opening.boxed());
            }
            Ok(None) => {}
            Err(error) => self.ahead = Ahead::Failed(error),
        }
    }

    fn poll_ahead(&mut self, context: &mut Context<'_>) {
        self.open_ahead();
        if let Ahead::Opening(opening) = &mut self.ahead
            && let Poll::Ready(opened) = opening.poll_unpin(context)
        {
            self.ahead = opened.map_or_else(Ahead::Failed, |next| Ahead::Open(Box::new(next)));
        }
    }

    /// Waits for readers of the body that are behind, within bounds.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let (Some(current), Some(pace)) = (&self.current, &mut self.pace)
            && ready!(pace.poll_turn(self.offset, context))
        {
            current.meet();
        }
        Poll::Ready(())
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Bytes>>> {
        self.current = None;
        self.ahead = Ahead::Nothing;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for Reader {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            self.poll_ahead(context);
            ready!(self.poll_turn(context));
            let Some(current) = &mut self.current else { return Poll::Ready(None) };
            match ready!(current.poll_next_unpin(context)) {
                Some(Ok(bytes)) => {
                    self.offset += bytes.len() as u64;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) => return self.fail(error),
                None => {}
            }
            match std::mem::replace(&mut self.ahead, Ahead::Nothing) {
                Ahead::Nothing => self.current = None,
                Ahead::Failed(error) => return self.fail(error),
                Ahead::Open(next) => self.current = Some(*next),
                opening @ Ahead::Opening(..) => {
                    self.ahead = opening;
                    return Poll::Pending;
                }
            }
        }
    }
}
