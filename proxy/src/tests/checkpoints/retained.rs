//! Retention beside sets that are deleted or withdrawn meanwhile: they don't count as later generations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use martlet_protocol::RegisterKind;
use martlet_protocol::backend::CallKind;

use super::crashes::REFUSED;
use super::late::{STANDSTILL, until_set};
use super::removal::{SHARD, after_grace, two_generations, version_of};
use super::*;

const KEEP_ONE: &str = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 1}]}"#;
/// Names in an order that is not that of the commits: walks meet the later set first.
const EARLIER: &str = "run-1/step-200/";
const LATER: &str = "run-1/step-100/";

async fn delete_objects(store: &ObjectStore, set: &str) {
    for name in ["__0_0.distcp", "__1_0.distcp", ".metadata"] {
        delete(store, &format!("{set}{name}")).await;
    }
}

/// State of the only generation of a set.
async fn only_state(store: &ObjectStore, set: &str) -> GenerationState {
    let generations = state(store, set).await.generations;
    assert_eq!(generations.len(), 1, "{generations:?}");
    generations[0].state
}

fn shard_of(set: &str) -> String {
    format!("{set}__0_0.distcp")
}

/// Sets that a dry run names, with the reasons.
async fn planned(store: &ObjectStore) -> Vec<(String, String)> {
    let (plan, _) = store.checkpoints().plan("b", "", None).await.unwrap();
    plan.into_iter().map(|it| (it.set, it.reason)).collect()
}

/// Two sets of a series that keeps one.
async fn two_sets() -> (Harness, Arc<ManualClock>) {
    let (harness, clock) = ruled(KEEP_ONE).await;
    save_set(&harness.store, EARLIER, b"good").await;
    clock.advance_ms(MINUTE_MS);
    save_set(&harness.store, LATER, b"bad").await;
    clock.advance_ms(MINUTE_MS);
    (harness, clock)
}

#[tokio::test]
async fn a_set_whose_objects_are_deleted_does_not_count() {
    let (harness, clock) = two_sets().await;
    let store = &harness.store;
    delete_objects(store, LATER).await;
    let emptied = (LATER.to_owned(), "all objects of the set were deleted".to_owned());
    assert_eq!(planned(store).await, [emptied]);
    let dry = store.checkpoints().would_retire("b", EARLIER, None).await.unwrap();
    assert_eq!(dry, (Vec::new(), None));
    upkeep(store).await;
    assert_eq!(only_state(store, EARLIER).await, GenerationState::Committed);
    assert_eq!(only_state(store, LATER).await, GenerationState::Removing);
    for _ in 0..2 {
        after_grace(store, &clock).await;
    }
    assert_eq!(view(store, &shard_of(EARLIER)).await.unwrap(), "good");
    assert!(matches!(view(store, &shard_of(LATER)).await, Err(Error::NoSuchKey)));
}

/// The folder of a published set is another one: it may be empty.
#[tokio::test]
async fn a_published_set_counts_without_objects_in_its_folder() {
    let (harness, clock) = ruled(KEEP_ONE).await;
    let store = &harness.store;
    save_set(store, EARLIER, b"good").await;
    clock.advance_ms(MINUTE_MS);
    save(store, "tmp/a", b"better").await;
    let objects = named(&[("tmp/a", b"better")]);
    let publish = NewCommit { folder: "tmp/".into(), published_as: Some(LATER.into()), objects };
    assert_eq!(store.checkpoints().commit("b", &publish).await.unwrap(), committed(1));
    assert_eq!(planned(store).await.len(), 1);
    upkeep(store).await;
    assert_eq!(only_state(store, EARLIER).await, GenerationState::Removing);
    assert_eq!(only_state(store, LATER).await, GenerationState::Committed);
}

