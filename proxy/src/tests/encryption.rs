//! Encrypted objects: replies to clients, stored bytes, and refused requests.

mod rewrap;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_protocol::backend::Want;
use martlet_protocol::entry::{Attributes, Body, Entry, Mark, Object};
use martlet_protocol::{DeviceId, PolicyId, Setting, SystemClock};

use super::harness::{Harness, body, collect, pattern, unsized_body};
use super::multipart::naming;
use super::objects::copy_of;
use super::rewrite::fixture::{RewriteFixture, policy_of};
use crate::encryption::{Locked, ObjectAddress, Whose};
use crate::{
    Cluster, ConsistencyOptions, CopyObject, CopyPart, CustomerKey, Encrypted, Error, Keys,
    MasterKey, NewBody, NewUpload, ObjectName, ObjectStore, PutObject, ReadConditions, Result,
    Selection, Session, StoreOptions, Vault, WriteConditions, WrittenObject,
};

const CHUNK: usize = 64 * 1024;

fn vault(keys: &[u8]) -> Vault {
    Vault::new(keys.iter().map(|byte| MasterKey::new(&[*byte; 32])).collect())
}

/// A store over an existing cluster with master keys.
fn with_keys(store: &ObjectStore, keys: &[u8]) -> ObjectStore {
    let options = StoreOptions { part_bytes_min: 10, ..StoreOptions::default() };
    let cluster = Cluster::clone(&store.topology().cluster());
    ObjectStore::with_vault(cluster, Arc::new(SystemClock), options, vault(keys))
}

fn session(store: &ObjectStore, keys: Keys) -> Session {
    let session = store.session(ConsistencyOptions::default());
    session.set_keys(keys);
    session
}

fn customer(byte: u8) -> Keys {
    Keys { customer: Some(CustomerKey::new(&[byte; 32])), ..Keys::default() }
}

fn managed() -> Keys {
    Keys { managed: true, ..Keys::default() }
}

async fn put(store: &ObjectStore, keys: Keys, key: &str, body: NewBody) -> Result<WrittenObject> {
    let put = PutObject {
        attributes: Attributes::default(),
        body,
        conditions: WriteConditions::default(),
    };
    session(store, keys).put("b", key, put).await
}

async fn get(store: &ObjectStore, keys: Keys, key: &str, selection: Selection) -> Result<Bytes> {
    let none = ReadConditions::default();
    collect(session(store, keys).get("b", key, selection, &none).await?).await
}

fn from(first: usize, last: usize) -> Selection {
    Selection::From { first: first as u64, last: Some(last as u64) }
}

/// Stored bytes of an object.
async fn stored(store: &ObjectStore, key: &str) -> Bytes {
    let services = &store.services;
    let found = services
        .reader
        .find(&store.context(), "b", ObjectName::from(key), Want::EntryAndInline)
        .await
        .unwrap();
    let length = match &found.object.body {
        Body::Empty => return Bytes::new(),
        Body::Inline { .. } if found.locked.is_none() => found.object.size,
        Body::Inline { .. } => found.object.size + 16,
        _ => services.bodies.manifest(&found.object.body).await.unwrap().unwrap().length(),
    };
    let mut stream = services.bodies.open_stored(&found, 0..length).await.unwrap();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    bytes.freeze()
}

fn holds(stored: &[u8], plain: &[u8]) -> bool {
    plain.len() >= 16 && stored.windows(16).any(|window| window == &plain[..16])
}

