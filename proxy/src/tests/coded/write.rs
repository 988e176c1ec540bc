//! Placement and content of fragments, for every length around the edges.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use martlet_erasure::{FragmentIndex, Geometry};
use martlet_protocol::entry::{Attributes, Body, ETagKind, Manifest};
use martlet_protocol::extent::{ExtentRef, ExtentRole};
use martlet_protocol::limits::{BLOCK_BYTES, INLINE_BYTES_MAX};
use martlet_protocol::{BackendExt, BucketId, ExtentId, WriteId};

use super::fixture::{CodedFixture, POLICY, extents};
use crate::orphan_guard::OrphanGuard;
use crate::tests::harness::{body, pattern, put, settle, unsized_body};
use crate::tests::multipart::naming;
use crate::upload::{Destination, StoredBody};
use crate::{NewUpload, StoreOptions, WriteConditions, WrittenObject};

const MIB: u64 = 1024 * 1024;

fn bytes(length: u64, seed: u32) -> Bytes {
    pattern(usize::try_from(length).unwrap(), seed)
}

async fn put_unsized(fixture: &CodedFixture, bytes: &Bytes) -> WrittenObject {
    put(&fixture.store, "key", unsized_body(bytes.clone()), WriteConditions::default())
        .await
        .unwrap()
}

