//! Proxies that die in the middle of requests, and failing nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use martlet_protocol::backend::{BucketFence, CallKind};
use martlet_protocol::entry::{UploadState, Value};
use martlet_protocol::testing::{Call, Fault};
use martlet_protocol::{
    Backend, BackendExt, Clock, DeviceId, ErrorKind, ManualClock, RegisterKind, SystemClock,
};

use super::harness::{Harness, body, faulty, get, late, pattern, put, settle};
use super::multipart::{begin, naming, send};
use super::nodes::{Fortune, Nodes};
use crate::{CompleteUpload, ETagCondition, Error, Selection, WriteConditions};

fn is_write_of(call: &Call<'_>, kind: RegisterKind) -> bool {
    call.op == CallKind::Write && call.key.is_some_and(|key| key.kind == kind)
}

fn sets(call: &Call<'_>, state: fn(&UploadState) -> bool) -> bool {
    call.write.is_some_and(|write| match &write.entry.value {
        Value::Upload(upload) => state(&upload.state),
        _ => false,
    })
}

/// Runs a Complete through a proxy that dies at a call, then again through another proxy.
async fn dies_at(dying: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let first = send(&harness, upload, 1, &bytes).await.unwrap();
    send(&harness, upload, 2, &pattern(100_000, 2)).await.unwrap();
    let complete = naming(&[(1, &first)]);
    let dead = faulty(
        &harness.memory,
        1,
        1,
        move |call| {
            if dying(call) { Fault::Hang } else { Fault::None }
        },
    );
    let attempt = dead.uploads().complete("b", "key", upload, complete.clone());
    let attempt = tokio::time::timeout(Duration::from_millis(30), attempt).await;
    assert!(attempt.is_err(), "the first proxy dies");
    let written = harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
    assert_eq!(written.object.size, 100_000);
    assert_eq!(
        harness
            .store
            .uploads()
            .list("b", crate::ListUploads { limit: 9, ..crate::ListUploads::default() })
            .await
            .unwrap()
            .uploads
            .len(),
        0
    );
}

#[tokio::test]
async fn a_decision_is_driven_on_by_who_finds_it() {
    dies_at(|call| sets(call, |state| matches!(state, UploadState::Completing { .. }))).await;
    dies_at(|call| is_write_of(call, RegisterKind::Object)).await;
    dies_at(|call| sets(call, |state| matches!(state, UploadState::Completed { .. }))).await;
}

#[tokio::test]
async fn a_decision_driven_on_does_not_undo_what_came_after_it() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &pattern(100_000, 1)).await.unwrap();
    let complete = naming(&[(1, &part)]);
    let dead = faulty(&harness.memory, 1, 1, |call| {
        if is_write_of(call, RegisterKind::Object) { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, complete.clone());
    tokio::time::timeout(Duration::from_millis(30), attempt).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(2)).await;
    harness.put("key", "newer").await.unwrap();
    // No proxy can determine any more if the object existed before the newer one.
    let driven = harness.store.uploads().complete("b", "key", upload, complete).await;
    let told = matches!(&driven, Err(Error::Backend(e)) if e.kind() == ErrorKind::Unavailable);
    assert!(told, "{driven:?}");
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), "newer");
}

#[tokio::test]
async fn a_part_that_meets_a_decision_drives_it_on() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    let dead = faulty(&harness.memory, 1, 1, |call| {
        let decided = sets(call, |state| matches!(state, UploadState::Completing { .. }));
        if decided { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, naming(&[(1, &part)]));
    tokio::time::timeout(Duration::from_millis(30), attempt).await.unwrap_err();
    let late = send(&harness, upload, 2, &bytes).await;
    assert!(matches!(late, Err(Error::NoSuchUpload)));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
}

/// A proxy may die between the object's write and the end of the upload, and the object's tags may
/// change before the retry.
#[tokio::test]
async fn a_decision_whose_object_was_tagged_since_is_carried_out() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    let dead = faulty(&harness.memory, 1, 1, |call| {
        let ends = sets(call, |state| matches!(state, UploadState::Completed { .. }));
        if ends { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, naming(&[(1, &part)]));
    tokio::time::timeout(Duration::from_millis(300), attempt).await.unwrap_err();
    let tags = vec![("a".to_owned(), "b".to_owned())];
    let tagged = harness.store.versions().set_tags("b", "key", tags).await.unwrap();
    for _ in 0..2 {
        let again =
            harness.store.uploads().complete("b", "key", upload, naming(&[(1, &part)])).await;
        let again = again.unwrap();
        assert_eq!((again.object.etag, again.stamp), (tagged.object.etag, tagged.stamp));
    }
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn a_conditional_decision_with_an_unknown_outcome_is_given_up() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &pattern(100_000, 1)).await.unwrap();
    let complete = CompleteUpload {
        conditions: WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) },
        ..naming(&[(1, &part)])
    };
    let dead = faulty(&harness.memory, 1, 1, |call| {
        if is_write_of(call, RegisterKind::Object) { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, complete.clone());
    tokio::time::timeout(Duration::from_millis(30), attempt).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(2)).await;
    harness.put("key", "newer").await.unwrap();
    harness.delete("key").await;
    let retried = harness.store.uploads().complete("b", "key", upload, complete.clone()).await;
    assert!(matches!(retried, Err(Error::Backend(error))
        if error.kind() == ErrorKind::Unavailable));
    let again = harness.store.uploads().complete("b", "key", upload, complete).await;
    assert!(matches!(again, Err(Error::NoSuchUpload)));
    assert!(
        matches!(harness.get("key", Selection::Whole).await, Err(Error::NoSuchKey)),
        "what was deleted since does not come back"
    );
}

