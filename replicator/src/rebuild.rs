//! Rebuild of lost index partitions (rule X8), as a job of an operator.
//!
//! ```text
//! preview ──▶ accept: hold, votes ──▶ scan ──keys without an entry──▶ object layer ──▶ release
//! ```
//!
//! * [`loss`]: the hold on collection, and the devices that forgot; durable on the index.
//! * [`partitions`]: the partitions that lost most replicas, as [`ranges`].
//! * [`accept`]: votes for devices that no peer can fill.
//! * [`scan`]: extents that no entry names, in the lost partitions, by [`walks`] over all devices, with
//!   [`patience`].

mod accept;
pub(crate) mod loss;
mod partitions;
mod patience;
mod ranges;
mod scan;
mod walks;

pub use self::accept::{AcceptStage, AcceptedLoss, accept_loss, preview_loss};
pub use self::loss::{HOLD_SETTLES_MS, IndexLoss};
pub use self::partitions::LostPartitions;
pub use self::scan::{LostKeys, ScanFigures, ScanScope, UnknownBucket};

#[cfg(test)]
mod tests;
