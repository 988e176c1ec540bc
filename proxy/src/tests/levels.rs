//! Consistency levels, over nodes that are slow, silent, partitioned or without a vote.

use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{
    AchievedLevel, BackendExt, BucketId, DeviceId, ErrorKind, Level, RegisterKey,
};
use tokio::time::{Instant, sleep};

use super::nodes::{Fortune, Nodes};
use crate::{Error, Result};

const OUT: [Fortune; 4] = [Fortune::Refused, Fortune::Silent, Fortune::Mute, Fortune::Lost];

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

fn is_absent<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::NoSuchKey))
}

#[tokio::test(start_paused = true)]
async fn r3_a_write_does_not_wait_for_the_slow_third_which_gets_it_all_the_same() {
    let nodes = Nodes::new(4);
    let (proxy, primaries, handoffs) = nodes.with_bucket("key").await;
    let register = proxy.register("key").await;
    proxy.fares(&primaries[2..], Fortune::Late(Duration::from_secs(3)));
    let began = Instant::now();
    let (given, written) = proxy.put(Level::Available, "key", "x").await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(20), "{:?}", began.elapsed());
    assert_eq!(given, AchievedLevel::Quorum);
    assert_eq!(nodes.held(primaries[2], &register), None);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(nodes.held(primaries[2], &register), Some(written.stamp));
    assert!(nodes.hinted(handoffs[0]).await.is_empty(), "a quorum needs no hint");
}

#[tokio::test(start_paused = true)]
async fn r5_a_read_does_not_wait_for_a_silent_replica() {
    let nodes = Nodes::new(3);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "x").await.unwrap();
    for silent in &primaries {
        for fortune in OUT {
            proxy.heal();
            proxy.fares(&[*silent], fortune);
            // Each primary is read first once.
            for _ in 0..3 {
                let began = Instant::now();
                let read = proxy.get(Level::Strict, "key").await.unwrap();
                assert_eq!(read, (AchievedLevel::Quorum, "x".into()));
                assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r5_a_read_of_agreeing_replicas_queries_two_and_one_of_them_for_bytes() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let calls = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = calls.clone();
    let counting = nodes.proxy_with(60_000, move |call| {
        seen.lock().push(call.op);
        martlet_protocol::testing::Fault::None
    });
    counting.store.bucket("b").await.unwrap();
    for _ in 0..6 {
        calls.lock().clear();
        assert_eq!(counting.get(Level::Available, "key").await.unwrap().1, "x");
        assert_eq!(*calls.lock(), [CallKind::Read, CallKind::Read]);
    }
}

#[tokio::test(start_paused = true)]
async fn a1_short_of_a_quorum_a_write_is_handed_off_to_other_nodes_and_can_be_read() {
    for fortune in OUT {
        for out in 2..=3 {
            let what = format!("{out} primaries {fortune:?}");
            let nodes = Nodes::new(6);
            let (proxy, primaries, handoffs) = nodes.with_bucket("key").await;
            proxy.put(Level::Available, "key", "before").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            proxy.fares(&primaries[..out], fortune);
            let refused = proxy.put(Level::Strict, "key", "strict").await;
            assert!(is_unavailable(&refused), "{what}: {refused:?}");
            assert!(is_unavailable(&proxy.get(Level::Strict, "key").await), "{what}");
            let (given, written) = proxy.put(Level::Available, "key", "after").await.unwrap();
            assert_eq!(given, AchievedLevel::Degraded, "{what}");
            let mut kept = 0;
            for handoff in &handoffs {
                let hints = nodes.hinted(*handoff).await;
                kept += hints.iter().filter(|(_, order)| *order == written.stamp).count();
            }
            let needed = if out == 2 { 1 } else { 2 };
            assert_eq!(kept, needed, "{what}: with what is left of the primaries, W nodes");
            // Reads choose replicas in turn.
            for _ in 0..3 {
                let read = proxy.get(Level::Available, "key").await.unwrap();
                assert_eq!(read, (AchievedLevel::Degraded, "after".into()), "{what}");
            }
            proxy.heal();
            nodes.deliver().await;
            let read = proxy.get(Level::Strict, "key").await.unwrap();
            assert_eq!(read, (AchievedLevel::Quorum, "after".into()), "{what}");
        }
    }
}

/// The handoff has a disk that was put back, which will begin anew, or one that syncs.
#[tokio::test(start_paused = true)]
async fn a1_a_handoff_that_may_not_use_its_votes_keeps_no_hint_and_the_next_one_does() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, handoffs) = nodes.with_bucket("key").await;
    let refused = handoffs[0];
    nodes.memory(refused).set_voting(refused, false).await.unwrap();
    proxy.fares(&primaries[..2], Fortune::Refused);
    let (given, written) = proxy.put(Level::Available, "key", "x").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    let hint = (proxy.register("key").await, written.stamp);
    let mut keepers = Vec::new();
    for handoff in handoffs {
        if nodes.hinted(handoff).await.contains(&hint) {
            keepers.push(handoff);
        }
    }
    assert!(keepers.len() == 1 && keepers[0] != refused, "{keepers:?}, not {refused}");
    assert_eq!(proxy.get(Level::Available, "key").await.unwrap(), (given, "x".into()));
}

