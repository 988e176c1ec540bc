//! Erasure codes `k+m`, and numbers of fragments.
//!
//! Fragments 0 up to k hold the data, k up to k+m the parity. Any k fragments restore the others.

use std::fmt;

use martlet_protocol::limits::{BLOCK_BYTES, EXTENT_BYTES_MAX, FRAGMENTS_MAX};
use martlet_protocol::{Error, Redundancy, Result};

/// Longest fragment under any code, in bytes.
pub const FRAGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Most parity of an extent, in bytes: the encoder keeps parity in memory, and it should fit into
/// the CPU's cache.
const PARITY_BYTES_MAX: u64 = 8 * 1024 * 1024;

const _: () = {
    assert!(FRAGMENT_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
    assert!(FRAGMENT_BYTES_MAX <= EXTENT_BYTES_MAX);
    assert!((PARITY_BYTES_MAX / FRAGMENTS_MAX as u64).is_multiple_of(BLOCK_BYTES));
    assert!(FRAGMENTS_MAX as u32 <= u32::BITS, "a set of fragments is a word");
};

/// An erasure code: k data fragments and m parity fragments.
///
/// Invariant: 1 ≤ k, 1 ≤ m, k+m ≤ [`FRAGMENTS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    k: u8,
    m: u8,
}

impl Code {
    /// Creates the code `k+m`, if [`Redundancy::erasure`] allows it.
    pub fn new(k: u8, m: u8) -> Result<Self> {
        Redundancy::erasure(k, m)?;
        Ok(Self { k, m })
    }

    /// Returns the code of a redundancy; none for copies.
    pub fn of(redundancy: Redundancy) -> Result<Option<Self>> {
        match redundancy {
            Redundancy::Replicated => Ok(None),
            Redundancy::Erasure { k, m } => Self::new(k, m).map(Some),
        }
    }

    /// Number of data fragments; any `k` fragments restore an extent.
    pub fn k(self) -> u8 {
        self.k
    }

    /// Number of parity fragments; any `m` fragments may be lost.
    pub fn m(self) -> u8 {
        self.m
    }

    /// Number of all fragments.
    pub fn total(self) -> u8 {
        self.k + self.m
    }

    /// Longest fragment under this code, in bytes: the more parity, the shorter.
    pub fn fragment_bytes_max(self) -> u64 {
        (PARITY_BYTES_MAX / u64::from(self.m).next_power_of_two()).min(FRAGMENT_BYTES_MAX)
    }

    /// Longest extent under this code, in bytes.
    pub fn extent_bytes_max(self) -> u64 {
        (u64::from(self.k) * self.fragment_bytes_max()).min(EXTENT_BYTES_MAX)
    }

    /// Returns the fragment with the number `index`, or an error if the code has none.
    pub fn fragment(self, index: u8) -> Result<FragmentIndex> {
        if index < self.total() {
            return Ok(FragmentIndex(index));
        }
        Err(Error::invalid(format!("the code {self} has no fragment {index}")))
    }

    /// Data and parity fragments, in order.
    pub fn fragments(self) -> impl DoubleEndedIterator<Item = FragmentIndex> + Clone {
        (0..self.total()).map(FragmentIndex)
    }

    /// Data fragments, in the order of the extent's bytes.
    pub fn data(self) -> impl DoubleEndedIterator<Item = FragmentIndex> + Clone {
        (0..self.k).map(FragmentIndex)
    }

    /// Parity fragments.
    pub fn parity(self) -> impl DoubleEndedIterator<Item = FragmentIndex> + Clone {
        (self.k..self.total()).map(FragmentIndex)
    }

    /// True if `fragment` holds data.
    pub fn is_data(self, fragment: FragmentIndex) -> bool {
        fragment.0 < self.k
    }

    pub(crate) fn check(self, fragment: FragmentIndex) -> Result<()> {
        self.fragment(fragment.0).map(|_| ())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.k, self.m)
    }
}

/// Number of a fragment: 0 up to k for data, k up to k+m for parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FragmentIndex(pub u8);

impl FragmentIndex {
    pub(crate) fn at(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for FragmentIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fragment {}", self.0)
    }
}

/// A set of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fragments(u32);

impl Fragments {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a fragment. Numbers from 32 up are ignored, since no code has them.
    pub fn insert(&mut self, fragment: FragmentIndex) {
        self.0 |= Self::bit(fragment);
    }

    /// True if the set contains `fragment`.
    pub fn contains(self, fragment: FragmentIndex) -> bool {
        self.0 & Self::bit(fragment) != 0
    }

    /// Number of fragments.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns this set without `others`.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Fragments in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = FragmentIndex> {
        (0..FRAGMENTS_MAX).map(FragmentIndex).filter(move |fragment| self.contains(*fragment))
    }

    fn bit(fragment: FragmentIndex) -> u32 {
        1u32.checked_shl(u32::from(fragment.0)).unwrap_or(0)
    }
}

impl FromIterator<FragmentIndex> for Fragments {
    fn from_iter<T: IntoIterator<Item = FragmentIndex>>(fragments: T) -> Self {
        fragments.into_iter().fold(Self::NONE, |mut set, fragment| {
            set.insert(fragment);
            set
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_both_kinds_and_32_at_most() {
        for k in 0..=u8::MAX {
            for m in 0..=u8::MAX {
                let fits = k > 0 && m > 0 && usize::from(k) + usize::from(m) <= 32;
                assert_eq!(Code::new(k, m).is_ok(), fits, "{k}+{m}");
            }
        }
    }

    #[test]
    fn extents_are_as_long_as_fragments_and_the_protocol_allow() {
        let max = |k, m| Code::new(k, m).unwrap().extent_bytes_max();
        assert_eq!(max(1, 1), 4 << 20);
        assert_eq!(max(4, 2), 16 << 20);
        assert_eq!(max(8, 3), 16 << 20);
        assert_eq!(max(16, 4), 32 << 20);
        assert_eq!(max(31, 1), EXTENT_BYTES_MAX);
        assert_eq!(Code::new(1, 31).unwrap().fragment_bytes_max(), 256 << 10);
    }

    #[test]
    fn fragments_are_numbered_data_first() {
        let code = Code::new(4, 2).unwrap();
        let numbers = |fragments: Vec<FragmentIndex>| -> Vec<u8> {
            fragments.into_iter().map(|fragment| fragment.0).collect()
        };
        assert_eq!(numbers(code.data().collect()), [0, 1, 2, 3]);
        assert_eq!(numbers(code.parity().collect()), [4, 5]);
        assert_eq!(numbers(code.fragments().collect()), [0, 1, 2, 3, 4, 5]);
        assert!(code.is_data(FragmentIndex(3)) && !code.is_data(FragmentIndex(4)));
        assert!(code.fragment(5).is_ok() && code.fragment(6).is_err());
        assert_eq!(code.to_string(), "4+2");
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut set: Fragments = [FragmentIndex(31), FragmentIndex(0)].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [FragmentIndex(0), FragmentIndex(31)]);
        set.insert(FragmentIndex(32));
        set.insert(FragmentIndex(255));
        assert_eq!(set.len(), 2, "no code has those");
        assert!(!set.contains(FragmentIndex(32)) && !set.contains(FragmentIndex(255)));
        let zero: Fragments = [FragmentIndex(0)].into_iter().collect();
        assert!(!set.without(zero).contains(FragmentIndex(0)));
        assert!(zero.without(set).is_empty());
    }
}
