//! Seeded pseudo-random numbers: a seed gives the same ring on every machine and in every version.

/// `SplitMix64`: small, quick, and good enough to break ties.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be zero.
    #[inline]
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        let wide = (self.next() >> 32) * u64::from(bound);
        u32::try_from(wide >> 32).expect("a product's upper half is below its factors")
    }

    /// All partitions of a ring once, in pseudo-random order.
    pub(super) fn walk(&mut self, part_power: u8) -> impl Iterator<Item = u32> + use<> {
        let count = 1u32 << part_power;
        let (start, key) = (self.below(u32::MAX), self.next());
        (0..count).map(move |step| scatter(step.wrapping_add(start) & (count - 1), part_power, key))
    }
}

/// A permutation of the numbers below `2^bits`: multiplying by an odd number and folding the upper
/// half onto the lower are both invertible.
fn scatter(number: u32, bits: u8, key: u64) -> u32 {
    if bits == 0 {
        return 0;
    }
    let mask = (1u32 << bits) - 1;
    let mut mixed = number;
    for round in 0..3 {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the key will do")]
        let odd = (key >> (round * 16)) as u32 | 1;
        mixed = mixed.wrapping_mul(odd.wrapping_mul(0x9e37_79b1)) & mask;
        mixed ^= mixed >> (u32::from(bits) / 2).max(1);
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_every_partition_once() {
        for part_power in 0..12 {
            let mut seen: Vec<u32> = SplitMix64::new(7).walk(part_power).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..1 << part_power).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        // Golden value: other numbers would change the rings of old seeds.
        assert_eq!(SplitMix64::new(1).next(), 0x910a_2dec_8902_5cc1);
        let mut chance = SplitMix64::new(3);
        assert!((0..1000).all(|_| chance.below(7) < 7));
    }
}