#[tokio::test]
async fn an_abort_meets_a_decision_and_lets_it_through() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let part = send(&harness, upload, 1, &bytes).await.unwrap();
    let dead = faulty(&harness.memory, 1, 1, |call| {
        let decided = sets(call, |state| matches!(state, UploadState::Completing { .. }));
        if decided { Fault::Hang } else { Fault::None }
    });
    let attempt = dead.uploads().complete("b", "key", upload, naming(&[(1, &part)]));
    tokio::time::timeout(Duration::from_millis(30), attempt).await.unwrap_err();
    let aborted = harness.store.uploads().abort("b", "key", upload).await;
    assert!(matches!(aborted, Err(Error::NoSuchUpload)));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn a_commit_with_an_unknown_outcome_keeps_its_extents() {
    let harness = Harness::with_bucket(1).await;
    let store = faulty(&harness.memory, 1, 1, |call| {
        let lost = is_write_of(call, RegisterKind::Object);
        if lost { Fault::LoseReply(ErrorKind::Unavailable) } else { Fault::None }
    });
    let bytes = pattern(100_000, 1);
    let outcome = put(&store, "key", body(bytes.clone()), WriteConditions::default()).await;
    assert!(outcome.is_err());
    settle().await;
    assert_eq!(get(&store, "key", Selection::Whole).await.unwrap(), bytes, "it was written");
}

/// A replica holds the first round's entry, so its extents must survive refusals in the second
/// round.
#[tokio::test(start_paused = true)]
async fn a_write_stored_once_keeps_its_extents_though_all_refuse_now() {
    for is_fenced in [false, true] {
        let nodes = Nodes::new(3);
        let (other, primaries, _) = nodes.with_bucket("key").await;
        let bucket = other.store.bucket("b").await.unwrap();
        let fence =
            BucketFence { bucket: bucket.id, generation: bucket.generation + 1, open: true };
        let (memories, written) = (nodes.memories.clone(), AtomicUsize::new(0));
        let out = primaries[2];
        let proxy = nodes.proxy_with(60_000, move |call| {
            if !is_write_of(call, RegisterKind::Object) {
                return Fault::None;
            }
            match written.fetch_add(1, Ordering::SeqCst) {
                0..3 if call.device == primaries[0] => Fault::None,
                0..3 => Fault::Refuse(ErrorKind::Unavailable),
                _ if is_fenced => {
                    for (id, memory) in (1..).zip(&memories) {
                        let fenced = memory.fence(DeviceId(id), fence).now_or_never();
                        fenced.expect("memory never waits").unwrap();
                    }
                    Fault::None
                }
                _ => Fault::Refuse(ErrorKind::Invalid),
            }
        });
        let bytes = pattern(100_000, 1);
        let conditions = super::conditional::create_only();
        put(&proxy.store, "key", body(bytes.clone()), conditions).await.unwrap_err();
        settle().await;
        // A read from the replica that holds the entry returns the whole object.
        other.fares(&[out], Fortune::Refused);
        let read = get(&other.store, "key", Selection::Whole).await.unwrap();
        assert_eq!(read, bytes, "fenced: {is_fenced}");
    }
}

