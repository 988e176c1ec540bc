//! A device is full: no write fails because of it, deletes on it succeed, and it accepts data again
//! once space is free.

use std::time::Duration;

use martlet_tests::checkers::Response;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::{PATIENCE, Probe, keys, until};
use martlet_tests::recorded::load::Load;

const DISK_MIB: u64 = 160;
/// Bytes that the foreign file leaves free; the load fills them.
const LEFT_BYTES: u64 = 3 << 20;
/// So small that a few dozen objects fill it.
const SMALL_DISK_MIB: u64 = 128;
const KEYS: usize = 24;
const SECONDS: Duration = Duration::from_secs(20);

async fn wait_until_full(cluster: &TestCluster, full: u64) {
    let first = &cluster.nodes[..1];
    TestCluster::wait_for_metric(first, "martlet_device_full", SECONDS, |value| value == full)
        .await;
}

/// Number of extents written to the device so far.
async fn taken(cluster: &TestCluster) -> u64 {
    cluster.nodes[0].metric("martlet_device_extent_writes_total").await.unwrap()
}

/// Objects and tombstones of the probe's old keys on the device.
async fn on_first(cluster: &TestCluster) -> (usize, usize) {
    let held = cluster.held(0, "old/").await;
    let deleted = held.values().filter(|entry| entry.value.is_tombstone()).count();
    (held.len() - deleted, deleted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_stops_no_client_and_recovers_by_itself() {
    let test = "a_full_device_stops_no_client_and_recovers_by_itself";
    let plan = ClusterPlan { devices: 1, ..ClusterPlan::in_a_hurry() };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB]).await else { return };
    let mut probe = Probe::over(cluster).await;
    let mut client = probe.client(0);
    let old = keys("old", KEYS);
    probe.put_all(&old, 100_000).await;
    probe.load(Load { apart: true, ..Load::default() });
    probe.watch("quiet", 2.0).await;

    probe.cluster.nodes[0].disk().fill_up_to(LEFT_BYTES);
    wait_until_full(&probe.cluster, 1).await;
    let full = probe.watch("a device is full", 4.0).await;
    full.assert_errors(0);
    assert_eq!(full.degraded, 0, "{full:?}");

    // Deletes reach the full device itself.
    let (there, _) = on_first(&probe.cluster).await;
    assert!(there > KEYS / 4, "the device holds {there} of {KEYS}");
    for key in &old {
        assert_eq!(client.delete(key).await, Response::Done, "{:?}", client.reply);
        assert_eq!(client.header("x-martlet-consistency"), "quorum");
    }
    until("the full device has all deletes", PATIENCE, async || {
        on_first(&probe.cluster).await == (0, there)
    })
    .await;

    probe.cluster.nodes[0].disk().give_room();
    wait_until_full(&probe.cluster, 0).await;
    let before = taken(&probe.cluster).await;
    until("it takes data again", PATIENCE, async || taken(&probe.cluster).await > before + 10)
        .await;
    probe.watch("there is room again", 1.0).await.assert_errors(0);
    probe.finish().await;
}

/// Racing conditional writes behave as usual: a full device among three is no reason to refuse
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_a_full_device_refuses_no_racer() {
    let test = "r7_a_full_device_refuses_no_racer";
    let plan = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::in_a_hurry() };
    let Some(cluster) = plan.start_on_disks(test, &[DISK_MIB]).await else { return };
    let mut probe = Probe::over(cluster).await;
    probe.load(Load::default());
    probe.watch("quiet", 2.0).await;
    probe.cluster.nodes[0].disk().fill_up_to(0);
    probe.watch("a device is full", 5.0).await.assert_errors(5);
    probe.cluster.nodes[0].disk().give_room();
    wait_until_full(&probe.cluster, 0).await;
    probe.finish().await;
}

/// Objects fill the device, and deletes free space by garbage collection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_objects_filled_takes_more_when_some_are_deleted() {
    let test = "a_device_that_objects_filled_takes_more_when_some_are_deleted";
    let plan = ClusterPlan { devices: 1, ..ClusterPlan::in_a_hurry() };
    let Some(cluster) = plan.start_on_disks(test, &[SMALL_DISK_MIB]).await else { return };
    let mut probe = Probe::over(cluster).await;
    let mut client = probe.client(0);
    client.length = 3_000_000;
    // Every write succeeds, also after the device has stopped accepting extents.
    let (mut number, mut last, mut beyond) = (0, 0, 0);
    while beyond < 8 {
        assert_eq!(client.put(&format!("big/{number:03}")).await.1, Response::Done);
        assert_eq!(client.header("x-martlet-consistency"), "quorum");
        let now = taken(&probe.cluster).await;
        beyond = if now == last { beyond + 1 } else { 0 };
        (number, last) = (number + 1, now);
        assert!(number < 120, "the device does not fill up");
    }
    println!("the device is full, and {number} objects are there");
    for number in (0..number).filter(|number| number % 4 > 0) {
        let outcome = client.delete(&format!("big/{number:03}")).await;
        assert_eq!(outcome, Response::Done, "{:?}", client.reply);
    }
    let mut number = 0;
    until("the device takes more", PATIENCE, async || {
        number += 1;
        assert_eq!(client.put(&format!("more/{}", number % 8)).await.1, Response::Done);
        taken(&probe.cluster).await > last
    })
    .await;
    probe.finish().await;
}
