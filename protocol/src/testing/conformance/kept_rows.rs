//! Checks of usage, of lists of old registers, and of held buckets.

use std::collections::BTreeMap;

use super::{object, plain, register, stamp, tombstone};
use crate::backend::{Backend, BackendExt, EntryWrite, OldKind, OldList, RegisterDrop, WriteReply};
use crate::entry::{Body, DeleteMarker, Value};
use crate::id::{BucketId, DeviceId, WriteId};
use crate::key::RegisterKey;
use crate::run_usage::{Run, RunUsage};
use crate::stamp::Stamp;
use crate::term::Term;
use crate::version::{Version, VersionId};

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    usage_follows_each_change(backend, device).await;
    a_version_that_is_the_heads_counts_once(backend, device).await;
    old_registers_are_listed_by_time(backend, device).await;
    buckets_are_found_by_an_old_entry(backend, device).await;
}

/// Returns the usage of a run without its bytes of the index.
async fn usage(backend: &dyn Backend, device: DeviceId, key: &RegisterKey) -> RunUsage {
    let absent = Run { bucket: BucketId::random(), shard: key.shard };
    let runs = [Run { bucket: key.bucket, shard: key.shard }, absent];
    let usage = backend.usage(device, &runs, Term::ANY).await.unwrap();
    assert_eq!(usage.len(), 2);
    assert_eq!(usage[1], RunUsage::default());
    let counted = usage[0].objects + usage[0].versions + usage[0].markers;
    assert_eq!(usage[0].index > 512 * counted, counted > 0, "{usage:?}");
    RunUsage { index: 0, ..usage[0] }
}

async fn stored(backend: &dyn Backend, device: DeviceId, write: EntryWrite) {
    assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
}

async fn usage_follows_each_change(backend: &dyn Backend, device: DeviceId) {
    let (bucket, nothing) = (BucketId::random(), RunUsage::default());
    let keys =
        ["a", "b"].map(|name| RegisterKey { shard: crate::id::Shard(3), ..register(bucket, name) });
    backend.promise(device, &keys[1], stamp(1), Term::ANY).await.unwrap();
    assert_eq!(usage(backend, device, &keys[0]).await, nothing);
    stored(backend, device, plain(&keys[0], stamp(1))).await;
    stored(backend, device, plain(&keys[1], stamp(2))).await;
    let both = RunUsage { objects: 2, bytes: 6, ..nothing };
    assert_eq!(usage(backend, device, &keys[0]).await, both);
    stored(backend, device, plain(&keys[0], stamp(3))).await;
    assert_eq!(usage(backend, device, &keys[0]).await, both, "it was replaced");
    let one = RunUsage { objects: 1, bytes: 3, ..nothing };
    stored(backend, device, tombstone(&keys[0], stamp(4))).await;
    assert_eq!(usage(backend, device, &keys[0]).await, one);
    backend.mark_collectable(device, &[(keys[0].clone(), stamp(4))]).await.unwrap();
    let drops = keys.clone().map(|key| RegisterDrop { key, up_to: stamp(4), collectable: false });
    backend.drop_registers(device, &drops[..1]).await.unwrap();
    assert_eq!(usage(backend, device, &keys[0]).await, one);
    backend.drop_registers(device, &drops).await.unwrap();
    assert_eq!(usage(backend, device, &keys[0]).await, nothing);
}

fn versioned(key: &RegisterKey, order: Stamp, value: Value) -> EntryWrite {
    let mut write = plain(key, order);
    write.entry.value = value;
    write
}

