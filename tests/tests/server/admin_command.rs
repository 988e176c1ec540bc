//! `martlet admin` against a cluster and a server: any member reports the whole cluster.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use martlet_tests::S3;
use martlet_tests::cluster::rings::DATA;
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::server::{Setup, finished, martlet};
use serde_json::Value;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Three nodes with one device each, two proxies, and a replicator for each node.
fn plan() -> ClusterPlan {
    ClusterPlan { nodes: 3, proxies: 2, ..ClusterPlan::default() }
}

/// Runs `martlet admin` with the key of a cluster.
fn asked(cluster: &TestCluster, member: &ClusterMember, arguments: &[&str]) -> Output {
    let (address, key) = (member.admin_address.to_string(), cluster.folder().join("cluster.key"));
    let mut command = martlet(&["admin", "--admin-address", &address]);
    finished(command.arg("--cluster-key-file").arg(key).args(arguments))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(cluster: &TestCluster, member: &ClusterMember, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&text(&asked(cluster, member, &arguments))).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("there is no list {name}: {value}"))
}

fn names(lines: &[Value], field: &str) -> Vec<String> {
    lines.iter().map(|line| line[field].as_str().unwrap().to_owned()).collect()
}

/// Polls until a condition holds; panics after `PATIENCE`.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(LOOK_EVERY).await;
    }
    println!("{what}: after {:?}", begun.elapsed());
}

/// Makes a bucket. Retries 503, because replicas of a new cluster may not be ready.
async fn bucket(client: &mut S3, name: &str) {
    let begun = Instant::now();
    loop {
        let reply = client.put(&format!("/{name}"), "".into()).await.unwrap();
        if reply.status == 200 {
            return;
        }
        assert!(reply.status == 503 && begun.elapsed() < PATIENCE, "{}", reply.text());
        sleep(LOOK_EVERY).await;
    }
}

