//! Three packets in ten are lost: on the cables of one node, which no request then needs, and on
//! all cables of one proxy, whose clients become slow.

use std::time::{Duration, Instant};

use martlet_tests::checkers::Response;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::{Probe, seconds};
use martlet_tests::recorded::RecordedClient;

const PERCENT: u8 = 30;
const PROXIES: [&str; 3] = ["p1", "p2", "p3"];
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn lose_all(cluster: &TestCluster, ones: &[&str], others: &[&str]) {
    for one in ones {
        for other in others {
            if one != other {
                cluster.network().lose(one, other, PERCENT);
            }
        }
    }
}

/// Writes and reads keys of its own in turn for a time. Returns the number of successful calls and
/// the number of failures.
async fn try_out(name: usize, client: &mut RecordedClient, until: Instant) -> (usize, usize) {
    let (mut done, mut failed) = (0, 0);
    for number in 0.. {
        if Instant::now() > until {
            break;
        }
        let key = format!("lossy/{name}/{}", number % 10);
        for outcome in [client.put(&key).await.1, client.get(&key).await] {
            let is_done = outcome != Response::Unknown;
            done += usize::from(is_done);
            failed += usize::from(!is_done);
        }
    }
    (done, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a_node_loses_three_packets_in_ten() {
    let test = "r5_a_node_loses_three_packets_in_ten";
    let Some(cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let mut probe = Probe::over(cluster).await;
    probe.light_load();
    probe.watch("quiet", 1.5).await;
    lose_all(&probe.cluster, &["n1"], &PROXIES);
    lose_all(&probe.cluster, &["n1"], &NODES[1..]);
    probe.watch("a node loses packets", 5.0).await.assert_errors(5);
    probe.cluster.network().heal();
    seconds(2.0).await;
    probe.watch("healed", 1.0).await.assert_errors(5);
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a_proxy_loses_three_packets_in_ten_to_every_node() {
    let test = "r5_a_proxy_loses_three_packets_in_ten_to_every_node";
    let Some(cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let mut probe = Probe::over(cluster).await;
    probe.light_load();
    probe.watch("quiet", 1.0).await.assert_errors(5);
    lose_all(&probe.cluster, &["p1"], &NODES);
    let mut own: Vec<_> = (0..6).map(|_| probe.client(0)).collect();
    for client in &mut own {
        client.is_loyal = true;
    }
    let until = Instant::now() + Duration::from_secs(8);
    let asked = own.iter_mut().enumerate().map(|(name, client)| try_out(name, client, until));
    let (lossy, counts) =
        tokio::join!(probe.watch("a proxy loses packets", 8.0), futures::future::join_all(asked));
    println!("its own clients: (done, failed) {counts:?}");
    lossy.assert_errors(10);
    let done: usize = counts.iter().map(|(done, _)| done).sum();
    let failed: usize = counts.iter().map(|(_, failed)| failed).sum();
    assert!(done >= 20 && failed * 5 <= done, "{counts:?}");
    probe.cluster.network().heal();
    seconds(2.0).await;
    probe.watch("healed", 1.0).await.assert_errors(5);
    probe.finish().await;
}
