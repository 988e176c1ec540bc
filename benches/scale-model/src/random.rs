//! Pseudo-random numbers that no version of a library changes: `SplitMix64`.

/// Generator of a sequence that its seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator.
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator of one of several independent sequences of a seed.
    pub(crate) fn of_sequence(seed: u64, sequence: u64) -> Self {
        let mut mixer = Self(seed ^ sequence.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(mixer.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number above 0 and up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns the time to the next event of a Poisson process; infinite at rate 0.
    pub(crate) fn exponential(&mut self, rate: f64) -> f64 {
        if rate > 0.0 { -self.unit().ln() / rate } else { f64::INFINITY }
    }

    /// Returns a whole number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_one_sequence_and_its_means_are_right() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50_000).map(move |_| random.exponential(4.0)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mean = draw(7).iter().sum::<f64>() / 50_000.0;
        assert!((mean - 0.25).abs() < 0.01, "{mean}");
        let mut random = Random::of_sequence(7, 1);
        let mut counts = [0u32; 5];
        (0..50_000).for_each(|_| counts[random.below(5) as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }
}
