//! Calls on registers: reads, writes, ballots, pages, fences and hints.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Value};
use crate::error::Result;
use crate::id::{BucketId, Shard, WriteId};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span};

/// Parts of a register that a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// The entry alone.
    Entry,
    /// The entry and its inline bytes, if any.
    EntryAndInline,
}

/// Content of a register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterView {
    /// The promise.
    pub promise: Stamp,
    /// The entry, a tombstone included.
    pub entry: Option<Entry>,
    /// The verified inline bytes of `entry`, if requested and present.
    pub inline: Option<Bytes>,
}

/// A first-hand write of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryWrite {
    /// Register to write.
    pub key: RegisterKey,
    /// Entry to store.
    pub entry: Entry,
    /// The entry's bytes, when its body is [`Body::Inline`](crate::entry::Body::Inline).
    pub inline: Option<Bytes>,
    /// Plain write or second half of a ballot.
    pub mode: WriteMode,
    /// The bucket's generation in the proxy's cache (rule M2).
    pub generation: u64,
    /// Time after which the write is refused in any mode, in milliseconds since 1970 (rules X2,
    /// T2).
    pub commit_by_ms: u64,
    /// True if the superseded entry's extents stay referenced and don't become garbage: by this
    /// entry (new tags, same bytes) or by another entry (an object that took over a part).
    pub keep_body: bool,
    /// The proxy's term (rule P1).
    pub term: Term,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteReply {
    /// Stored on disk, now or earlier.
    Stored,
    /// Counts as written and overwritten: the register holds a newer entry.
    Superseded,
    /// Refused: the order must lie above this stamp.
    Behind(Stamp),
    /// Refused: the bucket is closed or has a later generation.
    Fenced,
    /// Refused: the write came after its `commit_by_ms`, or its order lies too far ahead or back.
    OutOfTime,
    /// Stored on disk by a device without votes: the write doesn't count towards a quorum (rule
    /// G1).
    Unvoted,
}

/// Result of a ballot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromiseReply {
    /// Promised; contains the register's content.
    Promised(RegisterView),
    /// Refused: a ballot must lie above this.
    Behind(Stamp),
}

/// Selection of the entries to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// The bucket.
    pub bucket: BucketId,
    /// The shards to merge.
    pub shards: Vec<Shard>,
    /// Objects, uploads or parts.
    pub kind: RegisterKind,
    /// Prefix of the listed names.
    pub prefix: Bytes,
    /// First name of the page.
    pub start: ListStart,
    /// Maximum number of entries, tombstones included.
    pub limit: usize,
    /// Delimiter of common prefixes. After an object with this delimiter beyond the prefix, names
    /// that share the bytes up to and including the delimiter are skipped. A caller that merges
    /// replicas reads the skipped names if the object turns out to be deleted (rule L1).
    pub fold: Option<Bytes>,
    /// The caller's term (rule P1).
    pub term: Term,
}

/// Parts of each entry that a listing returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// The whole entry.
    #[default]
    Whole,
    /// The entry's [summary](Entry::into_summary).
    Summary,
}

impl Detail {
    /// Returns this part of an entry.
    pub fn of(self, entry: Entry) -> Entry {
        match self {
            Self::Whole => entry,
            Self::Summary => entry.into_summary(),
        }
    }

    /// Decodes this part of an encoded entry.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an entry.
    pub fn decode(self, entry: &[u8]) -> Result<Entry> {
        match self {
            Self::Whole => Entry::decode(entry),
            Self::Summary => Entry::decode_summary(entry),
        }
    }
}

/// Kinds of entries that a listing returns. A device passes over the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowKinds {
    /// All entries.
    All,
    /// All entries but tombstones.
    Live,
    /// Objects: neither tombstones nor delete markers.
    Objects,
}

/// Selection of the rows that a listing returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSelection {
    /// Parts of each entry.
    pub detail: Detail,
    /// Kinds of entries.
    pub kinds: RowKinds,
}

impl RowSelection {
    /// Whole entries of all kinds, as in [`Call::List`](super::Call::List).
    pub const EVERYTHING: Self = Self { detail: Detail::Whole, kinds: RowKinds::All };

    /// Returns the selected part of an entry, if its kind is selected.
    pub fn select(self, entry: Entry) -> Option<Entry> {
        let is_selected = match self.kinds {
            RowKinds::All => true,
            RowKinds::Live => !entry.value.is_tombstone(),
            RowKinds::Objects => entry.value.is_object(),
        };
        is_selected.then(|| self.detail.of(entry))
    }

    /// Decodes the selected part of an encoded entry, if its kind is selected. Other parts and
    /// entries are not decoded.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an entry.
    pub fn decode(self, entry: &[u8]) -> Result<Option<Entry>> {
        let is_selected = match self.kinds {
            RowKinds::All => true,
            RowKinds::Live => !Entry::is_tombstone(entry)?,
            RowKinds::Objects => Entry::is_object(entry)?,
        };
        if is_selected { self.detail.decode(entry).map(Some) } else { Ok(None) }
    }
}

/// Start of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListStart {
    /// The first name.
    First,
    /// This name or the next above.
    At(Bytes),
    /// The first name above this name.
    After(Bytes),
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReply {
    /// Names and entries, in the order of the names. The last may be a
    /// [position](ListReply::end_at).
    pub entries: Vec<(Bytes, Entry)>,
    /// True if more entries may follow the last name. A truncated page may be shorter than its
    /// limit, but it has a last name.
    pub truncated: bool,
}

