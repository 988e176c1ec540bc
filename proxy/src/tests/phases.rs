//! Replies of the object layer while replicas of the index move, phase by phase (rule P2).

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{AchievedLevel, DeviceId, ErrorKind, Level, Phase, Term};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::conditional::create_only;
use super::harness::{body, create, put};
use super::moving::{CHANGE, Cast, Growing};
use super::nodes::{Fortune, Proxy};
use crate::{Error, Result};

const PHASES: [Phase; 3] = [Phase::Old, Phase::Joint, Phase::New];

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

fn is_absent<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::NoSuchKey))
}

/// Makes a growing index in a phase, reached by a replicator's steps, and a proxy with a bucket.
async fn at(count: u32, phase: Phase) -> (Growing, Proxy) {
    let growing = Growing::from(count);
    let proxy = growing.nodes.proxy();
    create(&proxy.store, "b").await;
    proxy.store.bucket("b").await.unwrap();
    reach(&growing, phase).await;
    (growing, proxy)
}

async fn reach(growing: &Growing, phase: Phase) {
    // Background writes after replies end.
    sleep(Duration::from_secs(1)).await;
    if phase != Phase::Old {
        growing.raise(&growing.devices(), Phase::Joint);
    }
    if phase == Phase::New {
        growing.join().await;
        growing.raise(&growing.devices(), Phase::New);
    }
}

/// Sets of devices that may be out in a phase without loss of the quorum, and sets that may not.
fn outages(cast: Cast, phase: Phase) -> (Vec<Vec<DeviceId>>, Vec<Vec<DeviceId>>) {
    let Cast { stay: [one, other], leaves, joins } = cast;
    match phase {
        Phase::Old => {
            (vec![vec![one, joins], vec![leaves, joins]], vec![vec![one, leaves], vec![one, other]])
        }
        Phase::Joint => (
            vec![vec![one], vec![leaves, joins]],
            vec![vec![one, leaves], vec![one, joins], vec![one, other]],
        ),
        Phase::New => {
            (vec![vec![one, leaves], vec![joins, leaves]], vec![vec![one, joins], vec![one, other]])
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p2_reads_and_writes_need_a_quorum_of_those_who_decide() {
    for phase in PHASES {
        let (growing, proxy) = at(5, phase).await;
        let (key, _, cast) = growing.moving_key(&proxy).await;
        let absent = format!("{key} ");
        proxy.put(Level::Strict, &key, "first").await.unwrap();
        let (enough, too_few) = outages(cast, phase);
        for out in &enough {
            proxy.heal();
            proxy.fares(out, Fortune::Refused);
            let what = format!("{phase:?}, {cast:?}, {out:?}");
            let text = format!("without {out:?}");
            let (given, _) = proxy.put(Level::Strict, &key, &text).await.expect(&what);
            assert_eq!(given, AchievedLevel::Quorum, "{what}");
            assert_eq!(proxy.get(Level::Strict, &key).await.expect(&what).1, text);
            proxy.delete(Level::Strict, &key).await.expect(&what);
            assert!(is_absent(&proxy.get(Level::Strict, &key).await), "{what}");
            assert!(is_absent(&proxy.get(Level::Strict, &absent).await) || out.len() > 1);
            put_new(&proxy, &key, &text).await.expect(&what);
        }
        for out in &too_few {
            proxy.heal();
            proxy.fares(out, Fortune::Refused);
            let what = format!("{phase:?}, {cast:?}, {out:?}");
            assert!(is_unavailable(&proxy.put(Level::Strict, &key, "x").await), "{what}");
            assert!(is_unavailable(&proxy.get(Level::Strict, &key).await), "{what}");
            assert!(is_unavailable(&put_new(&proxy, &key, "x").await), "{what}");
        }
    }
}

async fn put_new(proxy: &Proxy, key: &str, text: &str) -> Result<crate::WrittenObject> {
    put(&proxy.store, key, body(text.to_owned().into()), create_only()).await
}

#[tokio::test(start_paused = true)]
async fn p2_writes_acknowledged_in_one_phase_are_read_in_the_next() {
    let growing = Growing::from(4);
    let proxy = growing.nodes.proxy();
    create(&proxy.store, "b").await;
    let (key, register, Cast { stay: [one, other], leaves, joins }) =
        growing.moving_key(&proxy).await;
    // One staying device misses the write; the leaving one has it.
    proxy.fares(&[other], Fortune::Refused);
    proxy.put(Level::Strict, &key, "old").await.unwrap();
    proxy.heal();
    reach(&growing, Phase::New).await;
    assert!(growing.nodes.held(joins, &register).is_some(), "it was copied");
    proxy.fares(&[one, leaves], Fortune::Refused);
    assert_eq!(proxy.get(Level::Strict, &key).await.unwrap().1, "old");
    assert_eq!(proxy.list(Level::Strict, None).await.map(|(_, keys)| keys).ok(), None);
    proxy.heal();
    assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1, [key]);
    assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::New));
}

