//! Sums of a device's extents, by storage policy, class and bin (rule X7).
//!
//! ```text
//! policy
//!  └ bin: the first bits of the placement, at most 24 of them
//!     └ class: copies, or one fragment of extents with as many data fragments
//!        └ leaf: hash of the whole extent's id
//! ```
//!
//! Holders of one partition compare their sums and visit the extents of bins that differ. Bins
//! divide placements evenly, so a partition of a ring with fewer bits consists of whole bins. All
//! fragments of an extent have one leaf. So homes of different fragments have equal sums, in the
//! classes in which both store a fragment.
//!
//! A sum adds up the hashes and counts them. Different sets of extents have equal sums with
//! probability 2⁻⁶⁴: ids are random, and no client chooses them. Sums cover ids alone: bytes are
//! the audit's task.
//!
//! A policy has at most [`BINS_MAX`] sums on a device. Beyond it each two neighbouring bins become
//! one, so memory is bounded whatever the number of extents and partitions.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::extent::{Layout, Stripe};
use crate::id::{ExtentId, PolicyId};
use crate::limits::BLOCK_BYTES;
use crate::tree::Span;

/// Most bits of a placement that choose a bin: those of the largest ring.
pub const BIN_POWER_MAX: u8 = 24;

/// Most sums of a policy on a device.
pub const BINS_MAX: usize = 65_536;

/// Extents of one policy that are compared with each other.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ExtentClass {
    /// Number of data fragments of the code; 0 for copies.
    pub k: u8,
    /// Number of parity fragments of the code; 0 for copies.
    pub m: u8,
    /// Number of data fragments with bytes: fragments without bytes are stored nowhere.
    pub needed: u8,
    /// Number of the fragment; 0 for copies.
    pub fragment: u8,
}

/// A bin and a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtentBin {
    /// First bits of the placements.
    pub bin: u32,
    /// Class of the extents.
    pub class: ExtentClass,
}

/// Sum of a set of extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExtentSum {
    /// Sum of the leaves' hashes, modulo 2^64.
    pub hash: u64,
    /// Number of leaves, modulo 2^32.
    pub count: u32,
}

/// Sums of one policy, without empty ones, in the order of bins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySums {
    /// The policy.
    pub policy: PolicyId,
    /// Number of bits that choose a bin: at most [`BIN_POWER_MAX`].
    pub power: u8,
    /// Sums that aren't empty.
    pub sums: Vec<(ExtentBin, ExtentSum)>,
}

/// Sums of all extents of a device, kept in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentSums(BTreeMap<PolicyId, Bins>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bins {
    power: u8,
    sums: BTreeMap<ExtentBin, ExtentSum>,
}

impl ExtentClass {
    /// Class of whole copies.
    pub const COPY: Self = Self { k: 0, m: 0, needed: 0, fragment: 0 };

    /// Returns the class of an extent or a fragment on a device.
    pub fn of(id: ExtentId, stripe: Option<Stripe>) -> Self {
        let Some(stripe) = stripe else { return Self::COPY };
        let Stripe { k, m, .. } = stripe;
        Self { k, m, needed: data_fragments(stripe), fragment: id.fragment_number() }
    }
}

/// Returns the number of data fragments with bytes.
fn data_fragments(Stripe { k, length, .. }: Stripe) -> u8 {
    let length = u64::from(length);
    if k == 0 {
        return 0;
    }
    let fragment = length.div_ceil(u64::from(k)).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
    u8::try_from(length.div_ceil(fragment)).unwrap_or(k)
}

impl ExtentSum {
    /// Returns the sum of one extent.
    pub fn leaf(id: ExtentId, stripe: Option<Stripe>) -> Self {
        let id = if stripe.is_some() { id.whole() } else { id };
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(&id.0).as_bytes()[..8]);
        Self { hash: u64::from_le_bytes(first), count: 1 }
    }
}

impl AddAssign for ExtentSum {
    fn add_assign(&mut self, other: Self) {
        self.hash = self.hash.wrapping_add(other.hash);
        self.count = self.count.wrapping_add(other.count);
    }
}

impl SubAssign for ExtentSum {
    fn sub_assign(&mut self, other: Self) {
        self.hash = self.hash.wrapping_sub(other.hash);
        self.count = self.count.wrapping_sub(other.count);
    }
}

/// Returns the placements of a bin of `power` bits.
pub fn bin_span(bin: u32, power: u8) -> Span {
    let below = u64::MAX.checked_shr(u32::from(power)).unwrap_or(0);
    let first = u64::from(bin).checked_shl(64 - u32::from(power)).unwrap_or(0);
    Span { first, last: first | below }
}

/// Returns the bin of a placement.
#[expect(clippy::cast_possible_truncation, reason = "at most 24 bits are left")]
fn bin_of(placement: u64, power: u8) -> u32 {
    placement.checked_shr(64 - u32::from(power)).unwrap_or(0) as u32
}

