//! Multipart uploads, from their beginning to every possible end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::{Attributes, Body, ChecksumAlgorithm, ChecksumKind, ETag};
use martlet_protocol::lifecycle::ObjectExpiry;
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, RegisterKind, UploadId};

use super::harness::{Harness, body, faulty, pattern, settle};
use crate::{
    CompleteUpload, CopyPart, ETagCondition, Error, ListUploads, NamedPart, NewBody, NewUpload,
    ReadConditions, Result, Selection, WriteConditions, WrittenPart,
};

pub(super) async fn begin(harness: &Harness, key: &str) -> UploadId {
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    harness.store.uploads().create("b", key, new).await.unwrap().id
}

pub(super) async fn send(
    harness: &Harness,
    upload: UploadId,
    number: u32,
    bytes: &Bytes,
) -> Result<WrittenPart> {
    harness.store.uploads().put_part("b", "key", upload, number, body(bytes.clone())).await
}

pub(super) fn naming(parts: &[(u32, &WrittenPart)]) -> CompleteUpload {
    let named = |(number, part): &(u32, &WrittenPart)| NamedPart {
        number: *number,
        etag: format!("\"{}\"", part.etag),
        checksums: part
            .checksums
            .iter()
            .map(|checksum| (checksum.algorithm, checksum.value.clone()))
            .collect(),
    };
    CompleteUpload { parts: parts.iter().map(named).collect(), ..CompleteUpload::default() }
}

#[tokio::test]
async fn parts_become_an_object_and_the_rest_is_freed() {
    for (replicas, devices) in [(1, 1), (1, 3), (3, 3)] {
        let harness = Harness::new(replicas, devices);
        super::harness::create(&harness.store, "b").await;
        let upload = begin(&harness, "key").await;
        let parts: Vec<_> = (0..4).map(|seed| pattern(100_000 + seed as usize, seed)).collect();
        let first = send(&harness, upload, 1, &parts[0]).await.unwrap();
        send(&harness, upload, 5, &parts[1]).await.unwrap();
        let fifth = send(&harness, upload, 5, &parts[2]).await.unwrap();
        send(&harness, upload, 9, &parts[3]).await.unwrap();
        let complete = naming(&[(1, &first), (5, &fifth)]);
        let written =
            harness.store.uploads().complete("b", "key", upload, complete.clone()).await.unwrap();
        assert!(matches!(written.object.etag, ETag::Multipart { parts: 2, .. }));
        let whole = [&parts[0][..], &parts[2][..]].concat();
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), whole);
        assert_eq!(harness.get("key", Selection::Part { number: 2 }).await.unwrap(), parts[2]);
        let head = harness.head("key", Selection::Part { number: 1 });
        assert_eq!(head.await.unwrap().parts, Some(2));
        let beyond = harness.get("key", Selection::Part { number: 3 }).await;
        assert!(matches!(beyond, Err(Error::InvalidPartNumber { number: 3, parts: 2 })));
        settle().await;
        assert_eq!(
            harness.memory.extents_in_use().len(),
            2 * replicas,
            "what wasn't chosen is gone"
        );
        let again = harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        assert_eq!((again.stamp, again.object), (written.stamp, written.object));
        let late = send(&harness, upload, 1, &parts[0]).await;
        assert!(matches!(late, Err(Error::NoSuchUpload)));
        let aborted = harness.store.uploads().abort("b", "key", upload).await;
        assert!(matches!(aborted, Err(Error::NoSuchUpload)));
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), whole);
        harness.delete("key").await;
        assert!(harness.memory.extents_in_use().is_empty());
    }
}

#[tokio::test]
async fn the_etag_is_the_md5_of_md5s() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &"0123456789".into()).await.unwrap();
    let last = send(&harness, upload, 2, &"x".into()).await.unwrap();
    let complete = naming(&[(1, &part), (2, &last)]);
    let written = harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    let md5s = "781e5e245d69b566979b86e28d23f2c79dd4e461268c8034f5c8564e155c67a6";
    assert_eq!(format!("{}{}", part.etag, last.etag), md5s);
    assert_eq!(written.object.etag.to_string(), "ad2e41be70359198623df3c983174974-2");
}

#[tokio::test]
async fn an_aborted_upload_is_gone_with_its_parts() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &pattern(50_000, 1)).await.unwrap();
    harness.store.uploads().abort("b", "key", upload).await.unwrap();
    assert!(harness.memory.extents_in_use().is_empty());
    let complete = naming(&[(1, &part)]);
    let gone: Vec<Error> = vec![
        send(&harness, upload, 2, &"x".into()).await.unwrap_err(),
        harness.store.uploads().complete("b", "key", upload, complete).await.unwrap_err(),
        harness.store.uploads().list_parts("b", "key", upload, 0, 10).await.unwrap_err(),
        harness.store.uploads().abort("b", "key", upload).await.unwrap_err(),
        harness.store.uploads().abort("b", "other", upload).await.unwrap_err(),
    ];
    assert!(gone.iter().all(|error| matches!(error, Error::NoSuchUpload)), "{gone:?}");
    assert!(harness.store.uploads().list("b", listing(10)).await.unwrap().uploads.is_empty());
}

