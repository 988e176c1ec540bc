//! Listings with nodes that are out (rule L1), and reads after a token (rule A3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{AchievedLevel, DeviceId, ErrorKind, Level, Stamp};
use tokio::time::{Instant, sleep};

use super::nodes::{Fortune, Nodes, Proxy};
use crate::{Error, ReadAfter, Result};

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

async fn filled(nodes: &Nodes, keys: usize) -> (Proxy, Vec<String>) {
    let proxy = nodes.proxy();
    super::harness::create(&proxy.store, "b").await;
    let keys: Vec<_> = (0..keys).map(|at| format!("{at:04}")).collect();
    for key in &keys {
        proxy.put(Level::Available, key, "x").await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    (proxy, keys)
}

#[tokio::test(start_paused = true)]
async fn l1_a_node_that_is_out_fails_no_listing() {
    let nodes = Nodes::new(4);
    let (proxy, keys) = filled(&nodes, 300).await;
    for device in (1..=4).map(DeviceId) {
        for fortune in [Fortune::Refused, Fortune::Silent, Fortune::Lost] {
            proxy.heal();
            proxy.fares(&[device], fortune);
            let began = Instant::now();
            let listed = proxy.list(Level::Strict, None).await.unwrap();
            assert_eq!(listed, (AchievedLevel::Quorum, keys.clone()), "{device} {fortune:?}");
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l1_a_node_that_fails_in_the_middle_is_left_out() {
    let nodes = Nodes::new(3);
    let (_, keys) = filled(&nodes, 900).await;
    for failing in [1, 2, 3].map(DeviceId) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let proxy = nodes.proxy_with(60_000, move |call| {
            let is_list = call.op == CallKind::ListRows && call.device == failing;
            if is_list && counted.fetch_add(1, Ordering::SeqCst) > 0 {
                return Fault::Refuse(ErrorKind::Unavailable);
            }
            Fault::None
        });
        let list = |after: Option<String>| {
            proxy.store.list("b", crate::ListObjects { limit: 70, after, ..Default::default() })
        };
        let mut listed: Vec<String> = Vec::new();
        loop {
            let page = list(listed.last().cloned()).await.unwrap();
            listed.extend(page.objects.into_iter().map(|(key, _)| key));
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!(listed, keys);
        assert!(calls.load(Ordering::SeqCst) > 1);
    }
}

#[tokio::test(start_paused = true)]
async fn l1_short_of_quorums_a_listing_merges_what_is_kept_for_others() {
    let nodes = Nodes::new(6);
    let (proxy, mut keys) = filled(&nodes, 40).await;
    let register = proxy.register("new-0000").await;
    let primaries = nodes.ring.primaries(nodes.ring.partition(register.placement()));
    let out: Vec<_> = primaries.take(2).collect();
    proxy.fares(&out, Fortune::Silent);
    let mut degraded = 0;
    for at in 0..40 {
        let key = format!("new-{at:04}");
        degraded += usize::from(
            proxy.put(Level::Available, &key, "x").await.unwrap().0 == AchievedLevel::Degraded,
        );
        keys.push(key);
    }
    assert!(degraded > 0, "some shards have lost two primaries");
    for key in keys.drain(5..10) {
        proxy.delete(Level::Available, &key).await.unwrap();
    }
    assert!(is_unavailable(&proxy.list(Level::Strict, None).await));
    let (given, listed) = proxy.list(Level::Available, None).await.unwrap();
    assert_eq!((given, listed), (AchievedLevel::Degraded, keys.clone()));
    proxy.heal();
    nodes.deliver().await;
    assert_eq!(proxy.list(Level::Strict, None).await.unwrap(), (AchievedLevel::Quorum, keys));
}

#[tokio::test(start_paused = true)]
async fn l1_no_listing_on_one_nodes_word() {
    let nodes = Nodes::new(3);
    let (proxy, keys) = filled(&nodes, 10).await;
    proxy.fares(&[DeviceId(2), DeviceId(3)], Fortune::Refused);
    for level in [Level::Available, Level::Strict] {
        assert!(is_unavailable(&proxy.list(level, None).await), "{level}");
    }
    let any = proxy.list(Level::Any, None).await;
    assert!(is_unavailable(&any) || any.unwrap() == (AchievedLevel::Any, keys.clone()));
    for fortune in [Fortune::Refused, Fortune::Silent] {
        proxy.fares(&[1, 2, 3].map(DeviceId), fortune);
        for level in [Level::Available, Level::Strict, Level::Any] {
            let listed = proxy.list(level, None).await;
            assert!(is_unavailable(&listed), "nobody answers: {level} {listed:?}");
        }
    }
    proxy.heal();
    assert_eq!(proxy.list(Level::Any, None).await.unwrap(), (AchievedLevel::Any, keys));
}

#[tokio::test(start_paused = true)]
async fn l1_a_replica_that_missed_a_delete_brings_nothing_back() {
    let nodes = Nodes::new(3);
    let (proxy, mut keys) = filled(&nodes, 30).await;
    for (at, stale) in [1, 2, 3].map(DeviceId).into_iter().enumerate() {
        proxy.fares(&[stale], Fortune::Refused);
        let gone = keys.remove(at * 3);
        proxy.delete(Level::Strict, &gone).await.unwrap();
        proxy.heal();
    }
    for out in [1, 2, 3].map(DeviceId) {
        proxy.heal();
        proxy.fares(&[out], Fortune::Refused);
        let listed = proxy.list(Level::Strict, None).await.unwrap().1;
        assert_eq!(listed, keys, "{out} out");
    }
}

#[tokio::test(start_paused = true)]
async fn a3_a_quorum_token_is_met_by_quorum_reads_and_by_nothing_older() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "old").await.unwrap();
    // The last primary misses the new write.
    proxy.fares(&primaries[2..], Fortune::Refused);
    let (given, written) = proxy.put(Level::Available, "key", "new").await.unwrap();
    proxy.heal();
    let token = Some(ReadAfter::new("b", "key", written.stamp, given));
    for level in [Level::Available, Level::Strict, Level::Any] {
        for _ in 0..3 {
            assert_eq!(proxy.get_after(level, "key", token).await.unwrap().1, "new", "{level}");
        }
    }
    proxy.fares(&primaries[..2], Fortune::Refused);
    let stale = proxy.get_after(Level::Available, "key", token).await;
    let fresh = matches!(&stale, Ok((_, text)) if text == "new");
    assert!(fresh || is_unavailable(&stale), "{stale:?}");
    proxy.heal();
    let future = Stamp { time: written.stamp.time + 1, ..written.stamp };
    let future = Some(ReadAfter::new("b", "key", future, AchievedLevel::Quorum));
    assert!(is_unavailable(&proxy.get_after(Level::Available, "key", future).await));
    for level in [Level::Available, Level::Strict, Level::Any] {
        assert_eq!(proxy.list(level, token).await.unwrap().1, ["key"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a3_a_degraded_token_is_met_by_its_order_or_by_all_primaries_without_hints() {
    let nodes = Nodes::new(6);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "old").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    proxy.fares(&primaries, Fortune::Refused);
    let (given, written) = proxy.put(Level::Available, "key", "new").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    let token = Some(ReadAfter::new("b", "key", written.stamp, given));
    let other = nodes.proxy();
    other.store.bucket("b").await.unwrap();
    // A quorum of primaries agrees on the old write; the token proves a newer one.
    assert_eq!(other.get(Level::Available, "key").await.unwrap().1, "old");
    let read = other.get_after(Level::Available, "key", token).await.unwrap();
    assert_eq!(read, (AchievedLevel::Degraded, "new".into()));
    assert!(is_unavailable(&other.get_after(Level::Strict, "key", token).await));
    assert_eq!(
        other.list(Level::Available, token).await.unwrap(),
        (AchievedLevel::Degraded, vec!["key".into()])
    );
    let handoffs: Vec<_> = nodes.ring.devices().iter().map(|device| device.id).collect();
    let handoffs: Vec<_> = handoffs.into_iter().filter(|id| !primaries.contains(id)).collect();
    other.fares(&handoffs, Fortune::Silent);
    assert!(is_unavailable(&other.get_after(Level::Available, "key", token).await));
    assert!(is_unavailable(&other.list(Level::Available, token).await));
    other.heal();
    nodes.deliver().await;
    let read = other.get_after(Level::Strict, "key", token).await.unwrap();
    assert_eq!(read, (AchievedLevel::Quorum, "new".into()));
    // No write has this token's stamp. All primaries answer and no hint exists, so the read is
    // exact.
    let nobodys = Stamp { time: written.stamp.time + 1, ..written.stamp };
    let nobodys = Some(ReadAfter::new("b", "key", nobodys, AchievedLevel::Degraded));
    let read = other.get_after(Level::Available, "key", nobodys).await.unwrap();
    assert_eq!(
        read,
        (AchievedLevel::Quorum, "new".into()),
        "all primaries answer, and nothing is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a3_a_token_of_another_key_is_refused() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    proxy.put(Level::Available, "key", "x").await.unwrap();
    let token = Some(ReadAfter::new("b", "other", Stamp::ZERO, AchievedLevel::Quorum));
    let refused = proxy.get_after(Level::Available, "key", token).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
}
