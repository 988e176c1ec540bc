//! Lists of registers that a collector may drop, by time, and buckets that a device has.

use serde::{Deserialize, Serialize};

use super::registers::AgedBucket;
use crate::id::BucketId;
use crate::key::RegisterKey;
use crate::stamp::Stamp;

/// Kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OldKind {
    /// Tombstones, marked or not, by their order.
    Tombstones,
    /// Registers without an entry, by their promise.
    Promises,
}

/// Selection of listed registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldList {
    /// The list.
    pub kind: OldKind,
    /// Stamp above all returned registers' order or promise.
    pub before: Stamp,
}

/// Place in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OldPlace {
    /// Order or promise of the register.
    pub at: Stamp,
    /// The register.
    pub key: RegisterKey,
}

/// A listed register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldRegister {
    /// Its place in the list.
    pub place: OldPlace,
    /// True for a collectable tombstone, as in [`Holding::collectable`](super::Holding).
    pub collectable: bool,
}

/// Page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldPage {
    /// Registers from the oldest on.
    pub registers: Vec<OldRegister>,
    /// Last place that was looked at; none at the end of the list.
    pub next: Option<OldPlace>,
}

/// Page of the buckets that a device has registers of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBuckets {
    /// Buckets with an entry that is old enough, with the order of the first one found.
    pub buckets: Vec<AgedBucket>,
    /// Last bucket that was looked at; none at the end of the device.
    pub next: Option<BucketId>,
}
