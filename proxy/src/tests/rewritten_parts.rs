//! Parts that are sent again and again while their upload is open (rule M1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join, join_all};
use martlet_protocol::backend::{CallKind, EntryWrite, WriteReply};
use martlet_protocol::entry::{ETag, Entry};
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, MemoryBackend};
use martlet_protocol::{
    BackendExt, Clock, DeviceId, ErrorKind, ManualClock, RegisterKey, RegisterKind, Stamp,
    SystemClock, Term, UploadId, WriterId,
};
use tokio::time::sleep;

use super::harness::{Harness, body, create, faulty, get, pattern, settle};
use super::multipart::{begin, naming, send};
use super::nodes::{Nodes, Proxy};
use crate::multipart::{REPLACED_KEPT_MAX, UploadName};
use crate::{Error, NewUpload, Selection, WrittenPart};

/// Number of part registers on a device, without tombstones, once late copies have arrived.
async fn live_parts(memory: &MemoryBackend, device: DeviceId) -> usize {
    settle().await;
    let held = memory.registers(device).into_iter();
    held.filter(|(key, entry)| key.kind == RegisterKind::Part && !entry.value.is_tombstone())
        .count()
}

/// The most part registers on a device of any node.
async fn most_live_parts(nodes: &Nodes) -> usize {
    let mut most = 0;
    for device in nodes.ring.devices() {
        most = most.max(live_parts(nodes.memory(device.id), device.id).await);
    }
    most
}

async fn begin_by(proxy: &Proxy) -> UploadId {
    let attributes = martlet_protocol::entry::Attributes::default();
    let new = NewUpload { attributes, checksum: None };
    proxy.store.uploads().create("b", "key", new).await.unwrap().id
}

async fn send_by(proxy: &Proxy, upload: UploadId, seed: u32) -> (WrittenPart, Bytes) {
    let bytes = pattern(1000, seed);
    let sent = proxy.store.uploads().put_part("b", "key", upload, 1, body(bytes.clone())).await;
    (sent.unwrap(), bytes)
}

/// Selects ballots on uploads.
fn is_ballot_of_upload(call: &Call<'_>) -> bool {
    call.op == CallKind::Promise && call.key.is_some_and(|key| key.kind == RegisterKind::Upload)
}

#[tokio::test]
async fn m1_a_part_that_is_sent_again_and_again_keeps_few_writes() {
    for (replicas, devices) in [(1, 1), (3, 3)] {
        let harness = Harness::new(replicas, devices);
        create(&harness.store, "b").await;
        let upload = begin(&harness, "key").await;
        let other = send(&harness, upload, 2, &pattern(2000, 99)).await.unwrap();
        let mut sent = Vec::new();
        for seed in 0..20 {
            sent.push(send(&harness, upload, 1, &pattern(1000 + seed, 1)).await.unwrap());
            let live = live_parts(&harness.memory, DeviceId(1)).await;
            assert!(live <= 2 + REPLACED_KEPT_MAX, "{live} after {seed}");
        }
        let name = UploadName { bucket: "b", key: "key", id: upload };
        let parts = &harness.store.services.multipart.parts;
        let (usage, seen) = parts.usage_of_parts(&harness.store.context(), name).await.unwrap();
        assert!(seen <= 2 + REPLACED_KEPT_MAX as u64 && usage.bytes < 7000, "{seen} {usage:?}");
        for replaced in [0, 18] {
            let complete = naming(&[(1, &sent[replaced]), (2, &other)]);
            let refused = harness.store.uploads().complete("b", "key", upload, complete).await;
            assert!(matches!(refused, Err(Error::InvalidPart(1))), "{refused:?}");
        }
        let complete = naming(&[(1, &sent[19]), (2, &other)]);
        harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        let whole = [&pattern(1019, 1)[..], &pattern(2000, 99)[..]].concat();
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), whole);
        settle().await;
        assert_eq!(harness.memory.extents_in_use().len(), 2 * replicas);
    }
}

#[tokio::test]
async fn m1_concurrent_writes_of_a_part_are_freed_when_they_have_ended() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    let upload = begin(&harness, "key").await;
    let bodies: Vec<_> = (0..50).map(|seed| pattern(500, seed)).collect();
    let sent = join_all(bodies.iter().map(|bytes| send(&harness, upload, 1, bytes))).await;
    assert!(sent.iter().all(Result::is_ok));
    let live = live_parts(&harness.memory, DeviceId(1)).await;
    assert!((1..=1 + REPLACED_KEPT_MAX).contains(&live), "{live}");
    let page = harness.store.uploads().list_parts("b", "key", upload, 0, 10).await.unwrap();
    assert_eq!(page.parts.len(), 1);
}

