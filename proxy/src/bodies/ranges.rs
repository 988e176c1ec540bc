//! Sources of a range's bytes in order: extents, or their fragments.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use martlet_erasure::{FragmentColumns, FragmentIndex, Geometry};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{ExtentId, PolicyId, Result};

use crate::coded::read::{FragmentStream, check, geometry};
use crate::extents::{ExtentClient, ExtentStream};
use crate::windows::{SharedStream, StoredBytes, Windows};

/// Ranges still to be read.
pub(super) struct RangeQueue {
    client: Arc<ExtentClient>,
    policy: PolicyId,
    extents: VecDeque<(ExtentRef, Range<u64>)>,
    /// Remaining fragments of the extent that was taken last.
    fragments: VecDeque<StoredRange>,
}

/// A run of bytes on one device in the absence of failures.
pub(super) enum StoredRange {
    Copy(ExtentRef, Range<u64>),
    Fragment(ExtentRef, Geometry, FragmentColumns),
}

/// The bytes of a range, shared with other readers of the same bytes.
pub(super) type RangeStream = SharedStream<StoredExtent>;

/// A copy of an extent, or one of its fragments.
#[derive(Clone)]
pub(super) struct StoredExtent {
    client: Arc<ExtentClient>,
    policy: PolicyId,
    extent: ExtentRef,
    /// None for a copy.
    fragment: Option<(Geometry, FragmentIndex)>,
}

/// Bytes from the nodes.
pub(super) enum NodeStream {
    Copy(ExtentStream),
    Fragment(FragmentStream),
}

impl RangeQueue {
    /// Stored ranges under ranges of extents.
    pub(super) fn new(
        client: &Arc<ExtentClient>,
        policy: PolicyId,
        extents: VecDeque<(ExtentRef, Range<u64>)>,
    ) -> Self {
        Self { client: client.clone(), policy, extents, fragments: VecDeque::new() }
    }

    /// Returns true if all ranges were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.fragments.is_empty()
    }

    /// The next range.
    pub(super) fn next(&mut self) -> Result<Option<StoredRange>> {
        if let Some(range) = self.fragments.pop_front() {
            return Ok(Some(range));
        }
        let Some((extent, range)) = self.extents.pop_front() else { return Ok(None) };
        let length = u64::from(extent.length);
        let Some(geometry) = geometry(&self.client.cluster(), self.policy, length)? else {
            return Ok(Some(StoredRange::Copy(extent, range)));
        };
        let columns = geometry.fragment_ranges(range)?.into_iter();
        self.fragments =
            columns.map(|columns| StoredRange::Fragment(extent, geometry, columns)).collect();
        Ok(self.fragments.pop_front())
    }

    /// Fails unless the remaining fragments of the current extent can be read.
    pub(super) async fn check(&self) -> Result<()> {
        match self.fragments.front() {
            Some(StoredRange::Fragment(extent, geometry, _)) => {
                let columns: Vec<_> =
                    self.fragments.iter().filter_map(StoredRange::columns).collect();
                check(&self.client, self.policy, *extent, *geometry, &columns).await
            }
            Some(StoredRange::Copy(..)) | None => Ok(()),
        }
    }
}

impl StoredRange {
    fn columns(&self) -> Option<&FragmentColumns> {
        match self {
            Self::Copy(..) => None,
            Self::Fragment(_, _, columns) => Some(columns),
        }
    }

    /// Opens the range; its first bytes have arrived when this returns. `is_in_company` is true if
    /// the reader met others before.
    pub(super) async fn open(
        self,
        windows: Arc<Windows>,
        client: Arc<ExtentClient>,
        policy: PolicyId,
        is_in_company: bool,
    ) -> Result<RangeStream> {
        let (extent, fragment, range) = match self {
            Self::Copy(extent, range) => (extent, None, range),
            Self::Fragment(extent, geometry, FragmentColumns { fragment, columns }) => {
                (extent, Some((geometry, fragment)), columns)
            }
        };
        let stored = StoredExtent { client, policy, extent, fragment };
        SharedStream::open(&windows, stored, range, is_in_company).await
    }
}

impl StoredBytes for StoredExtent {
    type Stream = NodeStream;

    fn id(&self) -> ExtentId {
        match &self.fragment {
            None => self.extent.id,
            Some((_, fragment)) => self.extent.id.fragment(fragment.0),
        }
    }

    fn length(&self) -> u64 {
        match &self.fragment {
            None => u64::from(self.extent.length),
            Some((geometry, fragment)) => geometry.stored_bytes(*fragment),
        }
    }

    fn open(&self, range: Range<u64>) -> BoxFuture<'static, Result<NodeStream>> {
        let Self { client, policy, extent, fragment } = self.clone();
        async move {
            Ok(match fragment {
                None => NodeStream::Copy(ExtentStream::open(&client, policy, extent, range).await?),
                Some((geometry, fragment)) => {
                    let columns = FragmentColumns { fragment, columns: range };
                    let opened =
                        FragmentStream::open(&client, policy, extent, geometry, columns).await?;
                    NodeStream::Fragment(opened)
                }
            })
        }
        .boxed()
    }
}

impl Stream for NodeStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut *self {
            Self::Copy(stream) => stream.poll_next_unpin(context),
            Self::Fragment(stream) => stream.poll_next_unpin(context),
        }
    }
}
