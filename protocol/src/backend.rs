//! The backend trait: every call of a storage node.
//!
//! A node serves several devices, and every call names its device. Index calls read and write
//! registers; extent calls read and write immutable bytes. A node checks neither placement nor
//! order between proposers: the ring decides which device holds a register or extent, and the
//! proposer decides which write wins.
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

mod devices;
mod extents;
mod registers;

use std::ops::Range;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

pub use self::devices::{DeviceHealth, DeviceStatus};
pub use self::extents::{AuditResult, ExtentStat, Garbage, GarbageId, NewExtent, Presence};
pub use self::registers::{
    BucketFence, EntryWrite, Hint, Holding, ListReply, ListRequest, ListStart, PromiseReply,
    RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use crate::error::Result;
use crate::extent::{ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// Stream of body chunks; an error ends the stream.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// The calls of a storage node.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Reads a register.
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView>;

    /// Writes an entry, plainly or as the second half of a ballot.
    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply>;

    /// Promises to accept nothing below `ballot`, and returns the register's content.
    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply>;

    /// Lists entries in the order of their names, tombstones included, merged over all requested
    /// shards.
    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply>;

    /// Refuses first-hand writes to a bucket below the fence's generation (rule M2).
    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()>;

    /// Removes every register of a bucket that was deleted and fenced with `open: false`. Extents
    /// named by its entries become garbage. In the same step the bucket gets the [fence of a
    /// deleted bucket](BucketFence::of_deleted), which refuses all later writes.
    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()>;

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

    /// Returns the record of an extent and its location on disk.
    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat>;

    /// Deletes unowned extents, and remembers the deletion for a grace time. Until then a copy of a
    /// deleted extent is refused with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) (rule
    /// X4). Missing extents are no error. Readers that have an extent open finish.
    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()>;

    /// Releases copies that other devices hold: as [`Backend::delete_extents`], but the deletion
    /// isn't remembered.
    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()>;

    /// Returns for each extent, in the order of `ids`, if the device holds it.
    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>>;

    /// Verifies extents above `after`, in the order of their ids, until `bytes_max` bytes were read
    /// (at least one extent). Corrupt extents go to quarantine.
    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>>;

    /// Extents of a device with ids above `after`, in the order of their ids.
    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>>;

    /// Bodies left behind by entries superseded at or before `before_ms`, oldest first.
    async fn garbage(&self, device: DeviceId, before_ms: u64, limit: usize)
    -> Result<Vec<Garbage>>;

    /// Forgets garbage records after their extents were deleted.
    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()>;

    /// Stores a first-hand write as a hint for primaries that are out (rule A2). A newer write of
    /// the same register replaces the hint; an older write returns [`WriteReply::Superseded`].
    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply>;

    /// Reads the hint for a register. Its promise is zero: a handoff makes no promises.
    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView>;

    /// Lists hints instead of registers, as [`Backend::list`].
    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply>;

    /// All hints of a device, in the order of their registers, above `after`.
    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>>;

    /// Forgets the hint for a register, unless its order is above `order`.
    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()>;

    /// Registers of a device above `after`, in their order, with inline bytes and tombstones
    /// included.
    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>>;

    /// The fences of a device.
    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>>;

    /// Promises for every register of a device to accept nothing below `floor` (rule G2). A floor
    /// never falls.
    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()>;

    /// Grants a device its votes, or withdraws them (rule G1). A device without votes stores writes
    /// and answers [`WriteReply::Unvoted`]; it refuses reads, lists and promises.
    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()>;

    /// Sums of the registers in each span, in the order of `spans` (rule H1).
    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>>;

    /// Non-empty bins of a span, in the order of (placement, bin key), above `after`.
    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>>;

    /// Registers that hold an entry, above `after`; collectable tombstones are left out.
    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>>;

    /// Returns the device's state of each register, in the order of `keys`, with or without votes.
    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>>;

    /// Marks tombstones as collectable if the device holds a tombstone of exactly that order.
    /// Marked tombstones leave the sums and the walks. A later write removes the mark (rule T1).
    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()>;

    /// Drops registers that other devices hold or that are no longer needed. Nothing becomes
    /// garbage.
    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()>;

    /// Compares the stored sums with the registers, over some runs above `after`. A run that
    /// differs is counted as corrupt, and its sum is computed again (rule H1).
    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>>;

    /// Raises the term of a device; a term never falls (rule P3).
    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()>;

    /// Records that a device holds everything that ring change `change` moved to it (rule P2). The
    /// number never falls.
    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()>;

    /// The devices of the node and their status.
    async fn devices(&self) -> Result<Vec<DeviceStatus>>;
}
