//! Completions that are driven after the tombstone of their object may have been collected (rule M1).

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::RegisterDrop;
use martlet_protocol::{BackendExt, Clock, DeviceId, ManualClock, Stamp, SystemClock};
use tokio::time::{sleep, timeout};

use super::dying::{dying, read_by_all, slow_complete, uploaded, writes};
use super::harness::pattern;
use super::nodes::{Nodes, Proxy};
use crate::{UNDRIVEN_MS_MAX, WriteConditions};

/// Three nodes with a clock of their own, and a proxy with a bucket.
async fn timed() -> (Arc<ManualClock>, Nodes, Proxy) {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let nodes = Nodes::timed(3, 1, clock.clone());
    let proxy = nodes.proxy();
    super::harness::create(&proxy.store, "b").await;
    (clock, nodes, proxy)
}

/// Drops the tombstone of the key on all devices, and lets the time of drivers pass.
async fn collect(nodes: &Nodes, proxy: &Proxy, clock: &ManualClock) {
    let key = proxy.register("key").await;
    for device in [1, 2, 3].map(DeviceId) {
        let up_to = Stamp::at_ms(clock.now_ms() + 1000);
        let drop = RegisterDrop { key: key.clone(), up_to, collectable: false };
        nodes.memory(device).drop_registers(device, &[drop]).await.unwrap();
        assert_eq!(nodes.held(device, &key), None, "{device}");
    }
    clock.advance_ms(UNDRIVEN_MS_MAX + 2000);
}

/// The object of a completion was written and deleted, and its tombstone was collected. No entry shows that
/// any more, so a proxy that continues the Complete writes nothing.
#[tokio::test(start_paused = true)]
async fn m1_a_late_driver_writes_nothing_to_a_key_without_an_entry() {
    let mut interrupted = 0;
    for calls in 0..60 {
        for aborts in [false, true] {
            let what = format!("dead after {calls} calls, aborts: {aborts}");
            let (clock, nodes, proxy) = timed().await;
            let (upload, complete) = uploaded(&proxy, &pattern(30_000, 1)).await;
            let first = dying(&nodes, calls).await;
            let first = first.uploads().complete("b", "key", upload, complete.clone());
            let done = timeout(Duration::from_millis(500), first).await;
            if writes(&nodes).is_empty() {
                continue;
            }
            // The delete finishes what it finds, so the object was there.
            proxy.store.delete("b", "key", &WriteConditions::default()).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            collect(&nodes, &proxy, &clock).await;
            let uploads = proxy.store.uploads();
            let ended = if aborts {
                uploads.abort("b", "key", upload).await.map(|()| None)
            } else {
                uploads.complete("b", "key", upload, complete).await.map(Some)
            };
            match ended {
                // Only the reply of the first proxy was lost.
                Ok(Some(written)) => assert!(written.is_gone, "{what}: {written:?}"),
                Ok(None) => panic!("{what}: an upload with an object was aborted"),
                Err(_) => interrupted += usize::from(done.is_err()),
            }
            assert_eq!(read_by_all(&proxy, &what).await, None, "{what}");
        }
    }
    assert!(interrupted > 0, "no proxy died between the object and the end of its upload");
}

/// A proxy died in a completion, which stayed as it was for longer than tombstones certainly last. No
/// object was deleted: the client's parts must be there for another Complete.
#[tokio::test(start_paused = true)]
async fn m1_a_late_completion_loses_no_parts() {
    let mut reopened = 0;
    for calls in 0..60 {
        for aborts in [false, true] {
            let what = format!("dead after {calls} calls, aborts: {aborts}");
            let (clock, nodes, proxy) = timed().await;
            let bytes = pattern(30_000, 1);
            let (upload, complete) = uploaded(&proxy, &bytes).await;
            let first = dying(&nodes, calls).await;
            let first = first.uploads().complete("b", "key", upload, complete.clone());
            let _ = timeout(Duration::from_millis(500), first).await;
            clock.advance_ms(UNDRIVEN_MS_MAX + 2000);
            let uploads = proxy.store.uploads();
            if aborts {
                // An abort finds the object, or ends the upload, at the second try at the latest.
                let mut ended = uploads.abort("b", "key", upload).await;
                if ended.is_err() {
                    ended = uploads.abort("b", "key", upload).await;
                }
                let held = read_by_all(&proxy, &what).await;
                let is_there = held.as_ref() == Some(&bytes);
                assert!(is_there || (ended.is_ok() && held.is_none()), "{what}: {ended:?}");
                continue;
            }
            let again = uploads.complete("b", "key", upload, complete.clone()).await;
            if again.is_err() {
                reopened += 1;
                uploads.complete("b", "key", upload, complete).await.unwrap_or_else(|error| {
                    panic!("{what}: {error}");
                });
            }
            assert_eq!(read_by_all(&proxy, &what).await.as_ref(), Some(&bytes), "{what}");
        }
    }
    assert!(reopened > 0, "no proxy died between its decision and the object");
}

/// A proxy decides and is suspended. Another completes the decision, the object is deleted, and its
/// tombstone is collected. The first goes on, and must write nothing.
#[tokio::test(start_paused = true)]
async fn m1_a_decider_that_was_suspended_brings_nothing_back() {
    let mut suspended = 0;
    for calls in 0..60 {
        let what = format!("suspended after {calls} calls");
        let (clock, nodes, proxy) = timed().await;
        let (upload, complete) = uploaded(&proxy, &pattern(30_000, 1)).await;
        let delay = Duration::from_secs(2);
        let first = slow_complete(&nodes, calls, delay, upload, &complete).await;
        let second = proxy.store.uploads().complete("b", "key", upload, complete).await;
        if second.is_ok() && !first.is_finished() {
            suspended += 1;
            proxy.store.delete("b", "key", &WriteConditions::default()).await.unwrap();
            sleep(Duration::from_millis(500)).await;
            collect(&nodes, &proxy, &clock).await;
            let outcome = first.await.unwrap();
            let is_back = read_by_all(&proxy, &what).await.is_some();
            assert!(!is_back, "{what}: {outcome:?}");
        }
    }
    assert!(suspended > 0, "the first was never late");
}