impl PolicySums {
    /// Returns the sums with `power` bits, at most those of this.
    #[must_use]
    pub fn folded(&self, power: u8) -> BTreeMap<ExtentBin, ExtentSum> {
        let shift = u32::from(self.power.saturating_sub(power));
        let mut sums = BTreeMap::new();
        for (at, sum) in &self.sums {
            let bin = ExtentBin { bin: at.bin.checked_shr(shift).unwrap_or(0), ..*at };
            *sums.entry(bin).or_insert_with(ExtentSum::default) += *sum;
        }
        sums
    }
}

impl ExtentSums {
    /// Restores saved sums.
    pub fn restore(saved: impl IntoIterator<Item = PolicySums>) -> Self {
        let policies = saved.into_iter().map(|PolicySums { policy, power, sums }| {
            let sums = sums.into_iter().collect();
            (policy, Bins { power: power.min(BIN_POWER_MAX), sums })
        });
        Self(policies.collect())
    }

    /// Adds an extent.
    pub fn add(&mut self, id: ExtentId, layout: Layout) {
        self.change(id, layout, |sum, leaf| *sum += leaf);
    }

    /// Takes out an extent that was added. The order of additions and removals doesn't matter.
    pub fn remove(&mut self, id: ExtentId, layout: Layout) {
        self.change(id, layout, |sum, leaf| *sum -= leaf);
    }

    fn change(
        &mut self,
        id: ExtentId,
        layout: Layout,
        apply: impl FnOnce(&mut ExtentSum, ExtentSum),
    ) {
        let empty = || Bins { power: BIN_POWER_MAX, sums: BTreeMap::new() };
        let bins = self.0.entry(layout.policy).or_insert_with(empty);
        let class = ExtentClass::of(id, layout.stripe);
        let at = ExtentBin { bin: bin_of(id.placement(), bins.power), class };
        let sum = bins.sums.entry(at).or_default();
        apply(sum, ExtentSum::leaf(id, layout.stripe));
        if *sum == ExtentSum::default() {
            bins.sums.remove(&at);
        }
        while bins.sums.len() > BINS_MAX && bins.power > 0 {
            bins.halve();
        }
    }

    /// Returns the sums of all policies, or of one, whose bins touch one of the spans.
    pub fn within(&self, policy: Option<PolicyId>, spans: &[Span]) -> Vec<PolicySums> {
        let is_wanted = |(it, _): &(&PolicyId, &Bins)| policy.is_none_or(|policy| policy == **it);
        let of = |(policy, bins): (&PolicyId, &Bins)| PolicySums {
            policy: *policy,
            power: bins.power,
            sums: bins.within(spans),
        };
        self.0.iter().filter(is_wanted).map(of).collect()
    }

    /// Returns all sums.
    pub fn all(&self) -> Vec<PolicySums> {
        self.within(None, &[Span::ALL])
    }
}

impl Bins {
    /// Joins each two neighbouring bins.
    fn halve(&mut self) {
        let mut halved = BTreeMap::new();
        for (at, sum) in &self.sums {
            let joined = ExtentBin { bin: at.bin >> 1, ..*at };
            *halved.entry(joined).or_insert_with(ExtentSum::default) += *sum;
        }
        halved.retain(|_, sum| *sum != ExtentSum::default());
        (self.power, self.sums) = (self.power - 1, halved);
    }

