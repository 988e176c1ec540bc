//! Collection of tombstones within a probe: an age that a test can wait for, and the wait itself.

use std::time::Duration;

use martlet_protocol::{Clock, SystemClock};
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::{PATIENCE, Probe, until};

const RECLAIM_AGE: (&str, &str) = ("MARTLET_TEST_RECLAIM_AGE_MS", "4000");
const RECLAIM_AGE_MS: u64 = 4000;

/// A cluster whose workers collect tombstones after four seconds.
pub(super) fn plan() -> ClusterPlan {
    let mut plan = ClusterPlan::in_a_hurry();
    plan.environment.push(RECLAIM_AGE);
    plan
}

/// Waits until the nodes hold no tombstone of a key with this prefix. All nodes must run.
pub(super) async fn until_collected(probe: &Probe, prefix: &str) {
    until_of_age(probe, prefix).await;
    until("no tombstone is left", PATIENCE, async || {
        let mut left = 0;
        for node in 0..probe.cluster.nodes.len() {
            let held = probe.cluster.held(node, prefix).await;
            left += held.values().filter(|entry| entry.value.is_tombstone()).count();
        }
        left == 0
    })
    .await;
}

/// Waits until all entries of these keys are past the reclaim age, by their order. A device that
/// was founded too late to get its votes with the others gets them from the others, and promises
/// nothing below a minute from then: writes of the first minute are stamped behind that promise
/// (rule G2).
async fn until_of_age(probe: &Probe, prefix: &str) {
    let mut newest_ms = 0;
    for node in 0..probe.cluster.nodes.len() {
        let held = probe.cluster.held(node, prefix).await;
        let orders = held.values().map(|entry| entry.order.time_ms());
        newest_ms = orders.fold(newest_ms, u64::max);
    }
    let wait_ms = (newest_ms + RECLAIM_AGE_MS).saturating_sub(SystemClock.now_ms());
    assert!(wait_ms < 70_000, "an entry is stamped {wait_ms} ms ahead");
    println!("the newest entry is of age in {wait_ms} ms");
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
}