/// A completion chose a part, and the part is replaced and freed before the completion decides.
#[tokio::test(start_paused = true)]
async fn m1_a_completion_that_chose_before_a_release_chooses_again() {
    let nodes = Nodes::new(3);
    let (other, ..) = nodes.with_bucket("key").await;
    let has_chosen = Arc::new(AtomicBool::new(false));
    let chosen = has_chosen.clone();
    let slow = nodes.proxy_with(60_000, move |call| {
        if !is_ballot_of_upload(call) {
            return Fault::None;
        }
        chosen.store(true, Ordering::SeqCst);
        Fault::Delay(Duration::from_millis(300))
    });
    let upload = begin_by(&other).await;
    let (first, _) = send_by(&other, upload, 1).await;
    let complete = naming(&[(1, &first)]);
    let completion = slow.store.uploads().complete("b", "key", upload, complete);
    let rewrites = async {
        while !has_chosen.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
        let mut last = send_by(&other, upload, 2).await;
        for seed in 3..3 + u32::try_from(REPLACED_KEPT_MAX).unwrap() {
            last = send_by(&other, upload, seed).await;
        }
        assert_eq!(most_live_parts(&nodes).await, 1, "the chosen part was freed");
        last
    };
    let (completed, (last, bytes)) = join(completion, rewrites).await;
    assert!(matches!(completed, Err(Error::InvalidPart(1))), "{completed:?}");
    let complete = naming(&[(1, &last)]);
    slow.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(get(&slow.store, "key", Selection::Whole).await.unwrap(), bytes);
}