#[tokio::test(start_paused = true)]
async fn p2_a_write_reaches_both_sets() {
    let (growing, proxy) = at(4, Phase::Joint).await;
    let (key, register, Cast { stay, leaves, joins }) = growing.moving_key(&proxy).await;
    proxy.put(Level::Available, &key, "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let held = growing.nodes.held(stay[0], &register);
    assert!(held.is_some());
    for device in [stay[1], leaves, joins] {
        assert_eq!(growing.nodes.held(device, &register), held);
    }
    // A partial write that a reader has seen is settled in both sets.
    for device in [leaves, joins] {
        proxy.fares(&stay, Fortune::Refused);
        assert!(is_unavailable(&proxy.put(Level::Strict, &key, "partly").await));
        proxy.heal();
        proxy.fares(&[device], Fortune::Refused);
        let seen = proxy.get(Level::Strict, &key).await.unwrap().1;
        proxy.heal();
        for out in [vec![stay[0]], vec![stay[1]], vec![leaves, joins]] {
            proxy.fares(&out, Fortune::Refused);
            let again = proxy.get(Level::Strict, &key).await.unwrap().1;
            assert!(seen == again || seen == "x", "{seen} and then {again}");
            proxy.heal();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p2_a_read_in_between_costs_what_it_costs_otherwise() {
    let (growing, proxy) = at(4, Phase::Joint).await;
    let (key, _, Cast { stay, .. }) = growing.moving_key(&proxy).await;
    proxy.put(Level::Available, &key, "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let calls: Arc<Mutex<Vec<(CallKind, DeviceId)>>> = Arc::default();
    let seen = calls.clone();
    let counting = growing.nodes.proxy_with(60_000, move |call| {
        seen.lock().push((call.op, call.device));
        Fault::None
    });
    counting.store.topology().raise_term(Term::of(CHANGE, Phase::Joint));
    counting.store.bucket("b").await.unwrap();
    for _ in 0..6 {
        calls.lock().clear();
        assert_eq!(counting.get(Level::Available, &key).await.unwrap().1, "x");
        let mut asked = calls.lock().clone();
        asked.sort_by_key(|(_, device)| *device);
        let mut expected = stay.map(|device| (CallKind::Read, device));
        expected.sort_by_key(|(_, device)| *device);
        assert_eq!(asked, expected, "those who count twice");
    }
}

#[tokio::test(start_paused = true)]
async fn p2_no_404_on_the_word_of_one_set() {
    let (growing, proxy) = at(5, Phase::Joint).await;
    let (key, _, Cast { stay, leaves, .. }) = growing.moving_key(&proxy).await;
    // The new set would report absence, but only one device of the old set answers.
    proxy.fares(&[stay[0], leaves], Fortune::Refused);
    for level in [Level::Strict, Level::Available] {
        assert!(is_unavailable(&proxy.get(level, &key).await), "{level:?}");
    }
    assert!(is_unavailable(&proxy.list(Level::Strict, None).await));
    proxy.heal();
    proxy.fares(&[stay[0]], Fortune::Refused);
    assert!(is_absent(&proxy.get(Level::Strict, &key).await));
    assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a2_in_between_a_hint_makes_up_for_both_sets() {
    let (growing, proxy) = at(6, Phase::Joint).await;
    let (key, register, cast) = growing.moving_key(&proxy).await;
    let Cast { stay, leaves, joins } = cast;
    proxy.fares(&stay, Fortune::Refused);
    let (given, _) = proxy.put(Level::Available, &key, "kept").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    let mut keepers = Vec::new();
    for device in growing.devices() {
        if growing.nodes.hinted(device).await.iter().any(|(key, _)| *key == register) {
            keepers.push(device);
        }
    }
    assert_eq!(keepers.len(), 1, "with one of each set it makes two of each");
    assert!(![stay[0], stay[1], leaves, joins].contains(&keepers[0]), "{keepers:?} {cast:?}");
    assert_eq!(
        proxy.get(Level::Available, &key).await.unwrap(),
        (AchievedLevel::Degraded, "kept".into())
    );
    // With no device of the old set up, two hints are needed.
    proxy.fares(&[leaves], Fortune::Refused);
    assert_eq!(
        proxy.put(Level::Available, &key, "again").await.unwrap().0,
        AchievedLevel::Degraded
    );
    let mut kept = 0;
    for device in growing.devices() {
        let hints = growing.nodes.hinted(device).await;
        kept += hints.iter().filter(|(key, _)| *key == register).count();
    }
    assert_eq!(kept, 2);
    proxy.heal();
    growing.nodes.deliver().await;
    assert_eq!(proxy.get(Level::Strict, &key).await.unwrap().1, "again");
}

#[tokio::test(start_paused = true)]
async fn m2_fences_and_deletes_of_buckets_in_each_phase() {
    for phase in PHASES {
        let (growing, proxy) = at(5, phase).await;
        let (key, _, cast) = growing.moving_key(&proxy).await;
        proxy.put(Level::Strict, &key, "x").await.unwrap();
        let (_, too_few) = outages(cast, phase);
        for out in &too_few {
            proxy.fares(out, Fortune::Refused);
            let told = proxy.store.buckets().set_consistency("b", Level::Strict).await;
            assert!(is_unavailable(&told), "{phase:?} {out:?} {told:?}");
            proxy.heal();
        }
        proxy.store.buckets().set_consistency("b", Level::Available).await.unwrap();
        proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
        assert!(matches!(proxy.store.buckets().delete("b").await, Err(Error::BucketNotEmpty)));
        proxy.delete(Level::Strict, &key).await.unwrap();
        proxy.store.buckets().delete("b").await.unwrap();
        assert!(matches!(proxy.store.bucket("b").await, Err(Error::NoSuchBucket)));
    }
}

#[tokio::test(start_paused = true)]
async fn a2_a_previous_holder_proves_no_absence() {
    let (growing, proxy) = at(5, Phase::New).await;
    let (key, register, Cast { stay: [one, other], leaves, joins }) =
        growing.moving_key(&proxy).await;
    proxy.fares(&[other], Fortune::Refused);
    proxy.put(Level::Strict, &key, "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    proxy.heal();
    assert_eq!(growing.nodes.held(leaves, &register), None);
    // Those that hold the object are out; a member that missed it and the previous holder answer.
    proxy.fares(&[one, joins], Fortune::Refused);
    assert!(is_unavailable(&proxy.get(Level::Available, &key).await));
    proxy.fares(&[other], Fortune::Refused);
    assert!(is_unavailable(&proxy.list(Level::Available, None).await));
}
