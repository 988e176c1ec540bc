//! Replicate: what should be on a device is there, and what should not be goes, in this order.
//!
//! * [`registers`]: devices that share partitions of the index compare what they sum up to, and
//!   bring each other what differs; strays go once all who should have them do.
//! * [`extents`]: every primary of an extent gets a copy; strays go once all primaries have one.
//!
//! Both copy, verify, and only then let go, and both keep what somebody is silent about. Where they
//! stand is no secret worth keeping: begun anew, they look at everything once more.

mod compare;
pub(crate) mod copy;
mod extents;
mod failures;
pub(crate) mod judge;
mod mend;
pub(crate) mod places;
pub(crate) mod plan;
mod presence;
mod registers;
mod strays;

pub use self::extents::{ReplicateExtents, ReplicateOptions};
pub use self::registers::ReplicateRegisters;

#[cfg(test)]
pub(crate) mod testing;