/// The head of a key and a register beside it have the version, one after the other.
async fn a_version_that_is_the_heads_counts_once(backend: &dyn Backend, device: DeviceId) {
    let head = register(BucketId::random(), "k");
    let version = |position: u64| Version { position, id: Some(WriteId([7; 16])) };
    let of = |position: Option<u64>| match object(Body::Empty) {
        Value::Object(mut object) => {
            object.version = position.map(version);
            Value::Object(object)
        }
        other => other,
    };
    let beside = |position: u64| RegisterKey::version(&head, version(position).name());
    let nothing = RunUsage::default();
    let of_versions = |objects, versions| RunUsage {
        objects,
        versions,
        bytes: 3 * (objects + versions),
        ..nothing
    };
    stored(backend, device, versioned(&head, stamp(1), of(Some(1)))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(1, 0));
    stored(backend, device, versioned(&beside(1), stamp(2), of(Some(1)))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(1, 0), "a copy of the head");
    stored(backend, device, versioned(&head, stamp(3), of(Some(2)))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(1, 1));
    let marker = DeleteMarker { modified_ms: 4, version: Some(version(3)) };
    stored(backend, device, versioned(&beside(2), stamp(4), of(Some(2)))).await;
    stored(backend, device, versioned(&head, stamp(5), Value::DeleteMarker(marker.into()))).await;
    assert_eq!(usage(backend, device, &head).await, RunUsage { markers: 1, ..of_versions(0, 2) });
    // The marker is removed: the version below becomes the head, and its copy stays.
    stored(backend, device, tombstone(&beside(3), stamp(6))).await;
    stored(backend, device, versioned(&head, stamp(7), of(Some(2)))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(1, 1));
    // A device that missed the tombstone of the last version beside the head.
    stored(backend, device, tombstone(&head, stamp(8))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(0, 2));
    for (position, left) in [(2, 1), (1, 0)] {
        stored(backend, device, tombstone(&beside(position), stamp(9))).await;
        assert_eq!(usage(backend, device, &head).await, of_versions(0, left));
    }
    // A version without an id.
    let null = RegisterKey::version(&head, VersionId::Null);
    stored(backend, device, versioned(&null, stamp(10), of(None))).await;
    stored(backend, device, versioned(&head, stamp(11), of(None))).await;
    assert_eq!(usage(backend, device, &head).await, of_versions(1, 0));
}

async fn listed(
    backend: &dyn Backend,
    device: DeviceId,
    list: OldList,
    bucket: BucketId,
) -> Vec<(Stamp, RegisterKey, bool)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = backend.old_registers(device, list, after, 2).await.unwrap();
        let mine = page.registers.into_iter().filter(|it| it.place.key.bucket == bucket);
        found.extend(mine.map(|it| (it.place.at, it.place.key, it.collectable)));
        after = page.next;
        if after.is_none() {
            assert!(found.is_sorted(), "{found:?}");
            return found;
        }
    }
}

async fn old_registers_are_listed_by_time(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let keys: Vec<RegisterKey> =
        (0..6).map(|number| register(bucket, &format!("k{number}"))).collect();
    for (key, ticks) in keys[..4].iter().zip([4, 2, 3, 9]) {
        stored(backend, device, plain(key, stamp(1))).await;
        stored(backend, device, tombstone(key, stamp(ticks))).await;
    }
    for key in &keys[4..] {
        backend.promise(device, key, stamp(1), Term::ANY).await.unwrap();
        backend.promise(device, key, stamp(2), Term::ANY).await.unwrap();
    }
    // Replaced by an object, and by a younger tombstone.
    stored(backend, device, plain(&keys[0], stamp(5))).await;
    stored(backend, device, tombstone(&keys[1], stamp(4))).await;
    stored(backend, device, plain(&keys[5], stamp(5))).await;
    backend.mark_collectable(device, &[(keys[1].clone(), stamp(4))]).await.unwrap();
    let tombstones = OldList { kind: OldKind::Tombstones, before: stamp(5) };
    let promises = OldList { kind: OldKind::Promises, before: stamp(5) };
    let expected = [(stamp(3), keys[2].clone(), false), (stamp(4), keys[1].clone(), true)];
    assert_eq!(listed(backend, device, tombstones, bucket).await, expected);
    let expected = [(stamp(2), keys[4].clone(), false)];
    assert_eq!(listed(backend, device, promises, bucket).await, expected);
    let younger = OldList { before: stamp(10), ..tombstones };
    assert_eq!(listed(backend, device, younger, bucket).await.len(), 3);
    let drops = keys.iter().map(|key| RegisterDrop {
        key: key.clone(),
        up_to: stamp(9),
        collectable: false,
    });
    backend.drop_registers(device, &drops.collect::<Vec<_>>()).await.unwrap();
    for list in [younger, promises] {
        assert_eq!(listed(backend, device, list, bucket).await, []);
    }
}

async fn buckets_are_found_by_an_old_entry(backend: &dyn Backend, device: DeviceId) {
    let [old, young, mixed, promised] = [(); 4].map(|()| BucketId::random());
    for (bucket, name, ticks) in [(old, "k", 1), (young, "k", 9), (mixed, "a", 9), (mixed, "b", 2)]
    {
        stored(backend, device, plain(&register(bucket, name), stamp(ticks))).await;
    }
    backend.promise(device, &register(promised, "k"), stamp(1), Term::ANY).await.unwrap();
    let (mut found, mut after) = (BTreeMap::new(), None);
    loop {
        let page = backend.held_buckets(device, stamp(5), after, 2).await.unwrap();
        found.extend(page.buckets.into_iter().map(|it| (it.bucket, it.order)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.retain(|bucket, _| [old, young, mixed, promised].contains(bucket));
    assert_eq!(found, BTreeMap::from([(old, stamp(1)), (mixed, stamp(2))]));
}
