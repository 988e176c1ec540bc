//! Checks of holdings, collectable tombstones and dropped registers (rule T1).

use super::sums::{span, sum, walked};
use super::{in_extents, object, owner, pattern, plain, register, stamp, tombstone};
use crate::backend::{
    Backend, BackendExt, EntryWrite, Holding, NewExtent, RegisterDrop, Walk, Want, WriteReply,
};
use crate::extent::Layout;
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::key::RegisterKey;
use crate::register::WriteMode;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::Sum;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    holdings_return_every_known_version(backend, device).await;
    a_marked_tombstone_is_out_of_sums_and_walks(backend, device).await;
    a_later_write_takes_the_mark_away(backend, device).await;
    newer_registers_are_not_dropped(backend, device).await;
    dropped_registers_leave_nothing(backend, device).await;
}

async fn holding(backend: &dyn Backend, device: DeviceId, key: &RegisterKey) -> Holding {
    backend.holdings(device, std::slice::from_ref(key)).await.unwrap().remove(0)
}

async fn mark(backend: &dyn Backend, device: DeviceId, key: &RegisterKey, order: Stamp) {
    backend.mark_collectable(device, &[(key.clone(), order)]).await.unwrap();
}

async fn holdings_return_every_known_version(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let keys: Vec<_> =
        ["absent", "held", "promised", "kept"].map(|name| register(bucket, name)).into();
    let write = tombstone(&keys[1], stamp(2));
    backend.write(device, write.clone()).await.unwrap();
    backend.promise(device, &keys[2], stamp(3), Term::ANY).await.unwrap();
    let hint = plain(&keys[3], stamp(4));
    backend.keep_hint(device, hint.clone()).await.unwrap();
    backend.set_voting(device, false).await.unwrap();
    let found = backend.holdings(device, &keys).await.unwrap();
    backend.set_voting(device, true).await.unwrap();
    let nothing = Holding::default();
    let held = Some((stamp(2), write.entry.write_id));
    let expected = [
        nothing.clone(),
        Holding { held, ..nothing.clone() },
        Holding { promise: stamp(3), ..nothing.clone() },
        Holding { hint: Some(stamp(4)), ..nothing },
    ];
    assert_eq!(found, expected, "a device without a vote tells what it has");
    backend.forget_hint(device, &keys[3], stamp(4)).await.unwrap();
}

async fn a_marked_tombstone_is_out_of_sums_and_walks(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "collected");
    backend.write(device, plain(&key, stamp(1))).await.unwrap();
    let alive = sum(backend, device, &key).await;
    mark(backend, device, &key, stamp(1)).await;
    assert_eq!(sum(backend, device, &key).await, alive, "it is no tombstone");
    backend.write(device, tombstone(&key, stamp(2))).await.unwrap();
    mark(backend, device, &key, stamp(1)).await;
    mark(backend, device, &key, stamp(3)).await;
    assert!(!holding(backend, device, &key).await.collectable, "it is of another order");
    mark(backend, device, &key, stamp(2)).await;
    mark(backend, device, &key, stamp(2)).await;
    let marked = holding(backend, device, &key).await;
    assert!(marked.collectable && marked.held.is_some_and(|(order, _)| order == stamp(2)));
    assert_eq!(sum(backend, device, &key).await, Sum::default());
    let walk = Walk { span: span(key.bucket, key.shard), bin: None, want: Want::Entry };
    assert!(walked(backend, device, walk, 9).await.is_empty());
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry.map(|entry| entry.order), Some(stamp(2)), "it is read as before");
    let late = plain(&key, stamp(1));
    assert_eq!(backend.write(device, late).await.unwrap(), WriteReply::Behind(stamp(2)));
    assert!(holding(backend, device, &key).await.collectable);
}

async fn a_later_write_takes_the_mark_away(backend: &dyn Backend, device: DeviceId) {
    for mode in [WriteMode::Fresh, WriteMode::Repair, WriteMode::Accept] {
        let key = register(BucketId::random(), "marked");
        let gone = tombstone(&key, stamp(2));
        backend.write(device, gone.clone()).await.unwrap();
        let before = sum(backend, device, &key).await;
        mark(backend, device, &key, stamp(2)).await;
        let again = EntryWrite { mode, ..tombstone(&key, stamp(5)) };
        assert_eq!(backend.write(device, again).await.unwrap(), WriteReply::Stored);
        let now = sum(backend, device, &key).await;
        assert!(now.count == 1 && now.hash != before.hash);
        assert!(!holding(backend, device, &key).await.collectable);
        let drop = RegisterDrop { key: key.clone(), up_to: stamp(9), collectable: true };
        backend.drop_registers(device, &[drop]).await.unwrap();
        assert!(holding(backend, device, &key).await.held.is_some(), "its mark is gone");
    }
}

async fn newer_registers_are_not_dropped(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "newer");
    backend.write(device, plain(&key, stamp(5))).await.unwrap();
    let drop = |up_to, collectable| RegisterDrop { key: key.clone(), up_to, collectable };
    for drop in [drop(stamp(4), false), drop(stamp(9), true)] {
        backend.drop_registers(device, &[drop]).await.unwrap();
        assert!(holding(backend, device, &key).await.held.is_some());
    }
    backend.promise(device, &key, stamp(7), Term::ANY).await.unwrap();
    backend.drop_registers(device, &[drop(stamp(6), false)]).await.unwrap();
    assert_eq!(holding(backend, device, &key).await.promise, stamp(7), "a promise is kept");
    backend.drop_registers(device, &[drop(stamp(7), false)]).await.unwrap();
    assert_eq!(holding(backend, device, &key).await, Holding::default());
}

async fn dropped_registers_leave_nothing(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let (key, collected) = (register(bucket, "dropped"), register(bucket, "collected"));
    let id = ExtentId::random();
    let new = NewExtent {
        id,
        owner: owner(bucket),
        length: None,
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    let extent = backend.write_extent(device, new, super::body(vec![Ok(pattern(10))])).await;
    let mut write = plain(&key, stamp(2));
    write.entry.value = object(in_extents(vec![extent.unwrap()]));
    backend.write(device, write).await.unwrap();
    backend.write(device, tombstone(&collected, stamp(3))).await.unwrap();
    mark(backend, device, &collected, stamp(3)).await;
    let drops = [
        RegisterDrop { key: key.clone(), up_to: stamp(2), collectable: false },
        RegisterDrop { key: collected.clone(), up_to: stamp(3), collectable: true },
        RegisterDrop { key: register(bucket, "absent"), up_to: stamp(3), collectable: false },
    ];
    backend.drop_registers(device, &drops).await.unwrap();
    for key in [&key, &collected] {
        assert_eq!(holding(backend, device, key).await, Holding::default());
        assert_eq!(sum(backend, device, key).await, Sum::default());
    }
    let garbage = backend.garbage(device, u64::MAX, usize::MAX).await.unwrap();
    assert!(garbage.iter().all(|garbage| garbage.key.bucket != bucket), "others hold it");
    let older = EntryWrite { mode: WriteMode::Repair, ..plain(&collected, stamp(1)) };
    assert_eq!(backend.write(device, older).await.unwrap(), WriteReply::Stored, "it is forgotten");
    backend.delete_extents(device, &[id]).await.unwrap();
}
