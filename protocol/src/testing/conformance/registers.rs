//! Checks of registers: replies to writes, promises and reads.

use crate::term::Term;
use bytes::Bytes;

use super::{in_extents, object, owner, pattern, plain, register, stamp, tombstone};
use crate::backend::{Backend, BackendExt, NewExtent, PromiseReply, Want, WriteReply};
use crate::entry::Body;
use crate::extent::Layout;
use crate::id::{BucketId, DeviceId, ExtentId, WriteId};
use crate::register::WriteMode;
use crate::stamp::Stamp;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    an_absent_register_is_empty(backend, device).await;
    registers_are_read_as_written(backend, device).await;
    inline_bytes_are_returned_on_request(backend, device).await;
    orders_only_rise(backend, device).await;
    a_promise_shuts_out_what_lies_below(backend, device).await;
    writes_out_of_time_are_refused(backend, device).await;
    superseded_extents_become_garbage_unless_kept(backend, device).await;
    racing_writes_leave_the_highest(backend, device).await;
}

async fn an_absent_register_is_empty(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "absent");
    let view = backend.read(device, &key, Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!((view.entry, view.inline), (None, None));
    assert!(view.promise < stamp(0), "nobody asked for a promise");
}

async fn registers_are_read_as_written(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "written");
    let write = plain(&key, stamp(1));
    assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Stored);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry.as_ref(), Some(&write.entry));
    assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored, "a retry is held");
    let gone = tombstone(&key, stamp(2));
    assert_eq!(backend.write(device, gone.clone()).await.unwrap(), WriteReply::Stored);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(gone.entry), "a tombstone is an entry");
}

async fn inline_bytes_are_returned_on_request(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "inline");
    let bytes = Bytes::from_static(b"abc");
    let mut write = plain(&key, stamp(1));
    write.entry.value = object(Body::Inline { crc32c: 0x364b_3fb7 });
    write.inline = Some(bytes.clone());
    assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
    let view = backend.read(device, &key, Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!(view.inline, Some(bytes.clone()));
    assert_eq!(backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap().inline, None);
    match backend.promise(device, &key, stamp(2), Term::ANY).await.unwrap() {
        PromiseReply::Promised(view) => {
            assert_eq!(view.inline, Some(bytes), "a ballot must be able to repeat what it found");
        }
        PromiseReply::Behind(_) => panic!("the ballot lies above all that is held"),
    }
    backend.write(device, plain(&key, stamp(3))).await.unwrap();
    let view = backend.read(device, &key, Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!(view.inline, None, "the bytes are those of the entry");
}

async fn orders_only_rise(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "orders");
    let first = plain(&key, stamp(5));
    backend.write(device, first.clone()).await.unwrap();
    let late = plain(&key, stamp(4));
    assert_eq!(
        backend.write(device, late.clone()).await.unwrap(),
        WriteReply::Behind(stamp(5)),
        "a fresh write below what is held is stamped again"
    );
    let mut settled = late;
    settled.mode = WriteMode::Settled;
    assert_eq!(backend.write(device, settled).await.unwrap(), WriteReply::Superseded);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(first.entry));
}

async fn a_promise_shuts_out_what_lies_below(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "promised");
    backend.write(device, plain(&key, stamp(1))).await.unwrap();
    match backend.promise(device, &key, stamp(5), Term::ANY).await.unwrap() {
        PromiseReply::Promised(view) => {
            assert_eq!(view.entry.map(|entry| entry.order), Some(stamp(1)));
        }
        PromiseReply::Behind(_) => panic!("the ballot lies above all that is held"),
    }
    let again = backend.promise(device, &key, stamp(5), Term::ANY).await.unwrap();
    assert_eq!(again, PromiseReply::Behind(stamp(5)), "a ballot is promised once");
    let below = backend.write(device, plain(&key, stamp(4))).await.unwrap();
    assert_eq!(below, WriteReply::Behind(stamp(5)));
    let mut accept = plain(&key, stamp(5));
    accept.mode = WriteMode::Accept;
    assert_eq!(backend.write(device, accept.clone()).await.unwrap(), WriteReply::Stored);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!((view.promise, view.entry), (stamp(5), Some(accept.entry)));
    let absent = register(key.bucket, "promised before it was");
    backend.promise(device, &absent, stamp(9), Term::ANY).await.unwrap();
    let below = backend.write(device, plain(&absent, stamp(8))).await.unwrap();
    assert_eq!(below, WriteReply::Behind(stamp(9)), "a register without an entry promises too");
    let view = backend.read(device, &absent, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!((view.promise, view.entry), (stamp(9), None));
}

async fn writes_out_of_time_are_refused(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "late");
    let mut late = plain(&key, stamp(1));
    late.commit_by_ms = 1000;
    assert_eq!(backend.write(device, late).await.unwrap(), WriteReply::OutOfTime);
    let far = Stamp { time: u64::MAX, ..stamp(1) };
    assert_eq!(backend.write(device, plain(&key, far)).await.unwrap(), WriteReply::OutOfTime);
    assert_eq!(backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap().entry, None);
}

async fn superseded_extents_become_garbage_unless_kept(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
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
    let value = object(in_extents(vec![extent.unwrap()]));
    let key = register(bucket, "garbage");
    let mut first = plain(&key, stamp(1));
    first.entry.value = value.clone();
    backend.write(device, first.clone()).await.unwrap();
    first.entry.order = stamp(2);
    first.mode = WriteMode::Accept;
    backend.write(device, first).await.unwrap();
    assert!(garbage_of(backend, device, bucket).await.is_empty(), "the same write came again");
    let mut tagged = plain(&key, stamp(3));
    tagged.entry.value = value.clone();
    tagged.keep_body = true;
    backend.write(device, tagged).await.unwrap();
    assert!(garbage_of(backend, device, bucket).await.is_empty(), "the new entry has the bytes");
    backend.write(device, tombstone(&key, stamp(4))).await.unwrap();
    let garbage = garbage_of(backend, device, bucket).await;
    assert_eq!(garbage.len(), 1);
    assert_eq!((&garbage[0].key, Some(&garbage[0].body)), (&key, value.body()));
    backend.forget_garbage(device, &[garbage[0].id.clone()]).await.unwrap();
    assert!(garbage_of(backend, device, bucket).await.is_empty());
    backend.delete_extents(device, &[id]).await.unwrap();
}

async fn garbage_of(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) -> Vec<crate::backend::Garbage> {
    let mut garbage = backend.garbage(device, u64::MAX, usize::MAX).await.unwrap();
    garbage.retain(|garbage| garbage.key.bucket == bucket);
    garbage
}

async fn racing_writes_leave_the_highest(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "race");
    let writes = (0..32).map(|tick| {
        let mut write = plain(&key, stamp(100 + tick * 7 % 32));
        write.mode = WriteMode::Settled;
        write.entry.write_id = WriteId([u8::try_from(tick).unwrap_or(0); 16]);
        backend.write(device, write)
    });
    for reply in futures::future::join_all(writes).await {
        assert!(matches!(reply.unwrap(), WriteReply::Stored | WriteReply::Superseded));
    }
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry.map(|entry| entry.order), Some(stamp(131)));
}
