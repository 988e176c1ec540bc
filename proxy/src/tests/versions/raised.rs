//! Completions that another proxy drives on after the head of their key got a later order (rule M1). An order shows nothing
//! then: the object was written, or it wasn't.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{
    Clock, DeviceId, Level, ManualClock, RegisterKind, Stamp, SystemClock, UploadId, VersionId,
};
use tokio::time::{sleep, timeout};

use super::super::conditional::create_only;
use super::super::dying::{dying, slow_complete, uploaded, writes};
use super::super::harness::{body, create, get, pattern, put};
use super::super::nodes::{Fortune, Nodes, Proxy};
use super::super::rewritten_parts::settle_at;
use super::dying::{VersionBodies, holding, some};
use super::put_version;
use super::uploads::of_size;
use crate::{CompleteUpload, Error, ObjectName, Selection, UNDRIVEN_MS_MAX, WriteConditions};

/// An upload of the key, and the request that completes it.
struct Interrupted {
    new: Bytes,
    upload: UploadId,
    complete: CompleteUpload,
}

impl Interrupted {
    /// Completes an upload by a proxy that dies after so many calls.
    async fn after(nodes: &Nodes, proxy: &Proxy, calls: usize) -> Self {
        let new = pattern(40_000, 2);
        let (upload, complete) = uploaded(proxy, &new).await;
        let first = dying(nodes, calls).await;
        let first = first.uploads().complete("b", "key", upload, complete.clone());
        let _ = timeout(Duration::from_millis(500), first).await;
        Self { new, upload, complete }
    }

    /// Completes an upload by a proxy that dies after its decision, before it writes anything at the key.
    async fn decided(nodes: &Nodes, proxy: &Proxy, conditions: WriteConditions) -> Self {
        let new = pattern(40_000, 2);
        let (upload, complete) = uploaded(proxy, &new).await;
        let complete = CompleteUpload { conditions, ..complete };
        let first = nodes.proxy_with(60_000, |call| {
            let is_upload = call.key.is_some_and(|key| key.kind == RegisterKind::Upload);
            let dies = call.op == CallKind::Write && !is_upload;
            if dies { Fault::Delay(Duration::from_secs(1_000_000)) } else { Fault::None }
        });
        let first = first.store.uploads().complete("b", "key", upload, complete.clone());
        assert!(timeout(Duration::from_millis(500), first).await.is_err(), "the first one dies");
        Self { new, upload, complete }
    }

    async fn again(&self, proxy: &Proxy) -> crate::Result<()> {
        let complete = self.complete.clone();
        proxy.store.uploads().complete("b", "key", self.upload, complete).await.map(drop)
    }

    /// Versions that the upload has made.
    async fn made(&self, proxy: &Proxy) -> Vec<VersionId> {
        of_size(&proxy.store, self.new.len()).await
    }
}

async fn tag(proxy: &Proxy, version: VersionId) {
    let name = ObjectName { key: "key", version: Some(version) };
    let tags = vec![("tag".to_owned(), "new".to_owned())];
    proxy.store.versions().set_tags("b", name, tags).await.unwrap();
}

/// A replica lacks the head, so a ballot accepts the head again before it judges.
#[tokio::test(start_paused = true)]
async fn m1_a_completion_survives_a_replica_that_lacks_the_head() {
    for calls in 0..80 {
        let what = format!("dead after {calls} calls");
        let (nodes, proxy, _) = holding(&VersionBodies::new()).await;
        proxy.fares(&[DeviceId(3)], Fortune::Refused);
        put_version(&proxy.store, "key", pattern(300, 1)).await.unwrap();
        proxy.heal();
        let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
        // The quorum contains the replica that lacks the head.
        proxy.fares(&[DeviceId(1)], Fortune::Refused);
        let _ = interrupted.again(&proxy).await;
        proxy.heal();
        let ended = interrupted.again(&proxy).await;
        ended.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(interrupted.made(&proxy).await.len(), 1, "{what}");
    }
}

/// A driver stands still while another one gives the upload up, above a version that is removed afterwards.
#[tokio::test(start_paused = true)]
async fn m1_a_driver_that_stood_still_writes_nothing_of_an_upload_that_was_given_up() {
    let mut given_up = 0;
    for calls in 0..60 {
        let what = format!("slow after {calls} calls");
        let (nodes, proxy, _) = holding(&some(slice::from_ref(&pattern(300, 1)))).await;
        let any = WriteConditions::default();
        let interrupted = Interrupted::decided(&nodes, &proxy, any).await;
        let Interrupted { upload, complete, .. } = &interrupted;
        let slow = slow_complete(&nodes, calls, Duration::from_secs(2), *upload, complete).await;
        let Ok(newer) = put_version(&proxy.store, "key", pattern(500, 3)).await else { continue };
        let _ = interrupted.again(&proxy).await;
        proxy.store.versions().delete("b", "key", newer).await.unwrap();
        let again = interrupted.again(&proxy).await;
        let is_slow = !slow.is_finished();
        let ended = slow.await.unwrap();
        if is_slow && matches!(again, Err(Error::NoSuchUpload)) {
            given_up += 1;
            assert!(ended.is_err(), "{what}: {ended:?}");
            assert_eq!(interrupted.made(&proxy).await, [], "{what}");
        }
    }
    assert!(given_up > 0, "no upload was given up beside a slow driver");
}