/// The completion decides first: nothing of it may be freed.
#[tokio::test(start_paused = true)]
async fn m1_no_part_is_freed_once_a_completion_has_decided() {
    let nodes = Nodes::new(3);
    let (other, ..) = nodes.with_bucket("key").await;
    let is_late = Arc::new(AtomicBool::new(false));
    let waits = is_late.clone();
    let late = nodes.proxy_with(60_000, move |call| {
        if is_ballot_of_upload(call) {
            waits.store(true, Ordering::SeqCst);
            return Fault::Delay(Duration::from_millis(300));
        }
        Fault::None
    });
    let upload = begin_by(&other).await;
    for seed in 0..u32::try_from(REPLACED_KEPT_MAX).unwrap() {
        send_by(&late, upload, seed).await;
    }
    let (own, bytes) = send_by(&other, upload, 50).await;
    // Its walk found more replaced writes than may stay, and its ballot is late.
    let rewrite = async {
        for seed in 60..62 {
            let body = body(pattern(1000, seed));
            let _ = late.store.uploads().put_part("b", "key", upload, 1, body).await;
        }
    };
    let completes = async {
        while !is_late.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
        let complete = naming(&[(1, &own)]);
        other.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    };
    join(rewrite, completes).await;
    assert_eq!(get(&other.store, "key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn m1_writes_of_two_proxies_are_freed_too() {
    let nodes = Nodes::new(3);
    let (one, ..) = nodes.with_bucket("key").await;
    let two = nodes.proxy();
    let upload = begin_by(&one).await;
    let mut last = None;
    for seed in 0..12 {
        for proxy in [&one, &two] {
            last = Some(send_by(proxy, upload, seed).await);
        }
    }
    // The newest write of each proxy may be the newest of all.
    let live = most_live_parts(&nodes).await;
    assert!(live <= 2 + REPLACED_KEPT_MAX, "{live}");
    let (part, bytes) = last.unwrap();
    one.store.uploads().complete("b", "key", upload, naming(&[(1, &part)])).await.unwrap();
    assert_eq!(get(&one.store, "key", Selection::Whole).await.unwrap(), bytes);
}

/// Stamps don't order the writes of two proxies, so the client's ETag still finds such a write.
#[tokio::test]
async fn m1_a_write_that_may_be_the_newest_stays() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    let late = nodes.late_proxy(5000);
    let upload = begin_by(&proxy).await;
    for seed in 0..8 {
        send_by(&proxy, upload, seed).await;
    }
    let (part, bytes) = send_by(&late, upload, 100).await;
    for seed in 0..8 {
        send_by(&proxy, upload, seed).await;
    }
    proxy.store.uploads().complete("b", "key", upload, naming(&[(1, &part)])).await.unwrap();
    assert_eq!(get(&proxy.store, "key", Selection::Whole).await.unwrap(), bytes);
}

/// A release that fails delays no upload of a part, and the next write of the number goes on.
#[tokio::test(start_paused = true)]
async fn m1_a_release_that_fails_is_made_up_for() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    let upload = begin(&harness, "key").await;
    let failing = faulty(&harness.memory, 3, 3, |call| {
        if is_ballot_of_upload(call) { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    for seed in 0..10 {
        let body = body(pattern(1000, seed));
        failing.uploads().put_part("b", "key", upload, 1, body).await.unwrap();
    }
    assert_eq!(live_parts(&harness.memory, DeviceId(1)).await, 10);
    send(&harness, upload, 1, &pattern(1000, 11)).await.unwrap();
    assert_eq!(live_parts(&harness.memory, DeviceId(1)).await, 2, "the newest of each proxy");
}

/// Writes of parts, as each device has them.
async fn parts_of(nodes: &Nodes) -> Vec<(RegisterKey, Entry)> {
    settle().await;
    let held = nodes.memory(DeviceId(1)).registers(DeviceId(1)).into_iter();
    held.filter(|(key, _)| key.kind == RegisterKind::Part).collect()
}

/// The only write of a part.
async fn only_part(nodes: &Nodes) -> (RegisterKey, Entry) {
    let mut parts = parts_of(nodes).await;
    assert_eq!(parts.len(), 1);
    parts.remove(0)
}

/// Gives a write a present order on all devices, as a worker does that settles its register (rule R6).
pub(super) async fn settle_at(nodes: &Nodes, part: &(RegisterKey, Entry), order: Stamp) {
    for device in nodes.ring.devices().iter().map(|device| device.id) {
        let write = EntryWrite {
            key: part.0.clone(),
            entry: Entry { order, ..part.1.clone() },
            inline: None,
            mode: WriteMode::Repair,
            generation: u64::MAX,
            commit_by_ms: u64::MAX,
            keep_body: true,
            term: Term::ANY,
        };
        let reply = BackendExt::write(nodes.memory(device), device, write).await.unwrap();
        assert_eq!(reply, WriteReply::Stored);
    }
}

/// Sends a part, and settles it 5 s later at an order above those of later writes.
async fn settled_part() -> (Nodes, Proxy, UploadId) {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let nodes = Nodes::timed(3, 1, clock.clone());
    let (proxy, ..) = nodes.with_bucket("key").await;
    let upload = begin_by(&proxy).await;
    send_by(&proxy, upload, 1).await;
    let part = only_part(&nodes).await;
    clock.advance_ms(5000);
    settle_at(&nodes, &part, Stamp::at_ms(clock.now_ms() + CLOCK_SKEW_MS_MAX + 2)).await;
    (nodes, proxy, upload)
}

#[tokio::test]
async fn m4_a_part_that_was_settled_is_no_newer_than_before() {
    let (_nodes, proxy, upload) = settled_part().await;
    let (second, bytes) = send_by(&proxy, upload, 2).await;
    let page = proxy.store.uploads().list_parts("b", "key", upload, 0, 10).await.unwrap();
    let listed: Vec<_> = page.parts.iter().map(|(_, part)| ETag::Md5(part.tag)).collect();
    assert_eq!(listed, [second.etag]);
    let complete = naming(&[(1, &second)]);
    proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(get(&proxy.store, "key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn m4_a_part_that_was_settled_frees_no_newer_one() {
    let (nodes, proxy, upload) = settled_part().await;
    for seed in 2..12 {
        let (part, bytes) = send_by(&proxy, upload, seed).await;
        let live = most_live_parts(&nodes).await;
        assert!((2..=2 + REPLACED_KEPT_MAX).contains(&live), "{live} after {seed}");
        if seed == 11 {
            let complete = naming(&[(1, &part)]);
            proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
            assert_eq!(get(&proxy.store, "key", Selection::Whole).await.unwrap(), bytes);
        }
    }
}

/// A part that two proxies wrote.
struct SentByTwo {
    upload: UploadId,
    first: (RegisterKey, Entry),
    second: (RegisterKey, Entry),
    /// Result and bytes of the second write.
    part: WrittenPart,
    bytes: Bytes,
}

/// Sends a part by a proxy whose clock is early, and again by another one.
async fn sent_by_two(nodes: &Nodes, proxy: &Proxy) -> SentByTwo {
    let early = nodes.early_proxy(2000);
    let upload = begin_by(proxy).await;
    send_by(&early, upload, 1).await;
    let first = only_part(nodes).await;
    let (part, bytes) = send_by(proxy, upload, 2).await;
    let second = parts_of(nodes).await.into_iter().find(|it| it.0 != first.0).unwrap();
    SentByTwo { upload, first, second, part, bytes }
}

/// The order of a settled part has the writer of the worker or proxy that settled it, not of the proxy that wrote the part.
#[tokio::test]
async fn m4_parts_of_two_proxies_that_one_settles_replace_none() {
    for is_by_worker in [true, false] {
        let nodes = Nodes::new(3);
        let (proxy, ..) = nodes.with_bucket("key").await;
        let sent = sent_by_two(&nodes, &proxy).await;
        let raised = if is_by_worker {
            let worker = WriterId(7);
            let now_ms = SystemClock.now_ms();
            let order = Stamp { writer: worker, ..Stamp::at_ms(now_ms + 3000) };
            settle_at(&nodes, &sent.second, order).await;
            Stamp { writer: worker, ..Stamp::at_ms(now_ms + 3001) }
        } else {
            // A ballot of the second proxy, directly above the order that the part had.
            Stamp { time: sent.first.1.order.time + 1, writer: sent.second.1.order.writer }
        };
        settle_at(&nodes, &sent.first, raised).await;
        let complete = naming(&[(1, &sent.part)]);
        proxy.store.uploads().complete("b", "key", sent.upload, complete).await.unwrap();
        let bytes = get(&proxy.store, "key", Selection::Whole).await.unwrap();
        assert_eq!(bytes, sent.bytes, "{is_by_worker}");
    }
}
