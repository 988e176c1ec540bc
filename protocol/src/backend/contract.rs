//! The backend trait, and the guarantees of its implementations.
//!
//! Every implementation guarantees:
//! * A write that returns `Ok` is on disk (rule X6).
//! * A reply never contains state that a power cut could revert (rule R2).
//! * [`Backend::write_extent`] either leaves a whole extent or nothing that a reader can see.
//! * A page may be shorter than its `limit`. A node returns at most about a thousand items a page,
//!   so that the memory of a request is bounded.
//! * A read, write, promise or list with a lower term than the device's is refused with
//!   [`Error::outdated`](crate::Error::outdated) before it has any effect (rule P1).
//! * Bytes of [`Backend::read_extent`] are verified against the checksums written with them.

use std::ops::Range;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

use super::call::{Call, Reply};
use super::devices::DeviceStatus;
use super::extents::NewExtent;
use crate::error::Result;
use crate::extent::ExtentRef;
use crate::id::{DeviceId, ExtentId};

/// Stream of body chunks; an error ends the stream.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A storage node. Callers use the typed methods of [`BackendExt`](super::BackendExt).
#[async_trait]
pub trait Backend: Send + Sync {
    /// Executes a call on a device. The reply is of the variant that belongs to the call.
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply>;

    /// Stores an extent: 1 byte up to [`EXTENT_BYTES_MAX`](crate::limits::EXTENT_BYTES_MAX).
    /// An error from `body` leaves nothing behind.
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef>;

    /// Reads bytes `range` of an extent; the range lies within the extent's length and isn't empty.
    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream>;

    /// Returns the devices of the node and their status.
    async fn devices(&self) -> Result<Vec<DeviceStatus>>;
}
