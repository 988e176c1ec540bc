//! MD5 against known values and another implementation, alone and in lanes.

use md5::Digest as _;
use proptest::prelude::*;

use super::lanes::{Lane, lanes_max};
use super::*;

/// A generator of random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    /// Up to `length_max` bytes.
    pub(crate) fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        let length = self.below(length_max + 1);
        (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.below(1 << 32)).unwrap()
    }

    fn blocks(&mut self, count: usize) -> Vec<[u8; BLOCK]> {
        (0..count).map(|_| std::array::from_fn(|_| self.word().to_le_bytes()[1])).collect()
    }
}

fn of(pieces: &[&[u8]]) -> [u8; 16] {
    let mut md5 = Md5::default();
    for piece in pieces {
        md5.update(piece);
    }
    md5.finish()
}

#[test]
fn known_values() {
    assert_eq!(hex::encode(of(&[])), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(hex::encode(of(&[b"a", b"bc"])), "900150983cd24fb0d6963f7d28e17f72");
    let digits = b"1234567890".repeat(8);
    assert_eq!(hex::encode(of(&[&digits])), "57edf4a22be3c955ac49da2e2107b67a");
}

#[test]
fn every_length_around_a_block_is_padded_as_it_should_be() {
    for length in 0..300 {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        assert_eq!(of(&[&bytes])[..], md5::Md5::digest(&bytes)[..], "{length} bytes");
    }
}

proptest! {
    #[test]
    fn chunks_of_any_length_match_another_implementation(
        pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..400), 0..8,
        ),
    ) {
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(&of(&slices)[..], &md5::Md5::digest(pieces.concat())[..]);
    }
}

/// The test suite of RFC 1321.
const SUITE: [(&str, &str); 7] = [
    ("", "d41d8cd98f00b204e9800998ecf8427e"),
    ("a", "0cc175b9c0f1b6a831c399e269772661"),
    ("abc", "900150983cd24fb0d6963f7d28e17f72"),
    ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
    ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
    (
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
        "d174ab98d277d9f5a5611c2c9f419d9f",
    ),
    (
        "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
        "57edf4a22be3c955ac49da2e2107b67a",
    ),
];

/// Adds the next bytes of all bodies: whole blocks in lanes, until one body has less than a block.
fn advance(md5s: &mut [Md5], rests: &mut [&[u8]]) {
    for (md5, rest) in md5s.iter_mut().zip(&mut *rests) {
        let (first, others) = rest.split_at(md5.unaligned(rest.len()));
        md5.update(first);
        *rest = others;
    }
    let count = rests.iter().map(|rest| rest.len() / BLOCK).min().unwrap_or(0);
    if count == 0 {
        return;
    }
    let mut lanes = Vec::with_capacity(md5s.len());
    for (md5, &rest) in md5s.iter_mut().zip(rests.iter()) {
        let (blocks, _) = rest.as_chunks();
        lanes.push(Lane { md5, blocks: &blocks[..count] });
    }
    lanes::update(&mut lanes);
    for rest in rests {
        *rest = &rest[count * BLOCK..];
    }
}

#[test]
fn the_suite_of_the_rfc_alone_and_in_lanes() {
    for (text, expected) in SUITE {
        assert_eq!(hex::encode(of(&[text.as_bytes()])), expected);
        let mut md5s = vec![Md5::default(); lanes_max()];
        let mut rests = vec![text.as_bytes(); lanes_max()];
        while rests.iter().any(|rest| !rest.is_empty()) {
            advance(&mut md5s, &mut rests);
        }
        for md5 in md5s {
            assert_eq!(hex::encode(md5.finish()), expected);
        }
    }
}

#[test]
fn random_bodies_in_lanes_match_another_implementation() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let count = 1 + random.below(lanes_max());
        let mut md5s = vec![Md5::default(); count];
        let mut wholes = vec![Vec::new(); count];
        for _ in 0..random.below(6) {
            let chunk = |_| [vec![7; 2 * BLOCK], random.bytes(700)].concat();
            let chunks: Vec<Vec<u8>> = (0..count).map(chunk).collect();
            let mut rests: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            advance(&mut md5s, &mut rests);
            for (md5, rest) in md5s.iter_mut().zip(rests) {
                md5.update(rest);
            }
            for (whole, chunk) in wholes.iter_mut().zip(chunks) {
                whole.extend(chunk);
            }
        }
        for (md5, whole) in md5s.into_iter().zip(wholes) {
            assert_eq!(md5.finish()[..], md5::Md5::digest(&whole)[..], "seed {seed}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod kernels {
    use multiversion::multiversion;
    use multiversion::target::match_target;

    use super::*;
    use crate::md5::{avx2, avx512};

    type States<'a> = &'a mut [[u32; 4]];
    type Blocks<'a> = &'a [&'a [[u8; BLOCK]]];
    type Kernel = fn(States<'_>, Blocks<'_>);

    /// Compresses with a kernel, however few the bodies, on a CPU that has it.
    macro_rules! forced {
        ($name:ident, $target:literal) => {
            #[multiversion(targets($target))]
            fn $name(states: States<'_>, blocks: Blocks<'_>) {
                match_target! {
                    $target => $name::compress(states, blocks),
                    _ => panic!("no kernel for {} bodies with {} rows", states.len(), blocks.len()),
                }
            }
        };
    }

    forced!(avx2, "x86_64+avx2");
    forced!(avx512, "x86_64+avx2+avx512f");

    #[test]
    fn all_vectors_agree_with_the_scalar_steps() {
        let mut random = Random::new(1);
        let kernels: [(_, Kernel, _); 2] =
            [("AVX2", avx2, avx2::LANES), ("AVX-512", avx512, avx512::LANES)];
        for (name, kernel, lanes) in kernels {
            if lanes > lanes_max() {
                println!("SKIPPED: this CPU has no {name}");
                break;
            }
            for count in 1..=lanes {
                let bodies: Vec<_> = (0..count).map(|_| random.blocks(3)).collect();
                let blocks: Vec<&[[u8; BLOCK]]> = bodies.iter().map(Vec::as_slice).collect();
                let mut expected: Vec<[u32; 4]> =
                    (0..count).map(|_| std::array::from_fn(|_| random.word())).collect();
                let mut states = expected.clone();
                kernel(&mut states, &blocks);
                for (state, blocks) in expected.iter_mut().zip(&blocks) {
                    compress(state, blocks);
                }
                assert_eq!(states, expected, "{name}, {count} bodies");
            }
        }
    }
}
