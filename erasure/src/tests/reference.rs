//! Reference implementation of the code from its definition: GF(2^8) over x^8 + x^4 + x^3 + x^2 +
//! 1, a Vandermonde matrix, made systematic.

use super::{code, encode, random_bytes, seeded};
use crate::{Codec, Fragments, Geometry};

pub(super) type Matrix = Vec<Vec<u8>>;

pub(super) fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

fn inverse(a: u8) -> u8 {
    (1..=u8::MAX).find(|b| multiply(a, *b) == 1).expect("everything but zero has an inverse")
}

/// Vandermonde matrix: row r, column c is r to the power of c.
fn vandermonde(rows: u8, columns: u8) -> Matrix {
    let power = |base, exponent| (0..exponent).fold(1, |power, _| multiply(power, base));
    (0..rows).map(|row| (0..columns).map(|column| power(row, column)).collect()).collect()
}

fn times(left: &Matrix, right: &Matrix) -> Matrix {
    let cell = |row: &Vec<u8>, column: usize| {
        row.iter().zip(right).fold(0, |sum, (a, line)| sum ^ multiply(*a, line[column]))
    };
    left.iter().map(|row| (0..right[0].len()).map(|column| cell(row, column)).collect()).collect()
}

/// Inverts a matrix by Gauss–Jordan elimination.
fn inverted(matrix: &Matrix) -> Matrix {
    let size = matrix.len();
    let unit = |at| (0..size).map(move |column| u8::from(column == at));
    let mut work: Matrix = matrix
        .iter()
        .enumerate()
        .map(|(at, row)| row.iter().copied().chain(unit(at)).collect())
        .collect();
    for at in 0..size {
        let pivot = (at..size).find(|row| work[*row][at] != 0).expect("it can be inverted");
        work.swap(at, pivot);
        let factor = inverse(work[at][at]);
        work[at].iter_mut().for_each(|cell| *cell = multiply(*cell, factor));
        let line = work[at].clone();
        for (row, cells) in work.iter_mut().enumerate().filter(|(row, _)| *row != at) {
            let factor = cells[at];
            debug_assert!(row != at);
            for (cell, other) in cells.iter_mut().zip(&line) {
                *cell ^= multiply(factor, *other);
            }
        }
    }
    work.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// Returns the coefficient rows of the parity fragments.
pub(super) fn parity(k: u8, m: u8) -> Matrix {
    let all = vandermonde(k + m, k);
    let top = all[..usize::from(k)].to_vec();
    times(&all, &inverted(&top)).split_off(usize::from(k))
}

#[test]
fn the_matrix_is_the_one_of_the_papers() {
    for k in 1..32 {
        for m in 1..=32 - k {
            let codec = Codec::new(code(k, m));
            let ours: Matrix = (0..usize::from(m))
                .map(|row| code(k, m).data().map(|data| codec.coefficient(row, data)).collect())
                .collect();
            assert_eq!(ours, parity(k, m), "{k}+{m}");
        }
    }
}

#[test]
fn parity_follows_the_definition() {
    let mut random = seeded(11);
    for (k, m) in [(1, 1), (2, 1), (3, 3), (4, 2), (5, 4), (8, 3)] {
        let geometry = Geometry::new(code(k, m), u64::from(k) * 70_001).unwrap();
        let bytes = random_bytes(&mut random, geometry.length());
        let fragments = encode(&Codec::new(code(k, m)), &geometry, &bytes);
        let (data, found) = fragments.split_at(usize::from(k));
        for (row, found) in parity(k, m).iter().zip(found) {
            let at = |column: usize| {
                row.iter().zip(data).fold(0, |sum, (coefficient, fragment)| {
                    sum ^ multiply(*coefficient, fragment.get(column).copied().unwrap_or(0))
                })
            };
            let expected: Vec<u8> = (0..found.len()).map(at).collect();
            assert!(*found == expected, "{k}+{m}");
        }
    }
}

#[test]
fn a_single_data_fragment_is_mirrored() {
    let mut random = seeded(12);
    let codec = Codec::new(code(1, 3));
    let geometry = Geometry::new(code(1, 3), 100_000).unwrap();
    let bytes = random_bytes(&mut random, 100_000);
    let fragments = encode(&codec, &geometry, &bytes);
    assert!(fragments.iter().all(|fragment| *fragment == bytes));
    assert_eq!(codec.verify(&geometry, 0..100_000, &fragments).unwrap(), Fragments::NONE);
}
