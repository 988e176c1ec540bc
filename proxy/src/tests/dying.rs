//! Proxies that die at any of their calls, over three replicas, while other proxies read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Attributes;
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, Level, RegisterKind, UploadId, WriteId};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::harness::{body, pattern, put};
use super::multipart::naming;
use super::nodes::{Fortune, Nodes, Proxy};
use super::objects::copy_of;
use crate::{
    CompleteUpload, Error, NewUpload, ObjectStore, ReadConditions, Result, Selection,
    WriteConditions, WrittenObject,
};

/// A proxy that hangs after so many calls.
pub(super) async fn dying(nodes: &Nodes, calls: usize) -> ObjectStore {
    delayed_after(nodes, calls, Duration::from_secs(1_000_000)).await
}

/// A proxy whose calls are delayed after the first so many.
async fn delayed_after(nodes: &Nodes, calls: usize, delay: Duration) -> ObjectStore {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let counted = left.clone();
    let proxy = nodes.proxy_with(60_000, move |_| {
        let is_quick = counted
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if is_quick { Fault::None } else { Fault::Delay(delay) }
    });
    proxy.store.bucket("b").await.unwrap();
    left.store(calls, Ordering::SeqCst);
    proxy.store
}

/// Completes an upload by a proxy that is slow after so many calls. Returns after 300 ms.
pub(super) async fn slow_complete(
    nodes: &Nodes,
    calls: usize,
    delay: Duration,
    upload: UploadId,
    complete: &CompleteUpload,
) -> JoinHandle<Result<WrittenObject>> {
    let (proxy, complete) = (delayed_after(nodes, calls, delay).await, complete.clone());
    let completes =
        tokio::spawn(async move { proxy.uploads().complete("b", "key", upload, complete).await });
    sleep(Duration::from_millis(300)).await;
    completes
}

/// Returns the state that every read sees in the end, with any node out. It may change once,
/// because a replica that was not read before may have a newer write.
pub(super) async fn read_by_all(proxy: &Proxy, what: &str) -> Option<Bytes> {
    let mut seen: Vec<Option<Bytes>> = Vec::new();
    for turn in 0..6 {
        proxy.heal();
        proxy.fares(&[DeviceId(turn % 3 + 1)], Fortune::Refused);
        let read = super::harness::get(&proxy.store, "key", Selection::Whole).await;
        let held = match read {
            Ok(bytes) => Some(bytes),
            Err(Error::NoSuchKey) => None,
            Err(error) => panic!("{what}, turn {turn}: {error}"),
        };
        if seen.last() != Some(&held) {
            seen.push(held);
        }
        assert!(seen.len() <= 2, "{what}, turn {turn}: it changed twice");
    }
    proxy.heal();
    seen.pop().flatten()
}

