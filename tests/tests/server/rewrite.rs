//! A bucket is rewritten to another storage policy by real processes while clients read, overwrite
//! and delete. Clients see unchanged objects before, during and after, and their writes stay.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_protocol::Redundancy;
use martlet_tests::bytes::body;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::server::{finished, martlet};
use martlet_tests::{S3, Upload};
use serde_json::Value;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(40);
const MIB: usize = 1 << 20;
/// Number of objects that no client writes during the rewrite.
const STILL: usize = 16;
/// Number of objects that are overwritten during the rewrite, and of those deleted.
const BUSY: usize = 4;

/// An object as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObservedObject {
    bytes: Bytes,
    tag: String,
    modified: String,
    meta: String,
    kind: String,
}

fn plan(second: Redundancy) -> ClusterPlan {
    ClusterPlan {
        nodes: 3,
        proxies: 2,
        policies: vec![Redundancy::Replicated, second],
        // Garbage expires after ten seconds, which leaves readers time; idle workers run as often.
        environment: vec![("MARTLET_TEST_RECLAIM_GRACE_MS", "10000")],
        ..ClusterPlan::default()
    }
}

/// Runs `martlet admin bucket` against a proxy.
async fn bucket(cluster: &TestCluster, proxy: usize, arguments: &[&str]) -> Output {
    let address = cluster.proxies[proxy].admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address, "--json", "bucket"]);
    command.arg("--cluster-key-file").arg(cluster.folder().join("cluster.key")).args(arguments);
    tokio::task::spawn_blocking(move || finished(&mut command)).await.unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Sends a request until the reply is another status than 503.
