//! Proxies that die at any of their calls while they change versions of a key. Each change is done
//! or not done for all clients, and removes no other version (rules R4, R8, M1).

use std::slice;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, VersionId};
use tokio::time::{sleep, timeout};

use super::super::conditional::create_only;
use super::super::dying::{dying, uploaded};
use super::super::harness::{body, create, pattern, put};
use super::super::nodes::{Fortune, Nodes, Proxy};
use super::super::races::Chance;
use super::{all_versions, get_version, put_version};
use crate::{Error, ObjectStore, Result, WriteConditions};

/// Bytes of a key's versions, the latest first; `None` for a delete marker.
pub(super) type VersionBodies = Vec<Option<Bytes>>;

/// Returns the versions of a listing, with each version read.
async fn seen(store: &ObjectStore, what: &str) -> VersionBodies {
    let mut seen = VersionBodies::new();
    let listed = all_versions(store).await;
    for (at, version) in listed.iter().enumerate() {
        assert_eq!(version.is_latest, at == 0, "{what}");
        seen.push(match get_version(store, "key", version.id).await {
            Ok(bytes) => Some(bytes),
            Err(Error::DeleteMarker { .. }) => None,
            Err(error) => panic!("{what}: a version that is listed: {error}"),
        });
    }
    let current = match get_version(store, "key", None).await {
        Ok(bytes) => Some(bytes),
        Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => None,
        Err(error) => panic!("{what}: the current one: {error}"),
    };
    assert_eq!(current, seen.first().cloned().flatten(), "{what}: the first is the current one");
    seen
}

/// Returns the state that every client sees in the end, with any node out. It may change once,
/// because a replica that was not read before may have a newer write.
async fn seen_by_all(proxy: &Proxy, what: &str) -> VersionBodies {
    let mut states: Vec<VersionBodies> = Vec::new();
    for turn in 0..6 {
        proxy.heal();
        proxy.fares(&[DeviceId(turn % 3 + 1)], Fortune::Refused);
        let what = format!("{what}, turn {turn}");
        let now = seen(&proxy.store, &what).await;
        if states.last() != Some(&now) {
            states.push(now);
        }
        assert!(states.len() <= 2, "{what}: it changed twice");
    }
    proxy.heal();
    states.pop().expect("there were six turns")
}

/// Three nodes with a bucket that keeps versions. The key `key` has these versions, the oldest
/// first.
pub(super) async fn holding(versions: &VersionBodies) -> (Nodes, Proxy, Vec<VersionId>) {
    let nodes = Nodes::new(3);
    let proxy = nodes.proxy();
    create(&proxy.store, "b").await;
    proxy.store.buckets().set_versioning("b", true).await.unwrap();
    let mut ids = Vec::new();
    for version in versions {
        ids.push(if let Some(bytes) = version {
            put_version(&proxy.store, "key", bytes.clone()).await.unwrap()
        } else {
            let none = WriteConditions::default();
            proxy.store.delete("b", "key", &none).await.unwrap().version.unwrap()
        });
    }
    sleep(Duration::from_secs(1)).await;
    (nodes, proxy, ids)
}

fn latest_first(oldest_first: &[Option<Bytes>]) -> VersionBodies {
    oldest_first.iter().rev().cloned().collect()
}

/// Kills an operation's proxy at each of its calls, until the operation succeeds. Both states have
/// the oldest version first.
async fn at_every_call<F: Future<Output = Result<()>>>(
    before: VersionBodies,
    after: VersionBodies,
    operation: impl Fn(ObjectStore, Vec<VersionId>) -> F,
) {
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let (nodes, proxy, ids) = holding(&before).await;
        let store = dying(&nodes, calls).await;
        let done = timeout(Duration::from_millis(500), operation(store, ids)).await;
        let held = seen_by_all(&proxy, &what).await;
        let is_known = held == latest_first(&before) || held == latest_first(&after);
        assert!(is_known, "{what}: {} versions of something else", held.len());
        // The next client finds a key that works.
        let next = put_version(&proxy.store, "key", "next").await;
        next.unwrap_or_else(|error| panic!("{what}: the next write: {error}"));
        let mut then = held.clone();
        then.insert(0, Some(Bytes::from_static(b"next")));
        assert_eq!(seen_by_all(&proxy, &what).await, then, "{what}, and then written");
        if let Ok(done) = done {
            done.unwrap();
            assert_eq!(held, latest_first(&after), "{what}, and it was acknowledged");
            assert!(calls >= 4, "a ballot is two rounds of two calls at least");
            return;
        }
    }
}

pub(super) fn some(bytes: &[Bytes]) -> VersionBodies {
    bytes.iter().cloned().map(Some).collect()
}

