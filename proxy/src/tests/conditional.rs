//! Conditional writes: exactly one of any number of racers wins.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::ErrorKind;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use tokio::sync::Notify;

use super::harness::{Harness, body, faulty, get, put, settle};
use crate::{ETagCondition, Error, ObjectStore, Result, Selection, WriteConditions, WrittenObject};

pub(super) fn create_only() -> WriteConditions {
    WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) }
}

pub(super) fn only_over(written: &WrittenObject) -> WriteConditions {
    let tag = ETagCondition::OneOf(vec![written.object.etag.to_string()]);
    WriteConditions { if_match: Some(tag), if_none_match: None }
}

async fn race(stores: &[ObjectStore], conditions: WriteConditions) -> Vec<Result<WrittenObject>> {
    let racers = (0..50).map(|racer| {
        let store = stores[racer % stores.len()].clone();
        let bytes = Bytes::from(format!("racer {racer}"));
        let conditions = conditions.clone();
        tokio::spawn(async move { put(&store, "key", body(bytes), conditions).await })
    });
    join_all(racers).await.into_iter().map(|racer| racer.unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_racers_in_one_process_one_creates() {
    for (replicas, devices) in [(1, 1), (1, 3), (3, 3)] {
        let harness = Harness::new(replicas, devices);
        super::harness::create(&harness.store, "b").await;
        let outcomes = race(std::slice::from_ref(&harness.store), create_only()).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        let lost = |outcome: &Result<WrittenObject>| {
            matches!(outcome, Ok(_) | Err(Error::PreconditionFailed("If-None-Match")))
        };
        assert!(outcomes.iter().all(lost), "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racers_through_many_proxies_have_at_most_one_winner_and_it_is_what_is_read() {
    for replicas in [1, 3] {
        let harness = Harness::new(replicas, 3);
        super::harness::create(&harness.store, "b").await;
        let before = harness.put("key", "before").await.unwrap();
        let proxies: Vec<_> =
            (0..5).map(|_| faulty(&harness.memory, replicas, 3, |_| Fault::None)).collect();
        let outcomes = race(&proxies, only_over(&before)).await;
        let winners: Vec<_> = outcomes.iter().flatten().collect();
        assert!(winners.len() <= 1);
        let read = harness.get("key", Selection::Whole).await.unwrap();
        if let [winner] = winners[..] {
            let head = harness.head("key", Selection::Whole).await.unwrap();
            assert_eq!(head.object.etag, winner.object.etag);
            assert!(read.starts_with(b"racer"));
        }
        let unsure = |outcome: &Result<WrittenObject>| match outcome {
            Ok(_) | Err(Error::PreconditionFailed(_) | Error::ConditionalConflict) => true,
            Err(Error::Backend(error)) => error.kind() == ErrorKind::Unavailable,
            Err(_) => false,
        };
        assert!(outcomes.iter().all(unsure), "{outcomes:?}");
    }
}

/// Only conditional writes return a conflict; other writes return a retryable error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_without_conditions_never_conflict() {
    let harness = Harness::new(3, 3);
    super::harness::create(&harness.store, "b").await;
    let proxies: Vec<_> = (0..5).map(|_| faulty(&harness.memory, 3, 3, |_| Fault::None)).collect();
    for _ in 0..5 {
        let outcomes = race(&proxies, WriteConditions::default()).await;
        let is_plain = |outcome: &Result<WrittenObject>| match outcome {
            Ok(_) => true,
            Err(Error::Backend(error)) => error.kind() == ErrorKind::Unavailable,
            Err(_) => false,
        };
        assert!(outcomes.iter().all(is_plain), "{outcomes:?}");
    }
}

#[tokio::test]
async fn conditions_are_exact_over_plain_writes_and_deletes() {
    let harness = Harness::with_bucket(1).await;
    let attempt = |conditions| put(&harness.store, "key", body("x".into()), conditions);
    let first = attempt(create_only()).await.unwrap();
    assert!(matches!(attempt(create_only()).await, Err(Error::PreconditionFailed(_))));
    let second = harness.put("key", "second").await.unwrap();
    assert!(matches!(attempt(only_over(&first)).await, Err(Error::PreconditionFailed("If-Match"))));
    let stale = harness.store.delete("b", "key", &only_over(&first)).await;
    assert!(matches!(stale, Err(Error::PreconditionFailed(_))));
    harness.store.delete("b", "key", &only_over(&second)).await.unwrap();
    assert!(matches!(attempt(only_over(&second)).await, Err(Error::NoSuchKey)));
    let again = harness.store.delete("b", "key", &only_over(&second)).await.unwrap();
    assert!(again.stamp.is_none());
    attempt(create_only()).await.unwrap();
}

#[tokio::test]
async fn a_conditional_body_that_lost_leaves_no_extents() {
    let harness = Harness::with_bucket(1).await;
    harness.put("key", "there").await.unwrap();
    let long = body(super::harness::pattern(100_000, 1));
    assert!(put(&harness.store, "key", long, create_only()).await.is_err());
    settle().await;
    assert!(harness.memory.extents_in_use().is_empty());
}

#[tokio::test]
async fn a_lost_reply_to_an_accept_is_found_to_have_won() {
    let harness = Harness::with_bucket(1).await;
    let once = AtomicBool::new(true);
    let store = faulty(&harness.memory, 1, 1, move |call| {
        let lose = call.op == CallKind::Write && once.swap(false, SeqCst);
        if lose { Fault::LoseReply(ErrorKind::Unavailable) } else { Fault::None }
    });
    put(&store, "key", body("mine".into()), create_only()).await.unwrap();
    assert_eq!(get(&store, "key", Selection::Whole).await.unwrap(), "mine");
}

/// The accept was stored, its reply was lost, and another client replaced the write since.
#[tokio::test(start_paused = true)]
async fn an_accept_with_an_unknown_outcome_is_no_412_when_another_write_is_found() {
    let harness = Harness::with_bucket(1).await;
    let (written, promised) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (has_written, again) = (written.clone(), promised.clone());
    let store = faulty(&harness.memory, 1, 1, move |call| match call.op {
        CallKind::Write if !has_written.swap(true, SeqCst) => {
            Fault::LoseReply(ErrorKind::Unavailable)
        }
        CallKind::Promise if has_written.load(SeqCst) => {
            again.notify_one();
            Fault::Delay(Duration::from_millis(1))
        }
        _ => Fault::None,
    });
    let other = async {
        promised.notified().await;
        harness.put("key", "theirs").await
    };
    let (mine, theirs) =
        tokio::join!(put(&store, "key", body("mine".into()), create_only()), other);
    theirs.unwrap();
    let is_unknown =
        matches!(&mine, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable);
    assert!(is_unknown, "{mine:?}");
    assert_eq!(get(&harness.store, "key", Selection::Whole).await.unwrap(), "theirs");
}

#[tokio::test]
async fn an_accept_with_an_unknown_outcome_is_unavailable_and_never_a_412() {
    let harness = Harness::with_bucket(1).await;
    let store = faulty(&harness.memory, 1, 1, |call| match call.op {
        CallKind::Write => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let outcome = put(&store, "key", body("mine".into()), create_only()).await;
    assert!(
        matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
    );
}