#[tokio::test]
async fn a_commit_that_was_refused_leaves_no_extents() {
    let harness = Harness::with_bucket(1).await;
    let refusing = |kind| {
        faulty(&harness.memory, 1, 1, move |call| {
            let refuse = is_write_of(call, RegisterKind::Object);
            if refuse { Fault::Refuse(kind) } else { Fault::None }
        })
    };
    // A device that ran out of space may have written the entry, or may yet: its extents stay.
    for (kind, left) in [(ErrorKind::Invalid, 0), (ErrorKind::Full, 1)] {
        for conditions in [WriteConditions::default(), super::conditional::create_only()] {
            let store = refusing(kind);
            let outcome = put(&store, "key", body(pattern(100_000, 1)), conditions).await;
            assert!(matches!(outcome, Err(Error::Backend(error)) if error.kind() == kind));
            settle().await;
            let extents = harness.memory.extents(DeviceId(1));
            assert_eq!(extents.len(), left, "after {kind:?}");
            let node: &dyn Backend = &*harness.memory;
            node.delete_extents(DeviceId(1), &extents).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_extent_that_fails_in_the_middle_goes_to_the_next_device() {
    let harness = Harness::with_bucket(3).await;
    let calls = AtomicUsize::new(0);
    let store = faulty(&harness.memory, 1, 3, move |call| {
        let first = call.op == CallKind::WriteExtent && calls.fetch_add(1, Ordering::SeqCst) == 0;
        if first { Fault::LoseReply(ErrorKind::Unavailable) } else { Fault::None }
    });
    let bytes = pattern(800_000, 1);
    put(&store, "key", body(bytes.clone()), WriteConditions::default()).await.unwrap();
    assert_eq!(get(&store, "key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test]
async fn late_replies_change_nothing() {
    let harness = Harness::with_bucket(3).await;
    let store = faulty(&harness.memory, 1, 3, |call| match call.op {
        CallKind::WriteExtent | CallKind::ReadExtent => Fault::Delay(Duration::from_millis(3)),
        _ => Fault::None,
    });
    let bytes = pattern(3_000_000, 1);
    put(&store, "key", body(bytes.clone()), WriteConditions::default()).await.unwrap();
    assert_eq!(get(&store, "key", Selection::Whole).await.unwrap(), bytes);
}

/// The write follows an acknowledged one but has a lower stamp. One replica fails before or after
/// its effect; the write must not count as written and overwritten.
#[tokio::test]
async fn a_late_clock_and_a_silent_replica_do_not_lose_an_acknowledged_write() {
    for failing in [1, 2, 3].map(DeviceId) {
        for fault in [Fault::Refuse, Fault::LoseReply] {
            let harness = Harness::new(3, 3);
            super::harness::create(&harness.store, "b").await;
            harness.put("key", "older").await.unwrap();
            let store = late(&harness.memory, 5000, move |call| {
                let fails = call.device == failing && is_write_of(call, RegisterKind::Object);
                if fails { fault(ErrorKind::Unavailable) } else { Fault::None }
            });
            let outcome =
                put(&store, "key", body("newer".into()), WriteConditions::default()).await;
            let held = harness.get("key", Selection::Whole).await.unwrap();
            assert!(held == "newer" || outcome.is_err(), "{outcome:?}, and {held:?} is held");
            put(&store, "key", body("newest".into()), WriteConditions::default()).await.unwrap();
            assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), "newest");
        }
    }
}

/// An entry from a fast clock can be overwritten once the clock is right, and harms no other entry.
#[tokio::test]
async fn a_clock_that_was_an_hour_fast_does_not_stop_writes_once_it_is_right() {
    for replicas in [1, 3] {
        let devices = u32::try_from(replicas).unwrap();
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let harness = Harness::at(replicas, devices, clock.clone());
        super::harness::create(&harness.store, "b").await;
        for key in ["plain", "conditional", "deleted"] {
            harness.put(key, "from the future").await.unwrap();
        }
        // The third replica may receive the entry later, and must not refuse it for its time.
        settle().await;
        clock.set_ms(clock.now_ms() - 3_600_000);
        for round in ["first", "second"] {
            harness.put("plain", round).await.unwrap();
            let any = WriteConditions { if_match: Some(ETagCondition::Any), if_none_match: None };
            put(&harness.store, "conditional", body(round.into()), any).await.unwrap();
            harness.put(&format!("new in the {round}"), "x").await.unwrap();
            for key in ["plain", "conditional"] {
                assert_eq!(harness.get(key, Selection::Whole).await.unwrap(), round);
            }
        }
        harness.delete("deleted").await;
        let upload = begin(&harness, "key").await;
        let part = send(&harness, upload, 1, &pattern(1000, 1)).await.unwrap();
        let complete = naming(&[(1, &part)]);
        harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        assert!(matches!(harness.get("deleted", Selection::Whole).await, Err(Error::NoSuchKey)));
    }
}