/// The object was never written, so a condition that fails opens the upload again, whichever proxy finds out.
#[tokio::test(start_paused = true)]
async fn m1_a_condition_that_fails_above_a_raised_head_opens_the_upload() {
    let (nodes, proxy, versions) = holding(&vec![Some(pattern(300, 1)), None]).await;
    let mut interrupted = Interrupted::decided(&nodes, &proxy, create_only()).await;
    proxy.store.versions().delete("b", "key", versions[1]).await.unwrap();
    let again = interrupted.again(&proxy).await;
    assert!(matches!(again, Err(Error::PreconditionFailed(_))), "{again:?}");
    interrupted.complete.conditions = WriteConditions::default();
    interrupted.again(&proxy).await.unwrap();
    assert_eq!(interrupted.made(&proxy).await.len(), 1);
}

/// Ballots about other versions write the head again, under their own write ids.
#[tokio::test(start_paused = true)]
async fn m1_a_completion_survives_changes_of_older_versions() {
    for calls in 0..80 {
        let what = format!("dead after {calls} calls");
        let bodies = [100, 200, 300].map(|size| pattern(size, 1));
        let (nodes, proxy, versions) = holding(&some(&bodies)).await;
        let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
        tag(&proxy, versions[0]).await;
        proxy.store.versions().delete("b", "key", versions[1]).await.unwrap();
        let ended = interrupted.again(&proxy).await;
        ended.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(interrupted.made(&proxy).await.len(), 1, "{what}");
    }
}

/// The version before is the head again, with a later order, and the removed one must not come back.
#[tokio::test(start_paused = true)]
async fn m1_a_version_of_a_completion_that_was_removed_stays_away() {
    let (mut removed, mut never) = (0, 0);
    for calls in 0..80 {
        for is_null in [false, true] {
            let what = format!("dead after {calls} calls, null: {is_null}");
            let (nodes, proxy, _) = holding(&some(slice::from_ref(&pattern(300, 1)))).await;
            if is_null {
                proxy.store.buckets().set_versioning("b", false).await.unwrap();
            }
            let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
            let made = interrupted.made(&proxy).await;
            for version in &made {
                proxy.store.versions().delete("b", "key", *version).await.unwrap();
            }
            let ended = interrupted.again(&proxy).await;
            let expected = usize::from(made.is_empty());
            assert_eq!(interrupted.made(&proxy).await.len(), expected, "{what}: {ended:?}");
            removed += made.len();
            never += expected;
        }
    }
    assert!(removed > 0 && never > 0, "{removed} were removed, and {never} were not there");
}

/// A replica of a bucket without versions lacks the key's entry. A worker gives the entry a later order, and the decision names
/// the write of that entry.
#[tokio::test(start_paused = true)]
async fn m1_a_completion_without_versions_survives_a_raised_order() {
    let mut raised = 0;
    for calls in 0..60 {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = with_older(&nodes).await;
        let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
        raised += usize::from(settled(&nodes, &proxy).await);
        let ended = interrupted.again(&proxy).await;
        ended.unwrap_or_else(|error| panic!("{what}: {error}"));
        let read = get(&proxy.store, "key", Selection::Whole).await.unwrap();
        assert_eq!(read, interrupted.new, "{what}");
    }
    assert!(raised > 0, "no order rose");
}

/// After the time of a proof the followed write shows no more that the object may be written. The upload opens again.
#[tokio::test(start_paused = true)]
async fn m1_a_late_completion_without_versions_loses_no_parts() {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let nodes = Nodes::timed(3, 1, clock.clone());
    let proxy = with_older(&nodes).await;
    let interrupted = Interrupted::decided(&nodes, &proxy, WriteConditions::default()).await;
    assert!(settled(&nodes, &proxy).await);
    clock.advance_ms(UNDRIVEN_MS_MAX + 60_000);
    let late = interrupted.again(&proxy).await;
    assert!(late.is_err(), "the outcome is not known");
    interrupted.again(&proxy).await.unwrap();
    let read = get(&proxy.store, "key", Selection::Whole).await.unwrap();
    assert_eq!(read, interrupted.new);
}

