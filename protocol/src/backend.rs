//! The backend trait: every call of a storage node.
//!
//! A node serves several devices, and every call names its device. Index calls read and write
//! registers; extent calls read and write immutable bytes. A node checks neither placement nor
//! order between proposers: the ring decides which device holds a register or extent, and the
//! proposer decides which write wins.
//!
//! * `contract`: [`Backend`], with the guarantees of every implementation.
//! * `call`: [`Call`], a call without a stream as a value, with the invariants of each, and
//!   [`Reply`].
//! * `ext`: [`BackendExt`], a typed method for each call; `reply_future`: [`ReplyFuture`], what these
//!   methods return.
//! * `conditions`: conditions of calls that must not come late.
//! * `claims`, `devices`, `extents`, `old_registers`, `quarantine`, `registers`: types of arguments and results.
//! * `recent_hints`: hints in the order of their arrival, as both kinds of devices number them.

mod call;
mod claims;
mod conditions;
mod contract;
mod devices;
mod ext;
mod extent_hashes;
mod extents;
mod old_registers;
mod quarantine;
mod recent_hints;
mod registers;
mod reply_future;

pub use self::call::{Call, CallKind, Reply};
pub use self::claims::{
    CLAIM_EXTENTS_MAX, CLAIM_ROWS_MAX, ClaimPart, ClaimSource, ClaimState, ClaimsReply,
    ClaimsRequest, DeviceClaims, OwnerClaim, SpilledManifest,
};
pub use self::conditions::{
    DeleteCondition, DeviceCondition, ReleaseCondition, RingEpoch, RingEpochs, StrayCondition,
};
pub use self::contract::{Backend, ByteStream};
pub use self::devices::{DeviceHealth, DeviceStatus};
pub use self::ext::BackendExt;
pub use self::extent_hashes::{ExtentHasher, ExtentHashes, SentHashes};
pub use self::extents::{AuditResult, ExtentStat, Garbage, GarbageId, NewExtent, Presence, Sought};
pub use self::old_registers::{HeldBuckets, OldKind, OldList, OldPage, OldPlace, OldRegister};
pub use self::quarantine::{QuarantineKind, QuarantinePage, QuarantinedItem};
pub use self::recent_hints::{ArrivedHints, RECENT_HINTS_MAX, RecentHints, RecentPage};
pub use self::registers::{
    AgedBucket, AgedPage, AgedRegister, AgedWalk, BucketFence, Detail, EntryWrite, Hint, Holding,
    ListReply, ListRequest, ListStart, PromiseReply, RegisterDrop, RegisterView, RowKinds,
    RowSelection, Walk, Want, WriteReply,
};
pub use self::reply_future::ReplyFuture;
