//! Two of four nodes are out, so that many keys have one primary left. Exact requests are refused.
//! Requests that may be degraded are answered, marked as degraded, and reach all primaries later
//! (rules R7, A1, A2).

use std::time::Duration;

use martlet_tests::checkers::{Response, Value};
use martlet_tests::cluster::ClusterPlan;

use super::{recorder, until};

const KEYS: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a2_degraded_writes_reach_the_primaries_when_these_return() {
    let mut cluster = ClusterPlan::default().start().await;
    let recorder = recorder(&cluster).await;
    let mut available = recorder.client(&cluster, 0);
    let mut strict = recorder.client(&cluster, 1).at_level("strict");
    let keys: Vec<String> = (0..KEYS).map(|number| format!("q/{number:02}")).collect();
    for key in &keys {
        assert_eq!(available.put(key).await.1, Response::Done);
    }
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();

    let (mut degraded, mut quorum): (Vec<(&String, Value)>, usize) = (Vec::new(), 0);
    for key in &keys {
        let exact = strict.put(key).await.1 == Response::Done;
        if !exact {
            assert_eq!(strict.status(), 503, "{key}: no quorum of primaries");
        }
        let created = strict.create(&format!("{key}/new")).await.1;
        assert!(matches!(created, Response::Done | Response::Unknown), "{key}: {created}");
        let read = strict.get(key).await;
        assert_eq!(matches!(read, Response::Read(_)), exact, "{key}: {read}");
        let (value, outcome) = available.put(key).await;
        assert_eq!(outcome, Response::Done, "{key}: {:?}", available.reply);
        if exact {
            quorum += 1;
        } else {
            assert_eq!(available.header("x-martlet-consistency"), "degraded", "{key}");
            degraded.push((key, value));
        }
        let read = available.get(key).await;
        assert!(matches!(read, Response::Read(_)), "{key}: {:?}", available.reply);
    }
    println!("{quorum} keys kept a quorum, {} did not", degraded.len());
    assert!(!degraded.is_empty(), "no key lost its quorum");

    cluster.start_all().await;
    let mut reader = recorder.client(&cluster, 2).at_level("strict");
    for (key, value) in &degraded {
        until("a degraded write is delivered", Duration::from_secs(20), async || {
            reader.get(key).await == Response::Read(Some(*value))
        })
        .await;
    }
    // The writes reached all primaries, so any two of them return the values.
    for (key, value) in degraded.iter().cycle().take(60) {
        assert_eq!(reader.get(key).await, Response::Read(Some(*value)), "{key} went back");
    }
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_without_a_quorum_conditional_writes_are_503_and_leave_nothing() {
    let mut cluster =
        ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let mut client = recorder.client(&cluster, 0);
    let (value, outcome) = client.put("there").await;
    assert_eq!(outcome, Response::Done);
    cluster.nodes[0].kill();
    cluster.nodes[2].kill();
    for proxy in 0..3 {
        let mut client = recorder.client(&cluster, proxy);
        client.create("new").await;
        assert_eq!(client.status(), 503, "a create without a quorum");
        client.replace("there", value).await;
        assert_eq!(client.status(), 503, "a replacement without a quorum");
        client.delete_if("there", value).await;
        assert_eq!(client.status(), 503, "a conditional delete without a quorum");
    }
    cluster.start_all().await;
    let mut racers: Vec<_> = (0..6).map(|proxy| recorder.client(&cluster, proxy)).collect();
    let created = futures::future::join_all(racers.iter_mut().map(|it| it.create("new"))).await;
    let won = created.iter().filter(|(_, outcome)| *outcome == Response::Done).count();
    assert!(won <= 1, "{created:?}");
    recorder.finish(&cluster).await;
}