#[tokio::test]
async fn parts_named_by_a_complete_are_checked() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let small = send(&harness, upload, 1, &"tiny".into()).await.unwrap();
    let large = send(&harness, upload, 2, &pattern(1000, 1)).await.unwrap();
    let complete =
        |complete| async { harness.store.uploads().complete("b", "key", upload, complete).await };
    let refused = complete(naming(&[(1, &small), (2, &large)])).await;
    assert!(matches!(refused, Err(Error::EntityTooSmall { number: 1, size: 4, .. })));
    let refused = complete(naming(&[(2, &large), (1, &small)])).await;
    assert!(matches!(refused, Err(Error::InvalidPartOrder)));
    let refused = complete(naming(&[(2, &large), (2, &large)])).await;
    assert!(matches!(refused, Err(Error::InvalidPartOrder)), "a part would be there twice");
    let refused = complete(naming(&[(2, &small)])).await;
    assert!(matches!(refused, Err(Error::InvalidPart(2))));
    let refused = complete(naming(&[(3, &large)])).await;
    assert!(matches!(refused, Err(Error::InvalidPart(3))));
    let refused = complete(CompleteUpload::default()).await;
    assert!(matches!(refused, Err(Error::InvalidRequest(_))));
    let sized = CompleteUpload { object_size: Some(5), ..naming(&[(2, &large)]) };
    assert!(matches!(complete(sized).await, Err(Error::InvalidRequest(_))));
    for number in [0, 10_001] {
        let refused = send(&harness, upload, number, &"x".into()).await;
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    complete(naming(&[(2, &large)])).await.unwrap();
}

#[tokio::test]
async fn a_failed_condition_leaves_the_upload_open() {
    let harness = Harness::with_bucket(1).await;
    harness.put("key", "there").await.unwrap();
    let upload = begin(&harness, "key").await;
    let bytes = pattern(50_000, 1);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    let create_only = CompleteUpload {
        conditions: WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) },
        ..naming(&[(1, &part)])
    };
    let complete =
        |complete| async { harness.store.uploads().complete("b", "key", upload, complete).await };
    assert!(matches!(complete(create_only.clone()).await, Err(Error::PreconditionFailed(_))));
    harness.delete("key").await;
    complete(create_only).await.unwrap();
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn of_racing_completes_all_answer_the_same_write() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &pattern(50_000, 1)).await.unwrap();
    let racers = (0..20)
        .map(|_| harness.store.uploads().complete("b", "key", upload, naming(&[(1, &part)])));
    let written: Vec<_> = join_all(racers).await.into_iter().map(Result::unwrap).collect();
    assert!(written.windows(2).all(|pair| pair[0].stamp == pair[1].stamp));
}

#[tokio::test]
async fn of_completes_that_name_other_parts_one_wins() {
    let harness = Harness::with_bucket(1).await;
    for round in 0..20 {
        let upload = begin(&harness, "key").await;
        let one = send(&harness, upload, 1, &pattern(50_000, round)).await.unwrap();
        let two = send(&harness, upload, 2, &pattern(50_000, round + 100)).await.unwrap();
        let complete = |named| harness.store.uploads().complete("b", "key", upload, named);
        let outcomes =
            join_all([complete(naming(&[(1, &one)])), complete(naming(&[(2, &two)]))]).await;
        let is_refused = |it: &Result<_, Error>| matches!(it, Err(Error::NoSuchUpload));
        assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|it| is_refused(it)).count(), 1, "{outcomes:?}");
    }
}

#[tokio::test]
async fn many_parts_spill_their_manifest() {
    let harness = Harness::with_bucket(3).await;
    let upload = begin(&harness, "key").await;
    let mut sent = Vec::new();
    let mut whole = Vec::new();
    for number in 1..=300 {
        let bytes = pattern(500, number);
        sent.push((number, send(&harness, upload, number, &bytes).await.unwrap()));
        whole.extend_from_slice(&bytes);
    }
    let named: Vec<_> = sent.iter().map(|(number, part)| (*number, part)).collect();
    let complete = naming(&named);
    let written = harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert!(matches!(written.object.body, Body::Spilled { .. }));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), whole);
    let range = Selection::From { first: 749, last: Some(1_501) };
    assert_eq!(harness.get("key", range).await.unwrap(), whole[749..=1_501]);
    let part = harness.get("key", Selection::Part { number: 300 }).await.unwrap();
    assert_eq!(part, pattern(500, 300));
    let (_, places) = harness.store.in_place().places("b", "key").await.unwrap();
    assert_eq!(places.len(), 300);
}

