//! Terms that rise during requests (rules P1, P3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{CallKind, ListStart};
use martlet_protocol::testing::Fault;
use martlet_protocol::{BackendExt, DeviceId, ErrorKind, Level, Phase, RegisterKind, Term};
use tokio::time::{Instant, sleep};

use super::conditional::create_only;
use super::harness::{body, create, put};
use super::moving::{CHANGE, Cast, Growing, raise};
use super::nodes::Proxy;
use super::races::Chance;
use crate::walk::{Paths, Walk};
use crate::{Error, Result};

const SEEDS: u64 = 60;
const RACERS: usize = 50;

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

/// A proxy with a trap: just before call number `at` of a kind, all devices receive the term of the
/// joint phase.
async fn overtaken(growing: &Growing, op: CallKind, at: usize) -> (Proxy, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(usize::MAX / 2));
    let (counted, nodes, devices) = (calls.clone(), growing.nodes.clone(), growing.devices());
    let proxy = growing.nodes.proxy_with(60_000, move |call| {
        if call.op == op && counted.fetch_add(1, Ordering::SeqCst) == at {
            for device in &devices {
                raise(&nodes, *device, Phase::Joint);
            }
        }
        Fault::None
    });
    proxy.store.bucket("b").await.unwrap();
    (proxy, calls)
}

async fn with_bucket(count: u32) -> (Growing, Proxy) {
    let growing = Growing::from(count);
    let proxy = growing.nodes.proxy();
    create(&proxy.store, "b").await;
    (growing, proxy)
}

#[tokio::test(start_paused = true)]
async fn p1_a_write_that_meets_a_newer_term_is_sent_again_as_it_was() {
    for at in 0..2 {
        let (growing, plain) = with_bucket(4).await;
        let (key, register, cast) = growing.moving_key(&plain).await;
        let (proxy, calls) = overtaken(&growing, CallKind::Write, at).await;
        calls.store(0, Ordering::SeqCst);
        let (_, written) = proxy.put(Level::Strict, &key, "x").await.unwrap();
        assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::Joint), "{at}");
        sleep(Duration::from_secs(1)).await;
        let Cast { stay, leaves, joins } = cast;
        for device in [stay[0], stay[1], leaves, joins] {
            let held = growing.nodes.held(device, &register);
            assert_eq!(held, Some(written.stamp), "{at}: {device} of {cast:?}");
        }
        let services = &proxy.store.services;
        assert!(
            growing.devices().iter().all(|device| !services
                .registers
                .replicas
                .health
                .is_shunned(*device))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn p1_a_ballot_that_meets_a_newer_term_is_promised_anew() {
    let (promise, accept) = (CallKind::Promise, CallKind::Write);
    for (op, at) in [(promise, 0), (promise, 1), (promise, 2), (accept, 0)] {
        let (growing, plain) = with_bucket(4).await;
        let (key, register, cast) = growing.moving_key(&plain).await;
        let (proxy, calls) = overtaken(&growing, op, at).await;
        calls.store(0, Ordering::SeqCst);
        let won = put(&proxy.store, &key, body("x".into()), create_only()).await;
        assert!(won.is_ok(), "{op:?} {at}: {won:?}");
        sleep(Duration::from_secs(1)).await;
        let Cast { stay, leaves, joins } = cast;
        let holders = [stay[0], stay[1], leaves, joins];
        let order = won.unwrap().stamp;
        let holds = |device: DeviceId| growing.nodes.held(device, &register) == Some(order);
        // The third promise may come after the old holders have decided.
        let partition = growing.nodes.ring.partition(register.placement());
        let decided = |phase| growing.sets(partition, phase).has_quorum(holds);
        assert!(
            decided(Phase::Joint) || (at == 2 && decided(Phase::Old)),
            "{op:?} {at}: {holders:?}"
        );
        let lost = put(&plain.store, &key, body("y".into()), create_only()).await;
        assert!(matches!(lost, Err(Error::PreconditionFailed(_))), "{lost:?}");
    }
}

/// One device accepted before the term rose. A later ballot without that device can't determine the
/// outcome, and all replies must agree.
#[tokio::test(start_paused = true)]
async fn p1_a_ballot_that_was_half_accepted_before_a_newer_term_is_won_or_unknown() {
    let (growing, plain) = with_bucket(4).await;
    let (key, ..) = growing.moving_key(&plain).await;
    let (proxy, calls) = overtaken(&growing, CallKind::Write, 1).await;
    calls.store(0, Ordering::SeqCst);
    let told = put(&proxy.store, &key, body("x".into()), create_only()).await;
    assert!(told.is_ok() || is_unavailable(&told), "{told:?}");
    sleep(Duration::from_secs(1)).await;
    let second = put(&plain.store, &key, body("y".into()), create_only()).await;
    let held = plain.get(Level::Strict, &key).await.unwrap().1;
    assert_eq!(held, if second.is_ok() { "y" } else { "x" });
    assert!(told.is_err() || second.is_err(), "two have won");
}

#[tokio::test(start_paused = true)]
async fn p1_reads_lists_and_deletes_go_on_at_a_newer_term() {
    for (op, at) in
        [(CallKind::Read, 0), (CallKind::Read, 1), (CallKind::ListRows, 0), (CallKind::ListRows, 2)]
    {
        let (growing, plain) = with_bucket(4).await;
        let (first, _, _) = growing.moving_key(&plain).await;
        let mut keys: Vec<_> = (0..600).map(|at| format!("many {at:03}")).collect();
        keys.push(first.clone());
        keys.sort();
        for key in &keys {
            plain.put(Level::Strict, key, key).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        let (proxy, calls) = overtaken(&growing, op, at).await;
        calls.store(0, Ordering::SeqCst);
        if op == CallKind::Read {
            assert_eq!(proxy.get(Level::Strict, &first).await.unwrap().1, first, "{at}");
        }
        assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1, keys, "{op:?} {at}");
        assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::Joint), "{op:?} {at}");
        proxy.delete(Level::Strict, &first).await.unwrap();
        keys.retain(|key| *key != first);
        assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1, keys);
    }
}

