//! Extents of every length around the boundaries: encoded, lost and recovered, byte for byte.

use super::{BLOCK, check_loss, code, encode, random_bytes, seeded};
use crate::{Codec, FragmentIndex, Fragments, Geometry, PARITY_BLOCK_BYTES};

/// Lengths up to two bytes around every multiple of a block, up to a few fragments.
fn lengths(k: u8) -> impl Iterator<Item = u64> {
    let edges = (0..=u64::from(k) * 2 + 1).map(|blocks| blocks * BLOCK);
    edges.flat_map(|edge| edge.saturating_sub(2)..=edge + 2).filter(|length| *length > 0)
}

fn check(codec: &Codec, geometry: &Geometry, random: &mut rand::rngs::SmallRng) {
    let bytes = random_bytes(random, geometry.length());
    let fragments = encode(codec, geometry, &bytes);
    let data = &fragments[..usize::from(codec.code().k())];
    assert!(data.concat() == bytes, "data is stored as it is: {geometry:?}");
    for (fragment, found) in codec.code().fragments().zip(&fragments) {
        assert_eq!(found.len() as u64, geometry.stored_bytes(fragment), "{geometry:?}");
    }
    let verdict = codec.verify(geometry, 0..geometry.columns(), &fragments).unwrap();
    assert_eq!(verdict, Fragments::NONE, "{geometry:?}");
    // The first fragments, which are the longest, and the last data fragment with bytes.
    let m = codec.code().m();
    let first: Fragments = codec.code().fragments().take(usize::from(m)).collect();
    let last: Fragments = [FragmentIndex(geometry.needed() - 1)].into_iter().collect();
    for lost in [first, last] {
        check_loss(random, codec, geometry, &fragments, lost, 0..geometry.columns());
    }
}

#[test]
fn every_length_around_the_edges_comes_back() {
    let mut random = seeded(41);
    for (k, m) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let codec = Codec::new(code(k, m));
        for length in lengths(k) {
            check(&codec, &Geometry::new(code(k, m), length).unwrap(), &mut random);
        }
    }
}

#[test]
fn every_short_length_comes_back() {
    let mut random = seeded(42);
    let codec = Codec::new(code(2, 2));
    for length in 1..=300 {
        check(&codec, &Geometry::new(code(2, 2), length).unwrap(), &mut random);
    }
}

#[test]
fn fragments_longer_than_they_had_to_be_come_back() {
    let mut random = seeded(43);
    let codec = Codec::new(code(4, 2));
    for blocks in [1, 3, 4, 5, 9] {
        let fragment_bytes = blocks * BLOCK;
        for edge in [1, fragment_bytes, fragment_bytes + PARITY_BLOCK_BYTES, 4 * fragment_bytes] {
            let to = (edge + 1).min(4 * fragment_bytes);
            for length in edge.saturating_sub(1).max(1)..=to {
                let layout = Geometry::with_fragment_bytes(code(4, 2), length, fragment_bytes);
                let Ok(geometry) = layout else { continue };
                check(&codec, &geometry, &mut random);
            }
        }
    }
}

#[test]
fn the_longest_extents_come_back() {
    let mut random = seeded(44);
    for (k, m) in [(4, 2), (17, 3)] {
        let code = code(k, m);
        for length in [code.extent_bytes_max(), code.extent_bytes_max() - 1] {
            check(&Codec::new(code), &Geometry::new(code, length).unwrap(), &mut random);
        }
    }
}
