//! Golden tests of the fragment format: the parity of one extent under several codes, and the
//! matrix. `testdata/v1.txt` was written by another program from the definition. If these tests
//! fail, stored fragments have become unreadable.
//!
//! A line is `code length fragment_bytes index bytes first-bytes blake3` for a fragment, or
//! `matrix code rows`. Byte n of the extent is the high byte of (n+1)·2654435761 mod 2^32.

use bytes::Bytes;

use super::{code, encode};
use crate::{Code, Codec, Geometry};

const GOLDEN: &str = include_str!("../../testdata/v1.txt");

fn extent(length: u64) -> Bytes {
    let byte = |n: u64| u8::try_from((n + 1).wrapping_mul(2_654_435_761) >> 24 & 0xff).unwrap();
    (0..length).map(byte).collect()
}

fn lines(matrix: bool) -> impl Iterator<Item = Vec<&'static str>> {
    let kept = move |line: &&str| !line.starts_with('#') && line.starts_with("matrix") == matrix;
    GOLDEN.lines().filter(kept).map(|line| line.split(' ').collect())
}

fn named(name: &str) -> Code {
    let (k, m) = name.split_once('+').unwrap();
    code(k.parse().unwrap(), m.parse().unwrap())
}

#[test]
fn the_matrix_never_changes() {
    let mut codes = 0;
    for line in lines(true) {
        let codec = Codec::new(named(line[1]));
        let row = |row| -> Vec<u8> {
            codec.code().data().map(|data| codec.coefficient(row, data)).collect()
        };
        let rows: Vec<_> = (0..usize::from(codec.code().m())).map(row).map(hex::encode).collect();
        assert_eq!(rows.join(","), line[2], "{}", line[1]);
        codes += 1;
    }
    assert_eq!(codes, 8);
}

#[test]
fn fragments_never_change() {
    let mut seen = 0;
    for line in lines(false) {
        let [name, length, fragment_bytes, index, bytes, first, hash] = line[..] else {
            panic!("{line:?}")
        };
        let length = length.parse().unwrap();
        let geometry = Geometry::new(named(name), length).unwrap();
        assert_eq!(geometry.fragment_bytes().to_string(), fragment_bytes, "{line:?}");
        let fragments = encode(&Codec::new(named(name)), &geometry, &extent(length));
        let fragment = &fragments[index.parse::<usize>().unwrap()];
        assert_eq!(fragment.len().to_string(), bytes, "{line:?}");
        assert_eq!(hex::encode(&fragment[..fragment.len().min(8)]), first, "{line:?}");
        assert_eq!(blake3::hash(fragment).to_hex().as_str(), hash, "{line:?}");
        seen += 1;
    }
    assert_eq!(seen, 32);
}
