//! Calls of a storage node as values, and their replies.
//!
//! A call borrows its arguments, so that a caller copies no key and no list. `Call<'static>` owns
//! them: a node decodes its requests to that form. The typed methods of
//! [`BackendExt`](super::BackendExt) build calls and unpack replies.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::claims::{ClaimsReply, ClaimsRequest};
use super::conditions::{
    DeleteCondition, DeviceCondition, ReleaseCondition, RingEpoch, StrayCondition,
};
use super::extents::{AuditResult, ExtentStat, Garbage, GarbageId, Presence, Sought};
use super::old_registers::{HeldBuckets, OldList, OldPage, OldPlace};
use super::quarantine::QuarantinePage;
use super::recent_hints::ArrivedHints;
use super::registers::{
    AgedPage, AgedWalk, BucketFence, EntryWrite, Hint, Holding, ListReply, ListRequest,
    PromiseReply, RegisterDrop, RegisterView, RowSelection, Walk, Want, WriteReply,
};
use crate::error::{Error, Result};
use crate::extent::{ExtentRecord, ExtentRef};
use crate::extent_sums::PolicySums;
use crate::id::{BucketId, ExtentId, PolicyId};
use crate::key::RegisterKey;
use crate::run_usage::{Run, RunUsage};
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// Defines [`Call`] and [`CallKind`] from one table. A row has a call's variant, its name in paths,
/// and its arguments. [`CallKind`] has the same variants in the same order, then the streams. A later
/// argument comes last and has `#[serde(default)]`: releases before it send none.
macro_rules! calls {
    (
        $($(#[$doc:meta])* $call:ident $name:literal
            $({ $($(#[$field:meta])* $argument:ident: $type:ty),* $(,)? })? $(($only:ty))?,)*
        --
        $($(#[$stream_doc:meta])* $stream:ident $stream_name:literal,)*
    ) => {
        /// A call of a storage node without a stream.
        ///
        /// Serialized, the fields of a variant are a request's arguments in their order on the wire.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "arguments are named as in the methods of `BackendExt`")]
        #[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each write")]
        pub enum Call<'a> {
            $($(#[$doc])* $call $({ $($(#[$field])* $argument: $type),* })? $(($only))?,)*
        }

        /// Kind of a call: a [`Call`] without its arguments, or a stream of an extent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
        pub enum CallKind {
            $($(#[$doc])* #[serde(rename = $name)] $call,)*
            $($(#[$stream_doc])* #[serde(skip)] $stream,)*
        }

        impl Call<'_> {
            /// Returns the kind of the call.
            pub fn kind(&self) -> CallKind {
                match self {
                    $(Self::$call { .. } => CallKind::$call,)*
                }
            }
        }

        impl CallKind {
            /// All kinds of a [`Call`].
            pub const CALLS: &[Self] = &[$(Self::$call),*];

            /// Returns the name of the kind, which paths of calls contain.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$call => $name,)*
                    $(Self::$stream => $stream_name,)*
                }
            }
        }
    };
}

calls! {
    /// Reads a register.
    Read "read" { key: Cow<'a, RegisterKey>, want: Want, term: Term },

    /// Writes an entry, plainly or as the second half of a ballot.
    Write "write" (EntryWrite),

    /// Promises to accept nothing below `ballot`, and returns the register's content.
    Promise "promise" { key: Cow<'a, RegisterKey>, ballot: Stamp, term: Term },

    /// Lists entries in the order of their names, tombstones included, merged over all requested
    /// shards.
    List "list" (Cow<'a, ListRequest>),

    /// Lists selected rows, as [`Call::List`]. A page ends with a
    /// [position](ListReply::end_at) after
    /// [`LIST_EMPTY_ROWS_MAX`](crate::limits::LIST_EMPTY_ROWS_MAX) rows that it passed over. So a
    /// long run of tombstones costs bounded calls and few bytes.
    ListRows "list-rows" { request: Cow<'a, ListRequest>, rows: RowSelection },

    /// Refuses first-hand writes to a bucket below the fence's generation (rule M2).
    Fence "fence" (BucketFence),

    /// Removes every register of a bucket that was deleted and fenced with `open: false`. Extents
    /// named by its entries become garbage. In the same step the bucket gets the [fence of a
    /// deleted bucket](BucketFence::of_deleted), which refuses all later writes.
    PurgeBucket "purge-bucket" (BucketId),

    /// Returns the record of an extent and its location on disk.
    StatExtent "stat-extent" (ExtentId),

    /// Deletes unowned extents, and remembers the deletion for a grace time. Until then a copy of a
    /// deleted extent is refused with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) (rule
    /// X4). Missing extents are no error. Readers that have an extent open finish. Sent by proxies for
    /// extents that they never named, by workers of releases before [`Call::DeleteUnneeded`], and by
    /// tests.
    DeleteExtents "delete-extents" (Cow<'a, [ExtentId]>),

    /// Returns the extents of a device with ids above `after`, in the order of their ids.
    ListExtents "list-extents" { after: Option<ExtentId>, limit: usize },

    /// Returns bodies left behind by entries superseded at or before `before_ms`, oldest first.
    Garbage "garbage" { before_ms: u64, limit: usize },

    /// Forgets garbage records after their extents were deleted.
    ForgetGarbage "forget-garbage" (Cow<'a, [GarbageId]>),

    /// Stores a first-hand write as a hint for primaries that are out (rule A2). A newer write of
    /// the same register replaces the hint; an older write returns [`WriteReply::Superseded`]. A device
    /// that may not use its votes refuses, without effect: it may lose the hint as it begins anew.
    KeepHint "keep-hint" (EntryWrite),

    /// Reads the hint for a register. Its promise is zero: a handoff makes no promises. As all calls
    /// that give hints away, refused by a device that has some and may not use its votes (rule G1).
    ReadHint "read-hint" { key: Cow<'a, RegisterKey>, want: Want },

    /// Lists hints instead of registers, as [`Call::List`].
    ListHints "list-hints" (Cow<'a, ListRequest>),

    /// Returns the hints of a device above `after`, in the order of their registers.
    Hints "hints" { after: Option<Cow<'a, RegisterKey>>, limit: usize },

    /// Forgets the hint for a register, unless its order is above `order`.
    ForgetHint "forget-hint" { key: Cow<'a, RegisterKey>, order: Stamp },

    /// Returns registers of a device above `after`, in their order, with inline bytes and
    /// tombstones included.
    Registers "registers" { after: Option<Cow<'a, RegisterKey>>, limit: usize },

    /// Returns the fences of a device in one reply of at most 64 MiB, which are 2.4 × 10⁶ deleted
    /// buckets. Sent by releases before [`Call::FencesAfter`], and by tests.
    Fences "fences",

    /// Promises for every register of a device to accept nothing below the floor (rule G2). A floor
    /// never falls. Sent by releases before [`Call::RaiseFloorOf`], and by tests.
    RaiseFloor "raise-floor" (Stamp),

    /// Grants a device its votes, or withdraws them (rule G1). A device without votes stores writes
    /// and answers [`WriteReply::Unvoted`]; it refuses reads, lists and promises. Sent by releases
    /// before [`Call::SetVotingOf`], and by tests.
    SetVoting "set-voting" (bool),

    /// Releases copies that other devices hold: as [`Call::DeleteExtents`], but the deletion isn't
    /// remembered. Sent by releases before [`Call::ReleaseCopies`], and by tests.
    ReleaseExtents "release-extents" (Cow<'a, [ExtentId]>),

    /// Returns for each extent, in the order of the ids, if the device holds it.
    Presence "presence" (Cow<'a, [ExtentId]>),

    /// Verifies extents above `after`, in the order of their ids, until `bytes_max` bytes were read
    /// (at least one extent). Corrupt extents go to quarantine.
    AuditExtents "audit-extents" { after: Option<ExtentId>, bytes_max: u64 },

    /// Returns the sums of the registers in each span, in the order of the spans (rule H1).
    Sums "sums" (Cow<'a, [Span]>),

    /// Returns non-empty bins of a span above `after`, in the order of (placement, bin key).
    Bins "bins" { span: Span, after: Option<BinKey>, limit: usize },

    /// Returns registers that hold an entry, above `after`; collectable tombstones are left out.
    Walk "walk" { walk: Walk, after: Option<Cow<'a, RegisterKey>>, limit: usize },

    /// Returns the device's state of each register, in the order of the keys, with or without
    /// votes.
    Holdings "holdings" (Cow<'a, [RegisterKey]>),

    /// Marks tombstones as collectable if the device holds a tombstone of exactly that order.
    /// Marked tombstones leave the sums and the walks. A later write removes the mark (rule T1).
    MarkCollectable "mark-collectable" (Cow<'a, [(RegisterKey, Stamp)]>),

    /// Drops registers that other devices hold or that are no longer needed. Nothing becomes
    /// garbage. Sent by releases before [`Call::DropStrays`], and by tests.
    DropRegisters "drop-registers" (Cow<'a, [RegisterDrop]>),

    /// Compares the stored sums with the registers, over some runs above the bin. A run that
    /// differs is counted as corrupt, and its sum is computed again (rule H1).
    AuditRegisters "audit-registers" (Option<BinKey>),

    /// Raises the term of a device; a term never falls (rule P3).
    RaiseTerm "raise-term" (Term),

    /// Records that a device holds everything that a numbered ring change moved to it (rule P2).
    /// The number never falls. Sent by releases before [`Call::SetJoinedOf`], and by tests.
    SetJoined "set-joined" (u64),

    /// Returns for each owner the extents that its entries need, on several devices of the node.
    /// The device of the call is one of them; each device answers for itself (rule X3).
    Claims "claims" (Cow<'a, ClaimsRequest>),

    /// Returns for each extent, in the order of the ids, its record or its absence.
    SeekExtents "seek-extents" (Cow<'a, [ExtentId]>),

    /// Returns garbage as [`Call::Garbage`], above a record: records that must wait hide nothing
    /// behind them.
    GarbageAfter "garbage-after" { after: Option<GarbageId>, before_ms: u64, limit: usize },

    /// Returns the old tombstones among some registers above `after`, in their order, and the
    /// buckets of these registers. Reads no inline bytes.
    Aged "aged" { walk: AgedWalk, after: Option<Cow<'a, RegisterKey>>, limit: usize },

    /// Returns the sums of the extents of all policies, or of one, in the bins that touch a span
    /// (rule X7). Quarantined extents and extents that are being written don't count.
    ExtentSums "extent-sums" { policy: Option<PolicyId>, spans: Cow<'a, [Span]> },

    /// Returns the usage of each run, in the order of the runs. `Unavailable` from a device that has
    /// not counted its registers yet.
    Usage "usage" { runs: Cow<'a, [Run]>, term: Term },

    /// Returns registers of a list above `after`, the oldest first. `Unavailable` from a device that
    /// has not listed its registers yet.
    OldRegisters "old-registers" { list: OldList, after: Option<OldPlace>, limit: usize },

    /// Returns buckets above `after` of which the device has an entry with an order below `before`.
    HeldBuckets "held-buckets" { before: Stamp, after: Option<BucketId>, limit: usize },

    /// [`Call::RaiseFloor`] of the device that the condition names.
    RaiseFloorOf "raise-floor-of" { condition: DeviceCondition, floor: Stamp },

    /// [`Call::SetVoting`] of the device that the condition names.
    SetVotingOf "set-voting-of" { condition: DeviceCondition, voting: bool },

    /// [`Call::SetJoined`] of the device that the condition names.
    SetJoinedOf "set-joined-of" { condition: DeviceCondition, change: u64 },

    /// Records that the device of the condition has received the fences of its peers. Until then it
    /// refuses first-hand writes and hints, without effect (rule M2).
    SetFencedOf "set-fenced-of" (DeviceCondition),

    /// Releases exactly these copies, while the condition holds (rule X9). The deletion isn't
    /// remembered. Missing copies, and copies with other bytes, are no error, and stay.
    ReleaseCopies "release-copies" {
        extents: Cow<'a, [ExtentRef]>,
        condition: Cow<'a, ReleaseCondition>,
    },

    /// [`Call::DropRegisters`] while the condition holds (rules P1, P3).
    DropStrays "drop-strays" { drops: Cow<'a, [RegisterDrop]>, condition: StrayCondition },

    /// Returns presences as [`Call::Presence`], by a node that has these rings or later ones. From then
    /// on the node releases none of these copies by an earlier ring (rule X9).
    PresenceBy "presence-by" { ids: Cow<'a, [ExtentId]>, rings: Cow<'a, [RingEpoch]> },

    /// Returns items in quarantine with names above `after`, in the order of their names.
    Quarantine "quarantine" { after: Option<Cow<'a, str>>, limit: usize },

    /// Returns fences of buckets above `after`, in the order of the ids. A page has at most
    /// [`FENCES_MAX`](crate::limits::FENCES_MAX) fences; a shorter one than its limit is the last.
    FencesAfter "fences-after" { after: Option<BucketId>, limit: usize },

    /// Returns the fences of these buckets, in the order of the ids given. Buckets without a fence are left
    /// out.
    FencesOf "fences-of" (Cow<'a, [BucketId]>),

    /// [`Call::DeleteExtents`] while the condition holds (rule X8).
    DeleteUnneeded "delete-unneeded" { ids: Cow<'a, [ExtentId]>, condition: DeleteCondition },

    /// Returns hints above the number `after` in the order of their arrival, among the last
    /// [`RECENT_HINTS_MAX`](super::RECENT_HINTS_MAX) that the device has stored since its opening. Without
    /// `after`, returns none, and the number of the last one. Refused as [`Call::ReadHint`].
    HintArrivals "hint-arrivals" { after: Option<u64>, limit: usize },

    --

    /// [`Backend::write_extent`](super::Backend::write_extent).
    WriteExtent "write-extent",

    /// [`Backend::read_extent`](super::Backend::read_extent).
    ReadExtent "read-extent",
}

impl Call<'_> {
    /// Returns the register of a call with exactly one.
    pub fn key(&self) -> Option<&RegisterKey> {
        match self {
            Self::Read { key, .. }
            | Self::Promise { key, .. }
            | Self::ReadHint { key, .. }
            | Self::ForgetHint { key, .. } => Some(key),
            Self::Write(write) | Self::KeepHint(write) => Some(&write.key),
            _ => None,
        }
    }

    /// Returns the write of [`Call::Write`] and [`Call::KeepHint`].
    pub fn entry_write(&self) -> Option<&EntryWrite> {
        match self {
            Self::Write(write) | Self::KeepHint(write) => Some(write),
            _ => None,
        }
    }

    /// Copies borrowed arguments, so that the call outlives its caller.
    pub fn into_owned(self) -> Call<'static> {
        match self {
            Self::Read { key, want, term } => Call::Read { key: own(key), want, term },
            Self::Write(write) => Call::Write(write),
            Self::Promise { key, ballot, term } => Call::Promise { key: own(key), ballot, term },
            Self::List(request) => Call::List(own(request)),
            Self::ListRows { request, rows } => Call::ListRows { request: own(request), rows },
            Self::Fence(fence) => Call::Fence(fence),
            Self::PurgeBucket(bucket) => Call::PurgeBucket(bucket),
            Self::StatExtent(id) => Call::StatExtent(id),
            Self::DeleteExtents(ids) => Call::DeleteExtents(own(ids)),
            Self::ListExtents { after, limit } => Call::ListExtents { after, limit },
            Self::Garbage { before_ms, limit } => Call::Garbage { before_ms, limit },
            Self::ForgetGarbage(garbage) => Call::ForgetGarbage(own(garbage)),
            Self::KeepHint(write) => Call::KeepHint(write),
            Self::ReadHint { key, want } => Call::ReadHint { key: own(key), want },
            Self::ListHints(request) => Call::ListHints(own(request)),
            Self::Hints { after, limit } => Call::Hints { after: after.map(own), limit },
            Self::ForgetHint { key, order } => Call::ForgetHint { key: own(key), order },
            Self::Registers { after, limit } => Call::Registers { after: after.map(own), limit },
            Self::Fences => Call::Fences,
            Self::RaiseFloor(floor) => Call::RaiseFloor(floor),
            Self::SetVoting(voting) => Call::SetVoting(voting),
            Self::ReleaseExtents(ids) => Call::ReleaseExtents(own(ids)),
            Self::Presence(ids) => Call::Presence(own(ids)),
            Self::AuditExtents { after, bytes_max } => Call::AuditExtents { after, bytes_max },
            Self::Sums(spans) => Call::Sums(own(spans)),
            Self::Bins { span, after, limit } => Call::Bins { span, after, limit },
            Self::Walk { walk, after, limit } => Call::Walk { walk, after: after.map(own), limit },
            Self::Holdings(keys) => Call::Holdings(own(keys)),
            Self::MarkCollectable(tombstones) => Call::MarkCollectable(own(tombstones)),
            Self::DropRegisters(drops) => Call::DropRegisters(own(drops)),
            Self::DropStrays { drops, condition } => {
                Call::DropStrays { drops: own(drops), condition }
            }
            Self::AuditRegisters(after) => Call::AuditRegisters(after),
            Self::RaiseTerm(term) => Call::RaiseTerm(term),
            Self::SetJoined(change) => Call::SetJoined(change),
            Self::Claims(request) => Call::Claims(own(request)),
            Self::SeekExtents(ids) => Call::SeekExtents(own(ids)),
            Self::GarbageAfter { after, before_ms, limit } => {
                Call::GarbageAfter { after, before_ms, limit }
            }
            Self::Aged { walk, after, limit } => Call::Aged { walk, after: after.map(own), limit },
            Self::ExtentSums { policy, spans } => Call::ExtentSums { policy, spans: own(spans) },
            Self::Usage { runs, term } => Call::Usage { runs: own(runs), term },
            Self::OldRegisters { list, after, limit } => Call::OldRegisters { list, after, limit },
            Self::HeldBuckets { before, after, limit } => {
                Call::HeldBuckets { before, after, limit }
            }
            Self::RaiseFloorOf { condition, floor } => Call::RaiseFloorOf { condition, floor },
            Self::SetVotingOf { condition, voting } => Call::SetVotingOf { condition, voting },
            Self::SetJoinedOf { condition, change } => Call::SetJoinedOf { condition, change },
            Self::SetFencedOf(condition) => Call::SetFencedOf(condition),
            Self::ReleaseCopies { extents, condition } => {
                Call::ReleaseCopies { extents: own(extents), condition: own(condition) }
            }
            Self::PresenceBy { ids, rings } => {
                Call::PresenceBy { ids: own(ids), rings: own(rings) }
            }
            Self::Quarantine { after, limit } => Call::Quarantine { after: after.map(own), limit },
            Self::FencesAfter { after, limit } => Call::FencesAfter { after, limit },
            Self::FencesOf(buckets) => Call::FencesOf(own(buckets)),
            Self::DeleteUnneeded { ids, condition } => {
                Call::DeleteUnneeded { ids: own(ids), condition }
            }
            Self::HintArrivals { after, limit } => Call::HintArrivals { after, limit },
        }
    }
}

fn own<T: ToOwned + ?Sized>(argument: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(argument.into_owned())
}

/// Defines [`Reply`], and the conversions between replies and their contents.
macro_rules! replies {
    ($($(#[$doc:meta])* $reply:ident($content:ty),)*) => {
        /// Result of a [`Call`].
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        #[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each read")]
        pub enum Reply {
            $($(#[$doc])* $reply($content),)*
        }

        $(
            impl From<$content> for Reply {
                fn from(content: $content) -> Self {
                    Self::$reply(content)
                }
            }

            impl TryFrom<Reply> for $content {
                type Error = Error;

                fn try_from(reply: Reply) -> Result<Self> {
                    match reply {
                        Reply::$reply(content) => Ok(content),
                        _ => Err(Error::internal("the reply belongs to another call")),
                    }
                }
            }
        )*
    };
}

replies! {
    /// Success of a call that returns nothing else.
    Done(()),
    /// Content of a register or a hint.
    View(RegisterView),
    /// Result of [`Call::Write`] and [`Call::KeepHint`].
    Write(WriteReply),
    /// Result of [`Call::Promise`].
    Promise(PromiseReply),
    /// Page of entries.
    List(ListReply),
    /// Page of registers.
    Registers(Vec<(RegisterKey, RegisterView)>),
    /// Page of hints.
    Hints(Vec<Hint>),
    /// Fences of a device.
    Fences(Vec<BucketFence>),
    /// Record and location of an extent.
    Stat(ExtentStat),
    /// Page of extents.
    Extents(Vec<ExtentRecord>),
    /// Presence of each extent.
    Presence(Vec<Presence>),
    /// Result of [`Call::AuditExtents`].
    ExtentAudit(AuditResult<ExtentId>),
    /// Page of garbage.
    Garbage(Vec<Garbage>),
    /// Sum of each span.
    Sums(Vec<Sum>),
    /// Page of bins.
    Bins(Vec<(BinKey, Sum)>),
    /// State of each register.
    Holdings(Vec<Holding>),
    /// Result of [`Call::AuditRegisters`].
    RegisterAudit(AuditResult<BinKey>),
    /// Reply of each device of [`Call::Claims`].
    Claims(Vec<ClaimsReply>),
    /// Record or absence of each extent.
    Sought(Vec<Sought>),
    /// Result of [`Call::Aged`].
    Aged(AgedPage),
    /// Result of [`Call::ExtentSums`].
    ExtentSums(Vec<PolicySums>),
    /// Usage of each run.
    Usage(Vec<RunUsage>),
    /// Result of [`Call::OldRegisters`].
    OldRegisters(OldPage),
    /// Result of [`Call::HeldBuckets`].
    HeldBuckets(HeldBuckets),
    /// Result of [`Call::Quarantine`].
    Quarantine(QuarantinePage),
    /// Result of [`Call::HintArrivals`].
    HintArrivals(ArrivedHints),
}
