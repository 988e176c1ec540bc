//! Checks of votes and floors, and of copying between devices (rules G1, G2, R6).

use crate::term::Term;
use bytes::Bytes;

use super::hints::count;
use super::listing::request;
use super::{object, plain, register, stamp, tombstone};
use crate::backend::{
    Backend, BackendExt, BucketFence, EntryWrite, ListStart, PromiseReply, RegisterView, Want,
    WriteReply,
};
use crate::entry::Body;
use crate::error::ErrorKind;
use crate::id::{BucketId, DeviceId, Shard};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::stamp::Stamp;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    registers_come_in_pages(backend, device).await;
    fences_are_listed(backend, device).await;
    a_repair_is_judged_by_its_order_and_when_it_was_read(backend, device).await;
    a_device_without_a_vote_stores_and_does_not_decide(backend, device).await;
    a_device_without_a_vote_neither_keeps_hints_nor_gives_them_away(backend, device).await;
    a_floor_stands_under_every_register(backend, device).await;
}

async fn registers_come_in_pages(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let mut expected = Vec::new();
    for n in 0..6 {
        let key = register(bucket, &format!("page {n}"));
        let mut write = if n == 3 { tombstone(&key, stamp(1)) } else { plain(&key, stamp(1)) };
        if n == 4 {
            write.entry.value = object(Body::Inline { crc32c: 0x364b_3fb7 });
            write.inline = Some(Bytes::from_static(b"abc"));
        }
        backend.write(device, write.clone()).await.unwrap();
        expected.push((key, write.entry, write.inline));
    }
    backend.promise(device, &expected[0].0, stamp(2), Term::ANY).await.unwrap();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    for limit in [1, 4, 100] {
        let found = of_bucket(backend, device, bucket, limit).await;
        let promised = found.iter().filter(|(_, view)| view.promise == stamp(2)).count();
        assert_eq!(promised, 1, "promises are part of what is copied");
        let found: Vec<_> =
            found.into_iter().map(|(key, view)| (key, view.entry.unwrap(), view.inline)).collect();
        assert_eq!(found, expected, "in pages of {limit}");
    }
}

/// Returns the registers of one bucket, read in pages.
async fn of_bucket(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
    limit: usize,
) -> Vec<(RegisterKey, RegisterView)> {
    let mut after =
        RegisterKey { bucket, shard: Shard(0), kind: RegisterKind::Object, name: Bytes::new() };
    let mut found = Vec::new();
    while after.bucket == bucket {
        let page = backend.registers(device, Some(&after), limit).await.unwrap();
        assert!(page.len() <= limit);
        let Some((last, _)) = page.last() else { break };
        assert!(*last > after && page.is_sorted_by(|a, b| a.0 < b.0));
        after = last.clone();
        found.extend(page.into_iter().filter(|(key, _)| key.bucket == bucket));
    }
    found
}

async fn fences_are_listed(backend: &dyn Backend, device: DeviceId) {
    let fence = BucketFence { bucket: BucketId::random(), generation: 4, open: true };
    backend.fence(device, fence).await.unwrap();
    assert!(backend.fences(device).await.unwrap().contains(&fence));
    let closed = BucketFence { generation: 5, open: false, ..fence };
    backend.fence(device, closed).await.unwrap();
    let mut found = backend.fences(device).await.unwrap();
    found.retain(|found| found.bucket == fence.bucket);
    assert_eq!(found, [closed], "a bucket has one fence");
    backend.purge_bucket(device, fence.bucket).await.unwrap();
    let mut found = backend.fences(device).await.unwrap();
    found.retain(|found| found.bucket == fence.bucket);
    let deleted = BucketFence::of_deleted(fence.bucket);
    assert_eq!(found, [deleted], "the bucket stays closed");
    fences_are_paged_by_id(backend, device, deleted).await;
}

