//! A storage node is killed under load, stays away, and comes back.

use std::time::{Duration, Instant};

use martlet_protocol::consistency::AchievedLevel;
use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::recorded::load::Load;

use super::{recorder, seconds, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_r5_a_node_dies_under_load_and_returns() {
    let (mut chance, mut cluster) = (chance(), ClusterPlan::default().start().await);
    let recorder = recorder(&cluster).await;
    let load = Load::default().start(&recorder, &cluster, &mut chance);
    seconds(1.5).await;
    let (killed, from) = (Instant::now(), recorder.count());
    cluster.nodes[1].kill();
    // Two of three replicas are a quorum: every proxy serves writes.
    for proxy in 0..3 {
        let mut client = recorder.client(&cluster, proxy);
        for number in 0..5 {
            let key = format!("after/{proxy}-{number}");
            until("a write without the node", Duration::from_secs(5), async || {
                client.put(&key).await.1 == Response::Done
            })
            .await;
        }
    }
    seconds(1.0).await;
    recorder.tally("a node is dead", from, killed.elapsed()).assert_errors(10);
    cluster.nodes[1].start().await;
    seconds(2.0).await;
    load.stop().await;
    let history = recorder.history();
    let degraded = history.operations.iter().filter(|it| it.given != AchievedLevel::Quorum).count();
    println!("{degraded} of {} replies were degraded", history.operations.len());
    recorder.finish(&cluster).await;
}