/// Kills an operation's proxy at each of its calls, until the operation succeeds.
async fn at_every_call<F: Future<Output = Result<()>>>(
    before: Option<&Bytes>,
    after: Option<&Bytes>,
    operation: impl Fn(ObjectStore) -> F,
) {
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        for (key, bytes) in [("key", before), ("source", after)] {
            if let Some(bytes) = bytes {
                put(&proxy.store, key, body(bytes.clone()), WriteConditions::default())
                    .await
                    .unwrap();
            }
        }
        sleep(Duration::from_secs(1)).await;
        let done = timeout(Duration::from_millis(500), operation(dying(&nodes, calls).await)).await;
        let held = read_by_all(&proxy, &what).await;
        assert!(held.as_ref() == before || held.as_ref() == after, "{what}: something else");
        if let Ok(Ok(())) = done {
            assert_eq!(held.as_ref(), after, "{what}, and it was acknowledged");
            assert!(calls >= 2, "a quorum is two calls at least");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m1_a_put_is_there_whole_or_not_at_all_for_everyone() {
    for size in [100, 30_000] {
        for conditional in [false, true] {
            let (old, new) = (pattern(20_000, 1), pattern(size, 2));
            at_every_call(Some(&old), Some(&new), |store| {
                let new = new.clone();
                async move {
                    let any = crate::ETagCondition::Any;
                    let if_match = conditional.then_some(any);
                    let conditions = WriteConditions { if_match, if_none_match: None };
                    put(&store, "key", body(new), conditions).await.map(drop)
                }
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m1_a_delete_is_done_or_not_for_everyone() {
    let old = pattern(500, 1);
    at_every_call(Some(&old), None, |store| async move {
        store.delete("b", "key", &WriteConditions::default()).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn m1_a_copy_is_there_whole_or_not_at_all_for_everyone() {
    let (old, new) = (pattern(500, 1), pattern(40_000, 2));
    at_every_call(Some(&old), Some(&new), |store| async move {
        let copy = copy_of("source");
        store.copy("b", "key", copy).await.map(drop)
    })
    .await;
}

/// Write ids that replicas hold for the key.
pub(super) fn writes(nodes: &Nodes) -> Vec<WriteId> {
    let mut ids = Vec::new();
    for device in [1, 2, 3].map(DeviceId) {
        for (register, entry) in nodes.memory(device).registers(device) {
            let is_object = register.kind == RegisterKind::Object;
            if is_object && register.name == "key" {
                ids.push(entry.write_id);
            }
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub(super) async fn uploaded(proxy: &Proxy, bytes: &Bytes) -> (UploadId, CompleteUpload) {
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = proxy.store.uploads().create("b", "key", new).await.unwrap().id;
    let part =
        proxy.store.uploads().put_part("b", "key", upload, 1, body(bytes.clone())).await.unwrap();
    proxy.store.uploads().put_part("b", "key", upload, 2, body(bytes.clone())).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    (upload, naming(&[(1, &part)]))
}

#[tokio::test(start_paused = true)]
async fn m1_a_complete_is_driven_on_by_another_proxy_as_the_same_write() {
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        let bytes = pattern(60_000, 1);
        let (upload, complete) = uploaded(&proxy, &bytes).await;
        let first = dying(&nodes, calls).await;
        let first = first.uploads().complete("b", "key", upload, complete.clone());
        let done = timeout(Duration::from_millis(500), first).await;
        let begun = writes(&nodes);
        assert!(begun.len() <= 1, "{what}");
        let held = read_by_all(&proxy, &what).await;
        assert!(held.is_none() || held.as_ref() == Some(&bytes), "{what}: half an object");
        let conditions = ReadConditions::default();
        let seen = proxy.store.head("b", "key", Selection::Whole, &conditions).await;
        let seen = seen.ok().map(|read| read.stamp);
        let second = proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        assert_eq!(read_by_all(&proxy, &what).await.as_ref(), Some(&bytes), "{what}");
        sleep(Duration::from_secs(1)).await;
        let ended = writes(&nodes);
        assert_eq!(ended.len(), 1, "{what}");
        assert!(begun.is_empty() || begun == ended, "{what}: another write");
        assert!(seen <= Some(second.stamp), "{what}: its order fell");
        if let Ok(Ok(written)) = done {
            assert_eq!(written.stamp, second.stamp, "{what}");
            assert!(calls > 10);
            return;
        }
    }
}

/// The delete saw the object, so the upload's object was absent before the delete. A proxy that
/// continues the Complete may write the object now or report an unknown outcome, and nothing else.
#[tokio::test(start_paused = true)]
async fn m1_a_complete_is_not_done_because_something_newer_is_there() {
    for calls in 0..60 {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        let none = WriteConditions::default();
        let old = put(&proxy.store, "key", body("old".into()), none).await.unwrap();
        let bytes = pattern(30_000, 1);
        let (upload, complete) = uploaded(&proxy, &bytes).await;
        let first = dying(&nodes, calls).await;
        let first = first.uploads().complete("b", "key", upload, complete.clone());
        let _ = timeout(Duration::from_millis(500), first).await;
        let only_old = super::conditional::only_over(&old);
        let deleted = proxy.store.delete("b", "key", &only_old).await;
        let second = proxy.store.uploads().complete("b", "key", upload, complete).await;
        let held = read_by_all(&proxy, &what).await;
        match (deleted, second) {
            (Ok(_), Err(Error::Backend(_) | Error::NoSuchUpload)) => assert_eq!(held, None),
            (_, Ok(_)) => assert_eq!(held.as_ref(), Some(&bytes), "{what}"),
            (deleted, second) => panic!("{what}: {deleted:?}, {second:?}"),
        }
    }
}

/// A proxy decides, and is slow from some call on. Another completes the decision, and the object
/// is overwritten. The first must not report that its condition failed.
#[tokio::test(start_paused = true)]
async fn m1_who_decided_refuses_nothing_that_another_has_written() {
    let mut unknown = 0;
    for calls in 0..60 {
        let what = format!("slow after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        let (upload, complete) = uploaded(&proxy, &pattern(30_000, 1)).await;
        let complete = CompleteUpload { conditions: super::conditional::create_only(), ..complete };
        let delay = Duration::from_secs(1);
        let first = slow_complete(&nodes, calls, delay, upload, &complete).await;
        let second = proxy.store.uploads().complete("b", "key", upload, complete).await;
        if second.is_ok() {
            let any = WriteConditions::default();
            put(&proxy.store, "key", body("newer".into()), any).await.unwrap();
        }
        let first = first.await.unwrap();
        let is_refused = matches!(first, Err(Error::PreconditionFailed(_)));
        assert!(!(second.is_ok() && is_refused), "{what}: refused, and was there");
        unknown += usize::from(second.is_ok() && first.is_err());
    }
    assert!(unknown > 0, "the first was never too late");
}

/// A proxy decides, and is slow from some call on. Another takes over, writes the object and dies. A
/// client deletes the object. The first must not decide again: it would write the object once more.
#[tokio::test(start_paused = true)]
async fn m1_who_decided_writes_nothing_again_that_another_wrote() {
    let mut taken_over = 0;
    for calls in 0..60 {
        let what = format!("slow after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        let (upload, complete) = uploaded(&proxy, &pattern(30_000, 1)).await;
        let delay = Duration::from_secs(1);
        let first = slow_complete(&nodes, calls, delay, upload, &complete).await;
        let has_written = Arc::new(AtomicBool::new(false));
        let second = nodes.proxy_with(60_000, move |call| {
            let of = call.key.map(|key| key.kind);
            if call.op == CallKind::Write && of == Some(RegisterKind::Object) {
                has_written.store(true, Ordering::SeqCst);
            }
            let is_end = of == Some(RegisterKind::Upload) && has_written.load(Ordering::SeqCst);
            if is_end { Fault::Delay(Duration::from_secs(1_000_000)) } else { Fault::None }
        });
        let second = second.store.uploads().complete("b", "key", upload, complete).boxed();
        let ended = timeout(Duration::from_millis(500), second).await;
        if ended.is_err() && read_by_all(&proxy, &what).await.is_some() {
            taken_over += 1;
            proxy.store.delete("b", "key", &WriteConditions::default()).await.unwrap();
            let outcome = first.await.unwrap();
            let is_back = read_by_all(&proxy, &what).await.is_some();
            assert!(!is_back, "{what}: {outcome:?}");
        }
    }
    assert!(taken_over > 0, "the second never took over");
}

#[tokio::test(start_paused = true)]
async fn m1_of_two_completes_through_two_proxies_neither_fails_for_missing_parts() {
    for seed in 0..60u64 {
        println!("seed {seed}");
        let nodes = Nodes::new(3);
        let setup = nodes.proxy();
        super::harness::create(&setup.store, "b").await;
        let bytes = pattern(30_000, 1);
        let (upload, complete) = uploaded(&setup, &bytes).await;
        let chance = super::races::Chance::new(seed);
        let late = || {
            let chance = chance.clone();
            nodes.proxy_with(60_000, move |_| {
                Fault::Delay(Duration::from_millis(chance.below(4) * chance.below(8)))
            })
        };
        let (one, two) = (late(), late());
        let pause = Duration::from_millis(chance.below(60));
        let complete_by = |proxy: Proxy, pause| {
            let complete = complete.clone();
            async move {
                sleep(pause).await;
                proxy.store.uploads().complete("b", "key", upload, complete).await
            }
        };
        let outcomes = tokio::join!(complete_by(one, Duration::ZERO), complete_by(two, pause));
        for outcome in [&outcomes.0, &outcomes.1] {
            let is_reported =
                matches!(outcome, Ok(_) | Err(Error::Backend(_) | Error::ConditionalConflict));
            assert!(is_reported, "seed {seed}: {outcome:?}");
        }
        if outcomes.0.is_ok() || outcomes.1.is_ok() {
            let what = format!("seed {seed}: {outcomes:?}");
            assert_eq!(read_by_all(&setup, &what).await.as_ref(), Some(&bytes), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m1_an_abort_that_dies_is_finished_by_the_next_and_leaves_no_object() {
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        super::harness::create(&proxy.store, "b").await;
        let (upload, complete) = uploaded(&proxy, &pattern(30_000, 1)).await;
        let dead = dying(&nodes, calls).await;
        let done =
            timeout(Duration::from_millis(500), dead.uploads().abort("b", "key", upload)).await;
        let again = proxy.store.uploads().abort("b", "key", upload).await;
        assert!(matches!(again, Ok(()) | Err(Error::NoSuchUpload)), "{what}: {again:?}");
        let late = proxy.store.uploads().complete("b", "key", upload, complete).await;
        assert!(matches!(late, Err(Error::NoSuchUpload)), "{what}: {late:?}");
        assert_eq!(read_by_all(&proxy, &what).await, None, "{what}");
        if let Ok(Ok(())) = done {
            return;
        }
    }
}

/// Until a newer write, an acknowledged write must be visible, and an unacknowledged one may be.
#[tokio::test(start_paused = true)]
async fn one_client_through_many_proxies_reads_what_it_wrote() {
    for seed in 0..150u64 {
        println!("seed {seed}");
        let chance = super::races::Chance::new(seed);
        let nodes = Nodes::new(3);
        let proxies = [nodes.proxy(), nodes.proxy(), nodes.proxy()];
        super::harness::create(&proxies[0].store, "b").await;
        let mut current: Option<String> = None;
        // A write of unknown outcome may take effect at any time, once.
        let mut pending: Vec<Option<String>> = Vec::new();
        for step in 0..40 {
            let what = format!("seed {seed}, step {step}");
            let proxy = &proxies[usize::try_from(chance.below(3)).unwrap()];
            proxy.heal();
            let fortune = match chance.below(7) {
                0 => Fortune::Refused,
                1 => Fortune::Silent,
                2 => Fortune::Mute,
                3 => Fortune::Lost,
                4 => Fortune::Late(Duration::from_millis(chance.below(3000))),
                _ => Fortune::Good,
            };
            let hit = |chance: &super::races::Chance| {
                DeviceId(u32::try_from(chance.below(3)).unwrap() + 1)
            };
            proxy.fares(&[hit(&chance)], fortune);
            // Sometimes a second replica fails: then there is no quorum.
            if chance.below(8) == 0 {
                proxy.fares(&[hit(&chance)], fortune);
            }
            if chance.below(2) == 0 {
                let text = format!("{step}");
                let (written, outcome) = if chance.below(4) == 0 {
                    (None, proxy.delete(Level::Strict, "key").await.map(drop))
                } else {
                    (Some(text.clone()), proxy.put(Level::Strict, "key", &text).await.map(drop))
                };
                match outcome {
                    Ok(()) => current = written,
                    Err(_) => pending.push(written),
                }
            } else {
                let seen = match proxy.get(Level::Strict, "key").await {
                    Ok((_, text)) => Some(text),
                    Err(Error::NoSuchKey) => None,
                    Err(_) => continue,
                };
                if seen != current {
                    let at = pending.iter().position(|pending| *pending == seen);
                    let none = || panic!("{what}: {seen:?}, not {current:?} nor of {pending:?}");
                    current = pending.remove(at.unwrap_or_else(none));
                }
            }
        }
    }
}