/// Pages have all fences once, in the order of their ids; named buckets have theirs.
async fn fences_are_paged_by_id(backend: &dyn Backend, device: DeviceId, deleted: BucketFence) {
    let others = [0x20, 0xa0].map(|first| {
        let mut id = BucketId::random();
        id.0[0] = first;
        BucketFence { bucket: id, generation: 2, open: true }
    });
    for fence in others {
        backend.fence(device, fence).await.unwrap();
    }
    let mut all = backend.fences(device).await.unwrap();
    all.sort_by_key(|fence| fence.bucket);
    for limit in [1, 2, all.len(), 10_000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = backend.fences_after(device, after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let is_last = page.len() < limit;
            after = page.last().map(|fence| fence.bucket).or(after);
            found.extend(page);
            if is_last {
                break;
            }
        }
        assert_eq!(found, all, "pages of {limit}");
    }
    let named = [others[1].bucket, BucketId::random(), deleted.bucket];
    assert_eq!(backend.fences_of(device, &named).await.unwrap(), [others[1], deleted]);
    assert_eq!(backend.fences_of(device, &[]).await.unwrap(), []);
}

async fn a_repair_is_judged_by_its_order_and_when_it_was_read(
    backend: &dyn Backend,
    device: DeviceId,
) {
    let key = register(BucketId::random(), "repaired");
    let closed = BucketFence { bucket: key.bucket, generation: 9, open: false };
    backend.fence(device, closed).await.unwrap();
    let repair = |order| {
        let mut write = plain(&key, order);
        (write.mode, write.commit_by_ms) = (WriteMode::Repair, u64::MAX);
        write
    };
    let late = EntryWrite { commit_by_ms: 1000, ..repair(stamp(5)) };
    assert_eq!(backend.write(device, late).await.unwrap(), WriteReply::OutOfTime);
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, None);
    let day_old = Stamp { time: stamp(0).time - (86_400_000 << 16), ..stamp(0) };
    let old = repair(day_old);
    assert_eq!(backend.write(device, old.clone()).await.unwrap(), WriteReply::Stored);
    assert_eq!(backend.write(device, old.clone()).await.unwrap(), WriteReply::Stored, "held");
    let newer = repair(stamp(5));
    assert_eq!(backend.write(device, newer.clone()).await.unwrap(), WriteReply::Stored);
    assert_eq!(backend.write(device, repair(stamp(4))).await.unwrap(), WriteReply::Superseded);
    backend.promise(device, &key, stamp(8), Term::ANY).await.unwrap();
    let below = backend.write(device, repair(stamp(7))).await.unwrap();
    assert_eq!(below, WriteReply::Behind(stamp(8)), "a promise binds repairs too");
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(newer.entry));
    backend.purge_bucket(device, key.bucket).await.unwrap();
}

async fn voting(backend: &dyn Backend, device: DeviceId) -> bool {
    let all = backend.devices().await.unwrap();
    all.iter().find(|status| status.device == device).expect("the device is listed").voting
}

async fn a_device_without_a_vote_stores_and_does_not_decide(
    backend: &dyn Backend,
    device: DeviceId,
) {
    assert!(voting(backend, device).await, "the suite begins with a device that has its votes");
    let bucket = BucketId::random();
    let (before, while_mute) = (register(bucket, "before"), register(bucket, "while mute"));
    backend.write(device, plain(&before, stamp(1))).await.unwrap();
    backend.set_voting(device, false).await.unwrap();
    assert!(!voting(backend, device).await);

    let write = plain(&while_mute, stamp(2));
    assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Unvoted);
    assert_eq!(backend.write(device, write.clone()).await.unwrap(), WriteReply::Unvoted, "held");
    let mut repair = plain(&before, stamp(3));
    repair.mode = WriteMode::Repair;
    assert_eq!(backend.write(device, repair).await.unwrap(), WriteReply::Unvoted);
    let refusals = [
        backend.read(device, &before, Want::Entry, Term::ANY).await.err(),
        backend.promise(device, &before, stamp(9), Term::ANY).await.err(),
        backend.list(device, &request(bucket, "", ListStart::First)).await.err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.map(|error| error.kind()), Some(ErrorKind::Unavailable));
    }
    let copied = of_bucket(backend, device, bucket, 10).await;
    assert_eq!(copied.len(), 2, "what it holds can be copied and compared");

    backend.set_voting(device, true).await.unwrap();
    assert!(voting(backend, device).await);
    let view = backend.read(device, &while_mute, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(write.entry), "what was stored without a vote is there");
    let view = backend.read(device, &before, Want::Entry, Term::ANY).await.unwrap();
    assert!(view.promise < stamp(9), "nothing was promised");
}