/// Lengths at the edges of blocks, rows of blocks, and extents.
fn edges(k: u64, extent_bytes_max: u64) -> Vec<u64> {
    let row = k * BLOCK_BYTES;
    let around = [BLOCK_BYTES, 2 * BLOCK_BYTES, row - BLOCK_BYTES, row, 2 * row, MIB];
    let mut edges: Vec<_> = around.into_iter().flat_map(|at| [at - 1, at, at + 1]).collect();
    edges.extend([INLINE_BYTES_MAX + 1, k * MIB, k * MIB + 1]);
    edges.extend([extent_bytes_max, extent_bytes_max + 1]);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Checks rule X5: when a write returns and no device is out, every fragment is on its primary.
async fn fragments_are_at_home(code: &str, devices: u32) {
    let fixture = CodedFixture::new(code, devices).await;
    let (k, most) = (u64::from(fixture.code().k()), fixture.code().extent_bytes_max());
    for (seed, length) in (1..).zip(edges(k, most)) {
        let bytes = bytes(length, seed);
        let written = fixture.put("key", bytes.clone()).await.unwrap();
        fixture.check_at_home(&written, &bytes).await;
        let lengths: Vec<_> = extents(&written).iter().map(|it| u64::from(it.length)).collect();
        let (last, full) = lengths.split_last().unwrap();
        assert!(full.iter().all(|length| *length == most) && *last <= most, "{lengths:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fragments_are_at_home_under_2_1() {
    fragments_are_at_home("2+1", 3).await;
}

#[tokio::test(start_paused = true)]
async fn fragments_are_at_home_under_4_2() {
    fragments_are_at_home("4+2", 9).await;
}

#[tokio::test(start_paused = true)]
async fn fragments_are_at_home_under_8_3() {
    fragments_are_at_home("8+3", 11).await;
}

#[tokio::test(start_paused = true)]
async fn inline_objects_are_not_coded() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let written = fixture.put("key", bytes(INLINE_BYTES_MAX, 1)).await.unwrap();
    assert!(matches!(written.object.body, Body::Inline { .. }));
    assert!(fixture.node.memory.extents_in_use().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_short_extent_is_held_by_as_many_devices_as_it_takes() {
    let fixture = CodedFixture::new("4+2", 6).await;
    for (length, fragments) in [(10_000, 3), (65_537, 4), (131_073, 5), (196_609, 6)] {
        let bytes = bytes(length, 1);
        let written = fixture.put("key", bytes.clone()).await.unwrap();
        fixture.check_at_home(&written, &bytes).await;
        assert_eq!(fixture.held(extents(&written)[0].id).len(), fragments, "{length} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_is_buffered() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let gathered = 4 * MIB;
    let edges = [8193, MIB, gathered - 1000, gathered - 1, gathered, gathered + 1, 10 * MIB + 7];
    for (seed, length) in (1..).zip(edges) {
        let bytes = bytes(length, seed);
        let written = put_unsized(&fixture, &bytes).await;
        fixture.check_at_home(&written, &bytes).await;
        let extents = extents(&written);
        assert!(extents.iter().all(|extent| u64::from(extent.length) <= gathered));
        assert!(extents.len() as u64 <= length / (gathered - 10_000) + 1, "{}", extents.len());
    }
}

/// Codes whose longest extent is shorter than the usual buffer for bodies of unknown length.
#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_fits_into_short_extents() {
    for (code, devices) in [("1+3", 4), ("2+6", 8), ("3+5", 8)] {
        let fixture = CodedFixture::new(code, devices).await;
        let longest = fixture.code().extent_bytes_max();
        assert!(longest < 4 * MIB, "{code}");
        let bytes = bytes(2 * longest + 7, 1);
        let written = put_unsized(&fixture, &bytes).await;
        fixture.check_at_home(&written, &bytes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fragments_are_as_far_apart_as_the_ring_allows() {
    for (devices, on_each_node, nodes) in [(12, 4, 3), (12, 2, 6), (12, 12, 1)] {
        let fixture =
            CodedFixture::with("4+2", devices, on_each_node, StoreOptions::default()).await;
        for seed in 0..4 {
            let bytes = bytes(900_000, seed);
            let written = fixture.put("key", bytes.clone()).await.unwrap();
            fixture.check_at_home(&written, &bytes).await;
            assert_eq!(fixture.nodes_of(extents(&written)[0].id), nodes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fragment_record_has_its_owner_and_extent_start() {
    let fixture = CodedFixture::new("2+1", 3).await;
    let bytes = bytes(20 * MIB, 1);
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    let mut offset = 0;
    for extent in extents(&written) {
        for (fragment, device) in fixture.held(extent.id) {
            let id = extent.id.fragment(fragment.0);
            let record = fixture.node.memory.stat_extent(device, id).await.unwrap().record;
            assert_eq!((record.owner.key.as_str(), record.owner.body_offset()), ("key", offset));
            assert_eq!((record.owner.role, record.named()), (ExtentRole::Data, extent.id));
            assert_eq!(record.replica(), Some(fragment.0));
        }
        offset += u64::from(extent.length);
    }
    assert_eq!(offset, 20 * MIB);
}

#[tokio::test(start_paused = true)]
async fn stored_fragments_have_the_lengths_of_the_geometry() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = bytes(900_000, 1);
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    let geometry = Geometry::new(fixture.code(), 900_000).unwrap();
    let mut stored = 0;
    for device in fixture.devices() {
        for id in fixture.node.memory.extents(device) {
            let stat = fixture.node.memory.stat_extent(device, id).await.unwrap();
            stored += u64::from(stat.record.extent.length);
        }
    }
    assert_eq!((stored, extents(&written).len()), (geometry.stored_bytes_total(), 1));
}

#[tokio::test(start_paused = true)]
async fn parts_and_manifests_that_spill_are_coded_too() {
    let options = StoreOptions { part_bytes_min: 10, ..StoreOptions::default() };
    let fixture = CodedFixture::with("2+1", 3, 1, options).await;
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = fixture.store.uploads().create("b", "key", new).await.unwrap().id;
    let (mut sent, mut whole) = (Vec::new(), Vec::new());
    for number in 1..=150_u32 {
        let part = bytes(100 * u64::from(number), number);
        whole.extend_from_slice(&part);
        let part = fixture.store.uploads().put_part("b", "key", upload, number, body(part));
        sent.push((number, part.await.unwrap()));
    }
    let named: Vec<_> = sent.iter().map(|(number, part)| (*number, part)).collect();
    let complete = naming(&named);
    let written = fixture.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    let Body::Spilled { policy, manifest } = &written.object.body else {
        panic!("150 extents don't fit into an entry");
    };
    assert_eq!((*policy, manifest.len()), (POLICY, 1));
    let encoded = fixture.whole(&manifest[0]).await;
    fixture.check_extent(&manifest[0], &encoded).await;
    let id = manifest[0].id;
    let record =
        fixture.node.memory.stat_extent(fixture.home(id, FragmentIndex(2)), id.fragment(2)).await;
    assert_eq!(record.unwrap().record.owner.role, ExtentRole::Manifest);
    let found = Manifest::decode(&encoded).unwrap();
    let mut from = 0;
    for extent in &found.extents {
        let to = from + extent.length as usize;
        fixture.check_extent(extent, &Bytes::copy_from_slice(&whole[from..to])).await;
        from = to;
    }
    assert_eq!((found.policy, found.parts.len(), from), (POLICY, 150, whole.len()));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_spills_is_kept_with_its_bytes_or_not_at_all() {
    let fixture = CodedFixture::new("2+1", 3).await;
    let services = &fixture.store.services;
    let extent = ExtentRef { id: ExtentId([7; 16]).whole(), length: 9, blake3: [1; 32] };
    let to = Destination {
        bucket: BucketId::random(),
        key: "key",
        write_id: WriteId::random(),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
        facts: None,
        policy: POLICY,
        inline_bytes_max: INLINE_BYTES_MAX,
        etags: ETagKind::Md5,
    };
    for is_claimed in [true, false] {
        let mut stored = StoredBody {
            size: 9 * 200,
            tag: [0; 16],
            checksums: Vec::new(),
            inline: None,
            extents: vec![extent; 200],
            orphans: OrphanGuard::new(services.extents.clone()),
        };
        let (body, spilled) = services.body_writer.body_for(&mut stored, to).await.unwrap();
        let Body::Spilled { manifest, .. } = &body else { panic!("200 extents spill") };
        let found = Manifest::decode(&fixture.whole(&manifest[0]).await).unwrap();
        assert_eq!(found.extents, [extent; 200]);
        stored.orphans.claim().store(is_claimed, Ordering::Release);
        drop((stored, spilled));
        settle().await;
        assert_eq!(fixture.node.memory.extents_in_use().is_empty(), !is_claimed);
        for (fragment, device) in fixture.held(manifest[0].id) {
            let id = manifest[0].id.fragment(fragment.0);
            fixture.node.memory.delete_extents(device, &[id]).await.unwrap();
        }
    }
}
