//! Objects are located at proxies and read in place at storage nodes, while nodes die, objects are
//! overwritten and rings change: right bytes or an error, never wrong bytes.

use std::time::Duration;

use martlet_tests::S3;
use martlet_tests::bytes::body;
use martlet_tests::cluster::rings::DATA;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::in_place::{Located, Piece};
use martlet_tests::probe::Probe;

use super::{seconds, until};

const PATIENCE: Duration = Duration::from_secs(30);
/// Packed, in a file, and in two extents.
const LENGTHS: [usize; 3] = [300_000, 5_000_000, 70_000_000];
const COPIES: usize = 3;

fn plan() -> ClusterPlan {
    ClusterPlan { data_ports: true, proxies: 2, ..ClusterPlan::in_a_hurry() }
}

async fn put(client: &mut S3, target: &str, name: &str, length: usize) {
    let reply = client.put(target, body(name, length)).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Locates an object until each of its pieces has `holders` holders.
async fn located_with(client: &mut S3, target: &str, holders: usize) -> Located {
    let mut found = None;
    until("all holders are located", PATIENCE, async || {
        found = Located::of(client, target).await.ok();
        let is_full = |piece: &Piece| piece.holders.len() == holders;
        found.as_ref().is_some_and(|located| located.pieces.iter().all(is_full))
    })
    .await;
    found.unwrap()
}

/// Number of the node with this data port.
fn node_at(cluster: &TestCluster, authority: &str) -> usize {
    let port: u16 = authority.rsplit(':').next().unwrap().parse().unwrap();
    let is_it = |node: &martlet_tests::cluster::ClusterMember| node.address.port() + 3000 == port;
    cluster.nodes.iter().position(is_it).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_copy_is_read_in_place_and_tokens_open_nothing_else() {
    let cluster = plan().start().await;
    let (mut client, mut other) = (cluster.client(0), cluster.client(1));
    client.make_bucket("data").await;
    let mut first_pieces = Vec::new();
    for length in LENGTHS {
        let (target, name) = (format!("/data/{length}"), length.to_string());
        put(&mut client, &target, &name, length).await;
        let located = located_with(&mut other, &target, COPIES).await;
        assert!(located.direct && located.size == length);
        for piece in &located.pieces {
            let expected = &body(&name, length)[piece.range.clone()];
            for holder in &piece.holders {
                for more in ["", "&verify=client"] {
                    let reply = holder.read(None, more).await.unwrap();
                    assert!(reply.status == 200 && reply.body == expected, "{}", holder.authority);
                    assert_eq!(Some(reply.etag), piece.blake3);
                }
            }
        }
        first_pieces.push(located.pieces[0].clone());
    }
    let [one, two] = [&first_pieces[0], &first_pieces[1]];
    // The token of one holder at another one, and for another extent.
    let mut elsewhere = one.holders[0].clone();
    elsewhere.authority.clone_from(&one.holders[1].authority);
    assert_eq!(elsewhere.read(None, "").await.unwrap().refused, "device");
    let mut exchanged = two.holders[0].clone();
    exchanged.token.clone_from(&one.holders[0].token);
    assert_eq!(exchanged.read(None, "").await.unwrap().refused, "extent");
    client.make_bucket("more").await;
    assert!(client.put("/more/inline", body("inline", 100)).await.is_ok());
    assert!(!Located::of(&mut client, "/more/inline").await.unwrap().direct);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_leaves_the_other_holders() {
    let mut cluster = plan().start().await;
    let mut client = cluster.client(0);
    client.make_bucket("data").await;
    put(&mut client, "/data/k", "k", 5_000_000).await;
    let located = located_with(&mut client, "/data/k", COPIES).await;
    let piece = &located.pieces[0];
    let begun = piece.holders[0].read(Some(0..1_000_000), "").await.unwrap();
    let killed = node_at(&cluster, &piece.holders[0].authority);
    cluster.nodes[killed].kill();
    // The rest of the read fails at that holder, and goes on at another one.
    assert!(piece.holders[0].read(Some(1_000_000..5_000_000), "").await.is_err());
    let rest = piece.holders[1].read(Some(1_000_000..5_000_000), "").await.unwrap();
    assert!([begun.body, rest.body].concat() == body("k", 5_000_000));
    assert!(located.read(&mut client, "/data/k").await.unwrap() == body("k", 5_000_000));
    // A dead node is soon left out, and comes back with its data port.
    until("the dead node is left out", PATIENCE, async || {
        let Ok(located) = Located::of(&mut client, "/data/k").await else { return false };
        let authority = &piece.holders[0].authority;
        located.pieces[0].holders.iter().all(|holder| holder.authority != *authority)
    })
    .await;
    cluster.nodes[killed].start().await;
    located_with(&mut client, "/data/k", COPIES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwritten_object_reads_as_it_was_or_not_at_all() {
    let cluster = plan().start().await;
    let mut client = cluster.client(0);
    client.make_bucket("data").await;
    for round in 0..3 {
        let (old, new) = (format!("old{round}"), format!("new{round}"));
        put(&mut client, "/data/k", &old, 3_000_000).await;
        let located = located_with(&mut client, "/data/k", COPIES).await;
        put(&mut client, "/data/k", &new, 3_000_000).await;
        // Garbage is collected after 100 ms here.
        until("the old extents are gone", PATIENCE, async || {
            match located.pieces[0].read().await {
                Ok(bytes) => assert!(bytes == body(&old, 3_000_000)),
                Err(error) => return error == "404 gone",
            }
            false
        })
        .await;
        // The reader's If-Match notices it.
        assert!(located.read(&mut client, "/data/k").await.is_err());
        let again = located_with(&mut client, "/data/k", COPIES).await;
        assert_ne!(again.etag, located.etag);
        assert!(again.read(&mut client, "/data/k").await.unwrap() == body(&new, 3_000_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_change_moves_pieces_under_readers() {
    let mut probe = Probe::over(ClusterPlan { nodes: 3, ..plan() }.start().await).await;
    let mut client = probe.cluster.client(0);
    client.make_bucket("data").await;
    let targets: Vec<String> = (0..12).map(|number| format!("/data/{number}")).collect();
    let mut before = Vec::new();
    for target in &targets {
        put(&mut client, target, target, 1_500_000).await;
        before.push(located_with(&mut client, target, COPIES).await);
    }
    probe.cluster.add_nodes(&[4]);
    assert!(probe.cluster.rings.ring(DATA).moves().len() > 5, "hardly anything moves");
    probe.push_rings().await;
    probe.cluster.start_all().await;
    for _ in 0..20 {
        for (target, located) in targets.iter().zip(&before) {
            let bytes = located.read(&mut client, target).await.unwrap();
            assert!(bytes == body(target, 1_500_000), "{target}");
        }
        seconds(0.2).await;
    }
    probe.settled().await;
    let mut is_moved = false;
    for (target, located) in targets.iter().zip(&before) {
        let now = located_with(&mut client, target, COPIES).await;
        assert!(now.read(&mut client, target).await.unwrap() == body(target, 1_500_000));
        let holders = |located: &Located| {
            let mut all: Vec<String> =
                located.pieces[0].holders.iter().map(|it| it.authority.clone()).collect();
            all.sort();
            all
        };
        is_moved |= holders(&now) != holders(located);
    }
    assert!(is_moved, "no piece moved to the new node");
    probe.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_fragments_are_read_in_place_and_lost_ones_by_get() {
    let plan = ClusterPlan { data_ports: true, ..ClusterPlan::coded(2, 1) };
    let mut cluster = plan.start().await;
    let mut client = cluster.client(0);
    client.make_bucket("data").await;
    let length = 20_000_001;
    put(&mut client, "/data/k", "k", length).await;
    let located = located_with(&mut client, "/data/k", 1).await;
    assert!(located.pieces.len() >= 4, "two data fragments an extent");
    let mut found = Vec::new();
    for piece in &located.pieces {
        assert_eq!(piece.range.start, found.len());
        found.extend(piece.read().await.unwrap());
    }
    assert!(found == body("k", length), "fragments in order are the object");
    let killed = node_at(&cluster, &located.pieces[0].holders[0].authority);
    cluster.nodes[killed].kill();
    assert!(located.read(&mut client, "/data/k").await.unwrap() == body("k", length));
    let mut without = None;
    until("the lost fragments are listed without holders", PATIENCE, async || {
        without = Located::of(&mut client, "/data/k").await.ok();
        without.as_ref().is_some_and(|it| it.pieces.iter().any(|piece| piece.holders.is_empty()))
    })
    .await;
    let without = without.unwrap();
    assert_eq!(without.pieces.len(), located.pieces.len());
    assert!(without.read(&mut client, "/data/k").await.unwrap() == body("k", length));
}