#[tokio::test]
async fn a_spilled_manifest_is_read_once_for_many_ranges() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let mut sent = Vec::new();
    for number in 1..=200 {
        sent.push((number, send(&harness, upload, number, &pattern(500, 1)).await.unwrap()));
    }
    let named: Vec<_> = sent.iter().map(|(number, part)| (*number, part)).collect();
    harness.store.uploads().complete("b", "key", upload, naming(&named)).await.unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let store = faulty(&harness.memory, 1, 1, move |call| {
        counted.fetch_add(usize::from(call.op == CallKind::ReadExtent), Ordering::SeqCst);
        Fault::None
    });
    for first in 0..10 {
        let range = Selection::From { first: first * 500, last: Some(first * 500 + 99) };
        super::harness::get(&store, "key", range).await.unwrap();
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1 + 10);
}

#[tokio::test]
async fn checksums_of_parts_make_that_of_the_whole() {
    let harness = Harness::with_bucket(1).await;
    let parts = [pattern(5000, 1), pattern(777, 2)];
    for kind in [ChecksumKind::FullObject, ChecksumKind::Composite] {
        let checksum = Some((ChecksumAlgorithm::Crc32, kind));
        let new = NewUpload { attributes: Attributes::default(), checksum };
        let upload = harness.store.uploads().create("b", "key", new).await.unwrap().id;
        let refused = send(&harness, upload, 1, &parts[0]).await;
        assert!(matches!(refused, Err(Error::InvalidRequest(_))), "it comes with another checksum");
        let send = |number, bytes: &Bytes| {
            let compute = vec![ChecksumAlgorithm::Crc32];
            let part = NewBody { compute, ..body(bytes.clone()) };
            harness.store.uploads().put_part("b", "key", upload, number, part)
        };
        let first = send(1, &parts[0]).await.unwrap();
        let second = send(2, &parts[1]).await.unwrap();
        let named = naming(&[(1, &first), (2, &second)]);
        let crc = |bytes: &[u8]| {
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes).to_be_bytes()[4..]
                .to_vec()
        };
        let expected = match kind {
            ChecksumKind::FullObject => crc(&parts.concat()),
            ChecksumKind::Composite => crc(&[crc(&parts[0]), crc(&parts[1])].concat()),
        };
        let wrong = CompleteUpload {
            checksum: Some((ChecksumAlgorithm::Crc32, vec![0; 4])),
            ..named.clone()
        };
        let refused = harness.store.uploads().complete("b", "key", upload, wrong).await;
        assert!(matches!(refused, Err(Error::BadChecksum(_))));
        let other = match kind {
            ChecksumKind::FullObject => ChecksumKind::Composite,
            ChecksumKind::Composite => ChecksumKind::FullObject,
        };
        let mistaken = CompleteUpload { checksum_kind: Some(other), ..named.clone() };
        let refused = harness.store.uploads().complete("b", "key", upload, mistaken).await;
        assert!(matches!(refused, Err(Error::InvalidRequest(_))));
        if kind == ChecksumKind::Composite {
            let mut silent = named.clone();
            silent.parts[1].checksums.clear();
            let refused = harness.store.uploads().complete("b", "key", upload, silent).await;
            assert!(matches!(refused, Err(Error::InvalidRequest(_))));
        }
        let right = CompleteUpload {
            checksum: Some((ChecksumAlgorithm::Crc32, expected.clone())),
            checksum_kind: Some(kind),
            ..named
        };
        let written = harness.store.uploads().complete("b", "key", upload, right).await.unwrap();
        assert_eq!(written.object.checksums[0].value, expected);
        assert_eq!(written.object.checksums[0].kind, kind);
    }
    for checksum in [
        (ChecksumAlgorithm::Sha256, ChecksumKind::FullObject),
        (ChecksumAlgorithm::Xxhash3, ChecksumKind::FullObject),
        (ChecksumAlgorithm::Crc64Nvme, ChecksumKind::Composite),
    ] {
        let new = NewUpload { attributes: Attributes::default(), checksum: Some(checksum) };
        let refused = harness.store.uploads().create("b", "key", new).await;
        assert!(matches!(refused, Err(Error::InvalidRequest(_))));
    }
}