#[tokio::test(start_paused = true)]
async fn p1_a_walk_begins_again_behind_the_last_name_that_it_gave_out() {
    let (growing, plain) = with_bucket(4).await;
    let keys: Vec<_> = (0..300).map(|at| format!("many {at:03}")).collect();
    for key in &keys {
        plain.put(Level::Strict, key, key).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let (proxy, calls) = overtaken(&growing, CallKind::ListRows, 9).await;
    calls.store(0, Ordering::SeqCst);
    let bucket = proxy.store.bucket("b").await.unwrap();
    let (services, context) = (&proxy.store.services, proxy.store.context());
    let paths = Paths::all(&bucket, RegisterKind::Object);
    let mut walk =
        Walk::new(&services.registers, &context, &paths, ListStart::First, 2, Level::Strict)
            .unwrap();
    let (mut names, mut given_before) = (Vec::new(), 0);
    while let Some((name, _)) = walk.next().await.unwrap() {
        if proxy.store.topology().term() < Term::of(CHANGE, Phase::Joint) {
            given_before += 1;
        }
        names.push(String::from_utf8(name.to_vec()).unwrap());
    }
    assert_eq!(names, keys);
    assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::Joint));
    assert!(given_before > 0 && given_before < 200, "{given_before} before the newer term");
}

