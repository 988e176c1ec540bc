//! All copies of the index are lost; the data remains. Objects come back from the extents that name
//! them (rule X8).

use std::fs;
use std::process::Output;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::{Clock, SystemClock};
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::s3::S3;
use martlet_tests::server::{finished, martlet};
use martlet_tests::upload::Upload;
use serde_json::Value;

use super::{BUCKET, seconds, until};

const PATIENCE: Duration = Duration::from_secs(60);
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Runs `martlet admin --json` at a proxy, and returns its output.
fn admin(cluster: &TestCluster, arguments: &[&str]) -> Output {
    let address = cluster.proxies[0].admin_address.to_string();
    let key = cluster.folder().join("cluster.key");
    let mut command = martlet(&["admin", "--json", "--admin-address", &address]);
    finished(command.arg("--cluster-key-file").arg(key).args(arguments))
}

fn admin_json(cluster: &TestCluster, arguments: &[&str]) -> Value {
    let output = admin(cluster, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn bytes_of(length: usize, seed: u8) -> Bytes {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect::<Vec<u8>>().into()
}

async fn put(client: &mut S3, bucket: &str, key: &str, body: &Bytes) -> String {
    let target = format!("/{bucket}/{key}");
    let headers = [("content-type", "text/x-test")];
    let reply = client.send_with("PUT", &target, &headers, body.clone()).await.unwrap();
    assert_eq!(reply.status, 200, "{key}: {}", reply.text());
    reply.header("etag").to_owned()
}

async fn assert_object(client: &mut S3, bucket: &str, key: &str, body: &Bytes) -> String {
    let reply = client.get(&format!("/{bucket}/{key}")).await.unwrap();
    assert_eq!(reply.status, 200, "{key}: {}", reply.text());
    assert!(reply.body == *body, "{key}: {} of {} bytes", reply.body.len(), body.len());
    assert_eq!(reply.header("x-amz-meta-martlet-rebuilt"), "true", "{key}");
    reply.header("etag").to_owned()
}

async fn status_of(client: &mut S3, target: &str) -> u16 {
    client.get(target).await.unwrap().status
}

async fn upload(client: &mut S3, key: &str, parts: &[Bytes], is_completed: bool) -> String {
    let mut upload = Upload::begin(client, &format!("/{BUCKET}/{key}")).await;
    for (number, part) in (1..).zip(parts) {
        let reply = client.put(&upload.target(number), part.clone()).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        upload.part(number, reply.header("etag"));
    }
    if !is_completed {
        return String::new();
    }
    upload.complete(client).await.all("ETag").remove(0).replace("&quot;", "\"")
}

/// Stops the first nodes, removes the index of their devices, and the files of extents of some, and
/// starts them again.
async fn lose_the_index(cluster: &mut TestCluster, nodes: usize, without_files: usize) {
    for node in &mut cluster.nodes[..nodes] {
        node.stop().await;
    }
    for node in &cluster.nodes[..without_files] {
        remove_files(node);
    }
    for node in &mut cluster.nodes[..nodes] {
        fs::remove_dir_all(node.device(1).join("index")).unwrap();
        node.spawn();
    }
}

/// Removes the files of extents of a device, whose node is down.
fn remove_files(node: &ClusterMember) {
    for folder in fs::read_dir(node.device(1).join("extents")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

async fn make_bucket(cluster: &TestCluster) {
    let mut client = cluster.client(0);
    until("the bucket is made", PATIENCE, async || {
        let made = client.send("PUT", &format!("/{BUCKET}"), Bytes::new()).await;
        made.is_ok_and(|reply| reply.status == 200)
    })
    .await;
}

fn id_of(cluster: &TestCluster, bucket: &str) -> String {
    let line = admin_json(cluster, &["bucket", "show", bucket]);
    line["id"].as_str().unwrap().to_owned()
}

fn extents_on_disk(cluster: &TestCluster) -> usize {
    let files = cluster.nodes.iter().map(|node| {
        let folders = fs::read_dir(node.device(1).join("extents")).unwrap();
        folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).sum::<usize>()
    });
    files.sum()
}

async fn set_versioning(client: &mut S3, bucket: &str) {
    let document = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    until("versions are kept", PATIENCE, async || {
        let target = format!("/{bucket}?versioning=");
        client.send("PUT", &target, document.into()).await.unwrap().status == 200
    })
    .await;
}

/// Accepts the loss of the registers of so many devices.
async fn accept_the_loss(cluster: &TestCluster, lost: usize) {
    until("the loss is seen", PATIENCE, async || {
        let output = admin(cluster, &["index", "status"]);
        let line: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        line["acceptable_devices"].as_array().is_some_and(|devices| devices.len() == lost)
    })
    .await;
    let refused = admin(cluster, &["index", "rebuild", "--apply"]);
    assert!(!refused.status.success(), "nothing is held");
    let mut accepted = Value::Null;
    // A device that opens once more does not answer for a moment.
    until("the loss is accepted", PATIENCE, async || {
        let output = admin(cluster, &["index", "accept-loss", "--yes"]);
        println!("{}", String::from_utf8_lossy(&output.stderr));
        accepted = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success()
    })
    .await;
    assert_eq!(accepted["devices"].as_array().unwrap().len(), lost, "{accepted}");
    let line = admin_json(cluster, &["index", "status"]);
    assert!(line["held_since_ms"].as_u64().is_some_and(|ms| ms <= SystemClock.now_ms()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x8_objects_come_back_from_their_extents_after_the_whole_index_is_lost() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, devices: 1, ..ClusterPlan::in_a_hurry() };
    let mut cluster = plan.start().await;
    let mut client = cluster.client(0);
    make_bucket(&cluster).await;
    client.make_bucket("versions").await;
    client.make_bucket("deleted").await;
    set_versioning(&mut client, "versions").await;

    let (inline, packed, file) = (bytes_of(KIB, 1), bytes_of(100 * KIB, 2), bytes_of(3 * MIB, 3));
    let long = bytes_of(70 * MIB, 4);
    put(&mut client, BUCKET, "inline", &inline).await;
    let tags = [
        put(&mut client, BUCKET, "packed", &packed).await,
        put(&mut client, BUCKET, "file", &file).await,
        put(&mut client, BUCKET, "long", &long).await,
    ];
    // Superseded bytes are deleted within seconds of the workers, or stay beside the newer ones.
    put(&mut client, BUCKET, "overwritten", &bytes_of(200 * KIB, 5)).await;
    let newer = bytes_of(300 * KIB, 6);
    put(&mut client, BUCKET, "overwritten", &newer).await;
    put(&mut client, BUCKET, "gone", &bytes_of(2 * MIB, 7)).await;
    client.delete(&format!("/{BUCKET}/gone")).await.unwrap();
    let parts = [bytes_of(5 * MIB, 8), bytes_of(6 * MIB, 9)];
    let of_parts = upload(&mut client, "parts", &parts, true).await;
    upload(&mut client, "unfinished", &parts[..1], false).await;
    put(&mut client, BUCKET, "written-meanwhile", &packed).await;
    let versions = [bytes_of(64 * KIB, 10), bytes_of(65 * KIB, 11), bytes_of(66 * KIB, 12)];
    for version in &versions {
        put(&mut client, "versions", "k", version).await;
    }
    put(&mut client, "deleted", "k", &packed).await;
    client.delete("/deleted/k").await.unwrap();
    let emptied = client.delete("/deleted").await.unwrap();
    assert_eq!(emptied.status, 204, "{}", emptied.text());
    let (bucket_id, versions_id) = (id_of(&cluster, BUCKET), id_of(&cluster, "versions"));
    // Files of `file`, `long`, and three parts; those of `gone` are deleted.
    until("deleted bytes are gone", PATIENCE, async || extents_on_disk(&cluster) == 6 * 3).await;
    seconds(2.0).await;
    let files = extents_on_disk(&cluster);

    lose_the_index(&mut cluster, 3, 0).await;
    // No process remembers the ring changes of the cluster either.
    for member in cluster.proxies.iter_mut().chain(&mut cluster.replicators) {
        member.stop().await;
        member.spawn();
    }
    accept_the_loss(&cluster, 3).await;
    cluster.start_all().await;
    // Workers run ten times a second, with a grace time of 100 ms.
    seconds(5.0).await;
    assert_eq!(extents_on_disk(&cluster), files, "collection is held");
    let unknown = admin_json(&cluster, &["index", "rebuild"]);
    let unknown: Vec<&str> = unknown["unknown_buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket["id"].as_str().unwrap())
        .collect();
    assert!(unknown.contains(&&*bucket_id) && unknown.contains(&&*versions_id), "{unknown:?}");

    admin_json(&cluster, &["index", "adopt", &bucket_id, BUCKET]);
    admin_json(&cluster, &["index", "adopt", &versions_id, "versions"]);
    let twice = admin(&cluster, &["index", "adopt", &bucket_id, "other"]);
    assert!(!twice.status.success(), "another name has the id");
    set_versioning(&mut client, "versions").await;
    let other = bytes_of(9 * KIB, 13);
    put(&mut client, BUCKET, "written-meanwhile", &other).await;

    let dry = admin_json(&cluster, &["index", "rebuild"]);
    assert_eq!(dry["applied"], false, "{dry}");
    assert_eq!(status_of(&mut client, &format!("/{BUCKET}/packed")).await, 404, "a dry run");
    let applied = admin_json(&cluster, &["index", "rebuild", "--apply"]);
    assert_eq!(applied["objects"], dry["objects"], "{applied}\n{dry}");
    assert_eq!(applied["failed"], 0, "{applied}");
    assert_eq!(applied["taken"], 1, "the client's write stays: {applied}");
    assert_eq!(applied["refused"]["upload"], 2, "{applied}");

    for proxy in 0..2 {
        let mut client = cluster.client(proxy);
        let back = [
            assert_object(&mut client, BUCKET, "packed", &packed).await,
            assert_object(&mut client, BUCKET, "file", &file).await,
            assert_object(&mut client, BUCKET, "long", &long).await,
        ];
        assert_eq!(back, tags, "their ETags are as before");
        assert_object(&mut client, BUCKET, "overwritten", &newer).await;
        assert_object(&mut client, "versions", "k", &versions[2]).await;
        for lost in ["inline", "gone", "parts", "unfinished"] {
            let status = status_of(&mut client, &format!("/{BUCKET}/{lost}")).await;
            assert_eq!(status, 404, "{lost} does not come back");
        }
        let meanwhile = client.get(&format!("/{BUCKET}/written-meanwhile")).await.unwrap();
        assert!(meanwhile.body == other, "a later write wins");
    }
    let listed = client.get("/versions?versions=").await.unwrap();
    assert_eq!(listed.all("Size"), ["67584", "66560", "65536"], "{}", listed.text());

    let again = admin_json(&cluster, &["index", "rebuild", "--apply"]);
    assert_eq!((&again["objects"], &again["failed"]), (&0.into(), &0.into()), "{again}");
    // An operator accepts the upload; the other one has no object of its key either.
    let accepted = admin_json(&cluster, &["index", "rebuild", "--apply", "--uploads"]);
    assert_eq!(accepted["objects"], 2, "{accepted}");
    let whole: Bytes = [&parts[0][..], &parts[1][..]].concat().into();
    let tag = assert_object(&mut client, BUCKET, "parts", &whole).await;
    assert_eq!(tag, of_parts);

    admin_json(&cluster, &["index", "release", "--yes"]);
    let census = cluster.until_clean(PATIENCE).await;
    println!("{census}");
    // The client's write left the older bytes of its key without an entry.
    until("what no entry names is collected", PATIENCE, async || {
        let line = admin_json(&cluster, &["index", "status"]);
        line["held_since_ms"].is_null()
    })
    .await;
    assert_object(&mut client, BUCKET, "file", &file).await;
    cluster.assert_nobody_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x8_coded_objects_come_back_if_enough_fragments_are_left() {
    // Four of five devices lose their registers, so all copies of some partitions are lost.
    let mut cluster = ClusterPlan::coded(3, 2).start().await;
    make_bucket(&cluster).await;
    let mut client = cluster.client(0);
    let bucket_id = id_of(&cluster, BUCKET);
    let whole: Vec<(String, Bytes)> =
        (0..40).map(|number| (format!("whole-{number}"), bytes_of(100 * KIB, number))).collect();
    let broken: Vec<String> = (0..12).map(|number| format!("broken-{number}")).collect();
    for (key, body) in &whole {
        put(&mut client, BUCKET, key, body).await;
    }
    for key in &broken {
        put(&mut client, BUCKET, key, &bytes_of(4 * MIB, 99)).await;
    }
    cluster.until_clean(PATIENCE).await;

    // Two of five fragments of long objects are left, and it takes three to read one.
    lose_the_index(&mut cluster, 4, 3).await;
    accept_the_loss(&cluster, 4).await;
    cluster.start_all().await;
    if !admin(&cluster, &["bucket", "show", BUCKET]).status.success() {
        println!("the bucket is lost too");
        admin_json(&cluster, &["index", "adopt", &bucket_id, BUCKET]);
    }
    let mut lost = Vec::new();
    for (key, body) in &whole {
        let reply = client.get(&format!("/{BUCKET}/{key}")).await.unwrap();
        match reply.status {
            404 => lost.push((key, body)),
            status => assert!(status == 200 && reply.body == *body, "{key}: {status}"),
        }
    }
    let mut unreadable = 0;
    for key in &broken {
        let head = client.send("HEAD", &format!("/{BUCKET}/{key}"), Bytes::new()).await.unwrap();
        unreadable += u64::from(head.status == 404);
    }
    println!("{} whole and {unreadable} broken objects are lost", lost.len());
    assert!(!lost.is_empty() && lost.len() < whole.len(), "{} lost", lost.len());
    let applied = admin_json(&cluster, &["index", "rebuild", "--apply"]);
    assert_eq!(applied["objects"], lost.len(), "{applied}");
    assert_eq!(applied["refused"]["unreadable"].as_u64().unwrap_or(0), unreadable, "{applied}");
    for (key, body) in lost {
        assert_object(&mut client, BUCKET, key, body).await;
    }
    admin_json(&cluster, &["index", "release", "--yes"]);
    cluster.assert_nobody_panicked();
}
