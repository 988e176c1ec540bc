//! Many races, each from its own seed: the outcomes of all racers must fit together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, ErrorKind};
use parking_lot::Mutex;

use super::conditional::{create_only, only_over};
use super::harness::{Harness, body, create, faulty, get, pattern, put, settle};
use super::multipart::{begin, naming, send};
use super::nodes::{Fortune, Nodes};
use crate::{Error, ObjectStore, Result, Selection, WriteConditions, WrittenObject};

const ROUNDS: u64 = 100;
const RACERS: usize = 50;

/// A small generator whose numbers never change for a seed.
#[derive(Clone)]
pub(super) struct Chance(Arc<Mutex<u64>>);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    /// Returns a number below `end`.
    pub(super) fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % end
    }
}

/// A store with some delayed calls.
fn straggling(harness: &Harness, replicas: usize, chance: &Chance) -> ObjectStore {
    let chance = chance.clone();
    let devices = u32::try_from(replicas).unwrap();
    faulty(&harness.memory, replicas, devices, move |_| match chance.below(24) {
        0 => Fault::Delay(Duration::from_micros(50 + chance.below(1500))),
        _ => Fault::None,
    })
}

async fn race(
    stores: &[ObjectStore],
    round: &str,
    conditions: &WriteConditions,
) -> Vec<(String, Result<WrittenObject>)> {
    let racers = (0..RACERS).map(|racer| {
        let store = stores[racer % stores.len()].clone();
        let (text, conditions) = (format!("{round} {racer}"), conditions.clone());
        tokio::spawn(async move {
            let outcome = put(&store, "key", body(Bytes::from(text.clone())), conditions).await;
            (text, outcome)
        })
    });
    join_all(racers).await.into_iter().map(|racer| racer.unwrap()).collect()
}

