//! A proxy is cut off from one, two and all nodes, both ways and one way in either direction.
//! Replies to its own clients are true, and clients of other proxies are not affected.

use std::time::Duration;

use martlet_tests::checkers::Response;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::{PATIENCE, Probe, until};
use martlet_tests::recorded::RecordedClient;

/// Longer than the detection of a silent node, shorter than the timeout of a call.
const LOYAL_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Direction {
    Both,
    /// Requests are lost.
    There,
    /// Requests arrive and take effect; no reply returns.
    Back,
}

fn cut(cluster: &TestCluster, direction: Direction, node: &str) {
    let network = cluster.network();
    match direction {
        Direction::Both => network.cut("p1", node),
        Direction::There => network.cut_one_way("p1", node),
        Direction::Back => network.cut_one_way(node, "p1"),
    }
}

/// Writes and reads so many keys through the proxy. Returns the number of successful calls and the
/// number of failures.
async fn try_out(client: &mut RecordedClient, name: &str, calls: usize) -> (usize, usize) {
    let mut done = 0;
    for number in 0..calls {
        let key = format!("{name}/{number}");
        let (value, outcome) = client.put(&key).await;
        done += usize::from(outcome == Response::Done);
        let read = client.get(&key).await;
        done += usize::from(matches!(read, Response::Read(_)));
        if outcome == Response::Done && client.header("x-martlet-consistency") == "quorum" {
            let expected = [Response::Read(Some(value)), Response::Unknown];
            assert!(expected.contains(&read), "{key}: {read}");
        }
    }
    (done, 2 * calls - done)
}

async fn serves_again(client: &mut RecordedClient) {
    until("the proxy serves again", PATIENCE, async || {
        client.put("again").await.1 == Response::Done
    })
    .await;
}

/// Cuts one node, then two, then all, in one direction.
async fn all_cuts(test: &str, direction: Direction) {
    let Some(cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let mut probe = Probe::over(cluster).await;
    // Proxies 2 and 3 serve the other clients.
    let mut others: Vec<RecordedClient> =
        (1..5).map(|number| probe.client(1 + number % 2)).collect();
    let mut own = probe.client(0);
    (own.is_loyal, own.patience) = (true, LOYAL_PATIENCE);
    for (nodes, errors_max) in [(1, 4), (2, 6), (4, 20)] {
        for node in &["n1", "n2", "n3", "n4"][..nodes] {
            cut(&probe.cluster, direction, node);
        }
        let name = format!("{direction:?}-{nodes}");
        let calls = if nodes == 4 { 1 } else { 10 };
        let asked = others.iter_mut().enumerate().map(|(number, client)| {
            let name = format!("{name}-{number}");
            async move { try_out(client, &name, 40).await }
        });
        let (mine, theirs) =
            tokio::join!(try_out(&mut own, &name, calls), futures::future::join_all(asked));
        let failed: usize = theirs.iter().map(|(_, failed)| failed).sum();
        println!(
            "{direction:?} from {nodes}: own (done, failed) {mine:?}, others' failed {failed}"
        );
        assert_eq!(failed, 0, "clients of other proxies notice");
        assert!(mine.1 <= errors_max, "{direction:?} from {nodes}: {mine:?}");
        if nodes == 4 {
            assert_eq!(mine.0, 0, "answered without any node");
        }
        probe.cluster.network().heal();
        serves_again(&mut own).await;
    }
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a1_a_proxy_is_cut_off_both_ways() {
    all_cuts("r5_a1_a_proxy_is_cut_off_both_ways", Direction::Both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a1_requests_of_a_proxy_do_not_arrive() {
    all_cuts("r5_a1_requests_of_a_proxy_do_not_arrive", Direction::There).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a1_answers_to_a_proxy_do_not_arrive() {
    all_cuts("r5_a1_answers_to_a_proxy_do_not_arrive", Direction::Back).await;
}