#[tokio::test(start_paused = true)]
async fn r8_a_put_adds_its_version_or_none() {
    let held = [pattern(300, 1), pattern(20_000, 2)];
    for size in [100, 30_000] {
        let new = pattern(size, 3);
        let after = [some(&held), some(slice::from_ref(&new))].concat();
        at_every_call(some(&held), after, |store, _| {
            let new = new.clone();
            async move { put_version(&store, "key", new).await.map(drop) }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn r8_a_conditional_put_over_a_marker_adds_its_version_or_none() {
    let before = vec![Some(pattern(300, 1)), None];
    let new = pattern(500, 2);
    let after = [before.clone(), some(slice::from_ref(&new))].concat();
    at_every_call(before, after, |store, _| {
        let new = new.clone();
        async move { put(&store, "key", body(new), create_only()).await.map(drop) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn r8_a_delete_puts_its_marker_in_front_or_none() {
    let held = some(&[pattern(300, 1), pattern(20_000, 2)]);
    let after = [held.clone(), vec![None]].concat();
    at_every_call(held, after, |store, _| async move {
        store.delete("b", "key", &WriteConditions::default()).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn r8_a_removal_takes_its_version_and_no_other() {
    let held = vec![Some(pattern(300, 1)), Some(pattern(20_000, 2)), None];
    for gone in 0..held.len() {
        let mut after = held.clone();
        after.remove(gone);
        at_every_call(held.clone(), after, |store, ids| async move {
            store.versions().delete("b", "key", ids[gone]).await.map(drop)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn r8_the_removal_of_the_only_version_leaves_no_key_or_that_version() {
    at_every_call(some(&[pattern(20_000, 2)]), VersionBodies::new(), |store, ids| async move {
        store.versions().delete("b", "key", ids[0]).await.map(drop)
    })
    .await;
}

/// A proxy that continues the upload makes the version that the first would have made.
#[tokio::test(start_paused = true)]
async fn m1_a_complete_that_dies_makes_one_version_however_often_it_is_tried_again() {
    let (old, new) = (pattern(300, 1), pattern(40_000, 2));
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let (nodes, proxy, _) = holding(&some(slice::from_ref(&old))).await;
        let (upload, complete) = uploaded(&proxy, &new).await;
        let first = dying(&nodes, calls).await;
        let first = first.uploads().complete("b", "key", upload, complete.clone());
        let done = timeout(Duration::from_millis(500), first).await;
        let (before, after) = (some(slice::from_ref(&old)), some(&[new.clone(), old.clone()]));
        let held = seen_by_all(&proxy, &what).await;
        assert!(held == before || held == after, "{what}: {} versions", held.len());
        let mut ids = Vec::new();
        for _ in 0..2 {
            let again = proxy.store.uploads().complete("b", "key", upload, complete.clone()).await;
            let again = again.unwrap_or_else(|error| panic!("{what}: again: {error}"));
            ids.push(again.object.version.map(martlet_protocol::Version::name));
            assert_eq!(seen_by_all(&proxy, &what).await, after, "{what}, and tried again");
        }
        assert_eq!(ids[0], ids[1], "{what}");
        if let Ok(done) = done {
            assert_eq!(done.unwrap().object.version.map(martlet_protocol::Version::name), ids[0]);
            assert!(calls > 10);
            return;
        }
    }
}

/// Both proxies complete the same write, each at ballots of its own. The reply must name the
/// version that exists.
#[tokio::test(start_paused = true)]
async fn m1_two_completes_through_two_proxies_return_the_existing_version() {
    let mut both = 0;
    for seed in 0..200 {
        println!("seed {seed}");
        let chance = Chance::new(seed);
        let (old, new) = (pattern(300, 1), pattern(30_000, 2));
        let (nodes, setup, _) = holding(&some(slice::from_ref(&old))).await;
        let (upload, complete) = uploaded(&setup, &new).await;
        let late = || {
            let chance = chance.clone();
            nodes.proxy_with(60_000, move |_| {
                Fault::Delay(Duration::from_millis(chance.below(4) * chance.below(8)))
            })
        };
        let pause = Duration::from_millis(chance.below(60));
        let complete_by = |proxy: Proxy, pause| {
            let complete = complete.clone();
            async move {
                sleep(pause).await;
                proxy.store.uploads().complete("b", "key", upload, complete).await
            }
        };
        let (one, other) = (late(), late());
        let outcomes = tokio::join!(complete_by(one, Duration::ZERO), complete_by(other, pause));
        for written in [&outcomes.0, &outcomes.1].into_iter().flatten() {
            let told = written.object.version.expect("the bucket keeps versions").name();
            let read = get_version(&setup.store, "key", told).await;
            assert_eq!(read.unwrap(), new, "seed {seed}");
        }
        both += usize::from(outcomes.0.is_ok() && outcomes.1.is_ok());
    }
    assert!(both > 20, "both were told of it only {both} times");
}