#[tokio::test]
async fn encrypted_objects_are_read_as_written_and_stored_as_ciphertext() {
    let harness = Harness::with_bucket(3).await;
    let store = with_keys(&harness.store, &[1]);
    let sizes = [0, 1, 100, 8192, 8193, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 1_000_003];
    for (seed, size) in (1..).zip(sizes) {
        for keys in [managed(), customer(7)] {
            for announced in [true, false] {
                let bytes = pattern(size, seed);
                let new_body =
                    if announced { body(bytes.clone()) } else { unsized_body(bytes.clone()) };
                let written = put(&store, keys.clone(), "k", new_body).await.unwrap();
                let plain = harness.put("plain", bytes.clone()).await.unwrap();
                assert_eq!(written.object.size, size as u64);
                assert_eq!(written.object.etag, plain.object.etag);
                assert_eq!(written.object.checksums, plain.object.checksums);
                let inline = matches!(written.object.body, Body::Inline { .. });
                assert_eq!(inline, (1..=8192).contains(&size));
                let kept = stored(&store, "k").await;
                assert!(size < 16 || holds(&stored(&store, "plain").await, &bytes));
                assert!(kept != bytes || size == 0);
                assert!(!holds(&kept, &bytes), "{size}");
                let keys = if keys.managed { Keys::default() } else { keys.clone() };
                assert_eq!(get(&store, keys, "k", Selection::Whole).await.unwrap(), bytes);
            }
        }
    }
}

#[tokio::test]
async fn every_range_is_the_bytes_that_it_names() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    let size = 9 * CHUNK + 77;
    let bytes = pattern(size, 1);
    put(&store, customer(1), "k", body(bytes.clone())).await.unwrap();
    let edges = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, 9 * CHUNK - 1, 9 * CHUNK, size - 1];
    for &first in &edges {
        for &last in edges.iter().filter(|last| **last >= first) {
            let got = get(&store, customer(1), "k", from(first, last)).await.unwrap();
            assert_eq!(got, bytes[first..=last], "{first}-{last}");
        }
    }
    let end = get(&store, customer(1), "k", Selection::Suffix { length: 100 }).await.unwrap();
    assert_eq!(end, bytes[size - 100..]);
}

#[tokio::test]
async fn only_the_key_that_it_was_written_by_opens_an_object() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    for size in [100, 100_000] {
        put(&store, customer(1), "theirs", body(pattern(size, 1))).await.unwrap();
        put(&store, managed(), "ours", body(pattern(size, 1))).await.unwrap();
        put(&store, Keys::default(), "plain", body(pattern(size, 1))).await.unwrap();
        let none = ReadConditions::default();
        for (key, keys, is_wrong) in [
            ("theirs", Keys::default(), false),
            ("theirs", customer(2), true),
            ("ours", customer(1), false),
            ("plain", customer(1), false),
        ] {
            let one = session(&store, keys);
            let refusals = [
                one.get("b", key, Selection::Whole, &none).await.map(drop),
                one.head_by_key("b", key, Selection::Whole, &none).await.map(drop),
                one.parts("b", key, &none).await.map(drop),
            ];
            for refusal in refusals {
                match refusal {
                    Err(Error::InvalidArgument(_)) => assert!(is_wrong, "{key}"),
                    Err(Error::InvalidRequest(_)) => assert!(!is_wrong, "{key}"),
                    other => panic!("{key}: {other:?}"),
                }
            }
            assert_eq!(one.encrypted(), None);
        }
        for (key, keys, encrypted) in [
            ("theirs", customer(1), Some(Encrypted::Customer)),
            ("ours", Keys::default(), Some(Encrypted::Managed)),
            ("plain", Keys::default(), None),
        ] {
            let one = session(&store, keys);
            one.head_by_key("b", key, Selection::Whole, &none).await.unwrap();
            assert_eq!(one.encrypted(), encrypted);
        }
        let in_place = store.in_place().places("b", "theirs").await;
        assert!(matches!(in_place, Err(Error::InvalidRequest(_))));
    }
}

#[tokio::test]
async fn master_keys_are_replaced_one_by_one() {
    let harness = Harness::with_bucket(1).await;
    let bytes = pattern(100_000, 1);
    let refused = put(&harness.store, managed(), "k", body(bytes.clone())).await;
    assert!(matches!(refused, Err(Error::NoMasterKey)));
    assert!(harness.memory.extents_in_use().is_empty());
    let old = with_keys(&harness.store, &[1]);
    put(&old, managed(), "k", body(bytes.clone())).await.unwrap();
    let both = with_keys(&harness.store, &[2, 1]);
    assert_eq!(get(&both, Keys::default(), "k", Selection::Whole).await.unwrap(), bytes);
    let new = with_keys(&harness.store, &[2]);
    assert!(get(&new, Keys::default(), "k", Selection::Whole).await.is_err());
    // A copy onto itself is wrapped by the newest master key.
    session(&both, managed()).copy("b", "k", copy_of("k")).await.unwrap();
    assert_eq!(get(&new, Keys::default(), "k", Selection::Whole).await.unwrap(), bytes);
    assert!(get(&old, Keys::default(), "k", Selection::Whole).await.is_err());
}

