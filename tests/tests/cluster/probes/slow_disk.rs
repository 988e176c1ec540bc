//! The disk of one node is slow: it accepts few writes per second, and other nodes carry the load.

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::{Probe, seconds};
use martlet_tests::recorded::load::Load;
use martlet_tests::throttle::Throttle;

const DISK_MIB: u64 = 256;
/// Less than two clients need, and far less than nine.
const WRITES_PER_SECOND: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_delays_clients_only_briefly() {
    let test = "a_slow_disk_delays_clients_only_briefly";
    let Some(cluster) = ClusterPlan::default().start_on_disks(test, &[DISK_MIB]).await else {
        return;
    };
    let mut probe = Probe::over(cluster).await;
    probe.load(Load { apart: true, ..Load::default() });
    let quiet = probe.watch("quiet", 2.0).await;
    let node = &probe.cluster.nodes[0];
    let Some(slow) = Throttle::new(test, node.disk(), node.pid(), WRITES_PER_SECOND) else {
        return;
    };
    let slowed = probe.watch("a disk is slow", 6.0).await;
    slowed.assert_errors(2).assert_pace(0.2, &quiet);
    drop(slow);
    seconds(1.0).await;
    probe.watch("it is fast again", 1.0).await.assert_errors(2);
    probe.finish().await;
}