async fn a_device_without_a_vote_neither_keeps_hints_nor_gives_them_away(
    backend: &dyn Backend,
    device: DeviceId,
) {
    let bucket = BucketId::random();
    let (kept, late) = (register(bucket, "kept"), register(bucket, "late"));
    backend.keep_hint(device, plain(&kept, stamp(1))).await.unwrap();
    let counted = count(backend, device).await;
    backend.set_voting(device, false).await.unwrap();
    let refusal = backend.keep_hint(device, plain(&late, stamp(1))).await.unwrap_err();
    assert!(refusal.kind() == ErrorKind::Unavailable && refusal.had_no_effect(), "{refusal}");
    let before = RegisterKey { name: Bytes::new(), ..kept.clone() };
    let refusals = [
        backend.hints(device, Some(&before), 1).await.err(),
        backend.read_hint(device, &kept, Want::Entry).await.err(),
        backend.list_hints(device, &request(bucket, "", ListStart::First)).await.err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.map(|error| error.kind()), Some(ErrorKind::Unavailable));
    }
    assert_eq!(count(backend, device).await, counted, "their number is not hidden");

    backend.set_voting(device, true).await.unwrap();
    assert_eq!(backend.hints(device, Some(&before), 1).await.unwrap()[0].key, kept);
    let view = backend.read_hint(device, &late, Want::Entry).await.unwrap();
    assert_eq!(view.entry, None, "the refused one was not kept");
    backend.forget_hint(device, &kept, stamp(1)).await.unwrap();
}

/// A stamp far below the other stamps of this suite: a floor here doesn't affect other checks.
fn low(ms: u64) -> Stamp {
    Stamp::at_ms(ms)
}

async fn a_floor_stands_under_every_register(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "floor");
    let repair = |order| {
        let mut write = plain(&key, order);
        write.mode = WriteMode::Repair;
        write
    };
    backend.write(device, repair(low(1))).await.unwrap();
    backend.raise_floor(device, low(7)).await.unwrap();
    backend.raise_floor(device, low(5)).await.unwrap();
    let absent = register(key.bucket, "absent under the floor");
    for key in [&key, &absent] {
        match backend.promise(device, key, low(6), Term::ANY).await.unwrap() {
            // A node that also checks the age of ballots (rule T2) returns a later stamp.
            PromiseReply::Behind(floor) => assert!(floor >= low(7), "a floor never falls"),
            PromiseReply::Promised(_) => panic!("the ballot lies below the floor"),
        }
    }
    let below = backend.write(device, repair(low(6))).await.unwrap();
    assert_eq!(below, WriteReply::Behind(low(7)));
    let view = backend.read(device, &key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!((view.promise, view.entry.map(|entry| entry.order)), (low(7), Some(low(1))));
    assert_eq!(backend.write(device, repair(low(8))).await.unwrap(), WriteReply::Stored);
    match backend.promise(device, &absent, low(9), Term::ANY).await.unwrap() {
        PromiseReply::Promised(view) => assert_eq!(view.entry, None),
        PromiseReply::Behind(floor) => assert!(floor > low(9), "the ballot lies above the floor"),
    }
}
