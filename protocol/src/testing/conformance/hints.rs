//! Checks of hints: writes that a handoff keeps for primaries that are out (rule A2).

use crate::term::Term;
use bytes::Bytes;

use super::listing::request;
use super::{object, plain, register, stamp, tombstone};
use crate::backend::{
    Backend, BackendExt, BucketFence, EntryWrite, Hint, ListRequest, ListStart, Want, WriteReply,
};
use crate::entry::Body;
use crate::id::{BucketId, DeviceId, Shard};
use crate::key::{RegisterKey, RegisterKind};
use crate::stamp::Stamp;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    a_hint_is_kept_beside_the_register(backend, device).await;
    the_newest_hint_stays(backend, device).await;
    hints_are_judged_as_writes_are(backend, device).await;
    hints_are_listed_as_entries_are(backend, device).await;
    hints_come_in_pages(backend, device).await;
    a_newer_hint_is_not_forgotten(backend, device).await;
    hints_come_in_the_order_of_their_arrival(backend, device).await;
}

fn inline(key: &RegisterKey, order: Stamp) -> EntryWrite {
    let mut write = plain(key, order);
    write.entry.value = object(Body::Inline { crc32c: 0x364b_3fb7 });
    write.inline = Some(Bytes::from_static(b"abc"));
    write
}

pub(super) async fn count(backend: &dyn Backend, device: DeviceId) -> u64 {
    let all = backend.devices().await.unwrap();
    all.iter().find(|status| status.device == device).expect("the device is listed").hints
}

/// Returns the hints of one bucket, read in pages.
async fn of_bucket(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
    limit: usize,
) -> Vec<Hint> {
    let lowest =
        RegisterKey { bucket, shard: Shard(0), kind: RegisterKind::Object, name: Bytes::new() };
    let (mut after, mut found) = (lowest, Vec::new());
    loop {
        let page = backend.hints(device, Some(&after), limit).await.unwrap();
        assert!(page.len() <= limit);
        let Some(last) = page.last() else { break };
        assert!(last.key > after && page.is_sorted_by(|a, b| a.key < b.key));
        after = last.key.clone();
        found.extend(page.into_iter().filter(|hint| hint.key.bucket == bucket));
        if after.bucket != bucket {
            break;
        }
    }
    found
}

async fn a_hint_is_kept_beside_the_register(backend: &dyn Backend, device: DeviceId) {
    let before = count(backend, device).await;
    let key = register(BucketId::random(), "kept");
    let absent = backend.read_hint(device, &key, Want::Entry).await.unwrap();
    assert_eq!((absent.promise, absent.entry), (Stamp::ZERO, None));
    let own = plain(&key, stamp(1));
    backend.write(device, own.clone()).await.unwrap();
    backend.promise(device, &key, stamp(2), Term::ANY).await.unwrap();
    let mut write = inline(&key, stamp(3));
    write.keep_body = true;
    assert_eq!(backend.keep_hint(device, write.clone()).await.unwrap(), WriteReply::Stored);
    assert_eq!(backend.keep_hint(device, write.clone()).await.unwrap(), WriteReply::Stored);
    assert_eq!(count(backend, device).await, before + 1, "the same hint came twice");

    let kept = backend.read_hint(device, &key, Want::EntryAndInline).await.unwrap();
    assert_eq!(kept.promise, Stamp::ZERO, "a handoff makes no promise");
    assert_eq!((kept.entry.as_ref(), &kept.inline), (Some(&write.entry), &write.inline));
    assert_eq!(backend.read_hint(device, &key, Want::Entry).await.unwrap().inline, None);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(own.entry), "the device's own register is another matter");

    let hints = of_bucket(backend, device, key.bucket, 10).await;
    assert_eq!(hints.len(), 1);
    assert_eq!((&hints[0].key, &hints[0].entry), (&key, &write.entry));
    assert_eq!((&hints[0].inline, hints[0].keep_body), (&write.inline, true));
    backend.forget_hint(device, &key, stamp(3)).await.unwrap();
    assert_eq!(count(backend, device).await, before);
}

async fn the_newest_hint_stays(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "newest");
    let newest = tombstone(&key, stamp(5));
    let offered = [
        (inline(&key, stamp(3)), WriteReply::Stored),
        (newest.clone(), WriteReply::Stored),
        (plain(&key, stamp(4)), WriteReply::Superseded),
    ];
    for (write, expected) in offered {
        assert_eq!(backend.keep_hint(device, write).await.unwrap(), expected);
    }
    let kept = backend.read_hint(device, &key, Want::EntryAndInline).await.unwrap();
    assert_eq!((kept.entry, kept.inline), (Some(newest.entry), None));
    backend.forget_hint(device, &key, stamp(5)).await.unwrap();
}