impl ListReply {
    /// Ends a page at a name that the page doesn't show. A page ends so after
    /// [`LIST_EMPTY_ROWS_MAX`](crate::limits::LIST_EMPTY_ROWS_MAX) rows that were passed over. On
    /// the wire the position is a tombstone of order zero, which no write has.
    pub fn end_at(&mut self, name: Bytes) {
        let write_id = WriteId([0; 16]);
        self.entries.push((name, Entry { order: Stamp::ZERO, write_id, value: Value::Tombstone }));
        self.truncated = true;
    }

    /// Returns the position at the page's end, if it ends with one.
    pub fn position(&self) -> Option<&Bytes> {
        let (name, entry) = self.entries.last()?;
        (entry.order == Stamp::ZERO && entry.value.is_tombstone()).then_some(name)
    }

    /// Removes the position at the page's end, and returns its name.
    pub fn take_position(&mut self) -> Option<Bytes> {
        self.position()?;
        self.entries.pop().map(|(name, _)| name)
    }
}

/// Lowest generation of a bucket that a device accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFence {
    /// The bucket.
    pub bucket: BucketId,
    /// Generation below which first-hand writes are refused.
    pub generation: u64,
    /// True if the bucket accepts writes.
    pub open: bool,
}

impl BucketFence {
    /// Returns the fence of a deleted bucket: it refuses first-hand writes of every generation, and
    /// no other fence replaces it.
    pub fn of_deleted(bucket: BucketId) -> Self {
        Self { bucket, generation: u64::MAX, open: false }
    }
}

/// A write that a handoff keeps until all primaries of its register hold it or a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Register of the write.
    pub key: RegisterKey,
    /// Entry to deliver.
    pub entry: Entry,
    /// The entry's bytes, when its body is [`Body::Inline`](crate::entry::Body::Inline).
    pub inline: Option<Bytes>,
    /// As in [`EntryWrite::keep_body`].
    pub keep_body: bool,
    /// Time at which the handoff stored the hint, in milliseconds since 1970.
    pub since_ms: u64,
}

/// State of one register on a device, for callers that must find its newest entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Order and write id of the held entry, a tombstone included.
    pub held: Option<(Stamp, WriteId)>,
    /// The register's promise, without the device's floor.
    pub promise: Stamp,
    /// Order of the hint for the register's primaries, if any.
    pub hint: Option<Stamp>,
    /// True if the device holds a collectable tombstone (rule T1).
    pub collectable: bool,
}

/// Register that a device may drop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterDrop {
    /// Key of the register.
    pub key: RegisterKey,
    /// Highest order and promise: the register stays if its entry's order or its promise lies
    /// above.
    pub up_to: Stamp,
    /// True if the register may only be dropped as a collectable tombstone (rule T1).
    pub collectable: bool,
}

/// Selection of a device's registers to walk, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// Placement range on the index ring.
    pub span: Span,
    /// Single bin of the walk, if set.
    pub bin: Option<BinKey>,
    /// Parts of each register to return.
    pub want: Want,
}

/// Selection of a device's registers that a collector of tombstones visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgedWalk {
    /// Tombstones with a lower order are returned.
    pub tombstones_before: Stamp,
    /// Buckets of entries with a lower order are returned.
    pub buckets_before: Stamp,
    /// True if collectable tombstones and registers without an entry are visited too.
    pub thorough: bool,
}

/// A register that a collector may drop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgedRegister {
    /// Key of the register.
    pub key: RegisterKey,
    /// Order of its tombstone; none for a register without an entry.
    pub tombstone: Option<Stamp>,
}

/// A bucket of visited registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgedBucket {
    /// The bucket.
    pub bucket: BucketId,
    /// Highest order of its visited entries below [`AgedWalk::buckets_before`].
    pub order: Stamp,
    /// Number of these entries.
    pub entries: u64,
}

/// A page of a collector's walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgedPage {
    /// Old tombstones, and registers without an entry, in the order of their keys.
    pub aged: Vec<AgedRegister>,
    /// Buckets of the visited registers, each once for each run of them.
    pub buckets: Vec<AgedBucket>,
    /// Number of registers visited.
    pub visited: u64,
    /// Last register visited; none at the end of the device.
    pub next: Option<RegisterKey>,
}

impl AgedPage {
    /// Most registers that one call visits.
    pub const VISITED_MAX: u64 = 8192;

    /// Visits the next register of the walk. `held` is its entry's order, with true for a
    /// tombstone; `collectable` as in [`Holding::collectable`].
    pub fn visit(
        &mut self,
        walk: &AgedWalk,
        key: &RegisterKey,
        held: Option<(Stamp, bool)>,
        collectable: bool,
    ) {
        self.visited += 1;
        if (collectable || held.is_none()) && !walk.thorough {
            return;
        }
        let Some((order, is_tombstone)) = held else {
            self.aged.push(AgedRegister { key: key.clone(), tombstone: None });
            return;
        };
        if is_tombstone && order < walk.tombstones_before {
            self.aged.push(AgedRegister { key: key.clone(), tombstone: Some(order) });
        }
        if order < walk.buckets_before {
            match self.buckets.last_mut().filter(|last| last.bucket == key.bucket) {
                Some(last) => {
                    last.order = last.order.max(order);
                    last.entries += 1;
                }
                None => self.buckets.push(AgedBucket { bucket: key.bucket, order, entries: 1 }),
            }
        }
    }

    /// Returns true if the page is full.
    pub fn is_full(&self, limit: usize) -> bool {
        self.aged.len() >= limit || self.visited >= Self::VISITED_MAX
    }
}
