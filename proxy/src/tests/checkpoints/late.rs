//! Processes that stand still in the middle of a step and go on, and commits that stop half-way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::{ErrorKind, RegisterKind};

use super::crashes::{REFUSED, is_manifest, is_pin, save_shards};
use super::removal::{SHARD, after_grace, version_of};
use super::*;

/// Time for which a call stands still, in which a test does what happens meanwhile.
pub(super) const STANDSTILL: Duration = Duration::from_millis(400);

/// Waits until a flag is set.
pub(super) async fn until_set(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reason why the first generation is pending.
pub(super) async fn reason(store: &ObjectStore) -> String {
    state(store, SET).await.generations[0].reason.clone().unwrap_or_default()
}

/// Returns true if the call writes a marker of the bucket.
pub(super) fn is_marker(call: &Call<'_>) -> bool {
    call.write.is_some_and(|write| {
        write.key.kind == RegisterKind::Object && write.key.name.starts_with(b"run-1/step-1/.meta")
    })
}

#[tokio::test]
async fn a_marker_that_is_noted_late_stays_pending() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    let (is_written, stands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (written, standing) = (is_written.clone(), stands.clone());
    let paused = with_faults(&harness, &clock, move |call| {
        written.fetch_or(is_marker(call), Ordering::Relaxed);
        let is_list = matches!(call.op, CallKind::List | CallKind::ListRows);
        if !(is_list && written.load(Ordering::Relaxed)) {
            return Fault::None;
        }
        standing.store(true, Ordering::Relaxed);
        Fault::Delay(STANDSTILL)
    });
    let marker = format!("{SET}.metadata");
    let meanwhile = async {
        until_set(&stands).await;
        // The job has given up, and saves again.
        clock.advance_ms(2 * MINUTE_MS);
        save(store, SHARD, b"two").await;
    };
    let (outcome, ()) = futures::join!(save(&paused, &marker, MARKER), meanwhile);
    let outcome = outcome.unwrap();
    assert!(is_pending(&outcome, "too late"), "{outcome}");
    for _ in 0..3 {
        clock.advance_ms(5 * MINUTE_MS);
        upkeep(store).await;
    }
    assert!(matches!(view(store, SHARD).await, Err(Error::NoSuchKey)), "half of each save");
    let generations = state(store, SET).await.generations;
    assert!(generations[0].reason.as_ref().unwrap().contains("unclear"));
    assert_eq!(save_set(store, SET, b"two").await, committed(2));
}

#[tokio::test]
async fn a_pin_that_comes_after_its_removal_is_not_set() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_shards(store, b"one").await;
    let (is_noted, stands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (noted, standing) = (is_noted.clone(), stands.clone());
    let paused = with_faults(&harness, &clock, move |call| {
        noted.fetch_or(is_manifest(call), Ordering::Relaxed);
        let is_shard = call.key.is_some_and(|key| key.name.ends_with(b"__0_0.distcp"));
        if !(noted.load(Ordering::Relaxed) && is_shard) || standing.load(Ordering::Relaxed) {
            return Fault::None;
        }
        standing.fetch_or(call.device == martlet_protocol::DeviceId(3), Ordering::Relaxed);
        Fault::Delay(STANDSTILL)
    });
    let marker = format!("{SET}.metadata");
    let meanwhile = async {
        until_set(&stands).await;
        assert_eq!(store.checkpoints().withdraw("b", SET, None, false).await.unwrap(), 1);
        after_grace(store, &clock).await;
        assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
    };
    futures::join!(save(&paused, &marker, MARKER), meanwhile);
    for key in [SHARD, &format!("{SET}__1_0.distcp")] {
        let version = version_of(&harness, key).await;
        store.versions().delete("b", key, version).await.unwrap();
    }
}

#[tokio::test]
async fn pinning_goes_on_where_it_stopped() {
    let (harness, clock) =
        ruled(r#"{"rules": [{"pattern": "s-*/", "profile": "megatron"}]}"#).await;
    let store = &harness.store;
    for at in 0..70 {
        save(store, &format!("s-1/{at:02}"), b"shard").await;
    }
    let stopping = with_faults(&harness, &clock, |call| {
        let is_late = call.key.is_some_and(|key| key.name.ends_with(b"s-1/65"));
        if is_pin(call) && is_late { REFUSED } else { Fault::None }
    });
    let outcome = save(&stopping, "s-1/metadata.json", b"{}").await.unwrap();
    assert!(is_pending(&outcome, "being pinned"), "{outcome}");
    clock.advance_ms(2 * MINUTE_MS);
    let pins = Arc::new(AtomicUsize::new(0));
    let count = pins.clone();
    let counting = with_faults(&harness, &clock, move |call| {
        count.fetch_add(usize::from(is_pin(call)), Ordering::Relaxed);
        Fault::None
    });
    assert_eq!(upkeep(&counting).await.done, 1);
    let pins = pins.load(Ordering::Relaxed);
    assert!((7 * 2..=7 * 3).contains(&pins), "{pins} writes of pins on three replicas");
    assert_eq!(view(store, "s-1/65").await.unwrap(), "shard");
    let version = version_of(&harness, "s-1/00").await;
    assert!(store.versions().delete("b", "s-1/00", version).await.is_err(), "it is pinned");
}

/// A proxy that dies before it writes the marker: its intent stays for a day.
pub(super) async fn leave_an_intent(harness: &Harness, clock: &Arc<ManualClock>) {
    let is_dead = AtomicBool::new(false);
    let dying = with_faults(harness, clock, move |call| {
        is_dead.fetch_or(is_marker(call), Ordering::Relaxed);
        if is_dead.load(Ordering::Relaxed) { REFUSED } else { Fault::None }
    });
    let marker = format!("{SET}.metadata");
    let written = put(&dying, &marker, body(MARKER.into()), WriteConditions::default()).await;
    assert!(matches!(written, Err(Error::Backend(it)) if it.kind() == ErrorKind::Unavailable));
}

#[tokio::test]
async fn a_dead_writer_delays_a_pending_generation_by_minutes() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    let outcome = save(store, &format!("{SET}.metadata"), MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing"), "{outcome}");
    leave_an_intent(&harness, &clock).await;
    save(store, &format!("{SET}__1_0.distcp"), b"one").await;
    assert_eq!(upkeep(store).await.committed, 0, "the writer may live");
    assert_eq!(reason(store).await, "the marker is being written again");
    clock.advance_ms(11 * MINUTE_MS);
    upkeep(store).await;
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
}

#[tokio::test]
async fn a_writer_that_began_before_a_generation_does_not_delay_it() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    leave_an_intent(&harness, &clock).await;
    // The client repeats its request through another proxy.
    let outcome = save(store, &format!("{SET}.metadata"), MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing"), "{outcome}");
    save(store, &format!("{SET}__1_0.distcp"), b"one").await;
    assert_eq!(upkeep(store).await.done, 1);
    assert_eq!(view(store, SHARD).await.unwrap(), "one");
}

#[tokio::test]
async fn a_removal_that_must_wait_writes_nothing() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    store.checkpoints().withdraw("b", SET, None, true).await.unwrap();
    leave_an_intent(&harness, &clock).await;
    clock.advance_ms(21 * MINUTE_MS);
    let writes = Arc::new(AtomicUsize::new(0));
    let count = writes.clone();
    let counting = with_faults(&harness, &clock, move |call| {
        count.fetch_add(usize::from(call.write.is_some()), Ordering::Relaxed);
        Fault::None
    });
    for _ in 0..3 {
        upkeep(&counting).await;
    }
    assert_eq!(writes.load(Ordering::Relaxed), 0, "a marker may still come");
    clock.advance_ms(25 * 60 * MINUTE_MS);
    upkeep(store).await;
    upkeep(store).await;
    assert!(matches!(harness.get(SHARD, Selection::Whole).await, Err(Error::NoSuchKey)));
}
