//! Parts whose manifests are too long for their entries: they have extents of their own.

use bytes::Bytes;
use martlet_protocol::entry::{Attributes, Body, Part};
use martlet_protocol::{BackendExt, UploadId};

use super::coded::fixture::CodedFixture;
use super::harness::{body, get, pattern, settle};
use super::multipart::naming;
use crate::{
    CopyPart, NewUpload, ReadConditions, Selection, StoreOptions, WriteConditions, WrittenPart,
};

const MIB: usize = 1 << 20;

/// A store with extents of 1 MiB, of which an entry of a part names two at most.
async fn fixture() -> CodedFixture {
    let options =
        StoreOptions { part_bytes_min: 10, part_extents_inline_max: 2, ..StoreOptions::default() };
    CodedFixture::with("1+8", 9, 1, options).await
}

async fn begin(fixture: &CodedFixture) -> UploadId {
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    fixture.store.uploads().create("b", "key", new).await.unwrap().id
}

async fn send(fixture: &CodedFixture, upload: UploadId, number: u32, bytes: &Bytes) -> WrittenPart {
    let body = body(bytes.clone());
    fixture.store.uploads().put_part("b", "key", upload, number, body).await.unwrap()
}

async fn listed(fixture: &CodedFixture, upload: UploadId) -> Vec<Box<Part>> {
    let page = fixture.store.uploads().list_parts("b", "key", upload, 0, 100).await.unwrap();
    page.parts.into_iter().map(|(_, part)| part).collect()
}

/// Number of records of garbage with a manifest in extents, over all devices.
async fn garbage_manifests(fixture: &CodedFixture) -> usize {
    let mut found = 0;
    for device in fixture.devices() {
        let garbage = BackendExt::garbage(&*fixture.node.memory, device, u64::MAX, 100).await;
        let manifests = garbage.unwrap().into_iter();
        found += manifests.filter(|it| matches!(it.body, Body::Spilled { .. })).count();
    }
    found
}

#[tokio::test]
async fn long_parts_are_listed_copied_and_become_an_object() {
    let fixture = fixture().await;
    let upload = begin(&fixture).await;
    let bodies = [pattern(3 * MIB + 500, 1), pattern(700, 2), pattern(4 * MIB, 3)];
    let first = send(&fixture, upload, 1, &bodies[0]).await;
    let second = send(&fixture, upload, 2, &bodies[1]).await;
    let source = body(bodies[2].clone());
    let conditions = WriteConditions::default();
    super::harness::put(&fixture.store, "source", source, conditions).await.unwrap();
    let copy = CopyPart {
        source: ("b".into(), "source".into()),
        source_version: None,
        source_conditions: ReadConditions::default(),
        selection: Selection::Whole,
    };
    let third = fixture.store.uploads().copy_part("b", "key", upload, 3, copy).await.unwrap();
    let parts = listed(&fixture, upload).await;
    let spilled = parts.iter().map(|part| matches!(part.body, Body::Spilled { .. }));
    assert_eq!(spilled.collect::<Vec<_>>(), [true, false, true]);
    let sizes: Vec<_> = parts.iter().map(|part| usize::try_from(part.size).unwrap()).collect();
    assert_eq!(sizes, bodies.each_ref().map(Bytes::len));

    let complete = naming(&[(1, &first), (2, &second), (3, &third)]);
    let uploads = fixture.store.uploads();
    let written = uploads.complete("b", "key", upload, complete.clone()).await.unwrap();
    let Body::Extents(manifest) = &written.object.body else { panic!("nine extents are few") };
    assert_eq!((manifest.extents.len(), manifest.parts.len()), (9, 3));
    let whole = Bytes::from(bodies.concat());
    settle().await;
    assert_eq!(get(&fixture.store, "key", Selection::Whole).await.unwrap(), whole);
    let (from, to) = (3 * MIB - 5, 4 * MIB + 900);
    let range = Selection::From { first: from as u64, last: Some(to as u64) };
    assert_eq!(get(&fixture.store, "key", range).await.unwrap(), whole[from..=to]);
    assert_eq!(garbage_manifests(&fixture).await, 2 * 3, "two parts on three replicas");
    let again = uploads.complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(again.object.etag, written.object.etag);
}

/// An object without the bytes of a part must never come about.
#[tokio::test]
async fn a_completion_fails_while_the_manifest_of_a_part_is_unreadable() {
    let fixture = fixture().await;
    let upload = begin(&fixture).await;
    let part = send(&fixture, upload, 1, &pattern(3 * MIB, 1)).await;
    let Body::Spilled { manifest, .. } = &listed(&fixture, upload).await[0].body else {
        panic!("three extents spill")
    };
    assert_eq!(manifest.len(), 1);
    for (fragment, device) in fixture.held(manifest[0].id) {
        let id = manifest[0].id.fragment(fragment.0);
        fixture.node.memory.delete_extents(device, &[id]).await.unwrap();
    }
    let complete = naming(&[(1, &part)]);
    let refused = fixture.store.uploads().complete("b", "key", upload, complete).await;
    assert!(matches!(refused, Err(crate::Error::Backend(_))), "{refused:?}");
    get(&fixture.store, "key", Selection::Whole).await.unwrap_err();
    assert_eq!(listed(&fixture, upload).await.len(), 1, "the upload is still open");
    fixture.store.uploads().abort("b", "key", upload).await.unwrap();
}

#[tokio::test]
async fn an_aborted_upload_frees_long_parts_with_their_manifests() {
    let fixture = fixture().await;
    let upload = begin(&fixture).await;
    send(&fixture, upload, 1, &pattern(3 * MIB, 1)).await;
    send(&fixture, upload, 2, &pattern(10, 1)).await;
    fixture.store.uploads().abort("b", "key", upload).await.unwrap();
    settle().await;
    assert_eq!(garbage_manifests(&fixture).await, 3, "one part on three replicas");
}
