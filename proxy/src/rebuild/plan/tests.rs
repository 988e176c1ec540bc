//! Bodies of extents: their order, their end, and the reasons to leave them.

use martlet_protocol::extent::{Layout, Owner, Stripe};
use martlet_protocol::{BucketId, ExtentId};

use super::*;

const BUCKET: BucketId = BucketId([7; 16]);
const FULL: u32 = 64 * 1024 * 1024;

/// Extents of a key under construction.
struct KeyUnderTest(LostKey);

impl KeyUnderTest {
    fn new() -> Self {
        Self(LostKey { bucket: BUCKET, key: "k".into(), extents: Vec::new() })
    }

    fn with(mut self, extent: LostExtent) -> Self {
        self.0.extents.push(extent);
        self
    }

    fn bodies(&self) -> Vec<LostBody> {
        bodies_of(&self.0, RebuildConsent::default())
    }

    fn bodies_with_all(&self) -> Vec<LostBody> {
        let consent = RebuildConsent { without_facts: true, uploads: true, ..Default::default() };
        bodies_of(&self.0, consent)
    }
}

/// An extent of a write: `write` is its number, and the time of its birth.
fn extent(write: u8, offset: u64, length: u32, facts: Option<BodyFacts>) -> LostExtent {
    let owner = Owner {
        bucket: BUCKET,
        key: "k".into(),
        write_id: WriteId([write; 16]),
        upload: None,
        role: ExtentRole::Data,
        offset: facts.map_or(offset, |facts| facts.at(offset)),
    };
    let extent = ExtentRef { id: ExtentId::random().whole(), length, blake3: [write; 32] };
    let record =
        ExtentRecord { extent, owner, birth_ms: u64::from(write), layout: Layout::default() };
    LostExtent { record, is_readable: true }
}

#[expect(clippy::unnecessary_wraps, reason = "extents take facts or none")]
fn last() -> Option<BodyFacts> {
    Some(BodyFacts { is_last: true, ..BodyFacts::default() })
}

#[expect(clippy::unnecessary_wraps, reason = "extents take facts or none")]
fn middle() -> Option<BodyFacts> {
    Some(BodyFacts::default())
}

fn part(upload: u8, number: u16, write: u8, length: u32) -> LostExtent {
    let facts = BodyFacts { is_last: true, part: Some(number), ..BodyFacts::default() };
    let mut extent = extent(write, 0, length, Some(facts));
    extent.record.owner.upload = Some(UploadId([upload; 16]));
    extent
}

fn refusals(bodies: &[LostBody]) -> Vec<Option<NotRebuilt>> {
    bodies.iter().map(|body| body.refusal).collect()
}

#[test]
fn extents_of_any_order_are_sorted_to_the_last() {
    let key = KeyUnderTest::new().with(extent(1, u64::from(FULL), 5, last())).with(extent(
        1,
        0,
        FULL,
        middle(),
    ));
    let bodies = key.bodies();
    assert_eq!(refusals(&bodies), [None]);
    assert_eq!((bodies[0].bytes(), bodies[0].kind), (u64::from(FULL) + 5, BodyKind::Whole));
    let lengths: Vec<u32> = bodies[0].extents.iter().map(|extent| extent.length).collect();
    assert_eq!(lengths, [FULL, 5]);
}

#[test]
fn a_full_extent_has_the_maximum() {
    assert_eq!(u64::from(FULL), EXTENT_BYTES_MAX);
}

#[test]
fn a_gap_or_a_missing_end_is_incomplete() {
    let incomplete = [Some(NotRebuilt::Incomplete)];
    for extents in [
        vec![extent(1, 5, 5, last())],
        vec![extent(1, 0, 4, middle()), extent(1, 5, 5, last())],
        vec![extent(1, 0, FULL, middle())],
        vec![extent(1, 0, 6, middle()), extent(1, 5, 5, last())],
    ] {
        let key = extents.into_iter().fold(KeyUnderTest::new(), KeyUnderTest::with);
        assert_eq!(refusals(&key.bodies()), incomplete, "{:?}", key.0);
    }
    // The end of a body of unknown length shows by a copy that is not full.
    let key = KeyUnderTest::new().with(extent(1, 0, FULL - 1, middle()));
    assert_eq!(refusals(&key.bodies()), [None]);
    let mut coded = extent(1, 0, 100, middle());
    coded.record.layout.stripe = Some(Stripe { k: 2, m: 1, length: 200 });
    let key = KeyUnderTest::new().with(coded);
    assert_eq!(refusals(&key.bodies()), incomplete, "a coded extent may be short in the middle");
}

#[test]
fn a_coded_extent_is_named_as_a_whole() {
    let mut coded = extent(1, 0, 100, last());
    coded.record.layout.stripe = Some(Stripe { k: 2, m: 1, length: 200 });
    coded.record.extent.id = coded.record.extent.id.fragment(2);
    let id = coded.record.named();
    let bodies = KeyUnderTest::new().with(coded.clone()).bodies();
    assert_eq!(bodies[0].extents, [ExtentRef { id, length: 200, blake3: [0; 32] }]);
    assert_eq!(bodies[0].refusal, None);
    coded.is_readable = false;
    let bodies = KeyUnderTest::new().with(coded).bodies();
    assert_eq!(refusals(&bodies), [Some(NotRebuilt::Unreadable)]);
}

