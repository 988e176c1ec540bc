//! Hash trees: how two devices find out that they hold the same registers without telling them
//! (rule H1).
//!
//! ```text
//! span of placements          a partition of whatever ring
//!  └ run: bucket, shard       one placement, a sorted run of names
//!     └ bin: hash of the name one of 1,024
//!        └ leaf: keyed hash of register key, order and write id
//! ```
//!
//! A sum is the sum of its leaves' hashes and their number, so that one leaf can be taken out and
//! another put in without looking at the rest, and sums of parts add up to the sum of the whole.
//! Leaves are keyed with a secret of the cluster: a tenant can't craft names whose sums collide.
//!
//! Registers that hold no entry are no leaves, nor are tombstones that may be collected (rule T1).

use std::fmt;
use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::id::{BucketId, Shard, WriteId};
use crate::key::{RegisterKey, index_placement};
use crate::stamp::Stamp;

/// Bins of a run.
pub const BINS: u16 = 1024;

/// The secret that leaves are keyed with: the same in a whole cluster.
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
    /// The highest.
    pub last: u64,
}

impl Span {
    /// All placements.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Whether a placement lies in it.
    pub fn contains(&self, placement: u64) -> bool {
        (self.first..=self.last).contains(&placement)
    }
}

/// Which registers of a run: those whose names hash to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bin(pub u16);

/// One bin of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BinKey {
    /// The bucket.
    pub bucket: BucketId,
    /// Its shard.
    pub shard: Shard,
    /// The bin.
    pub bin: Bin,
}

impl BinKey {
    /// Where a register is summed up.
    pub fn of(key: &RegisterKey) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[key.kind as u8]);
        hasher.update(&key.name);
        let hash = hasher.finalize();
        let first = u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
        Self { bucket: key.bucket, shard: key.shard, bin: Bin(first % BINS) }
    }

    /// Where its run stands on the index ring.
    pub fn placement(&self) -> u64 {
        index_placement(self.bucket, self.shard)
    }
}

/// The sum of some leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sum {
    /// The sum of their hashes, modulo 2^128.
    pub hash: u128,
    /// How many they are, modulo 2^64.
    pub count: u64,
}

impl Sum {
    /// The sum of one leaf.
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
