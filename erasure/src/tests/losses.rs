//! Every loss of up to m fragments, of every code up to twelve fragments.

use martlet_protocol::ErrorKind;

use super::{BLOCK, check_loss, code, encode, random_bytes, seeded};
use crate::{Code, Codec, FragmentIndex, Fragments, Geometry, Recovery};

fn patterns(code: Code, sizes: std::ops::RangeInclusive<usize>) -> impl Iterator<Item = Fragments> {
    let members = move |bits: u32| -> Fragments {
        code.fragments().filter(|fragment| bits >> fragment.0 & 1 == 1).collect()
    };
    (0..1u32 << code.total()).map(members).filter(move |set| sizes.contains(&set.len()))
}

/// All codes of at most twelve fragments.
fn codes() -> impl Iterator<Item = Code> {
    (1..12).flat_map(|k| (1..=12 - k).map(move |m| code(k, m)))
}

#[test]
fn every_loss_is_made_good() {
    let mut random = seeded(31);
    let mut checked = 0;
    for code in codes() {
        let codec = Codec::new(code);
        // The last fragment ends within the checked columns.
        let length = u64::from(code.k() - 1) * BLOCK + 40;
        let geometry = Geometry::new(code, length).unwrap();
        let bytes = random_bytes(&mut random, length);
        let fragments = encode(&codec, &geometry, &bytes);
        for lost in patterns(code, 1..=usize::from(code.m())) {
            check_loss(
                &mut random,
                &codec,
                &geometry,
                &fragments,
                lost,
                0..geometry.columns().min(101),
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 44_979, "patterns of up to m fragments, of 66 codes");
}

#[test]
fn every_loss_of_whole_fragments_is_made_good() {
    let mut random = seeded(32);
    for code in [code(2, 1), code(4, 2), code(3, 3)] {
        let codec = Codec::new(code);
        let length = u64::from(code.k()) * 5 * BLOCK - 77_777;
        let geometry = Geometry::new(code, length).unwrap();
        let bytes = random_bytes(&mut random, length);
        let fragments = encode(&codec, &geometry, &bytes);
        for lost in patterns(code, 1..=usize::from(code.m())) {
            check_loss(&mut random, &codec, &geometry, &fragments, lost, 0..geometry.columns());
        }
    }
}

#[test]
fn one_loss_too_many_is_an_error() {
    for code in codes() {
        let codec = Codec::new(code);
        let geometry = Geometry::new(code, u64::from(code.k()) * BLOCK).unwrap();
        for lost in patterns(code, usize::from(code.m()) + 1..=usize::from(code.m()) + 1) {
            let usable: Vec<_> = code.fragments().filter(|it| !lost.contains(*it)).collect();
            let error = Recovery::new(&codec, &geometry, 0..1, lost, &usable).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{code} {lost:?}");
        }
    }
}

#[test]
fn the_largest_codes_work_too() {
    let mut random = seeded(33);
    for (k, m) in [(31, 1), (28, 4), (20, 12), (16, 16), (1, 31)] {
        let code = code(k, m);
        let codec = Codec::new(code);
        let geometry = Geometry::new(code, u64::from(k) * BLOCK - 5).unwrap();
        let bytes = random_bytes(&mut random, geometry.length());
        let fragments = encode(&codec, &geometry, &bytes);
        for round in 0..20 {
            let all = super::others(&mut random, code, Fragments::NONE);
            let lost = all.into_iter().take(usize::from(m)).collect();
            let last = geometry.columns();
            let columns = if round == 0 { 0..last } else { last - 300..last };
            check_loss(&mut random, &codec, &geometry, &fragments, lost, columns);
        }
    }
}

#[test]
fn zero_padding_is_not_read() {
    let mut random = seeded(34);
    let codec = Codec::new(code(4, 2));
    // Fragment 0 has 10,000 bytes and the other data fragments none.
    let geometry = Geometry::new(code(4, 2), 10_000).unwrap();
    let bytes = random_bytes(&mut random, 10_000);
    let fragments = encode(&codec, &geometry, &bytes);
    let lost: Fragments = [FragmentIndex(0), FragmentIndex(4)].into_iter().collect();
    let only = [FragmentIndex(5)];
    let recovery = Recovery::new(&codec, &geometry, 0..10_000, lost, &only).unwrap();
    let (made, bytes_read) = super::recover(&recovery, &fragments, BLOCK);
    assert_eq!(bytes_read, 10_000);
    assert!(made[0] == bytes && made[1] == fragments[4]);
    // An empty fragment is recovered without reads.
    let empty: Fragments = [FragmentIndex(2)].into_iter().collect();
    let recovery = Recovery::new(&codec, &geometry, 0..10_000, empty, &[]).unwrap();
    assert_eq!(super::recover(&recovery, &fragments, BLOCK), (vec![Vec::new()], 0));
}

#[test]
fn the_best_sources_are_taken_and_no_more_than_needed() {
    let codec = Codec::new(code(4, 2));
    let geometry = Geometry::new(code(4, 2), 4 * BLOCK).unwrap();
    let wanted: Fragments = [FragmentIndex(1)].into_iter().collect();
    let usable = [5, 3, 1, 3, 0, 4, 2].map(FragmentIndex);
    let recovery = Recovery::new(&codec, &geometry, 5..9, wanted, &usable).unwrap();
    let reads: Vec<_> =
        recovery.reads(&(5..9)).into_iter().map(|it| (it.fragment.0, it.columns)).collect();
    assert_eq!(reads, [(5, 5..9), (3, 5..9), (0, 5..9), (4, 5..9)]);
}
