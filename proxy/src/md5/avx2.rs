//! MD5 of eight bodies in the vectors of AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_extract_epi32,
    _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_setr_epi64x, _mm256_sllv_epi32, _mm256_srlv_epi32, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::kernel::{kernel, pairs};
use super::{BLOCK, SINES, STRIDES, TURNS};

type Vector = __m256i;
pub(super) const LANES: usize = 8;

kernel!("avx2");

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> Vector {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate(words: Vector, bits: u32) -> Vector {
    let (left, right) = (splat(bits), splat(32 - bits));
    _mm256_or_si256(_mm256_sllv_epi32(words, left), _mm256_srlv_epi32(words, right))
}

#[target_feature(enable = "avx2")]
#[inline]
fn mix<const ROUND: usize>(b: Vector, c: Vector, d: Vector) -> Vector {
    match ROUND {
        0 => _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d))),
        1 => _mm256_or_si256(_mm256_andnot_si256(d, c), _mm256_and_si256(d, b)),
        2 => _mm256_xor_si256(_mm256_xor_si256(c, d), b),
        _ => _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, splat(u32::MAX)))),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn join(words: [u32; LANES]) -> Vector {
    let w = words.map(u32::cast_signed);
    _mm256_setr_epi32(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn split(words: Vector) -> [u32; LANES] {
    let words = [
        _mm256_extract_epi32::<0>(words),
        _mm256_extract_epi32::<1>(words),
        _mm256_extract_epi32::<2>(words),
        _mm256_extract_epi32::<3>(words),
        _mm256_extract_epi32::<4>(words),
        _mm256_extract_epi32::<5>(words),
        _mm256_extract_epi32::<6>(words),
        _mm256_extract_epi32::<7>(words),
    ];
    words.map(i32::cast_unsigned)
}

/// The words of eight blocks: vector n holds word n of each block.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(blocks: [&[u8; BLOCK]; LANES]) -> [Vector; 16] {
    let halves = [0, 4].map(|first| {
        transpose_half(std::array::from_fn(|lane| {
            let pairs = &pairs(blocks[lane])[first..];
            _mm256_setr_epi64x(pairs[0], pairs[1], pairs[2], pairs[3])
        }))
    });
    std::array::from_fn(|word| halves[word / 8][word % 8])
}

/// Transposes eight rows of eight words: pairs of rows, then fours, then all.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose_half(rows: [Vector; 8]) -> [Vector; 8] {
    let mut fours = rows;
    for (rows, fours) in rows.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<4>().0) {
        let low = [0, 2].map(|row| _mm256_unpacklo_epi32(rows[row], rows[row + 1]));
        let high = [0, 2].map(|row| _mm256_unpackhi_epi32(rows[row], rows[row + 1]));
        *fours = [
            _mm256_unpacklo_epi64(low[0], low[1]),
            _mm256_unpackhi_epi64(low[0], low[1]),
            _mm256_unpacklo_epi64(high[0], high[1]),
            _mm256_unpackhi_epi64(high[0], high[1]),
        ];
    }
    std::array::from_fn(|word| {
        let (upper, lower) = (fours[word % 4], fours[4 + word % 4]);
        if word < 4 {
            _mm256_permute2x128_si256::<0x20>(upper, lower)
        } else {
            _mm256_permute2x128_si256::<0x31>(upper, lower)
        }
    })
}