#[tokio::test(start_paused = true)]
async fn p1_fences_are_sent_again_at_a_newer_term() {
    for at in 0..2 {
        let (growing, plain) = with_bucket(4).await;
        plain.store.bucket("b").await.unwrap();
        let (proxy, calls) = overtaken(&growing, CallKind::Fence, at).await;
        calls.store(0, Ordering::SeqCst);
        proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
        assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::Joint), "{at}");
        assert!(calls.load(Ordering::SeqCst) >= 2 * growing.devices().len(), "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn p3_a_proxy_with_an_old_ring_gives_up_in_time() {
    let (growing, proxy) = with_bucket(5).await;
    let late = growing.proxy_by(&growing.before);
    late.store.bucket("b").await.unwrap();
    let (key, ..) = growing.moving_key(&proxy).await;
    late.put(Level::Strict, &key, "by the ring before").await.unwrap();
    assert_eq!(proxy.get(Level::Strict, &key).await.unwrap().1, "by the ring before");
    growing.raise(&growing.devices(), Phase::Joint);
    for level in [Level::Available, Level::Strict] {
        let began = Instant::now();
        assert!(is_unavailable(&late.put(level, &key, "x").await), "{level:?}");
        assert!(is_unavailable(&late.get(level, &key).await), "{level:?}");
        assert!(is_unavailable(&late.list(level, None).await), "{level:?}");
        assert!(is_unavailable(&put(&late.store, &key, body("x".into()), create_only()).await));
        assert!(began.elapsed() < Duration::from_secs(6), "{level:?} {:?}", began.elapsed());
    }
    // The read waits for a ring that comes in time.
    let waiting = tokio::spawn({
        let (late, key) = (late.clone(), key.clone());
        async move { late.get(Level::Strict, &key).await }
    });
    sleep(Duration::from_millis(500)).await;
    growing.give(&late, &growing.nodes.ring);
    assert_eq!(waiting.await.unwrap().unwrap().1, "by the ring before");
    late.put(Level::Strict, &key, "by the ring of the change").await.unwrap();
    assert_eq!(proxy.get(Level::Strict, &key).await.unwrap().1, "by the ring of the change");
}

#[tokio::test(start_paused = true)]
async fn p3_a_ring_waits_for_the_change_before_it() {
    let (growing, proxy) = with_bucket(4).await;
    let (key, ..) = growing.moving_key(&proxy).await;
    proxy.put(Level::Strict, &key, "x").await.unwrap();
    growing.raise(&growing.devices(), Phase::Joint);
    let early = growing.proxy_by(&growing.settled);
    early.store.topology().raise_term(Term::of(CHANGE, Phase::Joint));
    for level in [Level::Any, Level::Available, Level::Strict] {
        let session =
            early.store.session(crate::ConsistencyOptions { level: Some(level), read_after: None });
        assert!(is_unavailable(&session.bucket("b").await), "{level:?}");
    }
    assert!(is_unavailable(&early.list(Level::Available, None).await));
    // A proxy without a known term receives the term from the first device that it calls.
    let unknowing = growing.proxy_by(&growing.settled);
    assert!(is_unavailable(&unknowing.store.bucket("b").await));
    assert_eq!(unknowing.store.topology().term(), Term::of(CHANGE, Phase::Joint));
    growing.join().await;
    growing.raise(&growing.devices(), Phase::New);
    for proxy in [&early, &unknowing] {
        proxy.store.topology().raise_term(Term::of(CHANGE, Phase::New));
        assert_eq!(proxy.get(Level::Strict, &key).await.unwrap().1, "x");
        proxy.store.topology().raise_term(Term::of(CHANGE, Phase::Old));
        proxy.store.topology().raise_term(Term::ANY);
        assert_eq!(proxy.store.topology().term(), Term::of(CHANGE, Phase::New), "it never falls");
    }
}

/// Takes the devices from phase to phase, one by one in random order, during requests.
async fn go_by(growing: &Growing, chance: &Chance) {
    for phase in [Phase::Joint, Phase::New] {
        let mut devices = growing.devices();
        while !devices.is_empty() {
            let most = u64::try_from(devices.len()).unwrap();
            let device = devices.swap_remove(usize::try_from(chance.below(most)).unwrap());
            growing.raise(&[device], phase);
            sleep(Duration::from_micros(chance.below(600))).await;
        }
        if phase == Phase::Joint {
            growing.join().await;
        }
    }
}

