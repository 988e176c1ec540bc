//! Objects of all sizes: written, read in ranges, copied, tagged, deleted.

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::entry::{Attributes, Body, ChecksumAlgorithm, ETag, Marks};
use martlet_protocol::limits::{EXTENT_BYTES_MAX, INLINE_BYTES_MAX};
use martlet_protocol::{BackendExt, DeviceId};
use proptest::prelude::*;

use super::harness::{Harness, body, collect, faulty, get, pattern, put, settle, unsized_body};
use crate::{
    CopyObject, ETagCondition, Error, NewBody, ReadConditions, Selection, WriteConditions,
};

fn inline_max() -> usize {
    usize::try_from(INLINE_BYTES_MAX).unwrap()
}

fn extent_max() -> usize {
    usize::try_from(EXTENT_BYTES_MAX).unwrap()
}

pub(super) fn copy_of(key: &str) -> CopyObject {
    CopyObject {
        source: ("b".into(), key.into()),
        source_version: None,
        source_conditions: ReadConditions::default(),
        attributes: None,
        tags: None,
        marks: Marks::default(),
        storage_class: None,
        checksum: None,
        conditions: WriteConditions::default(),
    }
}

#[tokio::test]
async fn objects_of_any_size_are_read_as_written() {
    for devices in [1, 3] {
        let harness = Harness::with_bucket(devices).await;
        let sizes = [0, 1, 4096, inline_max(), inline_max() + 1, 1 << 20, 5_000_001];
        for (seed, size) in (1..).zip(sizes) {
            for announced in [true, false] {
                let bytes = pattern(size, seed);
                let key = format!("{size}");
                let new_body =
                    if announced { body(bytes.clone()) } else { unsized_body(bytes.clone()) };
                let written =
                    put(&harness.store, &key, new_body, WriteConditions::default()).await.unwrap();
                assert_eq!(written.object.size, size as u64);
                let inline = matches!(written.object.body, Body::Inline { .. });
                assert_eq!(inline, (1..=inline_max()).contains(&size), "{size} bytes");
                assert_eq!(harness.get(&key, Selection::Whole).await.unwrap(), bytes);
                let read = harness.head(&key, Selection::Whole).await.unwrap();
                assert!(read.body.is_none());
                assert_eq!((read.stamp, &*read.object), (written.stamp, &written.object));
                assert_eq!(read.object.attributes.content_type.as_deref(), Some("text/x"));
            }
        }
    }
}

#[tokio::test]
async fn long_objects_are_cut_into_extents_and_read_across_them() {
    let harness = Harness::with_bucket(3).await;
    for extra in [0, 77] {
        let bytes = pattern(2 * extent_max() + extra, 9);
        let written = harness.put("long", bytes.clone()).await.unwrap();
        let Body::Extents(manifest) = &written.object.body else { panic!("it has extents") };
        assert_eq!(manifest.extents.len(), if extra == 0 { 2 } else { 3 });
        let edge = EXTENT_BYTES_MAX;
        for (first, last) in [(edge - 5, edge + 5), (0, 2 * edge - 1), (edge, edge), (7, 9)] {
            let range = Selection::From { first, last: Some(last) };
            let found = harness.get("long", range).await.unwrap();
            let at = |offset| usize::try_from(offset).unwrap();
            assert!(found == bytes.slice(at(first)..=at(last)), "{first}-{last}");
        }
        let (object, places) = harness.store.in_place().places("b", "long").await.unwrap();
        assert_eq!(object.size, bytes.len() as u64);
        let offsets: Vec<_> = places.iter().map(|place| place.object_offset).collect();
        assert_eq!(offsets, [0, edge, 2 * edge][..places.len()]);
    }
}

