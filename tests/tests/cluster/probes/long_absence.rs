//! A node is away for longer than tombstones are kept. Deleted keys stay deleted, and tombstones
//! are collected once every node has answered (rules G1, T1).

use martlet_tests::checkers::Response;
use martlet_tests::probe::{PATIENCE, Probe, keys, seconds, until};
use martlet_tests::recorded::tally::PeriodCounts;

use super::collected::{self, until_collected};

const KEYS: usize = 40;

/// Kills a node and deletes every key, and restarts the node after more than the reclaim age.
async fn away_for_long() -> (Probe, Vec<String>, [PeriodCounts; 3]) {
    let mut probe = Probe::over(collected::plan().start().await).await;
    let all = keys("gone", KEYS);
    probe.put_all(&all, 10_000).await;
    probe.light_load();
    let quiet = probe.watch("quiet", 2.0).await;
    let there = probe.cluster.held(1, "gone/").await.len();
    probe.cluster.nodes[1].kill();
    let mut client = probe.client(0);
    for key in &all {
        until(key, PATIENCE, async || client.delete(key).await == Response::Done).await;
    }
    let away = probe.watch("a node is away for long", 6.0).await;
    // A silent node blocks collection: the other nodes keep their tombstones until it answers.
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
            assert_eq!(client.get(key).await, Response::Read(None), "{key} is back");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_tombstones_go_after_every_device_replied() {
    let (mut probe, all, _) = away_for_long().await;
    until_collected(&probe, "gone/").await;
    assert_gone(&probe, &all).await;
    probe.finish().await;
}
