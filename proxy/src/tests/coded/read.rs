//! Reads of coded extents and their costs, with all fragments and with some.

use std::collections::HashMap;

use martlet_erasure::FragmentColumns;
use martlet_protocol::{DeviceId, ErrorKind};

use super::fixture::CodedFixture;
use super::read_fixture::{Lots, fragments, kind, pattern_of, slice};
use crate::tests::extents::wayward::Conduct;
use crate::tests::harness::pattern;

/// Lengths around the edges of blocks and fragments, short and long.
fn lengths(k: usize) -> Vec<usize> {
    let f = 65_536;
    vec![1, 10_000, f, (k - 1) * f + 1, k * f, k * f + 1, 900_000, k * 700_000 + 17]
}

/// For each pattern, deletes those fragments of a new extent, then reads the whole extent and some
/// ranges.
async fn check_losses(code: &str, patterns: impl Iterator<Item = u32> + Clone, seed: u64) {
    let mut lots = Lots::new(seed);
    let redundancy: martlet_protocol::Redundancy = code.parse().unwrap();
    let fixture = CodedFixture::new(code, u32::from(redundancy.fragments().unwrap()) + 2).await;
    for length in lengths(usize::from(fixture.code().k())) {
        let bytes = pattern(length, u32::try_from(seed).unwrap());
        for lost in patterns.clone() {
            let extent = fixture.keep(&bytes).await;
            fixture.lose(&extent, &pattern_of(lost)).await;
            fixture.check_range(&extent, &bytes, 0..length as u64).await;
            for _ in 0..3 {
                fixture.check_range(&extent, &bytes, lots.range(length as u64)).await;
            }
            fixture.lose(&extent, &pattern_of(u32::MAX)).await;
        }
    }
}

fn up_to(m: u32, total: u32) -> impl Iterator<Item = u32> + Clone {
    (0..1 << total).filter(move |bits: &u32| bits.count_ones() <= m)
}

#[tokio::test(start_paused = true)]
async fn every_loss_of_a_fragment_of_2_and_1_is_made_up_for() {
    check_losses("2+1", up_to(1, 3), 1).await;
}

#[tokio::test(start_paused = true)]
async fn every_loss_of_two_fragments_of_4_and_2_is_made_up_for() {
    check_losses("4+2", up_to(2, 6), 2).await;
}

#[tokio::test(start_paused = true)]
async fn losses_of_three_fragments_of_8_and_3_are_made_up_for() {
    let patterns = up_to(3, 11).filter(|bits| bits.count_ones() == 3).step_by(19);
    check_losses("8+3", patterns, 3).await;
}

#[tokio::test(start_paused = true)]
async fn copies_by_a_code_of_one_fragment_are_read_from_any() {
    check_losses("1+2", up_to(2, 3), 4).await;
}

#[tokio::test(start_paused = true)]
async fn ranges_over_several_extents_are_whole_with_and_without_losses() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let mut lots = Lots::new(5);
    let bytes = pattern(3_000_000, 5);
    let mut extents = Vec::new();
    for (start, end) in
        [(0, 900_000), (900_000, 900_001), (900_001, 2_900_001), (2_900_001, 3_000_000)]
    {
        extents.push(fixture.keep(&bytes.slice(start..end)).await);
    }
    for round in 0..3 {
        for _ in 0..40 {
            let range = lots.range(3_000_000);
            assert!(fixture.read(&extents, range.clone()).await.unwrap() == slice(&bytes, &range));
        }
        let lost = fragments(&[[0], [2], [0]][round]);
        fixture.lose(&extents[round], &lost).await;
    }
    let beyond = fixture.read(&extents, 10..3_000_001).await;
    assert_eq!(kind(beyond), Some(ErrorKind::Corrupt), "a manifest is shorter than its object");
}