/// The write that a decision follows never comes back, so neither does an object that was overwritten or deleted.
#[tokio::test(start_paused = true)]
async fn m1_an_object_without_versions_that_was_replaced_stays_replaced() {
    let mut seen = 0;
    // Larger than what settled registers would hold inline.
    let newer = pattern(20_000, 3);
    for calls in 0..60 {
        for is_deleted in [false, true] {
            let what = format!("dead after {calls} calls, deleted: {is_deleted}");
            let nodes = Nodes::new(3);
            let proxy = nodes.proxy();
            create(&proxy.store, "b").await;
            proxy.put(Level::Strict, "key", "older").await.unwrap();
            let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
            let read = get(&proxy.store, "key", Selection::Whole).await.unwrap();
            let is_there = read == interrupted.new;
            proxy.fares(&[DeviceId(3)], Fortune::Refused);
            let any = WriteConditions::default();
            while put(&proxy.store, "key", body(newer.clone()), any.clone()).await.is_err() {}
            if is_deleted {
                while proxy.store.delete("b", "key", &any).await.is_err() {}
            }
            proxy.heal();
            sleep(Duration::from_secs(1)).await;
            settled(&nodes, &proxy).await;
            let ended = interrupted.again(&proxy).await;
            if is_there {
                seen += 1;
                let read = get(&proxy.store, "key", Selection::Whole).await.ok();
                let expected = (!is_deleted).then(|| newer.clone());
                assert!(read == expected, "{what}: {ended:?}");
            }
        }
    }
    assert!(seen > 0, "no proxy died after the object");
}

/// Makes a bucket without versions, and an object that one replica lacks.
async fn with_older(nodes: &Nodes) -> Proxy {
    let proxy = nodes.proxy();
    create(&proxy.store, "b").await;
    proxy.fares(&[DeviceId(3)], Fortune::Refused);
    proxy.put(Level::Strict, "key", "older").await.unwrap();
    proxy.heal();
    proxy
}

/// Gives the key's entry a later order on all devices, as a worker does that settles the register (rule R6). Does nothing and
/// returns false if devices hold different writes.
async fn settled(nodes: &Nodes, proxy: &Proxy) -> bool {
    if writes(nodes).len() != 1 {
        return false;
    }
    let key = proxy.register("key").await;
    let mut held = nodes.memory(DeviceId(1)).registers(DeviceId(1)).into_iter();
    let register = held.find(|(held, _)| *held == key).unwrap();
    let order = Stamp::at_ms(register.1.order.time_ms() + 10_000);
    settle_at(nodes, &register, order).await;
    true
}

/// A plain write leaves nothing of an object that it overwrites, and the versions that are kept later don't show it.
#[tokio::test(start_paused = true)]
async fn m1_an_object_that_was_overwritten_before_versions_were_kept_stays_overwritten() {
    let mut seen = 0;
    for calls in 0..60 {
        let what = format!("dead after {calls} calls");
        let nodes = Nodes::new(3);
        let proxy = nodes.proxy();
        create(&proxy.store, "b").await;
        proxy.put(Level::Strict, "key", "older").await.unwrap();
        let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
        let is_there = !interrupted.made(&proxy).await.is_empty();
        // The outcome of a plain write is unknown where it met the promise of the dead proxy.
        while proxy.put(Level::Strict, "key", "newer").await.is_err() {}
        proxy.store.buckets().set_versioning("b", true).await.unwrap();
        let ended = interrupted.again(&proxy).await;
        if is_there {
            seen += 1;
            let read = proxy.get(Level::Strict, "key").await.unwrap().1;
            assert_eq!(read, "newer", "{what}: {ended:?}");
        }
    }
    assert!(seen > 0, "no proxy died after the object");
}

/// After the time that tombstones last nothing shows that the object was never written. The upload opens again.
#[tokio::test(start_paused = true)]
async fn m1_a_late_completion_above_a_raised_head_loses_no_parts() {
    let mut reopened = 0;
    for calls in 0..60 {
        let what = format!("dead after {calls} calls");
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let nodes = Nodes::timed(3, 1, clock.clone());
        let proxy = nodes.proxy();
        create(&proxy.store, "b").await;
        proxy.store.buckets().set_versioning("b", true).await.unwrap();
        let older = put_version(&proxy.store, "key", pattern(100, 1)).await.unwrap();
        put_version(&proxy.store, "key", pattern(300, 1)).await.unwrap();
        let interrupted = Interrupted::after(&nodes, &proxy, calls).await;
        clock.advance_ms(UNDRIVEN_MS_MAX + 60_000);
        tag(&proxy, older).await;
        if interrupted.again(&proxy).await.is_err() {
            reopened += 1;
            let ended = interrupted.again(&proxy).await;
            ended.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_eq!(interrupted.made(&proxy).await.len(), 1, "{what}");
    }
    assert!(reopened > 0, "no proxy died between its decision and the object");
}
