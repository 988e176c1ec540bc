//! A node is away for longer than tombstones are kept: what was deleted meanwhile stays deleted, and
//! once everybody has been heard the tombstones go (rules G1, T1).

use std::time::Duration;

use martlet_protocol::{Clock, SystemClock};
use martlet_tests::checkers::Outcome;
use martlet_tests::cluster::Plan;
use martlet_tests::probe::{PATIENCE, Probe, keys, seconds, until};
use martlet_tests::recorded::tally::Tally;

const KEYS: usize = 40;
/// Tombstones are kept for four seconds.
const RECLAIM_AGE: (&str, &str) = ("MARTLET_TEST_RECLAIM_AGE_MS", "4000");
const RECLAIM_AGE_MS: u64 = 4000;

/// A node that was away for longer than the reclaim age, while every key was deleted.
async fn away_for_long() -> (Probe, Vec<String>, [Tally; 3]) {
    let mut plan = Plan::in_a_hurry();
    plan.environment.push(RECLAIM_AGE);
    let mut probe = Probe::over(plan.start().await).await;
    let all = keys("gone", KEYS);
    probe.put_all(&all, 10_000).await;
    probe.light_load();
    let quiet = probe.watch("quiet", 2.0).await;
    let there = probe.cluster.held(1, "gone/").await.len();
    probe.cluster.nodes[1].kill();
    let mut client = probe.client(0);
    for key in &all {
        until(key, PATIENCE, async || client.delete(key).await == Outcome::Done).await;
    }
    let away = probe.watch("a node is away for long", 6.0).await;
    // Silence blocks: the others know what they deleted for as long as one has not been heard.
    let mut tombstones = 0;
    for node in [0, 2, 3] {
        let held = probe.cluster.held(node, "gone/").await;
        assert!(held.values().all(|entry| entry.value.is_tombstone()));
        tombstones += held.len();
    }
    assert!(tombstones >= there, "{tombstones} tombstones for {there} objects that it has");
    probe.cluster.nodes[1].start().await;
    let back = probe.watch("it is back", 4.0).await;
    (probe, all, [quiet, away, back])
}

async fn assert_gone(probe: &Probe, all: &[String]) {
    for proxy in 0..3 {
        let mut client = probe.client(proxy);
        for key in all {
            assert_eq!(client.get(key).await, Outcome::Read(None), "{key} is back");
        }
        assert_eq!(client.list_all("gone/").await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_t1_a_node_is_away_for_longer_than_the_reclaim_age() {
    let (mut probe, all, met) = away_for_long().await;
    for (met, percent) in met.iter().zip([5, 10, 10]) {
        met.assert_errors(percent);
    }
    assert_gone(&probe, &all).await;
    seconds(3.0).await;
    assert_gone(&probe, &all).await;
    probe.finish().await;
}

/// Waits until all that nodes hold of the keys has come of age, by its order. A device that was founded
/// too late to get its votes with the others gets them from these, and promises nothing below a minute
/// from then: what is written in the first minute is stamped behind that (rule G2).
async fn until_of_age(probe: &Probe) {
    let mut newest_ms = 0;
    for node in 0..4 {
        let held = probe.cluster.held(node, "gone/").await;
        let orders = held.values().map(|entry| entry.order.time_ms());
        newest_ms = orders.fold(newest_ms, u64::max);
    }
    let wait_ms = (newest_ms + RECLAIM_AGE_MS).saturating_sub(SystemClock.now_ms());
    assert!(wait_ms < 70_000, "something is stamped {wait_ms} ms ahead");
    println!("the newest tombstone is of age in {wait_ms} ms");
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_tombstones_go_once_everybody_has_been_heard() {
    let (mut probe, all, _) = away_for_long().await;
    until_of_age(&probe).await;
    until("no tombstone is left", PATIENCE, async || {
        let mut left = 0;
        for node in 0..4 {
            left += probe.cluster.held(node, "gone/").await.len();
        }
        left == 0
    })
    .await;
    assert_gone(&probe, &all).await;
    probe.finish().await;
}