    fn within(&self, spans: &[Span]) -> Vec<(ExtentBin, ExtentSum)> {
        let mut bins: Vec<(u32, u32)> = spans
            .iter()
            .map(|span| (bin_of(span.first, self.power), bin_of(span.last, self.power)))
            .collect();
        bins.sort_unstable();
        let (mut next, mut found) = (0, Vec::new());
        for (first, last) in bins {
            let from = ExtentBin { bin: first.max(next), class: ExtentClass::COPY };
            let run = self.sums.range(from..).take_while(|(at, _)| at.bin <= last);
            found.extend(run.map(|(at, sum)| (*at, *sum)));
            next = next.max(last.saturating_add(1));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(placement: u64, rest: u64) -> ExtentId {
        let whole = (u128::from(placement) << 64) | u128::from(rest);
        ExtentId(whole.to_be_bytes())
    }

    fn layout(policy: u8, stripe: Option<Stripe>) -> Layout {
        Layout { policy: PolicyId(policy.into()), stripe }
    }

    #[test]
    fn homes_of_different_fragments_have_equal_sums() {
        for (k, m) in [(2_u8, 1), (4, 2), (8, 3)] {
            let mut devices = vec![ExtentSums::default(); usize::from(k + m)];
            for n in 0..300_u32 {
                let stripe = Stripe { k, m, length: 1 + n * 7001 };
                let needed = data_fragments(stripe);
                let whole = id(u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15), 7 << 5);
                for (fragment, device) in (0..k + m).zip(&mut devices) {
                    if fragment < needed || fragment >= k {
                        device.add(whole.fragment(fragment), layout(1, Some(stripe)));
                    }
                }
            }
            for needed in 1..=k {
                let of = |fragment: u8, device: &ExtentSums| {
                    let class = ExtentClass { k, m, needed, fragment };
                    let all = device.all().remove(0).sums;
                    let of_class = all.into_iter().filter(move |(at, _)| at.class == class);
                    of_class.map(|(at, sum)| (at.bin, sum)).collect::<Vec<_>>()
                };
                let sums: Vec<_> = (0..).zip(&devices).map(|(it, device)| of(it, device)).collect();
                for (fragment, sum) in (0..).zip(&sums) {
                    let stored = fragment < needed || fragment >= k;
                    assert!(if stored { *sum == sums[0] } else { sum.is_empty() }, "{needed}");
                }
            }
        }
    }

    #[test]
    fn bins_become_wider_and_never_more() {
        let mut sums = ExtentSums::default();
        let placements = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 0..200_000 {
            sums.add(id(placements(n), n), layout(0, None));
        }
        let all = sums.all().remove(0);
        assert!(all.sums.len() <= BINS_MAX && all.sums.len() > BINS_MAX / 4);
        assert_eq!(all.sums.iter().map(|(_, sum)| sum.count).sum::<u32>(), 200_000);
        for n in 0..200_000 {
            sums.remove(id(placements(n), n), layout(0, None));
        }
        assert!(sums.all()[0].sums.is_empty());
    }

    #[test]
    fn spans_of_bins_follow_one_another() {
        for power in [0, 1, 7, 16, 24] {
            let last = (1_u64 << power) - 1;
            assert_eq!(bin_span(0, power).first, 0);
            assert_eq!(bin_span(u32::try_from(last).unwrap(), power).last, u64::MAX);
            for placement in [0, 1, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
                assert!(bin_span(bin_of(placement, power), power).contains(placement));
            }
        }
    }

    proptest! {
        /// Sums after any additions and removals are those of the extents that are left. One extent
        /// more shows in its bin, and in no other.
        #[test]
        fn sums_are_those_of_the_extents_that_are_left(
            changes in prop::collection::vec((any::<u64>(), any::<u64>(), 0_u8..3, any::<bool>()), 1..60),
            power in 0_u8..=BIN_POWER_MAX,
        ) {
            let stripe = |policy| (policy > 0).then_some(Stripe { k: 4, m: 2, length: 900_000 });
            let (mut sums, mut left) = (ExtentSums::default(), ExtentSums::default());
            for (placement, rest, policy, stays) in &changes {
                sums.add(id(*placement, *rest), layout(*policy, stripe(*policy)));
                if *stays {
                    left.add(id(*placement, *rest), layout(*policy, stripe(*policy)));
                }
            }
            for (placement, rest, policy, _) in changes.iter().filter(|change| !change.3) {
                sums.remove(id(*placement, *rest), layout(*policy, stripe(*policy)));
            }
            let there = |sums: &ExtentSums| {
                sums.all().into_iter().filter(|it| !it.sums.is_empty()).collect::<Vec<_>>()
            };
            prop_assert_eq!(there(&sums), there(&left));
            prop_assert_eq!(ExtentSums::restore(sums.all()), sums.clone());
            let (placement, rest, policy, _) = changes[0];
            let mut other = sums.clone();
            other.add(id(placement, !rest), layout(policy, stripe(policy)));
            let of = |sums: &ExtentSums| sums.within(Some(PolicyId(policy.into())), &[Span::ALL]);
            let (mine, theirs) = (of(&sums).remove(0), of(&other).remove(0));
            let (mine, theirs) = (mine.folded(power), theirs.folded(power));
            let differ = |at: &&ExtentBin| mine.get(*at) != theirs.get(*at);
            let bins: Vec<u32> = theirs.keys().filter(differ).map(|at| at.bin).collect();
            prop_assert_eq!(bins, vec![bin_of(placement, power)]);
        }

        #[test]
        fn spans_select_the_bins_that_they_touch(
            placements in prop::collection::vec(any::<u64>(), 1..40),
            ends in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
        ) {
            let mut sums = ExtentSums::default();
            for placement in &placements {
                sums.add(id(*placement, 9), layout(0, None));
            }
            let spans: Vec<Span> =
                ends.iter().map(|(a, b)| Span { first: *a.min(b), last: *a.max(b) }).collect();
            let found: Vec<u32> =
                sums.within(None, &spans).remove(0).sums.iter().map(|(at, _)| at.bin).collect();
            let touches = |bin: u32| {
                let own = bin_span(bin, BIN_POWER_MAX);
                spans.iter().any(|span| span.first <= own.last && own.first <= span.last)
            };
            let mut expected: Vec<u32> = placements
                .iter()
                .map(|placement| bin_of(*placement, BIN_POWER_MAX))
                .filter(|bin| touches(*bin))
                .collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(found, expected);
        }
    }
}