/// Members other than nodes that a process must report.
const MEMBERS: [&str; 5] =
    ["proxy p1", "proxy p2", "replicator r1", "replicator r2", "replicator r3"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_returns_the_status_of_the_cluster() {
    let mut cluster = plan().start().await;
    let asked_of = [&cluster.proxies[0], &cluster.nodes[1], &cluster.replicators[2]];
    for member in asked_of {
        let who = member.name.clone();
        until(&format!("{who} knows of all"), async || {
            let status = json(&cluster, member, &["status"]);
            names(list(&status, "members"), "role") == MEMBERS
        })
        .await;
        let status = json(&cluster, member, &["status"]);
        let nodes = list(&status, "nodes");
        assert_eq!(names(nodes, "name"), ["n1", "n2", "n3"], "{who}");
        for node in nodes {
            let device = &node["report"]["devices"][0];
            assert_eq!(device["name"], "d1", "{who}: {node}");
            assert_eq!(device["health"], "ready", "{who}: {node}");
            assert!(device["used_bytes"].as_u64() < device["total_bytes"].as_u64());
            assert_eq!(node["rings"].as_array().unwrap().len(), 2, "{who}: {node}");
        }
        let shown = text(&asked(&cluster, member, &["status"]));
        for words in ["3 of 3 nodes answer, with 3 devices", "proxy p2", "n3/d1", "index=1"] {
            assert!(shown.contains(words), "{who}: {words}\n{shown}");
        }
        assert!(!shown.contains("(old)") && !shown.contains("silent"), "{shown}");
    }

    cluster.nodes[2].kill();
    let proxy = &cluster.proxies[1];
    let status = json(&cluster, proxy, &["status"]);
    assert!(list(&status, "nodes")[2].get("report").is_none(), "{status}");
    let shown = text(&asked(&cluster, proxy, &["status"]));
    assert!(shown.contains("2 of 3 nodes answer"), "{shown}");
    let capacity = json(&cluster, proxy, &["capacity"]);
    assert_eq!(capacity["silent"], serde_json::json!(["n3"]));
    let shown = text(&asked(&cluster, proxy, &["capacity"]));
    assert!(shown.contains("the node n3 does not answer"), "{shown}");
    let counted = asked(&cluster, proxy, &["census"]);
    assert_eq!(counted.status.code(), Some(1), "{counted:?}");
    let shown = String::from_utf8(counted.stdout).unwrap();
    assert!(shown.contains("device d2 does not answer") && shown.contains("NOT CLEAN"), "{shown}");
}

/// Columns of the line that begins with a name.
fn columns_of<'a>(shown: &'a str, name: &str) -> Vec<&'a str> {
    let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_dispersion_and_workers_are_printed() {
    let cluster = plan().start().await;
    let mut client = cluster.client(0);
    bucket(&mut client, "probe").await;
    let body = vec![7; 3 << 20];
    assert_eq!(client.put("/probe/large", body.into()).await.unwrap().status, 200);
    // A write is answered before its last copy is stored.
    cluster.until_clean(PATIENCE).await;
    let node = &cluster.nodes[0];

    let capacity = json(&cluster, node, &["capacity"]);
    let devices = list(&capacity, "devices");
    assert_eq!((devices.len(), capacity["replicas"].as_u64()), (3, Some(3)));
    for device in devices {
        // Three copies on three devices: each device holds all bytes.
        assert!(device["extent_bytes"].as_u64() >= Some(3 << 20), "{device}");
        assert_eq!(device["reserve_bytes"].as_u64(), Some(20 << 20), "16 MiB and a quarter");
        assert_eq!((&device["replicas"], &device["bytes_in"]), (&32.into(), &0.into()));
        let share = |name: &str| device[name].as_f64().unwrap();
        assert!(share("fullness") > 0.0 && share("fullness") <= 1.0, "{device}");
        assert!((share("fullness") - share("fullness_projected")).abs() < 1e-9);
    }
    let shown = text(&asked(&cluster, node, &["capacity"]));
    assert!(shown.contains("each object has 3 copies"), "{shown}");
    assert!(shown.contains("until the first device is full"), "{shown}");

    let spread = json(&cluster, node, &["dispersion"]);
    let rings = spread.as_array().unwrap();
    assert_eq!(names(rings, "ring"), ["index", "data-0"]);
    assert!(rings.iter().all(|ring| ring["dispersion"] == 0.0 && ring["partitions"] == 32));
    let shown = text(&asked(&cluster, node, &["dispersion"]));
    assert_eq!(columns_of(&shown, "data-0")[3..6], ["32", "3.00", "3"], "{shown}");
    assert_eq!(columns_of(&shown, "data-0")[2].len(), 16, "the ring's hash: {shown}");

    let census = json(&cluster, node, &["census"]);
    assert_eq!((&census["clean"], &census["extents"]["copies"]), (&true.into(), &3.into()));
    let shown = text(&asked(&cluster, node, &["census"]));
    assert!(shown.contains("clean: every replica is where the rings place it"), "{shown}");

    until("the workers of all replicators are known", async || {
        let told = json(&cluster, node, &["workers"]);
        names(told.as_array().unwrap(), "process") == MEMBERS[2..]
    })
    .await;
    let replicator = &cluster.replicators[1];
    let url = format!("http://{}", replicator.admin_address);
    for arguments in [&["workers"][..], &["workers", "--url", &url]] {
        let shown = text(&asked(&cluster, node, arguments));
        for words in ["replicator r2  update", "replicator r2  sweep", "eta", "oldest"] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
    }
    let metrics = replicator.admin("/metrics").await.unwrap().text();
    for name in ["items_total", "done_total", "freed_extents_total", "kept_total", "backlog"] {
        let name = format!("martlet_worker_{name}{{worker=\"reclaim\"}}");
        assert!(metrics.contains(&name), "{name}\n{metrics}");
    }
    for name in ["oldest_age_seconds", "rate", "failures_total", "yields_total"] {
        let name = format!("martlet_worker_{name}{{worker=\"update\"}}");
        assert!(metrics.contains(&name), "{name}\n{metrics}");
    }
    for name in ["martlet_device_hints", "martlet_device_voting", "martlet_device_term"] {
        assert!(node.metric(name).await.is_some(), "{name}");
    }
    assert_eq!(node.metric("martlet_device_voting").await, Some(1));
}

