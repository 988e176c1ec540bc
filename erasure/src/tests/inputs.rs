//! Invalid input leads to an error, never to a panic or wrong bytes.

use martlet_protocol::ErrorKind;
use rand::Rng;
use rand::rngs::SmallRng;

use super::{BLOCK, code, encode, random_bytes, seeded, slice};
use crate::{Code, Codec, FragmentIndex, Fragments, Geometry, Recovery};

/// A random number, often an edge case.
fn number(random: &mut SmallRng, length: u64) -> u64 {
    match random.random_range(0..8) {
        0 => 0,
        1 => u64::MAX,
        2 => length,
        3 => length.wrapping_add(random.random_range(0..3)),
        4 => length.wrapping_sub(random.random_range(0..3)),
        5 => random.random_range(0..10) * BLOCK,
        6 => random.random(),
        _ => random.random_range(0..=length.max(1)),
    }
}

#[test]
fn any_numbers_make_a_layout_or_an_error() {
    let mut random = seeded(71);
    let mut made = 0;
    for _ in 0..300_000 {
        let Ok(code) = Code::new(random.random_range(0..36), random.random_range(0..36)) else {
            continue;
        };
        let (length, bytes) = (number(&mut random, 1 << 20), number(&mut random, 1 << 18));
        let layout = if random.random() {
            Geometry::new(code, length)
        } else {
            Geometry::with_fragment_bytes(code, length, bytes)
        };
        let Ok(geometry) = layout else { continue };
        made += 1;
        let range = number(&mut random, length)..number(&mut random, length);
        if let Ok(pieces) = geometry.fragment_ranges(range.clone()) {
            let total: u64 = pieces.iter().map(crate::FragmentColumns::bytes).sum();
            assert_eq!(total, range.end - range.start);
        }
        let fragment = FragmentIndex(random.random());
        assert!(geometry.stored_bytes(fragment) <= geometry.columns());
        assert_eq!(geometry.stored().contains(fragment), geometry.stored_bytes(fragment) > 0);
    }
    assert!(made > 10_000, "only {made} of them made sense");
}

/// Returns `read` with an occasional mistake, and true if it has one.
fn damaged(random: &mut SmallRng, mut read: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, bool) {
    let at = random.random_range(0..read.len().max(1));
    match random.random_range(0..6) {
        0 => read.push(Vec::new()),
        1 if !read.is_empty() => drop(read.pop()),
        2 if !read.is_empty() => read[at].push(0),
        3 if read.iter().any(|bytes| !bytes.is_empty()) => {
            let _ = read.iter_mut().find(|bytes| !bytes.is_empty()).and_then(Vec::pop);
        }
        _ => return (read, false),
    }
    (read, true)
}

#[test]
fn any_recovery_is_right_or_an_error() {
    let mut random = seeded(72);
    let (mut right, mut refused) = (0, 0);
    for _ in 0..150 {
        let code = code(random.random_range(1..=6), random.random_range(1..=4));
        let codec = Codec::new(code);
        let length = random.random_range(1..=u64::from(code.k()) * 80_000);
        let geometry = Geometry::new(code, length).unwrap();
        let whole = random_bytes(&mut random, length);
        let fragments = encode(&codec, &geometry, &whole);
        for _ in 0..200 {
            match attempt(&mut random, &codec, &geometry, &fragments) {
                Some(()) => right += 1,
                None => refused += 1,
            }
        }
    }
    assert!(right > 1000 && refused > 1000, "{right} were right, {refused} refused");
}

/// Tries a random recovery. Checks the bytes of a successful one.
fn attempt(
    random: &mut SmallRng,
    codec: &Codec,
    geometry: &Geometry,
    fragments: &[Vec<u8>],
) -> Option<()> {
    let total = codec.code().total();
    let beyond = u8::from(random.random_ratio(1, 20));
    let any = |random: &mut SmallRng| FragmentIndex(random.random_range(0..total + beyond));
    let wanted: Fragments = (0..random.random_range(0..4)).map(|_| any(random)).collect();
    let usable: Vec<_> = (0..random.random_range(0..24)).map(|_| any(random)).collect();
    let end = number(random, geometry.columns());
    let columns = end.saturating_sub(random.random_range(0..5000))..end;
    let recovery = Recovery::new(codec, geometry, columns.clone(), wanted, &usable).ok()?;
    let reads = recovery.reads(&columns);
    let read = reads.iter().map(|piece| slice(fragments, piece).to_vec()).collect();
    let (read, damaged) = damaged(random, read);
    let mut made = vec![vec![0xaa; 7]; wanted.len()];
    let done = recovery.recover(&columns, &read, &mut made);
    assert_eq!(done.is_err(), damaged);
    done.ok()?;
    for (fragment, made) in recovery.wanted().zip(&made) {
        let piece = crate::FragmentColumns { fragment, columns: geometry.clip(fragment, &columns) };
        assert!(made == slice(fragments, &piece), "{geometry:?} {piece:?}");
    }
    Some(())
}

