//! Versions that several generations or sets need, and buckets that were made again.

use super::removal::{SHARD, after_grace, two_generations};
use super::*;

#[tokio::test]
async fn a_hold_keeps_versions_that_a_later_generation_shares() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    let version = two_generations(&harness).await;
    let sets = store.checkpoints();
    sets.hold("b", SET, Some(1), 120 * MINUTE_MS).await.unwrap();
    sets.withdraw("b", SET, Some(1), false).await.unwrap();
    sets.withdraw("b", SET, Some(2), true).await.unwrap();
    after_grace(store, &clock).await;
    let name = ObjectName { key: SHARD, version: Some(version) };
    let read = store.get("b", name, Selection::Whole, &ReadConditions::default()).await.unwrap();
    assert_eq!(collect(read).await.unwrap(), "one", "the reader holds generation 1");
    clock.advance_ms(120 * MINUTE_MS);
    upkeep(store).await;
    upkeep(store).await;
    assert!(matches!(harness.get(SHARD, Selection::Whole).await, Err(Error::NoSuchKey)));
    assert!(matches!(sets.set("b", SET).await, Err(Error::NoSuchKey)));
}

/// A bucket may suspend versioning once its rules are gone, and get both again within a day.
#[tokio::test]
async fn a_pinned_null_version_outlives_a_suspension() {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let harness = Harness::at(3, 3, clock.clone());
    let store = &harness.store;
    create(store, "b").await;
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        save(store, &format!("{SET}{name}"), b"null").await;
    }
    store.buckets().set_versioning("b", true).await.unwrap();
    clock.advance_ms(3000);
    store.checkpoints().set_rules("b", RULES.into()).await.unwrap();
    assert_eq!(save(store, &format!("{SET}.metadata"), MARKER).await, Some(committed(1)));
    save(store, SHARD, b"numbered").await;
    save(store, "other", b"numbered").await;
    store.checkpoints().delete_rules("b").await.unwrap();
    store.buckets().set_versioning("b", false).await.unwrap();
    let another = || body(Bytes::from_static(b"another"));
    let written = put(store, SHARD, another(), WriteConditions::default()).await;
    assert!(matches!(written, Err(Error::Locked(_))), "{written:?}");
    let deleted = store.delete("b", SHARD, &WriteConditions::default()).await;
    assert!(matches!(deleted, Err(Error::Locked(_))), "{deleted:?}");
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "numbered");
    put(store, "other", another(), WriteConditions::default()).await.unwrap();
    store.buckets().set_versioning("b", true).await.unwrap();
    store.checkpoints().set_rules("b", RULES.into()).await.unwrap();
    assert_eq!(view(store, SHARD).await.unwrap(), "null");
}

#[tokio::test]
async fn an_object_that_another_set_needs_stays_current() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save(store, SHARD, b"before").await;
    save_set(store, SET, b"one").await;
    let objects = named(&[(SHARD, b"one")]);
    let published_as = Some("run-2/step-1/".to_owned());
    let publish = NewCommit { folder: SET.into(), published_as, objects };
    assert_eq!(store.checkpoints().commit("b", &publish).await.unwrap(), committed(1));
    store.checkpoints().withdraw("b", SET, None, true).await.unwrap();
    after_grace(store, &clock).await;
    assert_eq!(view(store, "run-2/step-1/__0_0.distcp").await.unwrap(), "one");
    assert_eq!(harness.get(SHARD, Selection::Whole).await.unwrap(), "one");
    let other = harness.get(&format!("{SET}__1_0.distcp"), Selection::Whole).await;
    assert!(matches!(other, Err(Error::NoSuchKey)), "nobody needs it");
}

#[tokio::test]
async fn the_view_of_a_bucket_that_was_made_again_is_that_of_the_new_one() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    let node: Arc<dyn Backend> = harness.memory.clone();
    let remembering = store_with(&node, 3, 3, 60_000, clock.clone());
    assert!(matches!(view(&remembering, SHARD).await, Err(Error::NoSuchKey)));
    store.buckets().delete("b").await.unwrap();
    create(store, "b").await;
    store.buckets().set_versioning("b", true).await.unwrap();
    clock.advance_ms(3000);
    store.checkpoints().set_rules("b", RULES.into()).await.unwrap();
    assert_eq!(save_set(store, SET, b"new").await, committed(1));
    // The settings of the two differ in the time at which versioning began.
    let read = view(&remembering, SHARD).await;
    assert!(!matches!(read, Err(Error::NoSuchKey)), "{read:?}");
    assert_eq!(view(&remembering, SHARD).await.unwrap(), "new");
}