#[tokio::test]
async fn parts_are_copied_and_listed() {
    let harness = Harness::with_bucket(3).await;
    let source = pattern(200_000, 7);
    harness.put("source", source.clone()).await.unwrap();
    let upload = begin(&harness, "key").await;
    let copy = CopyPart {
        source: ("b".into(), "source".into()),
        source_version: None,
        source_conditions: ReadConditions::default(),
        selection: Selection::From { first: 50_000, last: Some(149_999) },
    };
    for number in [2, 1, 40, 7] {
        let copied =
            harness.store.uploads().copy_part("b", "key", upload, number, copy.clone()).await;
        assert_eq!(copied.unwrap().announced, None);
    }
    // Reads shorten a range that ends beyond the object, copies don't.
    let selection = Selection::From { first: 150_000, last: Some(200_000) };
    let beyond = CopyPart { selection, ..copy.clone() };
    let beyond = harness.store.uploads().copy_part("b", "key", upload, 3, beyond).await;
    assert!(matches!(beyond, Err(Error::InvalidRange { size: 200_000 })), "{beyond:?}");
    let numbers = |after, limit| {
        let store = harness.store.clone();
        async move {
            let page = store.uploads().list_parts("b", "key", upload, after, limit).await.unwrap();
            let numbers: Vec<_> = page.parts.iter().map(|(number, _)| *number).collect();
            (numbers, page.truncated)
        }
    };
    assert_eq!(numbers(0, 10).await, (vec![1, 2, 7, 40], false));
    assert_eq!(numbers(0, 3).await, (vec![1, 2, 7], true));
    assert_eq!(numbers(2, 2).await, (vec![7, 40], false));
    assert_eq!(numbers(40, 2).await, (vec![], false));
    assert_eq!(numbers(10_000, 2).await, (vec![], false));
    let page = harness.store.uploads().list_parts("b", "key", upload, 0, 1).await.unwrap();
    let part = &page.parts[0].1;
    let named = NamedPart { number: 1, etag: ETag::Md5(part.tag).to_string(), checksums: vec![] };
    let complete = CompleteUpload { parts: vec![named], ..CompleteUpload::default() };
    harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    harness.delete("source").await;
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), source.slice(50_000..150_000));
}

fn listing(limit: usize) -> ListUploads {
    ListUploads { limit, ..ListUploads::default() }
}

#[tokio::test]
async fn uploads_are_listed_by_key_and_age() {
    let harness = Harness::with_bucket(3).await;
    let mut begun = Vec::new();
    for key in ["b/2", "a", "b/1", "c", "a"] {
        begun.push((key.to_owned(), begin(&harness, key).await));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begun.sort();
    let mut seen = Vec::new();
    let mut list = listing(2);
    loop {
        let page = harness.store.uploads().list("b", list.clone()).await.unwrap();
        seen.extend(page.uploads.into_iter().map(|upload| (upload.key, upload.id)));
        let Some((key, id)) = page.next else { break };
        list = ListUploads { after_key: Some(key), after_id: id, ..list };
    }
    assert_eq!(seen, begun);
    let folded = ListUploads { delimiter: Some("/".into()), ..listing(3) };
    let page = harness.store.uploads().list("b", folded.clone()).await.unwrap();
    assert_eq!((page.uploads.len(), page.prefixes), (2, vec!["b/".to_owned()]));
    assert_eq!(page.next, Some(("b/".to_owned(), None)));
    let rest = ListUploads { after_key: Some("b/".into()), ..folded };
    let page = harness.store.uploads().list("b", rest).await.unwrap();
    assert_eq!(page.uploads[0].key, "c");
    let prefixed = ListUploads { prefix: "b/".into(), ..listing(10) };
    assert_eq!(harness.store.uploads().list("b", prefixed).await.unwrap().uploads.len(), 2);
}

#[tokio::test]
async fn an_upload_outlives_what_happens_to_its_key() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(30_000, 2);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    harness.put("key", "meanwhile").await.unwrap();
    harness.delete("key").await;
    harness.store.uploads().complete("b", "key", upload, naming(&[(1, &part)])).await.unwrap();
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
    settle().await;
    assert_eq!(harness.memory.extents(DeviceId(1)).len(), 1);
}

/// The proxy died after the decision, and the client never retried: the expire worker completes it.
#[tokio::test]
async fn an_upload_that_was_left_in_its_completion_is_driven_on_for_the_worker() {
    let harness = Harness::with_bucket(1).await;
    let expiry: &dyn ObjectExpiry = &harness.store;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    assert!(!expiry.finish_upload("b", "key", upload).await.unwrap(), "it is open");
    let dead = faulty(&harness.memory, 1, 1, |call| {
        let is_object = call.key.is_some_and(|key| key.kind == RegisterKind::Object);
        if call.op == CallKind::Write && is_object { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, naming(&[(1, &part)]));
    tokio::time::timeout(Duration::from_millis(300), attempt).await.unwrap_err();
    assert!(expiry.finish_upload("b", "key", upload).await.unwrap());
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
    assert!(!expiry.finish_upload("b", "key", upload).await.unwrap(), "it has ended");
    assert!(!expiry.finish_upload("gone", "key", upload).await.unwrap());
}
