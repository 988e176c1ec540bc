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
//! * Bytes of [`Backend::read_extent`] have been verified against the checksums written with them.

use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use serde::{Deserialize, Serialize};

use crate::entry::{Body, Entry};
use crate::error::Result;
use crate::extent::{ExtentLocation, ExtentRecord, ExtentRef, Owner};
use crate::id::{BucketId, DeviceId, DeviceIdentity, ExtentId, Shard};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::stamp::Stamp;

/// Bytes on their way, with errors that end them.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// What a storage node offers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What a register holds.
    async fn read(&self, device: DeviceId, key: &RegisterKey, want: Want) -> Result<RegisterView>;

    /// Writes an entry, plainly or as the second half of a ballot.
    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply>;

    /// Promises to take nothing below `ballot`, and says what is held.
    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
    ) -> Result<PromiseReply>;

    /// Entries in the order of their names, tombstones included, over all asked shards.
    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply>;

    /// Refuses first-hand writes to a bucket below a generation from now on (rule M2).
    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()>;

    /// Removes every register and fence of a bucket that was deleted and fenced with `open: false`.
    /// Extents that its entries name become garbage.
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

    /// Deletes extents. Those that aren't there are no error. Readers that have one open finish.
    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()>;

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

    /// The devices of the node and how they are.
    async fn devices(&self) -> Result<Vec<DeviceStatus>>;
}

/// How much of a register a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// The entry.
    Entry,
    /// The entry and, where they are inline, its bytes.
    EntryAndInline,
}

/// What a register holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterView {
    /// The promise.
    pub promise: Stamp,
    /// The entry, a tombstone included.
    pub entry: Option<Entry>,
    /// The inline bytes of that very entry, verified, if they were wanted and there are any.
    pub inline: Option<Bytes>,
}

/// A first-hand write of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryWrite {
    /// Where.
    pub key: RegisterKey,
    /// What.
    pub entry: Entry,
    /// Its bytes, when the entry's body is [`Body::Inline`].
    pub inline: Option<Bytes>,
    /// How it came here.
    pub mode: WriteMode,
    /// The bucket's generation as the proxy knows it (rule M2).
    pub generation: u64,
    /// Refuse the write past this time, in milliseconds since 1970 (rules X2, T2).
    pub commit_by_ms: u64,
    /// The extents of the entry that this one supersedes are still wanted, by this entry (new tags,
    /// same bytes) or by another (a part that its object took over): they don't become garbage.
    pub keep_body: bool,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteReply {
    /// It is on disk, or was already.
    Stored,
    /// It counts as written and overwritten: something newer is held.
    Superseded,
    /// Refused: its order must lie above this.
    Behind(Stamp),
    /// Refused: the bucket is at a later generation, or closed.
    Fenced,
    /// Refused: it came after its `commit_by_ms`, or its order lies too far ahead or back.
    OutOfTime,
    /// It is on disk, on a device without a vote: it counts for nothing (rule G1).
    Unvoted,
}

/// What became of a ballot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromiseReply {
    /// Promised; this is what the register holds.
    Promised(RegisterView),
    /// Refused: a ballot must lie above this.
    Behind(Stamp),
}

/// Which entries to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// The bucket.
    pub bucket: BucketId,
    /// The shards to merge.
    pub shards: Vec<Shard>,
    /// Objects, uploads or parts.
    pub kind: RegisterKind,
    /// Only names that begin with this.
    pub prefix: Bytes,
    /// Where to begin.
    pub start: ListStart,
    /// At most so many entries, tombstones included.
    pub limit: usize,
    /// After a live name that has this delimiter beyond the prefix, skip the names that share the
    /// bytes up to and including it. Only for a caller to whom this node's word is final (rule L1).
    pub fold: Option<Bytes>,
}

/// Where a listing begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListStart {
    /// At the first name.
    First,
    /// At this name or the next above.
    At(Bytes),
    /// Above this name.
    After(Bytes),
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReply {
    /// Names and entries, by name.
    pub entries: Vec<(Bytes, Entry)>,
    /// Whether there may be more above the last name.
    pub truncated: bool,
}

/// What a bucket takes from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFence {
    /// The bucket.
    pub bucket: BucketId,
    /// First-hand writes of a lower generation are refused.
    pub generation: u64,
    /// Whether writes are taken at all.
    pub open: bool,
}

/// An extent to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExtent {
    /// Its id, never used before.
    pub id: ExtentId,
    /// Its owner, for ever.
    pub owner: Owner,
    /// Its length, if it is known: a body that differs is an error.
    pub length: Option<u64>,
}

/// What the node knows of an extent, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentStat {
    /// Id, length, hash, owner, birth.
    pub record: ExtentRecord,
    /// Where its bytes can be read in place.
    pub location: ExtentLocation,
}

/// The key of a garbage record on its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GarbageId(pub Bytes);

/// What a superseded entry left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    /// Its name on the device.
    pub id: GarbageId,
    /// The register that held it.
    pub key: RegisterKey,
    /// Its extents.
    pub body: Body,
}

/// A write that a handoff keeps until all primaries of its register hold it or a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Where it belongs.
    pub key: RegisterKey,
    /// What.
    pub entry: Entry,
    /// Its bytes, when the entry's body is [`Body::Inline`].
    pub inline: Option<Bytes>,
    /// As in [`EntryWrite::keep_body`].
    pub keep_body: bool,
    /// Since when it is kept, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A device and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its id in the ring.
    pub device: DeviceId,
    /// Which formatting of it this is: a device that forgot has another than its peers remember.
    pub identity: DeviceIdentity,
    /// Whether it has its votes (rule G1).
    pub voting: bool,
    /// Its folder.
    pub path: PathBuf,
    /// Whether it serves, and if not, why.
    pub health: DeviceHealth,
    /// Bytes that the file system has.
    pub total_bytes: u64,
    /// Bytes that it has free.
    pub free_bytes: u64,
    /// Bytes in extents.
    pub extent_bytes: u64,
    /// Extents.
    pub extents: u64,
    /// Extents in quarantine.
    pub quarantined: u64,
    /// Writes that are kept for other devices.
    pub hints: u64,
}

/// Whether a device serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceHealth {
    /// It serves.
    Ready,
    /// It is above its high-water mark: reads and deletes only, new bytes go elsewhere.
    Full,
    /// A sync failed: it serves reads, and refuses writes until it was opened again.
    Suspect(String),
    /// It serves nothing.
    Offline(String),
}
