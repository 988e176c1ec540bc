//! Source of a reader's bytes, alone or in company.

use std::ops::Range;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use martlet_protocol::{ExtentId, Result};

/// Bytes that nodes store under an id, as readers get them.
pub(crate) trait StoredBytes: Clone + Send + Sync + 'static {
    /// Stream of a range: exactly its bytes in order, or an error after all holders failed.
    type Stream: Stream<Item = Result<Bytes>> + Send + Unpin + 'static;

    /// Id of the extent or fragment.
    fn id(&self) -> ExtentId;

    /// Number of bytes.
    fn length(&self) -> u64;

    /// Opens a non-empty range. Its first bytes have arrived when this returns.
    fn open(&self, range: Range<u64>) -> BoxFuture<'static, Result<Self::Stream>>;
}
