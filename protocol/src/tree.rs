//! Hash trees: comparison of two devices' registers by sums (rule H1).
//!
//! ```text
//! span of placements          a partition of any ring
//!  └ run: bucket, shard       one placement, a sorted run of names
//!     └ bin: hash of the name one of 1,024
//!        └ leaf: keyed hash of register key, order and write id
//! ```
//!
//! A sum adds up its leaves' hashes and counts them. So a leaf can be replaced without reading the
//! others, and the sums of parts add up to the sum of the whole. Leaves are keyed with a secret of
//! the cluster: a tenant can't craft names whose sums collide.
//!
//! Registers without an entry and collectable tombstones (rule T1) are not leaves.

use std::fmt;
use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::id::{BucketId, Shard, WriteId};
use crate::key::{RegisterKey, index_placement};
use crate::stamp::Stamp;

/// Number of bins in a run.
pub const BINS: u16 = 1024;

/// The key of leaf hashes, shared by the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeKey(pub [u8; 32]);

impl fmt::Debug for TreeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TreeKey(…)")
    }
}

/// Placements from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The lowest placement.
    pub first: u64,
    /// The highest placement.
    pub last: u64,
}

impl Span {
    /// All placements.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// True if a placement lies in the span.
    pub fn contains(&self, placement: u64) -> bool {
        (self.first..=self.last).contains(&placement)
    }
}

/// Bin of a run: the registers whose names hash to this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bin(pub u16);

/// One bin of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BinKey {
    /// Bucket of the run.
    pub bucket: BucketId,
    /// Shard of the run.
    pub shard: Shard,
    /// Bin within the run.
    pub bin: Bin,
}

impl BinKey {
    /// Returns the bin of a register.
    pub fn of(key: &RegisterKey) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[key.kind as u8]);
        hasher.update(&key.name);
        let hash = hasher.finalize();
        let first = u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
        Self { bucket: key.bucket, shard: key.shard, bin: Bin(first % BINS) }
    }

    /// Position of the run on the index ring.
    pub fn placement(&self) -> u64 {
        index_placement(self.bucket, self.shard)
    }
}

/// Sum of a set of leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sum {
    /// Sum of the leaves' hashes, modulo 2^128.
    pub hash: u128,
    /// Number of leaves, modulo 2^64.
    pub count: u64,
}

impl Sum {
    /// Returns the sum of one leaf.
    pub fn leaf(secret: &TreeKey, key: &RegisterKey, order: Stamp, write_id: WriteId) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(&order.to_bytes());
        hasher.update(&write_id.0);
        hasher.update(&RegisterKey::prefix(key.bucket, key.shard, key.kind));
        hasher.update(&key.name);
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self { hash: u128::from_le_bytes(hash), count: 1 }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.hash = self.hash.wrapping_add(other.hash);
        self.count = self.count.wrapping_add(other.count);
    }
}

impl SubAssign for Sum {
    fn sub_assign(&mut self, other: Self) {
        self.hash = self.hash.wrapping_sub(other.hash);
        self.count = self.count.wrapping_sub(other.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_taken_out_leaves_the_sum_of_the_others() {
        let bucket = BucketId::random();
        let leaf = |name: &str, order| {
            let key = RegisterKey::object(bucket, 4, name);
            Sum::leaf(&TreeKey([7; 32]), &key, Stamp::at_ms(order), WriteId([1; 16]))
        };
        let mut all = Sum::default();
        for order in 1..100 {
            all += leaf("a", order);
        }
        let mut others = Sum::default();
        for order in (1..100).filter(|order| *order != 50) {
            others += leaf("a", order);
        }
        all -= leaf("a", 50);
        assert_eq!((all, all.count), (others, 98));
        assert_ne!(leaf("a", 1), leaf("b", 1));
        assert_ne!(leaf("a", 1), leaf("a", 2));
    }

    #[test]
    fn leaves_depend_on_the_secret_and_the_write() {
        let key = RegisterKey::object(BucketId::random(), 1, "k");
        let order = Stamp::at_ms(5);
        let sum = |secret, id| Sum::leaf(&TreeKey([secret; 32]), &key, order, WriteId([id; 16]));
        assert_eq!(sum(1, 1), sum(1, 1));
        assert_ne!(sum(1, 1), sum(2, 1));
        assert_ne!(sum(1, 1), sum(1, 2));
    }

    #[test]
    fn names_spread_over_the_bins() {
        let bucket = BucketId::random();
        let bins: std::collections::BTreeSet<_> = (0..10_000)
            .map(|n| BinKey::of(&RegisterKey::object(bucket, 1, &format!("key-{n}"))).bin)
            .collect();
        assert!(bins.len() > 1000 && bins.iter().all(|bin| bin.0 < BINS));
    }
}