#[tokio::test]
async fn a_buckets_default_applies_to_requests_without_a_choice() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    put(&store, Keys::default(), "before", body(pattern(50_000, 1))).await.unwrap();
    store.buckets().put_setting("b", Setting::Encryption, b"<x/>".to_vec()).await.unwrap();
    for (key, keys, expected) in [
        ("default", Keys::default(), Some(Encrypted::Managed)),
        ("theirs", customer(1), Some(Encrypted::Customer)),
    ] {
        let one = session(&store, keys.clone());
        let put = PutObject {
            attributes: Attributes::default(),
            body: body(pattern(50_000, 1)),
            conditions: WriteConditions::default(),
        };
        one.put("b", key, put).await.unwrap();
        assert_eq!(one.encrypted(), expected);
        assert_eq!(get(&store, keys, key, Selection::Whole).await.unwrap(), pattern(50_000, 1));
    }
    let before = get(&store, Keys::default(), "before", Selection::Whole).await.unwrap();
    assert_eq!(before, pattern(50_000, 1));
    store.copy("b", "copy", copy_of("before")).await.unwrap();
    assert!(!holds(&stored(&store, "copy").await, &before));
    store.buckets().delete_setting("b", Setting::Encryption).await.unwrap();
    store.copy("b", "copy", copy_of("default")).await.unwrap();
    assert!(holds(&stored(&store, "copy").await, &before), "a copy doesn't inherit it");
}

async fn upload(store: &ObjectStore, keys: &Keys, parts: &[(u32, Bytes)]) -> Result<WrittenObject> {
    let keys = || keys.clone();
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let id = session(store, keys()).uploads().create("b", "key", new).await?.id;
    let one = session(store, keys());
    let mut written = Vec::new();
    for (number, bytes) in parts {
        // An earlier, replaced upload of the part: equal length, other bytes.
        let other = body(pattern(bytes.len(), 99));
        one.uploads().put_part("b", "key", id, *number, other).await?;
        let part = one.uploads().put_part("b", "key", id, *number, body(bytes.clone())).await?;
        written.push((*number, part));
    }
    let named: Vec<_> = written.iter().map(|(number, part)| (*number, part)).collect();
    one.uploads().complete("b", "key", id, naming(&named)).await
}

#[tokio::test]
async fn parts_with_any_numbers_are_joined_and_read_across_their_edges() {
    let harness = Harness::with_bucket(3).await;
    let store = with_keys(&harness.store, &[1]);
    let lengths = [2 * CHUNK + 5, 10, CHUNK, 5 * CHUNK - 1, 7];
    let parts: Vec<_> = (2..).step_by(3).zip(lengths).collect();
    let parts: Vec<_> =
        parts.into_iter().map(|(number, length)| (number, pattern(length, number))).collect();
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    for keys in [managed(), customer(1)] {
        let written = upload(&store, &keys, &parts).await.unwrap();
        assert_eq!(written.object.size, whole.len() as u64);
        let read =
            |selection| get(&store, Keys { managed: false, ..keys.clone() }, "key", selection);
        assert_eq!(read(Selection::Whole).await.unwrap(), whole);
        for (number, (_, bytes)) in (1..).zip(&parts) {
            assert_eq!(read(Selection::Part { number }).await.unwrap(), bytes);
        }
        let mut edges = vec![0, CHUNK, whole.len() - 1];
        let mut edge = 0;
        for length in lengths {
            edge += length;
            edges.extend([edge - 1, edge.min(whole.len() - 1)]);
        }
        for &first in &edges {
            for &last in edges.iter().filter(|last| **last >= first) {
                assert_eq!(read(from(first, last)).await.unwrap(), whole[first..=last]);
            }
        }
        let kept = stored(&store, "key").await;
        assert!(parts.iter().all(|(_, bytes)| !holds(&kept, bytes)));
    }
}

