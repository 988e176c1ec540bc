//! What is said of registers: reads, writes, ballots, pages, fences and hints.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;
use crate::id::{BucketId, Shard, WriteId};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span};

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
    /// Its bytes, when the entry's body is [`Body::Inline`](crate::entry::Body::Inline).
    pub inline: Option<Bytes>,
    /// How it came here.
    pub mode: WriteMode,
    /// The bucket's generation as the proxy knows it (rule M2).
    pub generation: u64,
    /// Refuse the write past this time, in milliseconds since 1970, in whatever mode (rules X2, T2).
    pub commit_by_ms: u64,
    /// The extents of the entry that this one supersedes are still wanted, by this entry (new tags,
    /// same bytes) or by another (a part that its object took over): they don't become garbage.
    pub keep_body: bool,
    /// The term that the proxy goes by (rule P1).
    pub term: Term,
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
    /// The term that the caller goes by (rule P1).
    pub term: Term,
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
    /// True when there may be more above the last name. A page may end below its limit, and has a last
    /// name all the same.
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

impl BucketFence {
    /// The fence of a deleted bucket: no first-hand write of any generation passes, and no other
    /// fence replaces this one.
    pub fn of_deleted(bucket: BucketId) -> Self {
        Self { bucket, generation: u64::MAX, open: false }
    }
}

/// A write that a handoff keeps until all primaries of its register hold it or a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Where it belongs.
    pub key: RegisterKey,
    /// What.
    pub entry: Entry,
    /// Its bytes, when the entry's body is [`Body::Inline`](crate::entry::Body::Inline).
    pub inline: Option<Bytes>,
    /// As in [`EntryWrite::keep_body`].
    pub keep_body: bool,
    /// Since when it is kept, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What a device knows of one register, for those who must know that nobody knows better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Order and write id of the entry that it holds, a tombstone included.
    pub held: Option<(Stamp, WriteId)>,
    /// Its promise, the device's floor left out.
    pub promise: Stamp,
    /// The order of what it keeps for the register's primaries.
    pub hint: Option<Stamp>,
    /// Whether it holds a tombstone that may be collected (rule T1).
    pub collectable: bool,
}

/// A register that a device may let go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetGo {
    /// Which.
    pub key: RegisterKey,
    /// It stays if its entry's order or its promise lies above this.
    pub up_to: Stamp,
    /// It goes only as a tombstone that may be collected (rule T1).
    pub collectable: bool,
}

/// Registers of a device that are to be walked, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// Those that stand here on the index ring.
    pub span: Span,
    /// Those of one bin only.
    pub bin: Option<BinKey>,
    /// With their inline bytes or without.
    pub want: Want,
}
