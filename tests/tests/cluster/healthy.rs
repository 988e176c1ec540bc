//! Without failures every key is linearizable through any proxy, and writes are visible at once
//! through all proxies.

use std::time::Duration;

use martlet_protocol::consistency::AchievedLevel;
use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::recorded::load::Load;

use super::recorder;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_r7_mixed_load_is_linearizable() {
    let (mut chance, cluster) = (chance(), ClusterPlan::default().start().await);
    let recorder = recorder(&cluster).await;
    Load::default().run(&recorder, &cluster, &mut chance, Duration::from_secs(5)).await;
    let history = recorder.history();
    let is_firm = |given| given == AchievedLevel::Quorum;
    let firm = history.operations.iter().filter(|it| is_firm(it.given)).count();
    assert_eq!(firm, history.operations.len(), "all replies rest on a quorum");
    let unknown = history.operations.iter().filter(|it| it.outcome == Response::Unknown).count();
    assert!(unknown * 100 <= history.operations.len(), "{unknown} operations are unknown");
    assert!(history.operations.len() > 300, "only {} operations", history.operations.len());
    recorder.finish(&cluster).await;
    // A third replica may have refused a write after a later ballot; workers repair it.
    let census = cluster.until_clean(Duration::from_mins(2)).await;
    assert!(census.registers > 12 && census.extents > 0, "{census}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_what_one_proxy_wrote_another_reads_and_lists() {
    let cluster = ClusterPlan::default().start().await;
    let recorder = recorder(&cluster).await;
    let mut clients: Vec<_> = (0..3).map(|proxy| recorder.client(&cluster, proxy)).collect();
    let mut keys: Vec<String> = Vec::new();
    for round in 0..30 {
        let (writer, reader, lister) = (round % 3, (round + 1) % 3, (round + 2) % 3);
        let key = format!("a/{round:03}");
        clients[writer].length = [100, 9_000, 1_500_000][round % 3];
        let (value, outcome) = clients[writer].put(&key).await;
        assert_eq!(outcome, Response::Done);
        assert_eq!(clients[reader].get(&key).await, Response::Read(Some(value)));
        keys.push(key.clone());
        assert_eq!(clients[lister].list_all("a/").await, keys);
        if round % 4 == 3 {
            assert_eq!(clients[lister].delete(&key).await, Response::Done);
            keys.pop();
            assert_eq!(clients[writer].get(&key).await, Response::Read(None));
            assert_eq!(clients[reader].list_all("a/").await, keys);
        }
    }
    recorder.finish(&cluster).await;
}