#[tokio::test]
async fn parts_of_one_length_that_were_exchanged_in_the_index_open_nothing() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    for numbers in [[1, 2, 3], [2, 5, 9]] {
        let parts = numbers.map(|number| (number, pattern(CHUNK + 5, number)));
        upload(&store, &customer(1), &parts).await.unwrap();
        let read = |number| get(&store, customer(1), "key", Selection::Part { number });
        assert_eq!(read(1).await.unwrap(), parts[0].1);
        let mut exchange = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            let Body::Extents(manifest) = &mut object.body else { panic!("it is short") };
            manifest.extents.swap(0, 1);
            Ok(Some(object))
        };
        let context = store.context();
        let reviser = &store.services.reviser;
        reviser.revise_object(&context, "b", "key".into(), &mut exchange).await.unwrap();
        assert!(read(1).await.is_err() && read(2).await.is_err(), "{numbers:?}");
        assert!(get(&store, customer(1), "key", Selection::Whole).await.is_err());
        let across = from(CHUNK, CHUNK + 100);
        assert!(get(&store, customer(1), "key", across).await.is_err());
        assert_eq!(read(3).await.unwrap(), parts[2].1, "it stands where it stood");
    }
}

#[tokio::test]
async fn long_manifests_are_read_by_key_too() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    let parts: Vec<_> = (1..=140).map(|number| (number, pattern(30, number))).collect();
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    let written = upload(&store, &customer(3), &parts).await.unwrap();
    assert!(matches!(written.object.body, Body::Spilled { .. }));
    assert_eq!(get(&store, customer(3), "key", Selection::Whole).await.unwrap(), whole);
    let middle = get(&store, customer(3), "key", from(1000, 2999)).await.unwrap();
    assert_eq!(middle, whole[1000..3000]);
}

#[tokio::test]
async fn every_part_comes_under_the_key_of_its_upload() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    for (begun, sent) in [
        (customer(1), Keys::default()),
        (customer(1), customer(2)),
        (managed(), customer(1)),
        (Keys::default(), customer(1)),
        (Keys::default(), managed()),
    ] {
        let new = NewUpload { attributes: Attributes::default(), checksum: None };
        let id = session(&store, begun).uploads().create("b", "key", new).await.unwrap().id;
        let part = session(&store, sent);
        let part = part.uploads().put_part("b", "key", id, 1, body(pattern(100, 1))).await;
        assert!(matches!(part, Err(Error::InvalidRequest(_))), "{part:?}");
    }
    assert!(harness.memory.extents_in_use().is_empty());
}

#[tokio::test]
async fn copies_are_encrypted_as_requested_for_any_source() {
    let harness = Harness::with_bucket(1).await;
    let store = with_keys(&harness.store, &[1]);
    let bytes = pattern(200_000, 1);
    let all = [Keys::default(), managed(), customer(1)];
    for from in &all {
        put(&store, from.clone(), "from", body(bytes.clone())).await.unwrap();
        for to in [Keys::default(), managed(), customer(2)] {
            let keys = Keys { source: from.customer.clone(), ..to.clone() };
            let one = session(&store, keys.clone());
            let copied = one.copy("b", "to", copy_of("from")).await.unwrap();
            let is_plain = !to.managed && to.customer.is_none();
            assert_eq!(copied.object.attributes.marks.get(Mark::Encryption).is_none(), is_plain);
            assert_eq!(one.encrypted().is_none(), is_plain);
            assert_eq!(holds(&stored(&store, "to").await, &bytes), is_plain);
            let own = Keys { managed: false, ..to.clone() };
            assert_eq!(get(&store, own.clone(), "to", Selection::Whole).await.unwrap(), bytes);

            let new = NewUpload { attributes: Attributes::default(), checksum: None };
            let id = session(&store, to).uploads().create("b", "key", new).await.unwrap().id;
            let copy = CopyPart {
                source: ("b".into(), "from".into()),
                source_version: None,
                source_conditions: ReadConditions::default(),
                selection: self::from(70_000, 150_000),
            };
            let part = session(&store, Keys { managed: false, ..keys });
            let part = part.uploads().copy_part("b", "key", id, 4, copy).await.unwrap();
            store.uploads().complete("b", "key", id, naming(&[(4, &part)])).await.unwrap();
            let got = get(&store, own, "key", Selection::Whole).await.unwrap();
            assert_eq!(got, bytes[70_000..=150_000]);
        }
    }
    put(&store, customer(1), "from", body(bytes)).await.unwrap();
    for (source, is_wrong) in [(None, false), (Some(CustomerKey::new(&[2; 32])), true)] {
        let copy: CopyObject = copy_of("from");
        let refused =
            session(&store, Keys { source, ..Keys::default() }).copy("b", "to", copy).await;
        assert_eq!(matches!(refused, Err(Error::InvalidArgument(_))), is_wrong, "{refused:?}");
        assert!(refused.is_err());
    }
}