#[test]
fn a_recovery_keeps_to_its_columns_and_buffers() {
    let codec = Codec::new(code(2, 1));
    let geometry = Geometry::new(code(2, 1), 2 * BLOCK).unwrap();
    let wanted = [FragmentIndex(0)].into_iter().collect();
    let usable = [FragmentIndex(1), FragmentIndex(2)];
    let recovery = Recovery::new(&codec, &geometry, 10..20, wanted, &usable).unwrap();
    let read = [[0; 10], [0; 10]];
    let kind = |columns, made: &mut [Vec<u8>]| {
        recovery.recover(&columns, &read, made).map_err(|error| error.kind())
    };
    assert_eq!(kind(10..20, &mut [Vec::new()]), Ok(()));
    assert_eq!(kind(9..19, &mut [Vec::new()]), Err(ErrorKind::Invalid));
    assert_eq!(kind(11..21, &mut [Vec::new()]), Err(ErrorKind::Invalid));
    assert_eq!(kind(10..20, &mut []), Err(ErrorKind::Invalid));
    assert_eq!(kind(10..19, &mut [Vec::new()]), Err(ErrorKind::Corrupt), "a byte too many");
    let other = Codec::new(code(2, 2));
    assert!(Recovery::new(&other, &geometry, 0..1, wanted, &usable).is_err(), "another code");
}

#[test]
fn verification_finds_any_flipped_bit() {
    let mut random = seeded(73);
    let codec = Codec::new(code(4, 2));
    let geometry = Geometry::new(code(4, 2), 4 * BLOCK - 1000).unwrap();
    let whole = random_bytes(&mut random, geometry.length());
    let good = encode(&codec, &geometry, &whole);
    let all = 0..geometry.columns();
    assert_eq!(codec.verify(&geometry, all.clone(), &good).unwrap(), Fragments::NONE);
    for _ in 0..200 {
        let fragment = FragmentIndex(random.random_range(0..6));
        let mut bad = good.clone();
        let byte = random.random_range(0..bad[fragment.at()].len());
        bad[fragment.at()][byte] ^= 1 << random.random_range(0..8);
        let found = codec.verify(&geometry, all.clone(), &bad).unwrap();
        let data = code(4, 2).is_data(fragment);
        let expected: Fragments =
            code(4, 2).parity().filter(|parity| data || *parity == fragment).collect();
        assert_eq!(found, expected, "{fragment} byte {byte}");
    }
}

#[test]
fn verification_takes_what_belongs_together() {
    let codec = Codec::new(code(2, 1));
    let geometry = Geometry::new(code(2, 1), 2 * BLOCK).unwrap();
    let kind = |columns, fragments: &[Vec<u8>]| {
        codec.verify(&geometry, columns, fragments).map_err(|error| error.kind())
    };
    let zeros = |lengths: [usize; 3]| lengths.map(|length| vec![0; length]);
    assert_eq!(kind(5..8, &zeros([3, 3, 3])), Ok(Fragments::NONE));
    assert_eq!(kind(5..8, &zeros([3, 2, 3])), Err(ErrorKind::Corrupt));
    assert_eq!(kind(5..8, &zeros([3, 3, 3])[..2]), Err(ErrorKind::Invalid));
    assert_eq!(kind(0..BLOCK + 1, &zeros([3, 3, 3])), Err(ErrorKind::Invalid));
    let other = Codec::new(code(1, 1));
    assert!(other.verify(&geometry, 5..8, &zeros([3, 3, 3])).is_err());
}
