//! Geometry at every length: fragments cover the extent without gaps, and are as short as possible.

use martlet_protocol::ErrorKind;
use martlet_protocol::limits::EXTENT_BYTES_MAX;
use rand::Rng;

use super::{BLOCK, code, seeded};
use crate::{Code, FRAGMENT_BYTES_MAX, FragmentColumns, FragmentIndex, Geometry};

fn check(geometry: &Geometry) {
    let (code, length, whole) = (geometry.code(), geometry.length(), geometry.fragment_bytes());
    let mut covered = 0;
    for fragment in code.data() {
        let bytes = geometry.stored_bytes(fragment);
        assert_eq!(bytes, (length - covered).min(whole), "{geometry:?} {fragment}");
        covered += bytes;
    }
    assert_eq!(covered, length, "{geometry:?}");
    let longest = geometry.stored_bytes(FragmentIndex(0));
    assert_eq!(geometry.columns(), longest);
    assert!(code.parity().all(|fragment| geometry.stored_bytes(fragment) == longest));
    let stored = geometry.stored();
    assert_eq!(stored.len(), usize::from(geometry.needed() + code.m()), "{geometry:?}");
    let total: u64 = stored.iter().map(|fragment| geometry.stored_bytes(fragment)).sum();
    assert_eq!(geometry.stored_bytes_total(), total);
}

#[test]
fn every_length_up_to_a_few_fragments_fits_tightly() {
    for (k, m) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let code = code(k, m);
        assert_eq!(Geometry::new(code, 0).unwrap_err().kind(), ErrorKind::Invalid);
        for length in 1..=u64::from(k) * BLOCK * 2 + 3 {
            let geometry = Geometry::new(code, length).unwrap();
            check(&geometry);
            let shorter = geometry.fragment_bytes() - BLOCK;
            assert!(shorter * u64::from(k) < length, "{geometry:?} could be shorter");
        }
    }
}

/// Lengths up to two bytes around every boundary.
fn edges(code: Code) -> impl Iterator<Item = u64> {
    let k = u64::from(code.k());
    let steps = [1, 2, k - 1, k, k + 1, 2 * k, 3 * k].map(|blocks| blocks * BLOCK);
    let ends = [code.extent_bytes_max(), code.extent_bytes_max() / 2 + BLOCK];
    steps.into_iter().chain(ends).flat_map(|edge| edge.saturating_sub(2)..=edge + 2)
}

#[test]
fn every_code_has_its_limits() {
    for k in 1..32 {
        for m in 1..=32 - k {
            let code = code(k, m);
            for length in edges(code) {
                let fits = (1..=code.extent_bytes_max()).contains(&length);
                let geometry = Geometry::new(code, length);
                assert_eq!(geometry.is_ok(), fits, "{code} {length}");
                geometry.iter().for_each(check);
            }
        }
    }
    for length in [EXTENT_BYTES_MAX + 1, u64::MAX - BLOCK, u64::MAX] {
        assert!(Geometry::new(code(31, 1), length).is_err());
    }
}

#[test]
fn fragments_are_whole_blocks_of_a_bounded_length() {
    let with =
        |length, fragment_bytes| Geometry::with_fragment_bytes(code(4, 2), length, fragment_bytes);
    check(&with(1, FRAGMENT_BYTES_MAX).unwrap());
    check(&with(5 * BLOCK, 2 * BLOCK).unwrap());
    for bad in [0, 1, BLOCK - 1, BLOCK + 1, FRAGMENT_BYTES_MAX + BLOCK, u64::MAX, 1 << 63] {
        assert_eq!(with(1, bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
    assert!(with(4 * BLOCK, BLOCK).is_ok());
    assert!(with(4 * BLOCK + 1, BLOCK).is_err(), "it doesn't fit");
}

#[test]
fn short_extents_have_short_parity_and_few_fragments() {
    let geometry = Geometry::new(code(4, 2), 10_000).unwrap();
    assert_eq!(geometry.fragment_bytes(), BLOCK);
    let stored: Vec<_> =
        geometry.stored().iter().map(|it| (it.0, geometry.stored_bytes(it))).collect();
    assert_eq!(stored, [(0, 10_000), (4, 10_000), (5, 10_000)]);
    assert_eq!(geometry.needed(), 1);
    assert_eq!(geometry.stored_bytes(FragmentIndex(6)), 0, "no such fragment");
}

#[test]
fn an_extent_of_whole_fragments_costs_half_its_length_more() {
    let geometry = Geometry::new(code(4, 2), 16 << 20).unwrap();
    assert_eq!(geometry.fragment_bytes(), 4 << 20);
    assert_eq!(geometry.stored_bytes_total() * 2, geometry.length() * 3);
}

#[test]
fn a_range_touches_the_fragments_under_it() {
    let geometry = Geometry::new(code(4, 2), 4 * BLOCK - 10).unwrap();
    let pieces = |range| -> Vec<_> {
        let pieces = geometry.fragment_ranges(range).unwrap().into_iter();
        pieces.map(|piece| (piece.fragment.0, piece.columns)).collect()
    };
    assert_eq!(pieces(0..1), [(0, 0..1)]);
    assert_eq!(pieces(BLOCK..2 * BLOCK), [(1, 0..BLOCK)], "on borders, one and no more");
    assert_eq!(pieces(BLOCK - 1..BLOCK + 1), [(0, BLOCK - 1..BLOCK), (1, 0..1)]);
    assert_eq!(pieces(0..geometry.length()).len(), 4);
    assert_eq!(pieces(7..7), []);
    assert_eq!(pieces(geometry.length()..geometry.length()), []);
    for (from, to) in [(2, 1), (0, geometry.length() + 1), (u64::MAX, u64::MAX)] {
        assert_eq!(geometry.fragment_ranges(from..to).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn random_ranges_are_cut_without_a_gap() {
    let mut random = seeded(21);
    for _ in 0..20_000 {
        let k = random.random_range(1..=20);
        let code = code(k, random.random_range(1..=12));
        let geometry =
            Geometry::new(code, random.random_range(1..=code.extent_bytes_max())).unwrap();
        let to = random.random_range(0..=geometry.length());
        let from = random.random_range(0..=to);
        let mut at = from;
        for piece in geometry.fragment_ranges(from..to).unwrap() {
            assert_eq!(geometry.offset(&piece), Some(at), "{geometry:?} {from}..{to}");
            assert!(piece.columns.end <= geometry.stored_bytes(piece.fragment));
            assert!(piece.bytes() > 0);
            at += piece.bytes();
        }
        assert_eq!(at, to);
    }
}

#[test]
fn parity_and_what_lies_beyond_have_no_offset() {
    let geometry = Geometry::new(code(2, 1), 2 * BLOCK).unwrap();
    let offset = |fragment, column| {
        geometry
            .offset(&FragmentColumns { fragment: FragmentIndex(fragment), columns: column..column })
    };
    assert_eq!(offset(1, 5), Some(BLOCK + 5));
    assert_eq!(offset(1, BLOCK + 1), None);
    assert_eq!(offset(2, 0), None);
}
