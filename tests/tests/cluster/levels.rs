//! Consistency levels that clients request in headers, and `x-martlet-read-after` (rules A1 and
//! A3).

use std::time::{Duration, Instant};

use martlet_tests::checkers::Response;
use martlet_tests::checkers::reads::{ReadScope, going_back};
use martlet_tests::cluster::ClusterPlan;

use super::recorder;

/// Maximum time that a replica may stay behind a quorum.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_replies_state_their_consistency_level() {
    let cluster = ClusterPlan { replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let mut stamps = Vec::new();
    for (level, read) in [("available", "quorum"), ("strict", "quorum"), ("any", "any")] {
        let mut client = recorder.client(&cluster, 0).at_level(level);
        assert_eq!(client.put("k").await.1, Response::Done);
        assert_eq!(client.header("x-martlet-consistency"), "quorum", "a write at {level}");
        assert!(!client.header("x-martlet-stamp").is_empty(), "a write names its stamp");
        stamps.push(stamp(&client.header("x-martlet-stamp")));
        // One replica may be behind a quorum for a moment. Its stamp is older then.
        let deadline = Instant::now() + PATIENCE;
        loop {
            client.get("k").await;
            assert_eq!(client.header("x-martlet-consistency"), read, "a read at {level}");
            let seen = (client.status() == 200).then(|| stamp(&client.header("x-martlet-stamp")));
            if seen.as_ref() == stamps.last() {
                break;
            }
            let older = seen.is_none_or(|seen| stamps.contains(&seen));
            assert!(read == "any" && older, "a read names the stamp it saw: {:?}", client.reply);
            assert!(Instant::now() < deadline, "no replica has {stamps:?} yet");
        }
        client.get("absent").await;
        assert_eq!(client.status(), 404);
    }
    let target = format!("/{}/k", super::BUCKET);
    let headers = [("x-martlet-consistency", "sometimes")];
    let reply = cluster.client(0).send_with("GET", &target, &headers, "".into()).await.unwrap();
    assert_eq!(reply.status, 400, "{}", reply.text());
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a3_read_after_is_never_answered_from_older_state() {
    let mut cluster =
        ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let mut writer = recorder.client(&cluster, 0);
    let keys: Vec<String> = (0..12).map(|number| format!("t/{number}")).collect();
    for key in &keys {
        assert_eq!(writer.put(key).await.1, Response::Done);
    }
    // One node misses the second write of every key, and restarts with the first write.
    cluster.nodes[0].kill();
    let mut second = Vec::new();
    for key in &keys {
        let (value, outcome) = writer.put(key).await;
        assert_eq!(outcome, Response::Done, "{:?}", writer.reply);
        second.push((key, value, writer.header("x-martlet-stamp")));
    }
    cluster.nodes[0].start().await;
    for (number, (key, value, token)) in second.iter().enumerate() {
        for proxy in 0..3 {
            let mut reader = recorder.client(&cluster, number + proxy).at_level("any");
            reader.headers.push(("x-martlet-read-after".to_owned(), token.clone()));
            assert_eq!(
                reader.get(key).await,
                Response::Read(Some(*value)),
                "{key} through {proxy}"
            );
        }
    }
    // A token is valid for its key only.
    let (_, _, token) = &second[0];
    let target = format!("/{}/{}", super::BUCKET, second[1].0);
    let headers = [("x-martlet-read-after", token.as_str())];
    let reply = cluster.client(0).send_with("GET", &target, &headers, "".into()).await.unwrap();
    assert_eq!(reply.status, 400, "a token of another key: {}", reply.text());
    going_back(&recorder.history(), ReadScope::EachClient).unwrap_or_else(|it| panic!("{it}"));
    recorder.finish(&cluster).await;
}

/// The stamp and the key of a token, without the level.
fn stamp(token: &str) -> (String, String) {
    let (rest, key) = token.rsplit_once('-').unwrap();
    let (stamp, level) = rest.rsplit_once('-').unwrap();
    assert!(["q", "d"].contains(&level), "{token}");
    (stamp.to_owned(), key.to_owned())
}
