//! Rings spread by themselves: a newer ring reaches every process within seconds; an older or
//! damaged ring is refused without harm (rule P3).

use std::time::Duration;

use martlet_ring::Ring;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::internal::Request;
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};

use super::{recorder, until};

const SECONDS: Duration = Duration::from_secs(10);

/// Rings that a node announces in the headers of every reply, refusals included.
async fn announced(node: &ClusterMember) -> String {
    let request = Request::new("GET", "/v1/rings", "");
    let reply = request.send(node.address).await.unwrap();
    reply.header("x-martlet-rings").to_owned()
}

fn tag(name: &str, ring: &Ring) -> String {
    format!("{name}={}-{}", ring.epoch(), hex::encode(&ring.hash()[..8]))
}

/// Offers a ring to a node; returns true if the node accepts the ring.
async fn takes(node: &ClusterMember, name: &str, bytes: Vec<u8>) -> bool {
    let request = Request::new("PUT", &format!("/v1/rings/{name}"), bytes);
    let reply = request.send(node.address).await.unwrap();
    println!("{name} was offered to {}: {} {}", node.name, reply.status, reply.text());
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    answer["taken"].as_bool().unwrap()
}

async fn assert_all_have(cluster: &TestCluster, wanted: &str) {
    until(wanted, SECONDS, async || {
        let mut all = true;
        for node in &cluster.nodes {
            all &= announced(node).await.contains(wanted);
        }
        all
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_newer_rings_travel_and_older_ones_do_not() {
    let mut cluster = ClusterPlan::default().start().await;
    let recorder = recorder(&cluster).await;
    let mut client = recorder.client(&cluster, 0);
    assert_eq!(client.put("before").await.1, Response::Done);
    for name in [INDEX, DATA] {
        let old = cluster.rings.ring(name);
        let new = cluster.rings.next_epoch(name);
        assert!(takes(&cluster.nodes[2], name, new.encode()).await);
        assert_all_have(&cluster, &tag(name, &new)).await;
        // Proxies and replicators store the ring in their folders, too.
        until("every process keeps it", SECONDS, async || {
            let kept = |member: &ClusterMember| {
                let path = cluster.folder().join(&member.name).join(format!("data/{name}.ring"));
                Ring::load(&path).is_ok_and(|ring| ring.hash() == new.hash())
            };
            cluster.members().all(kept)
        })
        .await;
        assert!(!takes(&cluster.nodes[0], name, old.encode()).await, "an older ring");
        let mut damaged = cluster.rings.next_epoch(name).encode();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        assert!(!takes(&cluster.nodes[1], name, damaged).await, "a damaged ring");
        assert_all_have(&cluster, &tag(name, &new)).await;
    }
    assert!(matches!(client.get("before").await, Response::Read(Some(_))));
    assert_eq!(client.put("after").await.1, Response::Done);
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_who_was_away_gets_the_newer_ring() {
    let mut cluster = ClusterPlan { nodes: 3, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    cluster.nodes[0].kill();
    cluster.proxies[1].kill();
    let new = cluster.rings.next_epoch(INDEX);
    assert!(takes(&cluster.nodes[1], INDEX, new.encode()).await);
    cluster.start_all().await;
    assert_all_have(&cluster, &tag(INDEX, &new)).await;
    let mut client = recorder.client(&cluster, 1);
    assert_eq!(client.put("k").await.1, Response::Done);
    recorder.finish(&cluster).await;
}