/// Log lines with the id of a request.
fn lines_about(folder: &Path, id: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["request_id"] == id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_followed_through_proxy_and_nodes() {
    let mut cluster = plan().start().await;
    for member in cluster.nodes.iter_mut().chain(&mut cluster.proxies) {
        member.kill();
        member.set("MARTLET_LOG", "info,martlet=debug");
        member.set("MARTLET_LOG_FORMAT", "json");
    }
    cluster.start_all().await;
    let mut client = cluster.client(0);
    bucket(&mut client, "probe").await;
    let reply = client.put("/probe/small", "small".into()).await.unwrap();
    let put = reply.header("x-amz-request-id").to_owned();
    // A proxy requests the second extent while it sends the first.
    let body: Vec<u8> = (0..251u8).cycle().take(70 << 20).collect();
    assert_eq!(client.put("/probe/large", body.clone().into()).await.unwrap().status, 200);
    let reply = client.get("/probe/large").await.unwrap();
    assert!(reply.status == 200 && reply.body == body);
    let get = reply.header("x-amz-request-id").to_owned();
    assert!(put.len() == 16 && get.len() == 16 && put != get);

    let told_by = |name: &str, id: &str| lines_about(&cluster.folder().join(name), id);
    assert!(!told_by("p1", &put).is_empty() && !told_by("p1", &get).is_empty());
    assert!(told_by("p2", &put).is_empty(), "it was another's");
    let paths = |id: &str| -> Vec<String> {
        let nodes = ["n1", "n2", "n3"].iter().flat_map(|name| told_by(name, id));
        nodes.filter_map(|line| Some(line["path"].as_str()?.to_owned())).collect()
    };
    let (written, read) = (paths(&put), paths(&get));
    let writes = written.iter().filter(|path| path.ends_with("/write")).count();
    assert!(writes >= 2, "a quorum of nodes was written to: {written:?}");
    let extents = read.iter().filter(|path| path.contains("/extents/")).count();
    assert!(extents >= 2, "both extents were read for it: {read:?}");
    assert!(read.iter().any(|path| path.ends_with("/read")), "{read:?}");
}

#[tokio::test]
async fn a_server_prints_its_devices_and_workers() {
    let server = Setup::new().start().await;
    let ask = |arguments: &[&str]| text(&server.ask(arguments));
    let status = ask(&["status"]);
    assert!(status.contains("(server) is ready") && status.contains("free"), "{status}");
    let workers: Value = serde_json::from_str(&ask(&["workers", "--json"])).unwrap();
    assert_eq!(workers[0]["process"], "server");
    assert!(list(&workers[0], "workers").iter().any(|worker| worker["worker"] == "sweep"));
    let capacity: Value = serde_json::from_str(&ask(&["capacity", "--json"])).unwrap();
    assert_eq!((capacity["replicas"].as_u64(), list(&capacity, "devices").len()), (Some(1), 1));
    assert!(ask(&["capacity"]).contains("each object has 1 copies"));
    assert!(ask(&["dispersion"]).contains("index"));
    assert!(ask(&["census"]).contains("clean: every replica"));
    let refused = server.ask(&["workers", "--url", "nonsense"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// Outcomes of a push to all nodes, by node: those of the command itself, or of a job.
fn pushed(output: &Output) -> Vec<(String, String)> {
    let answers: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |answer: &Value, field: &str| answer[field].as_str().unwrap().to_owned();
    let answers = answers.get("detail").unwrap_or(&answers).as_array().unwrap().iter();
    let mut all: Vec<_> =
        answers.map(|answer| (text(answer, "node"), text(answer, "outcome"))).collect();
    all.sort();
    all
}

/// Pushes rings with a node out, again with all nodes, and then older ones.
async fn push_to_all(cluster: &mut TestCluster, push: &[&str], file: &Path) {
    let (older, newer) = (cluster.rings.ring(DATA), cluster.rings.next_epoch(DATA));
    cluster.nodes[2].kill();
    newer.save(file).unwrap();
    let first = asked(cluster, &cluster.proxies[0], push);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let outcomes = pushed(&first);
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    // A node may have fetched the ring from another before its own turn.
    let has_it = |outcome: &(String, String)| ["accepted", "known"].contains(&&*outcome.1);
    assert!(outcomes[..2].iter().all(has_it), "{outcomes:?}");
    assert!(outcomes.iter().any(|(_, outcome)| outcome == "accepted"), "{outcomes:?}");
    assert_eq!(outcomes[2], ("n3".to_owned(), "unreachable".to_owned()));
    cluster.nodes[2].start().await;
    let second = asked(cluster, &cluster.proxies[0], push);
    assert!(second.status.success(), "{second:?}");
    assert!(pushed(&second).iter().all(has_it), "{second:?}");
    older.save(file).unwrap();
    let third = asked(cluster, &cluster.proxies[0], push);
    assert_eq!(third.status.code(), Some(1), "{third:?}");
    assert!(pushed(&third).iter().all(|(_, outcome)| outcome == "refused"), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_to_all_nodes_shows_each_answer_and_is_repeated_for_those_that_were_out() {
    let mut cluster = plan().start().await;
    let file = cluster.folder().join(format!("{DATA}.ring"));
    let address = cluster.nodes[0].address.to_string();
    let push = ["ring", "push", file.to_str().unwrap(), "--node", &address, "--all", "--json"];
    push_to_all(&mut cluster, &push, &file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_pushes_rings_as_a_job_whose_progress_is_kept() {
    let mut cluster = plan().start().await;
    let file = cluster.folder().join(format!("{DATA}.ring"));
    push_to_all(&mut cluster, &["ring", "push", file.to_str().unwrap(), "--json"], &file).await;
    let jobs = asked(&cluster, &cluster.proxies[0], &["job", "list", "--json"]);
    let jobs: Value = serde_json::from_slice(&jobs.stdout).unwrap();
    let states: Vec<&str> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|job| {
            assert_eq!(
                (job["kind"].as_str(), &job["progress"]["done"]),
                (Some("ring-push"), &3.into())
            );
            assert!(job["subject"].as_str().unwrap().starts_with(DATA), "{job}");
            job["state"].as_str().unwrap()
        })
        .collect();
    assert_eq!(states, ["failed", "done", "failed"]);
    let shown = asked(&cluster, &cluster.proxies[0], &["ring", "push", file.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("3 refused") && shown.contains("n3 ("), "{shown}");
    let server = Setup::new().start().await;
    let refused = server.ask(&["ring", "push", file.to_str().unwrap()]);
    let reason = String::from_utf8_lossy(&refused.stderr);
    assert!(reason.contains("this server is no cluster"), "{refused:?}");
}