#[tokio::test]
async fn tags_change_without_a_key_and_the_bytes_stay() {
    let harness = Harness::with_bucket(1).await;
    put(&harness.store, customer(1), "k", body(pattern(100, 1))).await.unwrap();
    let tags = vec![("a".to_owned(), "b".to_owned())];
    harness.store.versions().set_tags("b", "k", tags.clone()).await.unwrap();
    let head = harness.head("k", Selection::Whole).await.unwrap();
    assert_eq!(head.object.attributes.tags, tags);
    let got = get(&harness.store, customer(1), "k", Selection::Whole).await.unwrap();
    assert_eq!(got, pattern(100, 1));
}

#[tokio::test]
async fn damaged_key_documents_fail_before_the_first_byte() {
    let harness = Harness::with_bucket(1).await;
    put(&harness.store, customer(1), "k", body(pattern(100_000, 1))).await.unwrap();
    // Data keys are bound to their object's place, so another object's document opens nothing here.
    put(&harness.store, customer(1), "other", body(pattern(100_000, 2))).await.unwrap();
    let other = harness.head("other", Selection::Whole).await.unwrap();
    let marks = other.object.attributes.marks.clone();
    let bucket = harness.store.bucket("b").await.unwrap().id;
    let locked = Locked::of(&marks, ObjectAddress { bucket, key: "k" }).unwrap();
    let context = session(&harness.store, customer(1)).0.context();
    let vault = &harness.store.services.vault;
    let moved = context.keys.unlock(vault, locked.as_ref(), Whose::Own);
    assert!(matches!(moved, Err(Error::InvalidArgument(_))));
    let device = DeviceId(1);
    for id in harness.memory.extents(device) {
        harness.memory.corrupt(device, id);
    }
    let none = ReadConditions::default();
    let one = session(&harness.store, customer(1));
    assert!(one.get("b", "k", Selection::Whole, &none).await.is_err());
}

#[tokio::test]
async fn encrypted_objects_go_under_another_policy_without_any_key() {
    let fixture = RewriteFixture::new().await;
    let parts: Vec<_> = (1..4).map(|number| (number, pattern(150_000, number))).collect();
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    upload(&fixture.store, &customer(1), &parts).await.unwrap();
    put(&fixture.store, customer(1), "put", body(pattern(200_000, 9))).await.unwrap();
    put(&fixture.store, customer(1), "inline", body(pattern(100, 9))).await.unwrap();
    let before = stored(&fixture.store, "key").await;
    fixture.turn_to_second().await;
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.moved, progress.failed), (2, 0), "{progress:?}");
    assert_eq!(policy_of(&fixture.object("key").await), Some(PolicyId(1)));
    assert_eq!(stored(&fixture.store, "key").await, before);
    assert_eq!(get(&fixture.store, customer(1), "key", Selection::Whole).await.unwrap(), whole);
    let second =
        get(&fixture.store, customer(1), "key", Selection::Part { number: 2 }).await.unwrap();
    assert_eq!(second, parts[1].1);
    let got = get(&fixture.store, customer(1), "put", Selection::Whole).await.unwrap();
    assert_eq!(got, pattern(200_000, 9));
}
