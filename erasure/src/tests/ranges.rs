//! Ranges read with lost fragments, as by a reader: direct reads of existing fragments, and
//! recovery of lost ones over the range's columns only.

use rand::Rng;
use rand::rngs::SmallRng;

use super::{code, encode, others, random_bytes, recover, seeded, slice};
use crate::{Codec, Fragments, Geometry, Recovery};

/// Reads `range` without `lost`. Returns the bytes, and the number of bytes read for them.
fn read(
    random: &mut SmallRng,
    codec: &Codec,
    geometry: &Geometry,
    fragments: &[Vec<u8>],
    range: std::ops::Range<u64>,
    lost: Fragments,
) -> (Vec<u8>, u64) {
    let (mut bytes, mut bytes_read) = (Vec::new(), 0);
    for piece in geometry.fragment_ranges(range).unwrap() {
        if !lost.contains(piece.fragment) {
            bytes.extend_from_slice(slice(fragments, &piece));
            bytes_read += piece.bytes();
            continue;
        }
        let wanted = [piece.fragment].into_iter().collect();
        let usable = others(random, codec.code(), lost);
        let recovery =
            Recovery::new(codec, geometry, piece.columns.clone(), wanted, &usable).unwrap();
        let step_bytes = random.random_range(1..200_000);
        let (made, extra) = recover(&recovery, fragments, step_bytes);
        bytes.extend_from_slice(&made[0]);
        bytes_read += extra;
    }
    (bytes, bytes_read)
}

#[test]
fn random_ranges_survive_random_losses() {
    let mut random = seeded(51);
    for _ in 0..60 {
        let (k, m) = (random.random_range(1..=10), random.random_range(1..=5));
        let codec = Codec::new(code(k, m));
        let length = random.random_range(1..=u64::from(k) * 150_000);
        let geometry = Geometry::new(code(k, m), length).unwrap();
        let whole = random_bytes(&mut random, length);
        let fragments = encode(&codec, &geometry, &whole);
        for _ in 0..40 {
            let to = random.random_range(0..=length);
            let from = random.random_range(0..=to);
            let many = random.random_range(0..=usize::from(m));
            let lost =
                others(&mut random, code(k, m), Fragments::NONE).into_iter().take(many).collect();
            let (found, bytes_read) =
                read(&mut random, &codec, &geometry, &fragments, from..to, lost);
            let at = |offset: u64| usize::try_from(offset).unwrap();
            assert!(found == whole[at(from)..at(to)], "{geometry:?} {from}..{to} without {lost:?}");
            let most = (to - from) * u64::from(k);
            assert!(bytes_read <= most, "{bytes_read} bytes were read for {}", to - from);
        }
    }
}

#[test]
fn a_healthy_range_reads_what_it_serves() {
    let mut random = seeded(52);
    let codec = Codec::new(code(4, 2));
    let geometry = Geometry::new(code(4, 2), 4 << 20).unwrap();
    let whole = random_bytes(&mut random, 4 << 20);
    let fragments = encode(&codec, &geometry, &whole);
    for start in (0..geometry.length() - 100_000).step_by(65_536) {
        let (found, bytes_read) = read(
            &mut random,
            &codec,
            &geometry,
            &fragments,
            start..start + 100_000,
            Fragments::NONE,
        );
        assert_eq!(bytes_read, 100_000);
        assert_eq!(found.len(), 100_000);
    }
}

#[test]
fn a_repair_goes_in_steps_of_whole_blocks() {
    let codec = Codec::new(code(4, 2));
    let geometry = Geometry::new(code(4, 2), 1 << 20).unwrap();
    let wanted = code(4, 2).parity().collect();
    let usable: Vec<_> = code(4, 2).data().collect();
    let steps = |from, to, bytes| -> Vec<_> {
        let recovery = Recovery::new(&codec, &geometry, from..to, wanted, &usable).unwrap();
        recovery.steps(bytes).collect()
    };
    assert_eq!(steps(0, 262_144, 131_072), [0..131_072, 131_072..262_144]);
    assert_eq!(steps(5, 70_000, 65_536), [5..65_536, 65_536..70_000]);
    assert_eq!(steps(5, 9, u64::MAX).first(), Some(&(5..9)));
    assert_eq!(steps(5, 9, u64::MAX).len(), 1);
    assert_eq!(steps(5, 7, 0), [5..6, 6..7]);
    assert_eq!(steps(5, 5, 10), []);
}
