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

const PATIENCE: Duration = Duration::from_mins(1);
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
    let mut numbers = Vec::new();
    until("the loss is seen", PATIENCE, async || {
        let output = admin(cluster, &["index", "status"]);
        let line: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let devices = line["acceptable_devices"].as_array().cloned().unwrap_or_default();
        numbers = devices.iter().map(Value::to_string).collect();
        numbers.len() == lost
    })
    .await;
    let numbers = numbers.join(",");
    let others = admin(cluster, &["index", "accept-loss", "--devices", "60000", "--yes"]);
    assert!(!others.status.success(), "these are not the lost ones");
    let refused = admin(cluster, &["index", "rebuild", "--apply"]);
    assert!(!refused.status.success(), "nothing is held");
    let mut accepted = Value::Null;
    // A device that opens once more does not answer for a moment.
    until("the loss is accepted", PATIENCE, async || {
        let output = admin(cluster, &["index", "accept-loss", "--devices", &numbers, "--yes"]);
        println!("{}", String::from_utf8_lossy(&output.stderr));
        accepted = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success()
    })
    .await;
    assert_eq!(accepted["devices"].as_array().unwrap().len(), lost, "{accepted}");
    let line = admin_json(cluster, &["index", "status"]);
    assert!(line["held_since_ms"].as_u64().is_some_and(|ms| ms <= SystemClock.now_ms()), "{line}");
}

/// Objects of a cluster before its index is lost.
struct Stored {
    packed: Bytes,
    file: Bytes,
    long: Bytes,
    /// ETags of these three.
    tags: [String; 3],
    overwritten: Bytes,
    parts: [Bytes; 2],
    /// ETag of the object of these parts.
    of_parts: String,
    versions: [Bytes; 3],
}

impl Stored {
    async fn fill(client: &mut S3) -> Self {
        let (packed, file) = (bytes_of(100 * KIB, 2), bytes_of(3 * MIB, 3));
        let long = bytes_of(70 * MIB, 4);
        put(client, BUCKET, "inline", &bytes_of(KIB, 1)).await;
        let tags = [
            put(client, BUCKET, "packed", &packed).await,
            put(client, BUCKET, "file", &file).await,
            put(client, BUCKET, "long", &long).await,
        ];
        // Superseded bytes are deleted soon by the workers, or stay beside the newer ones.
        put(client, BUCKET, "overwritten", &bytes_of(200 * KIB, 5)).await;
        let overwritten = bytes_of(300 * KIB, 6);
        put(client, BUCKET, "overwritten", &overwritten).await;
        put(client, BUCKET, "gone", &bytes_of(2 * MIB, 7)).await;
        client.delete(&format!("/{BUCKET}/gone")).await.unwrap();
        let parts = [bytes_of(5 * MIB, 8), bytes_of(6 * MIB, 9)];
        let of_parts = upload(client, "parts", &parts, true).await;
        upload(client, "unfinished", &parts[..1], false).await;
        for meanwhile in ["written-meanwhile", "deleted-meanwhile"] {
            put(client, BUCKET, meanwhile, &packed).await;
        }
        let versions = [10, 11, 12].map(|seed| bytes_of(64 * KIB + usize::from(seed), seed));
        for version in &versions {
            put(client, "versions", "k", version).await;
        }
        Self { packed, file, long, tags, overwritten, parts, of_parts, versions }
    }

    async fn assert_back(&self, client: &mut S3) {
        let back = [
            assert_object(client, BUCKET, "packed", &self.packed).await,
            assert_object(client, BUCKET, "file", &self.file).await,
            assert_object(client, BUCKET, "long", &self.long).await,
        ];
        assert_eq!(back, self.tags, "their ETags are as before");
        assert_object(client, BUCKET, "overwritten", &self.overwritten).await;
        assert_object(client, "versions", "k", &self.versions[2]).await;
        for lost in ["inline", "gone", "deleted-meanwhile", "parts", "unfinished"] {
            let status = status_of(client, &format!("/{BUCKET}/{lost}")).await;
            assert_eq!(status, 404, "{lost} does not come back");
        }
        let listed = client.get("/versions?versions=").await.unwrap();
        let sizes = self.versions.iter().rev().map(|version| version.len().to_string());
        assert_eq!(listed.all("Size"), sizes.collect::<Vec<_>>(), "{}", listed.text());
    }
}

