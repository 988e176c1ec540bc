//! Replicate: copies missing data to its primaries, and then removes strays.
//!
//! * [`registers`]: devices that share partitions of the index compare their sums, and copy what
//!   differs to each other. Strays are dropped once all members have them.
//! * [`extents`]: every primary of an extent gets a copy; strays are released once all primaries
//!   have one.
//!
//! Both copy, verify, and only then release, and both keep data if a device is silent. Their
//! positions may be lost: a new walk checks everything once more.

pub(crate) mod agreement;
mod compare;
pub(crate) mod copy;
pub(crate) mod delete_marks;
mod extents;
mod failures;
mod misplaced;
mod partition_batch;
pub(crate) mod plan;
mod presence;
mod registers;
mod repair;
pub(crate) mod required_devices;

pub use self::extents::{ReplicateExtents, ReplicateOptions};
pub use self::registers::ReplicateRegisters;

#[cfg(test)]
pub(crate) mod testing;
