//! A worker that stands still while it releases pins, and an earlier generation that is pinned meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::RegisterKind;
use martlet_protocol::backend::CallKind;

use super::late::{STANDSTILL, until_set};
use super::removal::{SHARD, version_of};
use super::*;

/// Makes a pending generation 1, which lacks an object, and a generation 2 that is withdrawn and due. Both need the
/// version of [`SHARD`] that is returned.
async fn pending_below_withdrawn() -> (Harness, Arc<ManualClock>, martlet_protocol::VersionId) {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, SHARD, b"one").await;
    let version = version_of(&harness, SHARD).await;
    let marker = format!("{SET}.metadata");
    let outcome = save(store, &marker, MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing"), "{outcome}");
    let objects = named(&[(SHARD, b"one")]);
    let commit = NewCommit { folder: SET.into(), published_as: None, objects };
    assert_eq!(store.checkpoints().commit("b", &commit).await.unwrap(), committed(2));
    assert_eq!(store.checkpoints().withdraw("b", SET, Some(2), false).await.unwrap(), 1);
    save(store, &format!("{SET}__1_0.distcp"), b"one").await;
    clock.advance_ms(21 * MINUTE_MS);
    (harness, clock, version)
}

#[tokio::test]
async fn a_late_release_of_pins_leaves_those_of_a_generation_that_was_pinned_meanwhile() {
    // The ballot of the release stands still before it begins, or the read before it.
    for at in [CallKind::Promise, CallKind::Read] {
        let (harness, clock, version) = pending_below_withdrawn().await;
        let store = &harness.store;
        let (is_over, stands) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (over, standing) = (is_over.clone(), stands.clone());
        let late = with_faults(&harness, &clock, move |call| {
            let is_shard = call.key.is_some_and(|key| {
                key.kind == RegisterKind::Object && key.name.as_ref() == SHARD.as_bytes()
            });
            if call.op != at || !is_shard || over.load(Ordering::Relaxed) {
                return Fault::None;
            }
            standing.store(true, Ordering::Relaxed);
            Fault::Delay(STANDSTILL)
        });
        let meanwhile = async {
            until_set(&stands).await;
            // Another worker ends the removal of generation 2, and then completes generation 1.
            upkeep(store).await;
            upkeep(store).await;
            let left = state(store, SET).await.generations;
            let states: Vec<_> = left.iter().map(|it| (it.number, it.state)).collect();
            assert_eq!(states, [(1, GenerationState::Committed)]);
            is_over.store(true, Ordering::Relaxed);
        };
        futures::join!(upkeep(&late), meanwhile);
        let deleted = store.versions().delete("b", SHARD, version).await;
        assert!(deleted.is_err(), "{at:?}: generation 1 needs the version");
        assert_eq!(view(store, SHARD).await.unwrap(), "one");
        // Its own removal releases the pins.
        store.checkpoints().withdraw("b", SET, Some(1), false).await.unwrap();
        clock.advance_ms(21 * MINUTE_MS);
        upkeep(store).await;
        store.versions().delete("b", SHARD, version).await.unwrap();
    }
}