#[tokio::test]
async fn nothing_is_left_of_what_was_refused() {
    let harness = Harness::with_bucket(1).await;
    for size in [100, 50_000, 3_000_000] {
        let bytes = pattern(size, 3);
        let wrong_md5 = NewBody { md5: Some([1; 16]), ..body(bytes.clone()) };
        let wrong_sum = NewBody {
            expected: Box::new(|| Ok(vec![(ChecksumAlgorithm::Crc32c, vec![0; 4])])),
            ..body(bytes.clone())
        };
        let short = NewBody { size: Some(size as u64 + 1), ..body(bytes.clone()) };
        let long = NewBody { size: Some(size as u64 - 1), ..body(bytes.clone()) };
        let cut = {
            let error = martlet_protocol::Error::invalid("cut").with_source("the client's own");
            let chunks = vec![Ok(bytes.slice(..size / 2)), Err(error)];
            NewBody { bytes: futures::stream::iter(chunks).boxed(), ..body(bytes.clone()) }
        };
        let mut errors = Vec::new();
        for new_body in [wrong_md5, wrong_sum, short, long, cut] {
            let refused = put(&harness.store, "key", new_body, WriteConditions::default()).await;
            errors.push(refused.unwrap_err());
        }
        assert!(matches!(errors[0], Error::BadDigest { .. }));
        assert!(matches!(errors[1], Error::BadChecksum(ChecksumAlgorithm::Crc32c)));
        assert!(matches!(errors[2], Error::InvalidRequest(_)));
        assert!(matches!(errors[3], Error::InvalidRequest(_)));
        assert!(
            matches!(&errors[4], Error::Body(error) if std::error::Error::source(error).is_some())
        );
    }
    settle().await;
    assert!(harness.memory.extents(DeviceId(1)).is_empty());
    assert!(matches!(harness.get("key", Selection::Whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_put_that_is_broken_off_leaves_nothing() {
    let harness = Harness::with_bucket(1).await;
    let mut new_body = body(pattern(2_000_000, 1));
    new_body.size = None;
    new_body.bytes = new_body.bytes.chain(futures::stream::pending()).boxed();
    let stuck = put(&harness.store, "key", new_body, WriteConditions::default());
    let waited = tokio::time::timeout(std::time::Duration::from_millis(50), stuck).await;
    assert!(waited.is_err(), "the body never ends");
    settle().await;
    assert!(harness.memory.extents(DeviceId(1)).is_empty());
}

#[tokio::test]
async fn a_full_device_is_passed_over() {
    let harness = Harness::with_bucket(3).await;
    harness.memory.set_full(DeviceId(2), true);
    for seed in 0..12 {
        let bytes = pattern(200_000, seed);
        harness.put(&format!("{seed}"), bytes.clone()).await.unwrap();
        assert_eq!(harness.get(&format!("{seed}"), Selection::Whole).await.unwrap(), bytes);
    }
    assert!(harness.memory.extents(DeviceId(2)).is_empty());
    for device in [1, 3].map(DeviceId) {
        harness.memory.set_full(device, true);
    }
    let refused = harness.put("one more", pattern(200_000, 0)).await;
    assert!(matches!(refused, Err(Error::Backend(error))
        if error.kind() == martlet_protocol::ErrorKind::Full));
    harness.put("small", pattern(200, 0)).await.unwrap();
    harness.delete("0").await;
}

#[tokio::test]
async fn a_corrupt_extent_is_never_served() {
    let harness = Harness::with_bucket(1).await;
    harness.put("key", pattern(100_000, 5)).await.unwrap();
    let id = harness.memory.extents(DeviceId(1))[0];
    harness.memory.corrupt(DeviceId(1), id);
    let read = harness.get("key", Selection::Whole).await;
    assert!(matches!(read, Err(Error::Backend(error))
        if error.kind() == martlet_protocol::ErrorKind::Corrupt));
    let node: &dyn martlet_protocol::Backend = &*harness.memory;
    node.delete_extents(DeviceId(1), &[id]).await.unwrap();
    let read = harness.get("key", Selection::Whole).await;
    assert!(
        matches!(read, Err(Error::Backend(error))
        if error.kind() == martlet_protocol::ErrorKind::Internal),
        "a lost extent is no 404"
    );
}

#[tokio::test]
async fn overwrites_and_deletes_leave_garbage_for_the_node_to_collect() {
    let harness = Harness::with_bucket(1).await;
    harness.put("key", pattern(20_000, 1)).await.unwrap();
    harness.put("key", pattern(20_000, 2)).await.unwrap();
    assert_eq!(harness.memory.extents_in_use().len(), 1);
    let deleted = harness.store.delete("b", "key", &WriteConditions::default()).await.unwrap();
    assert!(deleted.stamp.is_some());
    assert!(harness.memory.extents_in_use().is_empty());
    let again = harness.store.delete("b", "key", &WriteConditions::default()).await.unwrap();
    assert!(again.stamp.is_none(), "a key that is gone gets no second tombstone");
}

#[tokio::test]
async fn reads_answer_conditions() {
    let harness = Harness::with_bucket(1).await;
    let written = harness.put("key", "hello").await.unwrap();
    let tag = Some(ETagCondition::OneOf(vec![written.object.etag.to_string()]));
    let unless_cached = ReadConditions { if_none_match: tag.clone(), ..ReadConditions::default() };
    let read = harness.store.get("b", "key", Selection::Whole, &unless_cached).await;
    assert!(matches!(read.err(), Some(Error::NotModified(object)) if *object == written.object));
    let other = ReadConditions {
        if_match: Some(ETagCondition::OneOf(vec!["x".into()])),
        ..ReadConditions::default()
    };
    let read = harness.store.head("b", "key", Selection::Whole, &other).await;
    assert!(matches!(read.err(), Some(Error::PreconditionFailed("If-Match"))));
    let read = harness.store.get("b", "none", Selection::Whole, &other).await;
    assert!(matches!(read.err(), Some(Error::NoSuchKey)));
    let read = harness.store.get("none", "key", Selection::Whole, &other).await;
    assert!(matches!(read.err(), Some(Error::NoSuchBucket)));
    let beyond = Selection::From { first: 5, last: None };
    let read = harness.get("key", beyond).await;
    assert!(matches!(read, Err(Error::InvalidRange { size: 5 })));
}

#[tokio::test]
async fn copies_have_extents_of_their_own() {
    let harness = Harness::with_bucket(3).await;
    for size in [0, 100, 300_000] {
        let bytes = pattern(size, 8);
        let source = harness.put("source", bytes.clone()).await.unwrap();
        let copied = harness.store.copy("b", "copy", copy_of("source")).await.unwrap();
        assert_eq!(copied.object.etag, source.object.etag);
        assert_eq!(copied.object.checksums, source.object.checksums);
        assert_eq!(copied.object.attributes, source.object.attributes);
        harness.delete("source").await;
        assert_eq!(harness.get("copy", Selection::Whole).await.unwrap(), bytes);
        let attributes = Attributes { content_type: Some("a/b".into()), ..Attributes::default() };
        let replaced = CopyObject { attributes: Some(attributes), ..copy_of("copy") };
        let replaced = harness.store.copy("b", "copy", replaced).await.unwrap();
        assert_eq!(replaced.object.attributes.content_type.as_deref(), Some("a/b"));
        assert_eq!(harness.get("copy", Selection::Whole).await.unwrap(), bytes);
    }
    let same = harness.store.copy("b", "copy", copy_of("copy")).await;
    assert!(matches!(same, Err(Error::InvalidRequest(_))));
    let none = harness.store.copy("b", "copy", copy_of("none")).await;
    assert!(matches!(none, Err(Error::NoSuchKey)));
    let conditions =
        ReadConditions { if_none_match: Some(ETagCondition::Any), ..ReadConditions::default() };
    let unless_cached = CopyObject { source_conditions: conditions, ..copy_of("copy") };
    let refused = harness.store.copy("b", "other", unless_cached).await;
    assert!(matches!(refused, Err(Error::PreconditionFailed(_))));
}

#[tokio::test]
async fn tags_change_without_moving_bytes() {
    let harness = Harness::with_bucket(1).await;
    for size in [10, 100_000] {
        let bytes = pattern(size, 4);
        let before = harness.put("key", bytes.clone()).await.unwrap();
        let tags = vec![("a".to_owned(), "b".to_owned())];
        let after = harness.store.versions().set_tags("b", "key", tags.clone()).await.unwrap();
        assert!(after.stamp > before.stamp);
        assert_eq!(after.object.body, before.object.body);
        let read = harness.head("key", Selection::Whole);
        assert_eq!(read.await.unwrap().object.attributes.tags, tags);
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
    }
    assert_eq!(harness.memory.extents_in_use().len(), 1, "the tagged entry keeps its extent");
    let none = harness.store.versions().set_tags("b", "none", Vec::new()).await;
    assert!(matches!(none, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn checksums_are_computed_and_kept() {
    let harness = Harness::with_bucket(1).await;
    let new_body = NewBody {
        compute: vec![ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Crc64Nvme],
        expected: Box::new(|| {
            Ok(vec![(ChecksumAlgorithm::Crc64Nvme, hex::decode("ae8b14860a799888").unwrap())])
        }),
        ..body(Bytes::from_static(b"123456789"))
    };
    let written = put(&harness.store, "key", new_body, WriteConditions::default()).await.unwrap();
    let kept: Vec<_> = written.object.checksums.iter().map(|sum| sum.algorithm).collect();
    assert_eq!(kept, [ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Crc64Nvme]);
    assert!(matches!(written.object.etag, ETag::Md5(_)));
}

#[tokio::test]
async fn three_replicas_survive_the_loss_of_one() {
    let harness = Harness::new(3, 3);
    super::harness::create(&harness.store, "b").await;
    let bytes = pattern(300_000, 6);
    harness.put("before", bytes.clone()).await.unwrap();
    harness.memory.set_offline(DeviceId(1), true);
    assert_eq!(harness.get("before", Selection::Whole).await.unwrap(), bytes);
    harness.put("before", "newer").await.unwrap();
    harness.put("after", bytes.clone()).await.unwrap();
    harness.memory.set_offline(DeviceId(1), false);
    harness.memory.set_offline(DeviceId(2), true);
    assert_eq!(harness.get("before", Selection::Whole).await.unwrap(), "newer");
    assert_eq!(harness.get("after", Selection::Whole).await.unwrap(), bytes);
    harness.memory.set_offline(DeviceId(3), true);
    assert!(matches!(harness.get("after", Selection::Whole).await, Err(Error::Backend(_))));
}

#[tokio::test]
async fn requests_can_move_between_threads() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let harness = Harness::with_bucket(1).await;
    let (store, read) = (&harness.store, ReadConditions::default());
    is_send(harness.put("key", "x")).await.unwrap();
    let found = is_send(store.get("b", "key", Selection::Whole, &read)).await.unwrap();
    assert_eq!(collect(found).await.unwrap(), "x");
    is_send(store.copy("b", "copy", copy_of("key"))).await.unwrap();
    is_send(store.versions().set_tags("b", "key", Vec::new())).await.unwrap();
    is_send(store.list("b", crate::ListObjects::default())).await.unwrap();
    is_send(store.buckets().list("", None, 1)).await.unwrap();
    is_send(store.in_place().places("b", "key")).await.unwrap();
    is_send(store.buckets().delete("none")).await.unwrap_err();
    let faulty = faulty(&harness.memory, 1, 1, |_| martlet_protocol::testing::Fault::None);
    assert_eq!(get(&faulty, "key", Selection::Whole).await.unwrap(), "x");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn ranges_are_slices(
        size in prop_oneof![1usize..100, 8190usize..8200, 900_000usize..1_100_000],
        cuts in proptest::collection::vec((0usize..1000, 0usize..1200), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::with_bucket(2).await;
            let bytes = pattern(size, 11);
            harness.put("key", bytes.clone()).await.unwrap();
            for (from, length) in cuts {
                let first = from * size / 1000;
                let last = first + length * size / 1000;
                let range = Selection::From { first: first as u64, last: Some(last as u64) };
                let found = harness.get("key", range).await.unwrap();
                assert!(found == bytes.slice(first..(last + 1).min(size)));
                let suffix = Selection::Suffix { length: last as u64 + 1 };
                let found = harness.get("key", suffix).await.unwrap();
                assert!(found == bytes.slice(size.saturating_sub(last + 1)..));
            }
        });
    }
}
