//! MD5 of sixteen bodies in the vectors of AVX-512.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
    _mm512_rolv_epi32, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setr_epi64,
    _mm512_shuffle_i32x4, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::kernel::{kernel, pairs};
use super::{BLOCK, SINES, STRIDES, TURNS, avx2};

type Vector = __m512i;
pub(super) const LANES: usize = 16;

kernel!("avx2,avx512f");

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u32) -> Vector {
    _mm512_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi32(a, b)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn rotate(words: Vector, bits: u32) -> Vector {
    _mm512_rolv_epi32(words, splat(bits))
}

/// Combination of three words. The constants are truth tables, by the bits of the arguments.
#[target_feature(enable = "avx512f")]
#[inline]
fn mix<const ROUND: usize>(b: Vector, c: Vector, d: Vector) -> Vector {
    match ROUND {
        0 => _mm512_ternarylogic_epi32::<0xca>(b, c, d),
        1 => _mm512_ternarylogic_epi32::<0xca>(d, b, c),
        2 => _mm512_ternarylogic_epi32::<0x96>(b, c, d),
        _ => _mm512_ternarylogic_epi32::<0x39>(b, c, d),
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn join(words: [u32; LANES]) -> Vector {
    let w = words.map(u32::cast_signed);
    #[rustfmt::skip]
    let vector = _mm512_setr_epi32(
        w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
        w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
    );
    vector
}

#[target_feature(enable = "avx2,avx512f")]
#[inline]
fn split(words: Vector) -> [u32; LANES] {
    let low = avx2::split(_mm512_castsi512_si256(words));
    let high = avx2::split(_mm512_extracti64x4_epi64::<1>(words));
    std::array::from_fn(|lane| if lane < 8 { low[lane] } else { high[lane - 8] })
}

/// The words of sixteen blocks: vector n holds word n of each block.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(blocks: [&[u8; BLOCK]; LANES]) -> [Vector; 16] {
    let rows: [Vector; LANES] = std::array::from_fn(|lane| {
        let p = pairs(blocks[lane]);
        _mm512_setr_epi64(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
    });
    // Quarter q of `fours[4 * i + w]` has word 4 * q + w of rows 4 * i to 4 * i + 3.
    let mut fours = rows;
    for (rows, fours) in rows.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<4>().0) {
        let low = [0, 2].map(|row| _mm512_unpacklo_epi32(rows[row], rows[row + 1]));
        let high = [0, 2].map(|row| _mm512_unpackhi_epi32(rows[row], rows[row + 1]));
        *fours = [
            _mm512_unpacklo_epi64(low[0], low[1]),
            _mm512_unpackhi_epi64(low[0], low[1]),
            _mm512_unpacklo_epi64(high[0], high[1]),
            _mm512_unpackhi_epi64(high[0], high[1]),
        ];
    }
    let columns: [[Vector; 4]; 4] = std::array::from_fn(|word| {
        gather_quarters(std::array::from_fn(|rows| fours[4 * rows + word]))
    });
    std::array::from_fn(|word| columns[word % 4][word / 4])
}

/// Four vectors: the first quarters of all, the second quarters of all, and so on.
#[target_feature(enable = "avx512f")]
#[inline]
fn gather_quarters([a, b, c, d]: [Vector; 4]) -> [Vector; 4] {
    let (even_ab, odd_ab) =
        (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
    let (even_cd, odd_cd) =
        (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
    [
        _mm512_shuffle_i32x4::<0x88>(even_ab, even_cd),
        _mm512_shuffle_i32x4::<0x88>(odd_ab, odd_cd),
        _mm512_shuffle_i32x4::<0xdd>(even_ab, even_cd),
        _mm512_shuffle_i32x4::<0xdd>(odd_ab, odd_cd),
    ]
}