/// At most one of fifty racers wins while the phases change. Its write is visible afterwards to the
/// new holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_of_fifty_racers_one_wins_while_the_phases_go_by() {
    let mut won = 0;
    for seed in 0..SEEDS {
        let chance = Chance::new(seed);
        let (growing, first) = with_bucket(4).await;
        let (key, _, cast) = growing.moving_key(&first).await;
        let slow = chance.clone();
        let straggler = growing.nodes.proxy_with(60_000, move |_| match slow.below(12) {
            0 => Fault::Delay(Duration::from_micros(slow.below(3000))),
            _ => Fault::None,
        });
        let proxies = [first.clone(), growing.proxy_by(&growing.nodes.ring), straggler];
        let racers = (0..RACERS).map(|racer| {
            let store = proxies[racer % proxies.len()].store.clone();
            let (key, text) = (key.clone(), format!("{seed} {racer}"));
            let late = Duration::from_micros(chance.below(4000));
            tokio::spawn(async move {
                sleep(late).await;
                let bytes = Bytes::from(text.clone());
                (text, put(&store, &key, body(bytes), create_only()).await)
            })
        });
        let racers: Vec<_> = racers.collect();
        go_by(&growing, &chance).await;
        let outcomes = join_all(racers).await.into_iter().map(|racer| racer.unwrap());
        let outcomes: Vec<_> = outcomes.collect();
        let winners: Vec<_> = outcomes.iter().filter(|(_, told)| told.is_ok()).collect();
        assert!(winners.len() <= 1, "seed {seed}: {} winners", winners.len());
        let held = first.get(Level::Strict, &key).await.unwrap().1;
        if let [(text, _)] = winners[..] {
            won += 1;
            assert_eq!(held, *text, "seed {seed}, {cast:?}");
        }
        for (_, told) in &outcomes {
            let is_told = matches!(
                told,
                Ok(_) | Err(Error::PreconditionFailed(_) | Error::ConditionalConflict)
            );
            assert!(is_told || is_unavailable(told), "seed {seed}: {told:?}");
        }
    }
    assert!(won > SEEDS / 2, "in {won} of {SEEDS} the winner was told");
}

/// After the phases, every client reads the last acknowledged write or a newer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_no_acknowledged_write_is_lost_while_the_phases_go_by() {
    for seed in 0..SEEDS {
        let chance = Chance::new(1000 + seed);
        let (growing, first) = with_bucket(4).await;
        let (key, _, cast) = growing.moving_key(&first).await;
        let slow = chance.clone();
        let straggler = growing.nodes.proxy_with(60_000, move |_| match slow.below(8) {
            0 => Fault::Delay(Duration::from_micros(slow.below(2000))),
            1 => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        });
        let (writer, text) = (straggler.clone(), key.clone());
        let writes = tokio::spawn(async move {
            let (mut last, mut newest) = (None, 0);
            for at in 0..60 {
                newest = at;
                if writer.put(Level::Strict, &text, &at.to_string()).await.is_ok() {
                    last = Some(at);
                }
            }
            (last, newest)
        });
        go_by(&growing, &chance).await;
        let (last, newest) = writes.await.unwrap();
        let settled = growing.proxy_by(&growing.settled);
        for proxy in [&first, &settled] {
            let held = proxy.get(Level::Strict, &key).await.unwrap().1;
            let held: i32 = held.parse().unwrap();
            let what = format!("seed {seed}, {cast:?}: {held} after {last:?}");
            assert!(Some(held) >= last && held <= newest, "{what}");
        }
    }
}

/// The ring of the change, which this proxy lacks, has a device that got no fence.
#[tokio::test(start_paused = true)]
async fn m2_versioning_needs_the_ring_of_a_change_in_progress() {
    let (growing, _) = with_bucket(4).await;
    let early = growing.proxy_by(&growing.before);
    early.store.topology().raise_term(Term::of(CHANGE, Phase::Joint));
    assert!(is_unavailable(&early.store.buckets().set_versioning("b", true).await));
    growing.give(&early, &growing.nodes.ring);
    early.store.buckets().set_versioning("b", true).await.unwrap();
    for device in growing.devices() {
        let fences = growing.nodes.memory(device).fences(device).await.unwrap();
        assert_eq!(fences.len(), 1, "{device}");
    }
}
