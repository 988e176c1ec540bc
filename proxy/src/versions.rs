//! Objects in versioned buckets (rules R4, R8).
//!
//! The current version of a key, an object or a delete marker, is stored in the key's register: its
//! *head*. Every other version has a register beside it. Every change of a key is a ballot on its
//! head:
//!
//! ```text
//! promise b ──▶ write beside the head, at order b ──▶ accept at b
//! ```
//!
//! * The version that a new head replaces is on a quorum beside the head before the new one is
//!   accepted. So any device may replace a head by a repair, hint or move.
//! * A removed version has its tombstone on a quorum before the head changes.
//! * A head counts as its version, whatever the register beside it holds: an old copy, or a
//!   tombstone of an unfinished removal.
//! * A locked version is not removed; its lock changes by ballots on the head too.
//! * Versions without an id share one register, and replace each other.
//!
//! * [`append`]: new versions; [`remove`]: permanent removal; [`revise`]: changes of metadata.
//! * [`beside`]: reads and writes beside a head; [`behind`]: positions behind a listed head.
//! * [`find`]: reads of one version; [`list`]: listings; [`store`]: the client that these share;
//!   [`reviser`]: clients' and operators' changes of metadata; [`operations`]: the operations of
//!   clients.

mod append;
mod behind;
mod beside;
mod find;
mod list;
mod operations;
mod remove;
mod revise;
mod reviser;
mod store;

pub(crate) use self::append::New;
pub(crate) use self::behind::Behind;
pub(crate) use self::find::{CompletedVersion, Trace, VersionRead, no_object};
pub use self::operations::Versions;
pub(crate) use self::remove::{Provided, VersionRemoval};
pub(crate) use self::revise::Revision;
pub(crate) use self::reviser::Reviser;
pub(crate) use self::store::VersionStore;
