//! MD5 for ETags, optimized for its chain of dependent steps.
//!
//! Each of the 64 steps needs the word of the previous step, so the number of operations between
//! two words limits the speed. Terms that don't depend on the newest word are therefore added
//! first. In the second round, the two halves of the choice share no bit, so they are added
//! separately instead of being joined first. MD5 is not used for security: S3 requires it, and
//! Martlet's own checks are BLAKE3 and CRC32C.
//!
//! Concurrent bodies share the lanes of the CPU's vectors: [`lanes`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod kernel;
pub(crate) mod lanes;
#[cfg(test)]
pub(crate) mod tests;

/// Bytes of one block.
pub(crate) const BLOCK: usize = 64;

/// First 32 fractional bits of |sin(i + 1)|, for each step i.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];
/// Rotation of each step in a round, in bits.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
/// Index of a round's first word, and its stride.
const STRIDES: [(usize, usize); 4] = [(0, 1), (1, 5), (5, 3), (0, 7)];

/// MD5 of all bytes so far.
#[derive(Clone)]
pub(crate) struct Md5 {
    state: [u32; 4],
    block: [u8; BLOCK],
    length: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Self { state, block: [0; BLOCK], length: 0 }
    }
}

impl Md5 {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        let filled = self.filled();
        self.length = self.length.wrapping_add(bytes.len() as u64);
        if filled > 0 {
            let taken = bytes.len().min(BLOCK - filled);
            self.block[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if filled + taken < BLOCK {
                return;
            }
            compress(&mut self.state, &[self.block]);
        }
        let (blocks, rest) = bytes.as_chunks();
        compress(&mut self.state, blocks);
        self.block[..rest.len()].copy_from_slice(rest);
    }

    pub(crate) fn finish(mut self) -> [u8; 16] {
        let (filled, bits) = (self.filled(), self.length.wrapping_mul(8));
        self.block[filled] = 0x80;
        self.block[filled + 1..].fill(0);
        if filled >= BLOCK - 8 {
            compress(&mut self.state, &[self.block]);
            self.block.fill(0);
        }
        self.block[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
        compress(&mut self.state, &[self.block]);
        let mut md5 = [0; 16];
        for (bytes, word) in md5.as_chunks_mut().0.iter_mut().zip(self.state) {
            *bytes = word.to_le_bytes();
        }
        md5
    }

    /// Number of bytes, of `available` ones, to add by [`Self::update`] before whole blocks follow.
    pub(crate) fn unaligned(&self, available: usize) -> usize {
        match self.filled() {
            0 if available >= BLOCK => 0,
            filled => available.min(BLOCK - filled),
        }
    }

    fn filled(&self) -> usize {
        usize::try_from(self.length % BLOCK as u64).expect("less than a block")
    }
}

fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
    // A compiler that knows the constants would add them last, which lengthens the chain.
    let sines = std::hint::black_box(&SINES);
    for block in blocks {
        let (bytes, _) = block.as_chunks();
        let words: [u32; 16] = std::array::from_fn(|at| u32::from_le_bytes(bytes[at]));
        let before = *state;
        let add = u32::wrapping_add;
        *state = round::<0>(*state, sines, &words, |sum, b, c, d| add(sum, d ^ (b & (c ^ d))));
        *state = round::<1>(*state, sines, &words, |sum, b, c, d| add(add(sum, !d & c), d & b));
        *state = round::<2>(*state, sines, &words, |sum, b, c, d| add(sum, (c ^ d) ^ b));
        *state = round::<3>(*state, sines, &words, |sum, b, c, d| add(sum, c ^ (b | !d)));
        for (word, before) in state.iter_mut().zip(before) {
            *word = add(*word, before);
        }
    }
}

/// Sixteen steps. `mix` adds the combination of the three newer words; its second argument is the
/// newest.
#[inline]
fn round<const ROUND: usize>(
    [mut a, mut b, mut c, mut d]: [u32; 4],
    sines: &[u32; 64],
    words: &[u32; 16],
    mix: impl Fn(u32, u32, u32, u32) -> u32,
) -> [u32; 4] {
    let (first, stride) = STRIDES[ROUND];
    for step in 0..16 {
        let word = words[(first + stride * step) % 16];
        let known = a.wrapping_add(sines[16 * ROUND + step]).wrapping_add(word);
        let newest = mix(known, b, c, d).rotate_left(TURNS[ROUND][step % 4]).wrapping_add(b);
        (a, b, c, d) = (d, newest, b, c);
    }
    [a, b, c, d]
}