async fn patiently(
    client: &mut S3,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> martlet_tests::s3::Reply {
    let begun = Instant::now();
    loop {
        let reply = client.send_with(method, target, headers, body.clone()).await;
        match reply {
            Ok(reply) if reply.status != 503 => return reply,
            other => assert!(begun.elapsed() < PATIENCE, "{method} {target}: {other:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn put(client: &mut S3, key: &str, bytes: Bytes) {
    let headers = [("x-amz-meta-of", key)];
    let reply = patiently(client, "PUT", &format!("/box/{key}"), &headers, bytes).await;
    assert_eq!(reply.status, 200, "{key}: {}", reply.text());
}

async fn look(client: &mut S3, key: &str) -> Option<ObservedObject> {
    let reply = patiently(client, "GET", &format!("/box/{key}"), &[], Bytes::new()).await;
    if reply.status == 404 {
        return None;
    }
    assert_eq!(reply.status, 200, "{key}: {}", reply.text());
    Some(ObservedObject {
        tag: reply.header("etag").to_owned(),
        modified: reply.header("last-modified").to_owned(),
        meta: reply.header("x-amz-meta-of").to_owned(),
        kind: reply.header("content-type").to_owned(),
        bytes: reply.body,
    })
}

fn still(at: usize) -> (String, Bytes) {
    let key = format!("still-{at}");
    let length = [100, 9_000, 70_000, 1_300_000][at % 4] + at;
    (key.clone(), body(&key, length))
}

/// Writes objects of all kinds. Returns the objects that no client writes later, as a client sees
/// them.
async fn fill(client: &mut S3) -> BTreeMap<String, ObservedObject> {
    for at in 0..STILL {
        let (key, bytes) = still(at);
        put(client, &key, bytes).await;
    }
    for at in 0..BUSY {
        put(client, &format!("hot-{at}"), body("old", 300_000 + at)).await;
        put(client, &format!("gone-{at}"), body("old", 200_000 + at)).await;
    }
    let mut upload = Upload::begin(client, "/box/parts").await;
    for number in 1..=2 {
        let bytes = body(&format!("part {number}"), 5 * MIB / number);
        let reply = patiently(client, "PUT", &upload.target(number), &[], bytes).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        upload.part(number, reply.header("etag"));
    }
    upload.complete(client).await;
    let mut seen = BTreeMap::new();
    let keys = (0..STILL).map(|at| still(at).0).chain(["parts".to_owned()]);
    for key in keys {
        seen.insert(key.clone(), look(client, &key).await.expect("it was written"));
    }
    seen
}

/// Reads objects over and over until `stop`, and expects them unchanged. Returns the number of
/// reads.
async fn keep_reading(
    mut client: S3,
    seen: BTreeMap<String, ObservedObject>,
    stop: Arc<AtomicBool>,
) -> usize {
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        for (key, expected) in &seen {
            assert_eq!(look(&mut client, key).await.as_ref(), Some(expected), "{key}");
            reads += 1;
        }
    }
    reads
}

/// Overwrites some objects and deletes others until `stop`. Returns the length of the last bodies.
async fn keep_writing(mut client: S3, stop: Arc<AtomicBool>) -> usize {
    let mut length = 100_000;
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        length += 1;
        for at in 0..BUSY {
            put(&mut client, &format!("hot-{at}"), body("new", length)).await;
            let gone = format!("/box/gone-{at}");
            let reply = patiently(&mut client, "DELETE", &gone, &[], Bytes::new()).await;
            assert_eq!(reply.status, 204, "{}", reply.text());
        }
        if is_last {
            return length;
        }
    }
}

async fn a_bucket_moves(second: Redundancy) {
    let cluster = plan(second).start().await;
    let mut client = cluster.client(0);
    let reply = patiently(&mut client, "PUT", "/box", &[], Bytes::new()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = fill(&mut client).await;

    let unknown = bucket(&cluster, 0, &["set", "box", "--storage-policy", "nowhere"]).await;
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(1) && said.contains("default, policy-1"), "{said}");
    let set = bucket(&cluster, 0, &["set", "box", "--storage-policy", "policy-1"]).await;
    assert_eq!(json(&set)["storage_policy"], "policy-1", "{set:?}");

    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(keep_reading(cluster.client(1), seen.clone(), stop.clone()));
    let writer = tokio::spawn(keep_writing(cluster.client(1), stop.clone()));
    let first = json(&bucket(&cluster, 0, &["rewrite", "box", "--rate", "100MiB"]).await);
    println!("beside clients: {first}");
    stop.store(true, Ordering::Relaxed);
    let (reads, length) = (reader.await.unwrap(), writer.await.unwrap());
    println!("{reads} objects were read meanwhile");
    assert_eq!(first["state"], "done", "{first}");
    assert!(first["moved"].as_u64().unwrap() > 0, "{first}");

    // Another proxy continues the rewrite; at the end no object is left to move.
    let again = bucket(&cluster, 1, &["rewrite", "box"]).await;
    assert!(again.status.success(), "{again:?}");
    let nothing = bucket(&cluster, 1, &["rewrite", "box"]).await;
    assert!(nothing.status.success(), "{nothing:?}");
    let nothing = json(&nothing);
    let (to_move, looked_at) = (&nothing["objects_to_move"], nothing["seen"].as_u64().unwrap());
    assert_eq!((to_move, looked_at), (&0.into(), (STILL + BUSY + 1) as u64), "{nothing}");

    for (key, expected) in &seen {
        assert_eq!(look(&mut client, key).await.as_ref(), Some(expected), "{key}");
    }
    for at in 0..BUSY {
        let hot = look(&mut client, &format!("hot-{at}")).await.expect("nobody deleted it");
        assert_eq!(hot.bytes, body("new", length), "hot-{at}");
        assert_eq!(look(&mut client, &format!("gone-{at}")).await, None, "gone-{at}");
    }
    let census = cluster.until_clean(2 * PATIENCE).await;
    println!("{census}");
    cluster.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_goes_to_other_copies_while_clients_use_it() {
    a_bucket_moves(Redundancy::Replicated).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_goes_to_fragments_while_clients_use_it() {
    a_bucket_moves(Redundancy::erasure(2, 1).unwrap()).await;
}
