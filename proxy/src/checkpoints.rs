//! Checkpoint sets: folders whose objects become visible together, in a view of the bucket.
//!
//! ```text
//! PUT of a marker ──▶ note what is current ──▶ pin each version ──▶ commit     (a generation)
//! GET in the view ──▶ newest committed generation ──▶ its version of the key
//! ```
//!
//! In the bucket itself nothing changes. A generation is a list of versions, its manifest; the
//! versions are pinned by marks, which the ballot of a removal honours. The record of a set changes
//! by compare-and-set alone.
//!
//! Invariants:
//! * What a committed generation names is pinned from before it is committed until long after it was
//!   withdrawn.
//! * One version of a marker makes at most one generation.
//! * The view reports what a quorum knows, or fails.
//!
//! * [`rules`] and [`pattern`]: rules of a bucket; [`pickle`], [`shard_index`] and [`check`]: what
//!   markers name; [`tenant_turns`]: bounds on the memory of that.
//! * [`records`]: states of generations; [`manifest`]: their objects; [`pins`]: marks.
//! * [`set_store`]: records and manifests in the companion bucket.
//! * [`marker`], [`commit`] and [`pinning`]: commits; [`view`] and [`page`]: reads.
//! * [`upkeep`], [`completion`], [`removal`], [`retention`] and [`passes`]: the worker's part.
//! * [`requests`]: requests of clients and operators; [`plan`]: what the worker will withdraw.

mod check;
mod commit;
mod completion;
mod manifest;
mod marker;
mod page;
mod passes;
mod pattern;
mod pickle;
mod pinning;
mod pins;
mod plan;
mod records;
mod removal;
mod requests;
mod retention;
mod rules;
mod series;
mod set_store;
mod shard_index;
mod tenant_turns;
mod unpinning;
mod upkeep;
mod view;

pub(crate) use self::commit::Committer;
#[cfg(test)]
pub(crate) use self::pins::SetId;
pub use self::plan::PlannedWithdrawal;
pub use self::records::{Generation, GenerationState};
pub use self::requests::{Checkpoints, NamedObject, NewCommit, SetState};
pub use self::rules::CheckpointRules;
pub(crate) use self::set_store::SetStore;
pub use self::set_store::is_companion;
pub use self::view::ViewedObject;
