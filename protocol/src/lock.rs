//! Object locks: retention and legal holds, which prevent the removal of a version.
//!
//! Invariants:
//! * A version under a legal hold or an unexpired retention is not removed.
//! * A compliance retention is never shortened or removed before it expires. A governance retention
//!   is, by principals with the permission to bypass it. A legal hold can't be bypassed.
//! * A document that can't be decoded counts as a lock that can't be bypassed.
//!
//! * [`document`]: lock of one version, and the format of documents about locks.
//! * [`bucket`]: object lock configuration of a bucket.
//! * [`removal`]: decisions about removing a version and loosening its lock.

mod bucket;
mod document;
mod removal;

pub use self::bucket::{BucketLock, DefaultRetention, Period};
pub use self::document::{Lock, LockViolation, Retention, RetentionMode};
pub use self::removal::{Bypass, check_removal, check_removal_of, set_legal_hold, set_retention};
