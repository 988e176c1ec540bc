//! The seam: everything that a storage node offers, as one trait.
//!
//! A node serves several devices; every call names the device that it is for. Index calls speak of
//! registers, extent calls of immutable bytes. A node stores what it is told: which device should
//! hold what is the ring's business, and who wins is the proposer's.
//!
//! What every implementation promises:
//! * A call that returns `Ok` from a write has its effect on disk (rule X6).
//! * A reply never tells of something that a power cut could take back (rule R2).
//! * [`Backend::write_extent`] either leaves a whole extent or nothing that a reader can see.
//! * A page may be shorter than its `limit`, and is never asked to hold more than about a thousand
//!   items: a node bounds what a request can make it gather.
//! * A read, write, promise or list that names a lower term than its device was told is refused with
//!   [`Error::outdated`](crate::Error::outdated) before it has any effect (rule P1).
//! * Bytes of [`Backend::read_extent`] have been verified against the checksums written with them.

mod devices;
mod extents;
mod registers;

use std::ops::Range;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

pub use self::devices::{DeviceHealth, DeviceStatus};
pub use self::extents::{Audited, ExtentStat, Garbage, GarbageId, NewExtent, Presence};
pub use self::registers::{
    BucketFence, EntryWrite, Hint, Holding, LetGo, ListReply, ListRequest, ListStart, PromiseReply,
    RegisterView, Walk, Want, WriteReply,
};
use crate::error::Result;
use crate::extent::{ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// Bytes on their way, with errors that end them.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// What a storage node offers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What a register holds.
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView>;

    /// Writes an entry, plainly or as the second half of a ballot.
    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply>;

    /// Promises to take nothing below `ballot`, and says what is held.
    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply>;

    /// Entries in the order of their names, tombstones included, over all asked shards.
    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply>;

    /// Refuses first-hand writes to a bucket below a generation from now on (rule M2).
    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()>;

    /// Removes every register of a bucket that was deleted and fenced with `open: false`. Extents that
    /// its entries name become garbage. In the same step the bucket gets the
    /// [fence of a deleted one](BucketFence::of_deleted): a late write finds it closed at any time.
    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()>;

    /// Stores an extent: 1 byte up to [`EXTENT_BYTES_MAX`](crate::limits::EXTENT_BYTES_MAX).
    /// An error from `body` leaves nothing behind.
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef>;

    /// Bytes `range` of an extent; the range lies within its length and isn't empty.
    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream>;

    /// What the node knows of an extent, and where it lies.
    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat>;

    /// Deletes extents that nobody wants, and remembers for a grace time that it did: a copy of one
    /// is refused with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) until then (rule X4).
    /// Those that aren't there are no error. Readers that have one open finish.
    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()>;

    /// Lets go of copies that others hold: as [`Backend::delete_extents`], and nothing is
    /// remembered.
    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()>;

    /// Whether a device has these extents; a reply for each, in their order.
    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>>;

    /// Verifies extents above `after`, in the order of their ids, until `bytes_max` bytes were read
    /// (one at least). What is corrupt goes to quarantine.
    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<Audited<ExtentId>>;

    /// Extents of a device with ids above `after`, in the order of their ids.
    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>>;

    /// Bodies that superseded entries left behind at or before `before_ms`, oldest first.
    async fn garbage(&self, device: DeviceId, before_ms: u64, limit: usize)
    -> Result<Vec<Garbage>>;

    /// Forgets garbage whose extents are gone.
    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()>;

    /// Keeps a first-hand write for primaries that are out (rule A2). A newer one of the same
    /// register takes its place; an older one is [`WriteReply::Superseded`].
    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply>;

    /// What is kept for the primaries of a register. The promise is zero: a handoff makes none.
    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView>;

    /// As [`Backend::list`], of what is kept for others.
    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply>;

    /// Everything that is kept for others, in the order of the registers, above `after`.
    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>>;

    /// Forgets what is kept for a register, unless it is of a higher order than `order`.
    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()>;

    /// Registers of a device with inline bytes, tombstones included, in their order, above `after`.
    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>>;

    /// The fences of a device.
    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>>;

    /// Promises, for every register of a device, to take nothing below `floor` (rule G2). A floor
    /// never falls.
    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()>;

    /// Gives a device its votes, or takes them away (rule G1). Without them it stores what it is
    /// told, answers [`WriteReply::Unvoted`], and refuses to be read, listed or promised by.
    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()>;

    /// The sums of the registers that stand in each span, in the order of the spans (rule H1).
    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>>;

    /// The bins in a span that hold anything, in the order of (placement, bin key), above `after`.
    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>>;

    /// Registers that hold an entry, above `after`; those that may be collected are left out.
    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>>;

    /// What the device knows of these registers, voting or not; a reply for each, in their order.
    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>>;

    /// Marks tombstones as ones that may be collected, where the device holds a tombstone of that
    /// very order: they leave the sums and the walks. Any later write takes the mark away (rule T1).
    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()>;

    /// Lets registers go: those that others hold, or that nobody needs. Nothing becomes garbage.
    async fn drop_registers(&self, device: DeviceId, drops: &[LetGo]) -> Result<()>;

    /// Compares what the device sums up with what it holds, over some runs above `after`; what
    /// differs is counted as corrupt and summed up anew (rule H1).
    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<Audited<BinKey>>;

    /// Tells a device of a term; it never falls (rule P3).
    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()>;

    /// Tells a device that it holds all that a ring change moved to it (rule P2). Never falls.
    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()>;

    /// The devices of the node and how they are.
    async fn devices(&self) -> Result<Vec<DeviceStatus>>;
}
