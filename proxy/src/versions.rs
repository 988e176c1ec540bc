//! Objects of which versions are kept (rules R4, R8).
//!
//! The current version of a key, an object or a delete marker, is in the key's register: its *head*.
//! Each other one is in a register beside it. All that changes a key is a ballot on its head:
//!
//! ```text
//! promise b ──▶ write beside the head, at order b ──▶ accept at b
//! ```
//!
//! * What a new head takes the place of is on a quorum beside it before the head is accepted. So
//!   whatever holds a head may have it replaced by any repair, hint or move.
//! * A version that is removed has its tombstone on a quorum before the head lets go of it.
//! * A head is the version that it is, whatever its register beside it says: a copy may be left there
//!   from before, or a tombstone by a removal that came no further.
//! * A version that is locked is not removed; its lock changes by ballots on the head, too.
//! * A version without an id is replaced by the next one without: it has one register for all.
//!
//! * [`append`]: a new version; [`remove`]: one goes for good; [`revise`]: what is said of one changes.
//! * [`beside`]: what they read and write beside a head.
//! * [`find`]: one version, read; [`list`]: all of them; [`enable`]: how a bucket comes to keep them.

mod append;
mod beside;
mod enable;
mod find;
mod list;
mod remove;
mod revise;

pub(crate) use self::append::New;
pub(crate) use self::find::no_object;
pub(crate) use self::remove::Provided;
pub(crate) use self::revise::Revision;
