//! Checks of fences and of purged buckets.

use super::{in_extents, object, owner, pattern, plain, register, stamp};
use crate::backend::{Backend, BackendExt, BucketFence, EntryWrite, NewExtent, Want, WriteReply};
use crate::extent::Layout;
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::term::Term;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    a_fence_refuses_older_generations(backend, device).await;
    a_closed_bucket_takes_nothing(backend, device).await;
    a_purge_takes_one_bucket_only(backend, device).await;
    a_purged_bucket_takes_nothing(backend, device).await;
}

async fn a_fence_refuses_older_generations(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let key = register(bucket, "fenced");
    backend.fence(device, BucketFence { bucket, generation: 3, open: true }).await.unwrap();
    let mut write = plain(&key, stamp(1));
    write.generation = 2;
    assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Fenced);
    backend.fence(device, BucketFence { bucket, generation: 1, open: true }).await.unwrap();
    assert_eq!(
        backend.write(device, write.clone()).await.unwrap(),
        WriteReply::Fenced,
        "a fence never falls"
    );
    write.generation = 3;
    assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
}

async fn a_closed_bucket_takes_nothing(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let key = register(bucket, "closed");
    let mut write = plain(&key, stamp(1));
    backend.write(device, write.clone()).await.unwrap();
    backend.fence(device, BucketFence { bucket, generation: 2, open: false }).await.unwrap();
    write = plain(&key, stamp(2));
    write.generation = 9;
    assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Fenced);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry.map(|entry| entry.order), Some(stamp(1)), "reads go on");
    backend.fence(device, BucketFence { bucket, generation: 3, open: true }).await.unwrap();
    assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
}

async fn a_purge_takes_one_bucket_only(backend: &dyn Backend, device: DeviceId) {
    let (gone, stays) = (BucketId::random(), BucketId::random());
    let id = ExtentId::random();
    let new = NewExtent {
        id,
        owner: owner(gone),
        length: None,
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    let extent = backend.write_extent(device, new, super::body(vec![Ok(pattern(9))])).await;
    let mut first = plain(&register(gone, "garbage"), stamp(1));
    first.entry.value = object(in_extents(vec![extent.unwrap()]));
    backend.write(device, first).await.unwrap();
    for bucket in [gone, stays] {
        backend.write(device, plain(&register(bucket, "key"), stamp(1))).await.unwrap();
    }
    backend.fence(device, BucketFence { bucket: gone, generation: 2, open: false }).await.unwrap();
    backend.purge_bucket(device, gone).await.unwrap();
    let read = |bucket| async move {
        backend.read(device, &register(bucket, "key"), Want::Entry, Term::ANY).await.unwrap().entry
    };
    assert_eq!(read(gone).await, None);
    assert!(read(stays).await.is_some());
    let garbage = backend.garbage(device, u64::MAX, usize::MAX).await.unwrap();
    let left = garbage.iter().filter(|garbage| garbage.key.bucket == gone).count();
    assert_eq!(left, 1, "extents of a purged bucket are still owed a delete");
    backend.delete_extents(device, &[id]).await.unwrap();
}

/// A write that began before its bucket was deleted may arrive at any time after the purge.
async fn a_purged_bucket_takes_nothing(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let key = register(bucket, "late");
    backend.write(device, plain(&key, stamp(1))).await.unwrap();
    backend.fence(device, BucketFence { bucket, generation: 2, open: false }).await.unwrap();
    for _ in 0..2 {
        backend.purge_bucket(device, bucket).await.unwrap();
        backend.fence(device, BucketFence { bucket, generation: 3, open: true }).await.unwrap();
        for generation in [1, 9, u64::MAX] {
            let write = EntryWrite { generation, ..plain(&key, stamp(2)) };
            assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Fenced);
            assert_eq!(backend.keep_hint(device, write).await.unwrap(), WriteReply::Fenced);
        }
    }
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, None);
}