/// Makes the buckets again, under their ids.
async fn adopt_buckets(cluster: &TestCluster, client: &mut S3, ids: [&str; 2]) {
    let unknown = admin_json(cluster, &["index", "rebuild"])["unknown_buckets"].to_string();
    let adopt = |id, name, versioning| {
        let shards = "16";
        ["index", "adopt", id, name, "--index-shards", shards, "--versioning", versioning]
    };
    for (id, name, versioning) in [(ids[0], BUCKET, "off"), (ids[1], "versions", "enabled")] {
        assert!(unknown.contains(id), "{id} is not in {unknown}");
        admin_json(cluster, &adopt(id, name, versioning));
    }
    let twice = admin(cluster, &adopt(ids[0], "other", "off"));
    assert!(!twice.status.success(), "another name has the id");
    let versions = client.get("/versions?versioning=").await.unwrap();
    assert!(versions.text().contains("<Status>Enabled</Status>"), "{}", versions.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x8_objects_come_back_from_their_extents_after_the_whole_index_is_lost() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, devices: 1, ..ClusterPlan::in_a_hurry() };
    let mut cluster = plan.start().await;
    let mut client = cluster.client(0);
    make_bucket(&cluster).await;
    client.make_bucket("versions").await;
    set_versioning(&mut client, "versions").await;
    let stored = Stored::fill(&mut client).await;
    let (bucket_id, versions_id) = (id_of(&cluster, BUCKET), id_of(&cluster, "versions"));
    // Files of `file`, `long`, and three parts; those of `gone` are deleted.
    until("deleted bytes are gone", PATIENCE, async || extents_on_disk(&cluster) == 6 * 3).await;
    seconds(2.0).await;

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
    assert_eq!(extents_on_disk(&cluster), 6 * 3, "collection is held");
    adopt_buckets(&cluster, &mut client, [&bucket_id, &versions_id]).await;
    let other = bytes_of(9 * KIB, 13);
    put(&mut client, BUCKET, "written-meanwhile", &other).await;
    let deleted = client.delete(&format!("/{BUCKET}/deleted-meanwhile")).await.unwrap();
    assert_eq!(deleted.status, 204, "{}", deleted.text());

    let dry = admin_json(&cluster, &["index", "rebuild", "--latest"]);
    assert_eq!(dry["applied"], false, "{dry}");
    assert_eq!(status_of(&mut client, &format!("/{BUCKET}/packed")).await, 404, "a dry run");
    let applied = admin_json(&cluster, &["index", "rebuild", "--apply", "--latest"]);
    assert_eq!(applied["objects"], dry["objects"], "{applied}\n{dry}");
    assert_eq!(applied["failed"], 0, "{applied}");
    assert_eq!(applied["taken"], 2, "the client's write and delete stay: {applied}");
    assert_eq!(applied["refused"]["upload"], 2, "{applied}");
    for proxy in 0..2 {
        let mut client = cluster.client(proxy);
        stored.assert_back(&mut client).await;
        let meanwhile = client.get(&format!("/{BUCKET}/written-meanwhile")).await.unwrap();
        assert!(meanwhile.body == other, "a later write wins");
    }
    let again = admin_json(&cluster, &["index", "rebuild", "--apply"]);
    assert_eq!((&again["objects"], &again["failed"]), (&0.into(), &0.into()), "{again}");
    // An operator accepts the upload; the other one has no object of its key either.
    let accepted = admin_json(&cluster, &["index", "rebuild", "--apply", "--uploads"]);
    assert_eq!(accepted["objects"], 2, "{accepted}");
    let whole: Bytes = stored.parts.concat().into();
    assert_eq!(assert_object(&mut client, BUCKET, "parts", &whole).await, stored.of_parts);

    let shown = admin(&cluster, &["index", "release"]);
    assert!(!shown.status.success(), "it needs a word of consent");
    let line: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(line["last_rebuild"]["applied"], true, "{line}");
    let free = admin_json(&cluster, &["index", "release", "--yes"]);
    assert!(free["held_since_ms"].is_null(), "{free}");
    println!("{}", cluster.until_clean(PATIENCE).await);
    assert_object(&mut client, BUCKET, "file", &stored.file).await;
    cluster.assert_no_panic();
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
        let shards = ["--index-shards", "16", "--versioning", "off"];
        admin_json(&cluster, &[&["index", "adopt", &bucket_id, BUCKET][..], &shards].concat());
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
    cluster.assert_no_panic();
}
