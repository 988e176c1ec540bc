//! Sources of a range's bytes in order: extents, or their fragments.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use martlet_erasure::{FragmentColumns, Geometry};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{PolicyId, Result};

use crate::coded::read::{FragmentStream, check, geometry};
use crate::extents::{ExtentClient, ExtentStream};

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

/// The bytes of a range.
pub(super) enum RangeStream {
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

    /// Opens the range; its first bytes have arrived when this returns.
    pub(super) async fn open(
        self,
        client: Arc<ExtentClient>,
        policy: PolicyId,
    ) -> Result<RangeStream> {
        Ok(match self {
            Self::Copy(extent, range) => {
                RangeStream::Copy(ExtentStream::open(&client, policy, extent, range).await?)
            }
            Self::Fragment(extent, geometry, columns) => RangeStream::Fragment(
                FragmentStream::open(&client, policy, extent, geometry, columns).await?,
            ),
        })
    }
}

impl RangeStream {
    /// Bytes that are not read yet.
    pub(super) fn left(&self) -> u64 {
        match self {
            Self::Copy(stream) => stream.left(),
            Self::Fragment(stream) => stream.left(),
        }
    }
}

impl Stream for RangeStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut *self {
            Self::Copy(stream) => stream.poll_next_unpin(context),
            Self::Fragment(stream) => stream.poll_next_unpin(context),
        }
    }
}