#[tokio::test(start_paused = true)]
async fn a2_devices_of_one_node_count_once() {
    let nodes = Nodes::of(5, 2);
    for at in 0..20 {
        let key = format!("{at}");
        let proxy = nodes.proxy();
        if at == 0 {
            super::harness::create(&proxy.store, "b").await;
        }
        let register = proxy.register(&key).await;
        let partition = nodes.ring.partition(register.placement());
        let primaries: Vec<_> = nodes.ring.primaries(partition).collect();
        proxy.fares(&primaries[1..], Fortune::Refused);
        let (given, written) = proxy.put(Level::Available, &key, "x").await.unwrap();
        assert_eq!(given, AchievedLevel::Degraded);
        let mut holders = vec![nodes.node_of(primaries[0])];
        for device in nodes.ring.devices() {
            let hints = nodes.hinted(device.id).await;
            if hints.contains(&(register.clone(), written.stamp)) {
                holders.push(nodes.node_of(device.id));
            }
        }
        let count = holders.len();
        holders.sort_unstable();
        holders.dedup();
        assert_eq!((holders.len(), count), (2, 2), "key {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn g1_a_replica_without_a_vote_counts_for_nothing() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let mute = |device, voting| {
        let memory = nodes.memory(device);
        async move { memory.set_voting(device, voting).await.unwrap() }
    };
    mute(primaries[0], false).await;
    assert_eq!(proxy.put(Level::Strict, "key", "one").await.unwrap().0, AchievedLevel::Quorum);
    mute(primaries[1], false).await;
    assert!(is_unavailable(&proxy.put(Level::Strict, "key", "two").await));
    assert!(is_unavailable(&proxy.get(Level::Strict, "key").await));
    let (given, _) = proxy.put(Level::Available, "key", "three").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    assert_eq!(proxy.get(Level::Available, "key").await.unwrap(), (given, "three".into()));
}

#[tokio::test(start_paused = true)]
async fn r5_what_was_read_once_is_read_from_then_on_by_everyone() {
    for only in 0..3 {
        for deleted in [false, true] {
            let nodes = Nodes::new(3);
            let (proxy, primaries, _) = nodes.with_bucket("key").await;
            proxy.put(Level::Available, "key", "old").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            let cut_off: Vec<_> =
                primaries.iter().copied().filter(|device| *device != primaries[only]).collect();
            // The write reaches one replica, and its proxy dies.
            let dying = nodes.proxy();
            // The proxy has read the present entry, so its stamp is higher.
            dying.get(Level::Strict, "key").await.unwrap();
            dying.fares(&cut_off, Fortune::Refused);
            let outcome = if deleted {
                dying.delete(Level::Strict, "key").await.map(drop)
            } else {
                dying.put(Level::Strict, "key", "new").await.map(drop)
            };
            assert!(is_unavailable(&outcome));
            let mut last = None;
            for turn in 0..12 {
                proxy.heal();
                proxy.fares(&primaries[turn % 3..][..1], OUT[turn % 4]);
                let read = proxy.get(Level::Strict, "key").await;
                let text = match read {
                    Ok((_, text)) => text,
                    Err(Error::NoSuchKey) => "gone".into(),
                    Err(error) => panic!("turn {turn}: {error}"),
                };
                if last.as_deref().is_some_and(|last| last != "old") {
                    assert_eq!(Some(&text), last.as_ref(), "turn {turn} of replica {only}");
                }
                last = Some(text);
            }
            let ends = if deleted { "gone" } else { "new" };
            assert_eq!(last.as_deref(), Some(ends), "each replica was queried");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r5_a_deleted_object_that_was_not_found_once_does_not_come_back() {
    let nodes = Nodes::new(3);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let [first, never, both] = primaries[..] else { panic!("a register has three primaries") };
    proxy.fares(&[never], Fortune::Refused);
    proxy.put(Level::Strict, "key", "old").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let dying = nodes.proxy();
    dying.get(Level::Strict, "key").await.unwrap();
    dying.fares(&[never, both], Fortune::Refused);
    assert!(is_unavailable(&dying.delete(Level::Strict, "key").await));
    let register = proxy.register("key").await;
    let held = [first, never, both].map(|device| nodes.held(device, &register));
    assert!(held[0] > held[2] && held[1].is_none() && held[2].is_some(), "{held:?}");
    // One replica has the tombstone, another has nothing.
    proxy.heal();
    proxy.fares(&[both], Fortune::Refused);
    assert!(is_absent(&proxy.get(Level::Strict, "key").await));
    proxy.heal();
    for fortune in OUT {
        proxy.fares(&[first], fortune);
        let read = proxy.get(Level::Strict, "key").await;
        assert!(is_absent(&read), "{fortune:?}: {read:?}");
    }
    let create = super::conditional::create_only();
    let body = super::harness::body("new".into());
    super::harness::put(&proxy.store, "key", body, create).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r5_what_all_lack_or_all_deleted_takes_one_round() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "deleted", "x").await.unwrap();
    proxy.delete(Level::Available, "deleted").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let registers = [proxy.register("never").await, proxy.register("deleted").await];
    let calls = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = calls.clone();
    let counting = nodes.proxy_with(60_000, move |call| {
        if call.key.is_some_and(|key| registers.contains(key)) {
            seen.lock().push(call.op);
        }
        martlet_protocol::testing::Fault::None
    });
    for key in ["never", "deleted"].repeat(3) {
        calls.lock().clear();
        assert!(is_absent(&counting.get(Level::Available, key).await));
        assert_eq!(*calls.lock(), [CallKind::Read, CallKind::Read], "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_404_on_one_replicas_word() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, handoffs) = nodes.with_bucket("key").await;
    let session = proxy.store.session(crate::ConsistencyOptions::default());
    let conditions = crate::ReadConditions::default();
    let absent = session.head("b", "key", crate::Selection::Whole, &conditions).await;
    assert!(is_absent(&absent));
    assert_eq!(session.given(), AchievedLevel::Quorum);
    proxy.put(Level::Available, "key", "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    // Only a replica that has never held the entry is up.
    let register = proxy.register("other").await;
    let partition = nodes.ring.partition(register.placement());
    let others: Vec<_> = nodes.ring.primaries(partition).collect();
    proxy.fares(&others[1..], Fortune::Silent);
    let alone = proxy.get(Level::Available, "other").await;
    assert!(is_unavailable(&alone), "handoffs that keep nothing know nothing");
    assert!(is_unavailable(&proxy.get(Level::Strict, "other").await));
    let all_but_one: Vec<_> = nodes.ring.devices().iter().map(|device| device.id).collect();
    let all_but_one: Vec<_> = all_but_one.into_iter().filter(|id| *id != others[0]).collect();
    proxy.fares(&all_but_one, Fortune::Refused);
    for level in [Level::Available, Level::Any, Level::Strict] {
        assert!(is_unavailable(&proxy.get(level, "other").await), "one replica alone, {level}");
    }
    proxy.heal();
    proxy.fares(&primaries, Fortune::Refused);
    assert!(handoffs.len() >= 3);
    for level in [Level::Available, Level::Any] {
        assert!(is_unavailable(&proxy.get(level, "key").await), "handoffs never held it");
    }
}

#[tokio::test(start_paused = true)]
async fn any_is_the_first_replica_that_has_it_and_a_quorum_where_it_has_not() {
    let nodes = Nodes::new(3);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.fares(&primaries[2..], Fortune::Refused);
    proxy.put(Level::Any, "key", "x").await.unwrap();
    proxy.heal();
    for _ in 0..6 {
        let (_, text) = proxy.get(Level::Any, "key").await.unwrap();
        assert_eq!(text, "x", "one replica has never seen it");
    }
    proxy.fares(&primaries[1..], Fortune::Silent);
    assert_eq!(proxy.get(Level::Any, "key").await.unwrap(), (AchievedLevel::Any, "x".into()));
}

#[tokio::test(start_paused = true)]
async fn a_delete_short_of_a_quorum_is_kept_and_delivered() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "x").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    proxy.fares(&primaries[..2], Fortune::Silent);
    let (given, stamp) = proxy.delete(Level::Available, "key").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    assert!(stamp.is_some());
    assert!(is_absent(&proxy.get(Level::Available, "key").await));
    proxy.heal();
    nodes.deliver().await;
    assert!(is_absent(&proxy.get(Level::Strict, "key").await));
}

#[tokio::test(start_paused = true)]
async fn a_buckets_level_applies_to_requests_without_a_level() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.store.buckets().set_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(proxy.store.bucket("b").await.unwrap().consistency, Level::Strict);
    proxy.fares(&primaries[..2], Fortune::Refused);
    let plain = |text: &'static str| {
        super::harness::put(
            &proxy.store,
            "key",
            super::harness::body(text.into()),
            crate::WriteConditions::default(),
        )
    };
    assert!(is_unavailable(&plain("x").await));
    let lowered = proxy.put(Level::Available, "key", "y").await.unwrap();
    assert_eq!(lowered.0, AchievedLevel::Degraded);
    proxy.heal();
    nodes.deliver().await;
    plain("z").await.unwrap();
    assert_eq!(proxy.get(Level::Strict, "key").await.unwrap().1, "z");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_found_short_of_a_quorum_is_looked_up_again_for_strict_requests() {
    let nodes = Nodes::new(6);
    nodes.with_bucket("key").await;
    sleep(Duration::from_secs(1)).await;
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "b");
    let holders: Vec<_> = nodes.ring.primaries(nodes.ring.partition(root.placement())).collect();
    let fresh = nodes.proxy();
    fresh.fares(&holders[..2], Fortune::Refused);
    let session = fresh.store.session(crate::ConsistencyOptions::default());
    session.bucket("b").await.unwrap();
    assert_eq!(session.given(), AchievedLevel::Degraded);
    assert!(is_unavailable(&fresh.put(Level::Strict, "key", "x").await));
    fresh.heal();
    assert_eq!(fresh.put(Level::Strict, "key", "x").await.unwrap().0, AchievedLevel::Quorum);
}

#[tokio::test(start_paused = true)]
async fn r4_writers_that_meet_through_late_clocks_never_lose_what_was_acknowledged() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    let late = nodes.late_proxy(5000);
    late.store.bucket("b").await.unwrap();
    let mut failed = 0;
    for at in 0..40u32 {
        let writer = if at % 2 == 0 { &proxy } else { &late };
        writer.heal();
        writer.fares(&[DeviceId(at % 3 + 1)], OUT[usize::try_from(at).unwrap() % 4]);
        let text = format!("{at}");
        let acknowledged = writer.put(Level::Strict, "key", &text).await.is_ok();
        failed += u32::from(!acknowledged);
        let read = proxy.get(Level::Strict, "key").await.unwrap().1;
        assert!(!acknowledged || read == text, "step {at}: {read}");
    }
    assert!(failed < 20, "{failed} of 40 failed");
}

#[tokio::test(start_paused = true)]
async fn rings_that_change_are_taken_by_the_next_operation() {
    let nodes = Nodes::new(6);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "x").await.unwrap();
    let cluster = proxy.store.topology().cluster();
    let other = Nodes::new(3);
    let moved = other.proxy();
    proxy.store.topology().set_cluster((*moved.store.topology().cluster()).clone());
    let absent = proxy.get(Level::Available, "key").await;
    assert!(matches!(absent, Err(Error::NoSuchBucket)), "these nodes are others: {absent:?}");
    proxy.store.topology().set_cluster((*cluster).clone());
    assert_eq!(proxy.get(Level::Strict, "key").await.unwrap().1, "x");
}