#[test]
fn encrypted_bodies_stay_away_and_those_without_facts_need_consent() {
    let encrypted = Some(BodyFacts { is_encrypted: true, is_last: true, ..BodyFacts::default() });
    let key = KeyUnderTest::new().with(extent(1, 0, 9, encrypted));
    assert_eq!(refusals(&key.bodies_with_all()), [Some(NotRebuilt::Encrypted)]);
    let key = KeyUnderTest::new().with(extent(1, 0, 9, None));
    assert_eq!(refusals(&key.bodies()), [Some(NotRebuilt::NoFacts)]);
    assert_eq!(refusals(&key.bodies_with_all()), [None]);
    let key = KeyUnderTest::new().with(extent(1, 0, FULL, None));
    assert_eq!(refusals(&key.bodies_with_all()), [Some(NotRebuilt::Incomplete)]);
}

#[test]
fn bodies_are_ordered_by_the_birth_of_their_last_extent() {
    let key = KeyUnderTest::new()
        .with(extent(9, 0, 1, last()))
        .with(extent(2, 0, 2, last()))
        .with(extent(5, 0, 3, last()));
    let ids: Vec<u8> = key.bodies().iter().map(|body| body.write_id.0[0]).collect();
    assert_eq!(ids, [2, 5, 9]);
}

#[test]
fn a_manifest_stands_for_the_data_and_the_upload_that_it_describes() {
    let mut manifest = extent(3, 0, 9, last());
    manifest.record.owner.role = ExtentRole::Manifest;
    let key = KeyUnderTest::new().with(extent(3, 0, 1, last())).with(manifest.clone());
    let bodies = key.bodies();
    assert_eq!((bodies.len(), bodies[0].kind), (1, BodyKind::Manifest));
    manifest.record.owner.upload = Some(UploadId([8; 16]));
    let key = KeyUnderTest::new().with(part(8, 1, 4, 5)).with(manifest);
    let bodies = key.bodies();
    assert_eq!((bodies.len(), bodies[0].kind), (1, BodyKind::Manifest));
    assert_eq!(bodies[0].upload, Some(UploadId([8; 16])));
}

#[test]
fn parts_come_in_the_order_of_their_numbers_and_only_by_consent() {
    let key = KeyUnderTest::new()
        .with(part(8, 2, 4, 20))
        .with(part(8, 1, 5, 10))
        // The second part was sent twice.
        .with(part(8, 2, 3, 99));
    assert_eq!(refusals(&key.bodies()), [Some(NotRebuilt::Upload)]);
    let bodies = key.bodies_with_all();
    assert_eq!((refusals(&bodies), bodies[0].kind), (vec![None], BodyKind::Parts));
    assert_eq!(bodies[0].parts, [10, 20]);
    assert_eq!(bodies[0].part_writes, [WriteId([5; 16]), WriteId([4; 16])]);
    let key = KeyUnderTest::new().with(part(8, 1, 4, 20)).with(part(8, 3, 5, 10));
    assert_eq!(refusals(&key.bodies_with_all()), [Some(NotRebuilt::Incomplete)]);
}

#[test]
fn of_a_part_that_was_sent_twice_the_last_whole_one_counts() {
    let mut cut_off = part(8, 1, 9, 64);
    let facts = BodyFacts { part: Some(1), ..BodyFacts::default() };
    cut_off.record.owner.offset = facts.at(FULL.into());
    let mut unreadable = part(8, 2, 7, 20);
    unreadable.is_readable = false;
    let key = KeyUnderTest::new()
        .with(part(8, 1, 3, 10))
        .with(cut_off)
        .with(part(8, 2, 4, 20))
        .with(unreadable);
    let bodies = key.bodies_with_all();
    assert_eq!(refusals(&bodies), [None]);
    assert_eq!(bodies[0].part_writes, [WriteId([3; 16]), WriteId([4; 16])]);
}

#[test]
fn pieces_of_a_moved_object_never_become_an_object() {
    let piece =
        Some(BodyFacts { is_last: true, part: Some(BodyFacts::PIECE), ..BodyFacts::default() });
    let pieces = [Some(NotRebuilt::Pieces)];
    let key = KeyUnderTest::new().with(extent(1, 0, 9, piece));
    assert_eq!(refusals(&key.bodies_with_all()), pieces, "the move may have ended here");
    let key = key.with(extent(1, 9, 5, piece));
    assert_eq!(refusals(&key.bodies_with_all()), pieces);
    let key = KeyUnderTest::new().with(extent(1, 0, 9, None)).with(extent(1, 9, 5, None));
    assert_eq!(refusals(&key.bodies_with_all()), pieces, "the first copy isn't full");
    // The manifest of the move describes all pieces.
    let mut manifest = extent(1, 0, 7, piece);
    manifest.record.owner.role = ExtentRole::Manifest;
    let key = KeyUnderTest::new().with(extent(1, 0, 9, piece)).with(manifest);
    let bodies = key.bodies();
    assert_eq!((refusals(&bodies), bodies[0].kind), (vec![None], BodyKind::Manifest));
}

/// A long part has a manifest of its own, which looks like that of an object but for its number.
#[test]
fn the_manifest_of_a_part_is_no_object() {
    let mut manifest = part(9, 1, 1, 40);
    manifest.record.owner.role = ExtentRole::Manifest;
    let key = KeyUnderTest::new().with(manifest.clone()).with(part(9, 1, 1, 30));
    let bodies = key.bodies_with_all();
    assert_eq!(refusals(&bodies), [None]);
    assert_eq!((bodies[0].kind, bodies[0].bytes()), (BodyKind::Parts, 30));
    assert!(KeyUnderTest::new().with(manifest.clone()).bodies_with_all().is_empty());
    // Without a number it describes an object.
    manifest.record.owner.offset = BodyFacts { is_last: true, ..BodyFacts::default() }.at(0);
    let key = KeyUnderTest::new().with(manifest).with(part(9, 1, 1, 30));
    assert_eq!(key.bodies_with_all()[0].kind, BodyKind::Manifest);
}