#[tokio::test(start_paused = true)]
async fn a_healthy_read_requests_only_its_range_from_the_holders() {
    let fixture = CodedFixture::new("4+2", 9).await;
    let mut lots = Lots::new(6);
    let bytes = pattern(4_000_000, 6);
    let extent = fixture.keep(&bytes).await;
    let geometry = fixture.geometry(&extent);
    for at in 0..60 {
        let range = match at {
            // A MiB aligned to blocks.
            0..20 => (at * 65_536)..(at * 65_536 + (1 << 20)),
            _ => lots.range(4_000_000),
        };
        fixture.node.reads();
        fixture.check_range(&extent, &bytes, range.clone()).await;
        let expected: Vec<_> = geometry
            .fragment_ranges(range.clone())
            .unwrap()
            .into_iter()
            .map(|FragmentColumns { fragment, columns }| {
                (fixture.home(extent.id, fragment), columns)
            })
            .collect();
        let reads = fixture.node.reads();
        assert_eq!(reads, expected, "{range:?}");
        let bytes_read: u64 = reads.iter().map(|(_, columns)| columns.end - columns.start).sum();
        assert_eq!(bytes_read, range.end - range.start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_degraded_read_requests_equal_columns_of_as_many_fragments_as_needed() {
    let fixture = CodedFixture::new("4+2", 9).await;
    let bytes = pattern(900_000, 7);
    let extent = fixture.keep(&bytes).await;
    fixture.lose(&extent, &fragments(&[1])).await;
    let lost = fixture.home(extent.id, fragments(&[1])[0]);
    for (range, columns, needed) in [
        (300_000..365_536, &[(37_856, 103_392)][..], 4),
        // The last data fragment ends at column 113,568, and is known to be zero from there on.
        (375_712..385_712, &[(113_568, 123_568)], 3),
        (365_712..385_712, &[(103_568, 113_568), (113_568, 123_568)], 7),
    ] {
        fixture.node.reads();
        fixture.check_range(&extent, &bytes, range).await;
        let mut reads: HashMap<DeviceId, Vec<_>> = HashMap::new();
        for (device, columns) in fixture.node.reads() {
            reads.entry(device).or_default().push((columns.start, columns.end));
        }
        assert_eq!(reads.remove(&lost).map(|reads| reads.len()), Some(1), "home is queried first");
        assert_eq!(reads.values().flatten().count(), needed);
        assert!(reads.values().flatten().all(|reads| columns.contains(reads)), "{reads:?}");
    }
    fixture.node.reads();
    fixture.check_range(&extent, &bytes, 0..262_144).await;
    assert_eq!(fixture.node.reads().len(), 1, "other fragments are read as they are");
}

#[tokio::test(start_paused = true)]
async fn sources_take_turns() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(900_000, 8);
    let mut reads: HashMap<u8, usize> = HashMap::new();
    for _ in 0..60 {
        let extent = fixture.keep(&bytes).await;
        fixture.lose(&extent, &fragments(&[0])).await;
        fixture.node.reads();
        fixture.check_range(&extent, &bytes, 0..10_000).await;
        for (device, _) in fixture.node.reads() {
            let home =
                |fragment: &u8| fixture.home(extent.id, fragments(&[*fragment])[0]) == device;
            *reads.entry((0..6).find(home).unwrap()).or_default() += 1;
        }
    }
    assert_eq!(reads.values().sum::<usize>(), 60 * 5, "one at home and four others for each");
    assert!(reads.values().all(|reads| *reads > 20), "{reads:?}");
}

#[tokio::test(start_paused = true)]
async fn losses_beyond_the_code_are_errors_and_other_stripes_still_read() {
    for (code, lost) in [("2+1", &[0, 2][..]), ("4+2", &[1, 3, 4]), ("8+3", &[0, 1, 2, 3])] {
        let fixture = CodedFixture::new(code, 13).await;
        let bytes = pattern(900_000, 9);
        let extent = fixture.keep(&bytes).await;
        fixture.lose(&extent, &fragments(lost)).await;
        assert_eq!(
            kind(fixture.read_whole(&extent).await),
            Some(ErrorKind::Internal),
            "all have answered"
        );
        let opened = fixture.open(&[extent], 0..900_000).await;
        assert_eq!(kind(opened), Some(ErrorKind::Internal), "before any bytes have left");
        let geometry = fixture.geometry(&extent);
        for piece in geometry.fragment_ranges(0..900_000).unwrap() {
            let start = geometry.offset(&piece).unwrap();
            let range = start..start + piece.bytes();
            if !lost.contains(&piece.fragment.0) {
                fixture.check_range(&extent, &bytes, range).await;
                continue;
            }
            assert_eq!(kind(fixture.read(&[extent], range).await), Some(ErrorKind::Internal));
        }
        for out in fixture.devices() {
            fixture.let_be([out], Conduct::Refuses(ErrorKind::Unavailable));
            let read = kind(fixture.open(&[extent], 0..900_000).await);
            assert_eq!(read, Some(ErrorKind::Unavailable), "{out} may have a fragment");
            fixture.let_be([out], Conduct::Well);
        }
    }
}