async fn hints_are_judged_as_writes_are(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "judged");
    let mut late = plain(&key, stamp(1));
    late.commit_by_ms = 1000;
    assert_eq!(backend.keep_hint(device, late).await.unwrap(), WriteReply::OutOfTime);
    let far = Stamp { time: u64::MAX, ..stamp(1) };
    assert_eq!(backend.keep_hint(device, plain(&key, far)).await.unwrap(), WriteReply::OutOfTime);
    let fence = BucketFence { bucket: key.bucket, generation: 2, open: true };
    backend.fence(device, fence).await.unwrap();
    let older = plain(&key, stamp(1));
    assert_eq!(backend.keep_hint(device, older).await.unwrap(), WriteReply::Fenced);
    assert_eq!(backend.read_hint(device, &key, Want::Entry).await.unwrap().entry, None);
    backend.fence(device, BucketFence { open: false, ..fence }).await.unwrap();
    backend.purge_bucket(device, key.bucket).await.unwrap();
}

async fn hints_are_listed_as_entries_are(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    for (tick, name) in (1..).zip(["a/1", "a/2", "b"]) {
        backend.keep_hint(device, plain(&register(bucket, name), stamp(tick))).await.unwrap();
    }
    backend.keep_hint(device, tombstone(&register(bucket, "b"), stamp(9))).await.unwrap();
    let request = ListRequest { limit: 2, ..request(bucket, "", ListStart::First) };
    let page = backend.list_hints(device, &request).await.unwrap();
    let names: Vec<&[u8]> = page.entries.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!((names, page.truncated), (vec![&b"a/1"[..], b"a/2"], true));
    let rest = ListRequest { start: ListStart::After("a/2".into()), ..request };
    let page = backend.list_hints(device, &rest).await.unwrap();
    assert_eq!((page.entries.len(), page.truncated), (1, false));
    assert!(page.entries[0].1.value.is_tombstone(), "a delete is kept for others too");
    assert!(backend.list(device, &rest).await.unwrap().entries.is_empty());
    for name in ["a/1", "a/2", "b"] {
        backend.forget_hint(device, &register(bucket, name), stamp(9)).await.unwrap();
    }
}

async fn hints_come_in_pages(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let mut keys: Vec<_> = (0..7).map(|n| register(bucket, &format!("page {n}"))).collect();
    for key in &keys {
        backend.keep_hint(device, plain(key, stamp(1))).await.unwrap();
    }
    keys.sort();
    for limit in [1, 3, 100] {
        let found = of_bucket(backend, device, bucket, limit).await;
        let found: Vec<_> = found.into_iter().map(|hint| hint.key).collect();
        assert_eq!(found, keys, "in pages of {limit}");
    }
    for key in &keys {
        backend.forget_hint(device, key, stamp(1)).await.unwrap();
    }
    assert!(of_bucket(backend, device, bucket, 100).await.is_empty());
}

async fn a_newer_hint_is_not_forgotten(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "forgotten");
    backend.forget_hint(device, &key, stamp(1)).await.expect("there is nothing to forget");
    backend.keep_hint(device, plain(&key, stamp(5))).await.unwrap();
    backend.forget_hint(device, &key, stamp(4)).await.unwrap();
    let kept = backend.read_hint(device, &key, Want::Entry).await.unwrap();
    assert_eq!(kept.entry.map(|entry| entry.order), Some(stamp(5)));
    backend.forget_hint(device, &key, stamp(6)).await.unwrap();
    assert_eq!(backend.read_hint(device, &key, Want::Entry).await.unwrap().entry, None);
}

async fn hints_come_in_the_order_of_their_arrival(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let keys = ["c", "a", "b"].map(|name| register(bucket, name));
    let before = backend.hint_arrivals(device, None, 10).await.unwrap();
    assert!(before.missed && before.hints.is_empty(), "a position alone");
    for key in &keys {
        backend.keep_hint(device, plain(key, stamp(1))).await.unwrap();
    }
    let page = backend.hint_arrivals(device, Some(before.last), 2).await.unwrap();
    let found: Vec<_> = page.hints.iter().map(|hint| hint.key.clone()).collect();
    assert_eq!((&found[..], page.missed), (&keys[..2], false));
    // A replaced hint comes again, and a forgotten one doesn't come.
    backend.keep_hint(device, plain(&keys[0], stamp(5))).await.unwrap();
    backend.forget_hint(device, &keys[2], stamp(1)).await.unwrap();
    let page = backend.hint_arrivals(device, Some(page.last), 10).await.unwrap();
    let found: Vec<_> = page.hints.iter().map(|hint| (&hint.key, hint.entry.order)).collect();
    assert_eq!(found, [(&keys[0], stamp(5))]);
    let end = backend.hint_arrivals(device, Some(page.last), 10).await.unwrap();
    assert_eq!((end.hints.len(), end.last, end.missed), (0, page.last, false));
    let ahead = backend.hint_arrivals(device, Some(page.last + 1), 10).await.unwrap();
    assert!(ahead.missed, "no such position");
    for key in &keys {
        backend.forget_hint(device, key, stamp(5)).await.unwrap();
    }
}
