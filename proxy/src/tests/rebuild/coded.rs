//! A long coded object comes back with an entry whose manifest workers can read.

use martlet_protocol::backend::Want;
use martlet_protocol::entry::{Attributes, Body, Object};

use super::*;
use crate::tests::coded::fixture::CodedFixture;
use crate::tests::harness::{body, get};
use crate::{NewUpload, StoreOptions};

async fn fixture() -> CodedFixture {
    let options = StoreOptions { part_bytes_min: 10, ..StoreOptions::default() };
    CodedFixture::with("2+1", 3, 1, options).await
}

/// Completes an upload of so many parts that its manifest lies in extents.
async fn put_parts(fixture: &CodedFixture) -> Object {
    let uploads = fixture.store.uploads();
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = uploads.create("b", "key", new).await.unwrap().id;
    let mut parts = Vec::new();
    for number in 1..=129 {
        let body = body(pattern(2_000, number));
        parts.push((number, uploads.put_part("b", "key", upload, number, body).await.unwrap()));
    }
    let named: Vec<_> = parts.iter().map(|(number, part)| (*number, part)).collect();
    uploads.complete("b", "key", upload, naming(&named)).await.unwrap().object
}

/// Copies the extents of one store to another, and returns those of the key.
async fn copied(from: &CodedFixture, to: &CodedFixture, bucket: BucketId) -> LostKey {
    let mut extents = BTreeMap::new();
    let (memory, target) = (&from.node.memory, &to.node.memory);
    for device in from.devices() {
        for record in memory.list_extents(device, None, usize::MAX).await.unwrap() {
            let range = 0..u64::from(record.extent.length);
            let body = memory.read_extent(device, record.extent.id, range).await.unwrap();
            let new = NewExtent {
                id: record.extent.id,
                owner: record.owner.clone(),
                length: None,
                birth_ms: Some(record.birth_ms),
                layout: record.layout,
                hashes: None,
            };
            target.write_extent(device, new, body).await.unwrap();
            extents.insert(record.named(), LostExtent { record, is_readable: true });
        }
    }
    LostKey { bucket, key: "key".into(), extents: extents.into_values().collect() }
}

#[tokio::test(start_paused = true)]
async fn the_manifest_of_a_coded_object_comes_back_with_its_hashes() {
    let (before, after) = (fixture().await, fixture().await);
    let object = put_parts(&before).await;
    let Body::Spilled { manifest: pieces, .. } = &object.body else { panic!("129 parts are few") };
    settle().await;
    let bucket = after.store.bucket("b").await.unwrap().id;
    let mut lost = copied(&before, &after, bucket).await;
    // The bucket of the second store has another id.
    for extent in &mut lost.extents {
        extent.record.owner.bucket = bucket;
    }
    let rebuild = Rebuild::applied(after.store.clone(), ALL, u64::MAX, held());
    let outcome = rebuild.key("b", &lost).await.unwrap();
    assert_eq!(outcome.objects, 1, "{outcome:?}");
    let whole = get(&before.store, "key", Selection::Whole).await.unwrap();
    assert_eq!(get(&after.store, "key", Selection::Whole).await.unwrap(), whole);
    let key = RegisterKey::object(bucket, 8, "key");
    let held = after.node.memory.read(DeviceId(1), &key, Want::Entry, Term::ANY).await.unwrap();
    let Some(Value::Object(object)) = held.entry.map(|entry| entry.value) else {
        panic!("the object has an entry")
    };
    let Body::Spilled { manifest, .. } = &object.body else { panic!("a spilled manifest") };
    assert_eq!(manifest, pieces);
}