/// Checks that at most one racer won, and that its bytes are stored.
async fn check_winner(
    store: &ObjectStore,
    outcomes: &[(String, Result<WrittenObject>)],
    what: &str,
) {
    let held = get(store, "key", Selection::Whole).await.unwrap();
    let winners: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).collect();
    assert!(winners.len() <= 1, "{what}: {} winners", winners.len());
    if let [(text, _)] = winners[..] {
        assert_eq!(held, *text, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_racers_one_wins_a_hundred_times_over() {
    for seed in 0..ROUNDS {
        let chance = Chance::new(seed);
        let harness = Harness::with_bucket(1).await;
        let store = straggling(&harness, 1, &chance);
        let stores = std::slice::from_ref(&store);
        for (round, conditions) in ["create", "replace"].into_iter().zip([true, false]) {
            let what = format!("seed {seed}, {round}");
            let conditions = if conditions {
                create_only()
            } else {
                let read = harness.head("key", Selection::Whole).await.unwrap();
                let (object, stamp) = ((*read.object).clone(), read.stamp);
                only_over(&WrittenObject::new(object, stamp))
            };
            let outcomes = race(stores, round, &conditions).await;
            check_winner(&harness.store, &outcomes, &what).await;
            for (_, outcome) in &outcomes {
                let told = matches!(outcome, Ok(_) | Err(Error::PreconditionFailed(_)));
                assert!(told, "{what}: {outcome:?}");
            }
            assert!(outcomes.iter().any(|(_, outcome)| outcome.is_ok()), "{what}: nobody won");
        }
    }
}

/// Of fifty racers through three proxies exactly one wins, in every round, also while a node is
/// gone. A racer of unknown outcome reports so, and may be the winner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_of_fifty_racers_through_three_proxies_one_wins_also_with_a_node_gone() {
    let mut untold = 0;
    for seed in 0..ROUNDS {
        let nodes = Nodes::new(3);
        let proxies = [nodes.proxy(), nodes.proxy(), nodes.proxy()];
        create(&proxies[0].store, "b").await;
        let gone = u32::try_from(seed % 4).unwrap();
        if gone > 0 {
            for proxy in &proxies {
                proxy.store.bucket("b").await.unwrap();
                proxy.fares(&[DeviceId(gone)], Fortune::Refused);
            }
        }
        let stores: Vec<_> = proxies.iter().map(|proxy| proxy.store.clone()).collect();
        let outcomes = race(&stores, "create", &create_only()).await;
        let what = format!("seed {seed}, node {gone} gone");
        check_winner(&stores[0], &outcomes, &what).await;
        let unavailable = |outcome: &Result<WrittenObject>| match outcome {
            Ok(_) | Err(Error::PreconditionFailed(_) | Error::ConditionalConflict) => false,
            Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable => true,
            Err(error) => panic!("{what}: {error}"),
        };
        let silent = outcomes.iter().filter(|(_, outcome)| unavailable(outcome)).count();
        untold += silent;
        let won = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        let held = get(&stores[1], "key", Selection::Whole).await.unwrap();
        let theirs = outcomes.iter().find(|(text, _)| held == *text).expect("one of them wrote it");
        assert!(won == 1 || unavailable(&theirs.1), "{what}: {won} winners");
    }
    println!("{untold} of {} racers could not tell", ROUNDS * RACERS as u64);
    assert!(untold < RACERS * 20, "hardly anybody can tell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racers_through_many_proxies_over_three_replicas_never_win_twice() {
    for seed in 0..ROUNDS / 5 {
        let chance = Chance::new(seed);
        let harness = Harness::new(3, 3);
        create(&harness.store, "b").await;
        let proxies: Vec<_> = (0..4).map(|_| straggling(&harness, 3, &chance)).collect();
        let outcomes = race(&proxies, "create", &create_only()).await;
        let somebody = harness.get("key", Selection::Whole).await;
        if somebody.is_ok() {
            check_winner(&harness.store, &outcomes, &format!("seed {seed}")).await;
        } else {
            assert!(outcomes.iter().all(|(_, outcome)| outcome.is_err()), "seed {seed}");
        }
    }
}

/// Puts and deletes beside conditional puts: the last acknowledged state must be the stored one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontested_condition_over_what_was_just_written_holds() {
    for seed in 0..ROUNDS {
        let chance = Chance::new(seed);
        let harness = Harness::with_bucket(1).await;
        let store = straggling(&harness, 1, &chance);
        let mut held = put(&store, "key", body("0".into()), create_only()).await.unwrap();
        for step in 1..20 {
            let bytes = Bytes::from(format!("{step}"));
            let stale = only_over(&held);
            held = match chance.below(3) {
                0 => put(&store, "key", body(bytes), only_over(&held)).await.unwrap(),
                1 => put(&store, "key", body(bytes), WriteConditions::default()).await.unwrap(),
                _ => {
                    store.delete("b", "key", &only_over(&held)).await.unwrap();
                    put(&store, "key", body(bytes), create_only()).await.unwrap()
                }
            };
            let refused = put(&store, "key", body("x".into()), stale).await;
            assert!(
                matches!(refused, Err(Error::PreconditionFailed(_))),
                "seed {seed}: {refused:?}"
            );
        }
    }
}

/// Rivals of a Complete: an abort, a part that is sent again, another Complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_ends_once_under_races() {
    for seed in 0..ROUNDS {
        let chance = Chance::new(seed);
        let harness = Arc::new(Harness::with_bucket(1).await);
        let proxies = [(); 3].map(|()| straggling(&harness, 1, &chance));
        let upload = begin(&harness, "key").await;
        let (one, again) = (pattern(20_000, 1), pattern(20_000, 2));
        let first = send(&harness, upload, 1, &one).await.unwrap();
        let wait = |most| Duration::from_micros(chance.below(most));
        let waits = [wait(1500), wait(1500), wait(1500), wait(1500)];
        let complete = |store: &ObjectStore, wait| {
            let (store, complete) = (store.clone(), naming(&[(1, &first)]));
            async move {
                tokio::time::sleep(wait).await;
                store.uploads().complete("b", "key", upload, complete).await
            }
        };
        let resend = async {
            tokio::time::sleep(waits[2]).await;
            proxies[2].uploads().put_part("b", "key", upload, 1, body(again.clone())).await
        };
        let abort = async {
            tokio::time::sleep(waits[3]).await;
            proxies[0].uploads().abort("b", "key", upload).await
        };
        let completes = (complete(&proxies[0], waits[0]), complete(&proxies[1], waits[1]));
        let (left, right, resent, aborted) = tokio::join!(completes.0, completes.1, resend, abort);
        let what = format!("seed {seed}: {left:?} {right:?} {resent:?} {aborted:?}");
        let held = get(&harness.store, "key", Selection::Whole).await;
        let completed: Vec<_> = [&left, &right].into_iter().flatten().collect();
        match held {
            Ok(held) => {
                assert_eq!(held, one, "{what}");
                assert!(aborted.is_err(), "{what}");
            }
            Err(error) => {
                assert!(matches!(error, Error::NoSuchKey), "{what}");
                assert!(completed.is_empty(), "{what}");
            }
        }
        if let [left, right] = completed[..] {
            assert_eq!(left.object.etag, right.object.etag, "{what}");
        }
        // An abort ends the upload if it is still open; then no extent may be without an owner.
        let last = harness.store.uploads().abort("b", "key", upload).await;
        assert!(matches!(last, Ok(()) | Err(Error::NoSuchUpload)), "{what}: {last:?}");
        let expected = usize::from(get(&harness.store, "key", Selection::Whole).await.is_ok());
        let late = usize::from(matches!(resent, Err(Error::NoSuchUpload)) && expected == 1);
        // Parts are freed after the reply.
        let mut left = usize::MAX;
        for _ in 0..500 {
            settle().await;
            left = harness.memory.extents_in_use().len();
            if (expected..=expected + late).contains(&left) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!((expected..=expected + late).contains(&left), "{what}: {left} extents are left");
    }
}