#[tokio::test]
async fn a_set_that_is_withdrawn_during_the_walk_does_not_count() {
    let (harness, clock) = two_sets().await;
    let store = &harness.store;
    let (is_over, stands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (over, standing) = (is_over.clone(), stands.clone());
    // The walk has read the later set, and stands still at the earlier one.
    let walking = with_faults(&harness, &clock, move |call| {
        let is_record = call.key.is_some_and(|key| {
            key.name.starts_with(b"s/") && key.name.ends_with(EARLIER.as_bytes())
        });
        if call.op != CallKind::Read || !is_record || over.load(Ordering::Relaxed) {
            return Fault::None;
        }
        standing.store(true, Ordering::Relaxed);
        Fault::Delay(STANDSTILL)
    });
    let meanwhile = async {
        until_set(&stands).await;
        assert_eq!(store.checkpoints().withdraw("b", LATER, None, false).await.unwrap(), 1);
        is_over.store(true, Ordering::Relaxed);
    };
    futures::join!(upkeep(&walking), meanwhile);
    assert_eq!(only_state(store, EARLIER).await, GenerationState::Committed);
    assert_eq!(view(store, &shard_of(EARLIER)).await.unwrap(), "good");
}

#[tokio::test]
async fn objects_stay_if_later_sets_go_before_they_are_deleted() {
    for is_emptied in [false, true] {
        let (harness, clock) = two_sets().await;
        let store = &harness.store;
        upkeep(store).await;
        assert_eq!(only_state(store, EARLIER).await, GenerationState::Removing);
        clock.advance_ms(9 * MINUTE_MS);
        if is_emptied {
            delete_objects(store, LATER).await;
        } else {
            store.checkpoints().withdraw("b", LATER, None, true).await.unwrap();
        }
        let version = version_of(&harness, &shard_of(EARLIER)).await;
        for _ in 0..3 {
            after_grace(store, &clock).await;
        }
        assert_eq!(harness.get(&shard_of(EARLIER), Selection::Whole).await.unwrap(), "good");
        assert!(matches!(store.checkpoints().set("b", EARLIER).await, Err(Error::NoSuchKey)));
        let later = harness.get(&shard_of(LATER), Selection::Whole).await;
        assert!(later.is_err(), "{is_emptied}: they were asked to go");
        // Nothing is pinned for a generation that is gone.
        store.versions().delete("b", &shard_of(EARLIER), version).await.unwrap();
    }
}

/// Sets that don't count are looked at in a bounded number. The worker waits until they are withdrawn.
#[tokio::test]
async fn many_emptied_sets_do_not_count() {
    let (harness, clock) = ruled(KEEP_ONE).await;
    let store = &harness.store;
    let set = |step: usize| format!("run-1/step-{step}/");
    for step in 10..20 {
        save_set(store, &set(step), b"one").await;
        clock.advance_ms(MINUTE_MS);
    }
    for step in 12..20 {
        delete_objects(store, &set(step)).await;
    }
    let planned = planned(store).await;
    assert_eq!(planned.len(), 8, "{planned:?}");
    for _ in 0..2 {
        upkeep(store).await;
    }
    assert_eq!(only_state(store, &set(11)).await, GenerationState::Committed);
    assert_eq!(only_state(store, &set(10)).await, GenerationState::Removing);
}

/// A worker stands still with the pins of a later generation to be lowered to an earlier one. Another worker removes
/// the earlier one meanwhile, and fails at the later one.
#[tokio::test]
async fn no_pin_stays_for_a_generation_that_is_gone() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    let version = two_generations(&harness).await;
    store.checkpoints().withdraw("b", SET, Some(2), false).await.unwrap();
    clock.advance_ms(21 * MINUTE_MS);
    let (is_over, stands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (over, standing) = (is_over.clone(), stands.clone());
    let late = with_faults(&harness, &clock, move |call| {
        let is_object = call.key.is_some_and(|key| {
            key.kind == RegisterKind::Object && key.name.starts_with(SET.as_bytes())
        });
        if call.op != CallKind::Read || !is_object || over.load(Ordering::Relaxed) {
            return Fault::None;
        }
        standing.store(true, Ordering::Relaxed);
        Fault::Delay(STANDSTILL)
    });
    let manifests = Mutex::new(Vec::new());
    let failing = with_faults(&harness, &clock, move |call| {
        let Some(key) = call.key else { return Fault::None };
        let mut manifests = manifests.lock().unwrap();
        if call.op == CallKind::Read
            && key.name.starts_with(b"m/")
            && !manifests.contains(&key.name)
        {
            manifests.push(key.name.clone());
        }
        let is_second = manifests.len() > 1 && key.name.starts_with(SET.as_bytes());
        if is_second && call.write.is_some() { REFUSED } else { Fault::None }
    });
    let meanwhile = async {
        until_set(&stands).await;
        store.checkpoints().withdraw("b", SET, Some(1), false).await.unwrap();
        clock.advance_ms(21 * MINUTE_MS);
        upkeep(&failing).await;
        let left: Vec<_> = state(store, SET).await.generations;
        assert_eq!(left.iter().map(|it| it.number).collect::<Vec<_>>(), [2]);
        is_over.store(true, Ordering::Relaxed);
    };
    futures::join!(upkeep(&late), meanwhile);
    upkeep(store).await;
    assert!(matches!(store.checkpoints().set("b", SET).await, Err(Error::NoSuchKey)));
    store.versions().delete("b", SHARD, version).await.unwrap();
}

/// Reads of records in a pass over 15 sets of each of two series, whose names `name` makes.
async fn reads_of_a_pass(patterns: [&str; 2], name: fn(&str, u32) -> String) -> usize {
    let [a, b] = patterns;
    let rules = format!(
        r#"{{"rules": [{{"pattern": "{a}", "profile": "dcp", "keep": 20}},
                       {{"pattern": "{b}", "profile": "dcp", "keep": 20}}]}}"#
    );
    let (harness, clock) = ruled(&rules).await;
    for number in 10..25 {
        for kind in ["a", "b"] {
            save_set(&harness.store, &name(kind, number), b"one").await;
        }
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = reads.clone();
    let counting = with_faults(&harness, &clock, move |call| {
        let is_record = call.key.is_some_and(|key| key.name.starts_with(b"s/"));
        seen.fetch_add(usize::from(is_record && call.op == CallKind::Read), Ordering::Relaxed);
        Fault::None
    });
    assert_eq!(upkeep(&counting).await.sets, 30);
    reads.load(Ordering::Relaxed)
}

/// Each series is walked once in a pass, also if its sets alternate with those of another.
#[tokio::test]
async fn sets_of_two_series_that_alternate_are_walked_once() {
    let apart = reads_of_a_pass(["a-*/", "b-*/"], |kind, number| format!("{kind}-{number}/")).await;
    let mixed = reads_of_a_pass(["*-a/", "*-b/"], |kind, number| format!("{number}-{kind}/")).await;
    assert!(mixed < 2 * apart, "{mixed} instead of {apart}");
    // Series of folders within one another.
    let deep = reads_of_a_pass(["*-s/", "*-d/*/"], |kind, number| match kind {
        "a" => format!("{number}-s/"),
        _ => format!("15-d/{number}/"),
    });
    let deep = deep.await;
    assert!(deep < 2 * apart, "{deep} instead of {apart}");
}
