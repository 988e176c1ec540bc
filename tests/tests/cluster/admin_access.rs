//! Keys of the admin API in a cluster: made at one proxy, used at the other, and by sessions at
//! processes without accounts; revoked everywhere; audit records of all proxies.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::server::{finished, martlet};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Credential of a command.
#[derive(Clone, Copy)]
enum By<'a> {
    ClusterKey(&'a Path),
    AdminKey(&'a Path),
    Session(&'a str),
}

fn asked(member: &ClusterMember, by: By<'_>, arguments: &[&str]) -> Output {
    let mut command = martlet(&["admin", "--admin-address", &member.admin_address.to_string()]);
    match by {
        By::ClusterKey(file) => command.arg("--cluster-key-file").arg(file),
        By::AdminKey(file) => command.arg("--admin-key-file").arg(file),
        By::Session(token) => command.env("MARTLET_ADMIN_SESSION", token),
    };
    finished(command.args(arguments))
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

async fn until(what: &str, mut run: impl FnMut() -> Output, succeeds: bool) -> Output {
    let begun = Instant::now();
    loop {
        let output = run();
        if output.status.success() == succeeds {
            return output;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {output:?}");
        sleep(LOOK_EVERY).await;
    }
}

/// A key that an operator made at the first proxy.
async fn operator_key(cluster: &TestCluster) -> std::path::PathBuf {
    let (cluster_key, file) =
        (cluster.folder().join("cluster.key"), cluster.folder().join("operator.key"));
    let name = file.to_str().unwrap();
    let arguments = ["key", "create", "--role", "operator", "--name", "alice", "--key-file", name];
    let create = || asked(&cluster.proxies[0], By::ClusterKey(&cluster_key), &arguments);
    until("a new cluster accepts a key", create, true).await;
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_known_to_all_proxies_and_its_sessions_to_all_processes() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, ..ClusterPlan::default() };
    let cluster = plan.start().await;
    let file = operator_key(&cluster).await;
    let key = By::AdminKey(&file);
    let [one, two] = [&cluster.proxies[0], &cluster.proxies[1]];
    let others = [&cluster.nodes[0], &cluster.replicators[0]];

    let shown = printed(&asked(two, key, &["session", "show"]));
    assert!(shown.starts_with("operator by key"), "{shown}");
    for member in others {
        let refused = asked(member, key, &["status"]);
        let sentence = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(sentence.contains("begin a session at a proxy"), "{}: {sentence}", member.name);
    }
    let token = printed(&asked(one, key, &["session", "begin"])).trim().to_owned();
    for member in cluster.members() {
        let status = asked(member, By::Session(&token), &["status"]);
        assert!(status.status.success(), "{}: {status:?}", member.name);
    }

    printed(&asked(one, key, &["tenant", "create", "research"]));
    printed(&asked(two, key, &["tenant", "create", "partner"]));
    let audit = || asked(two, key, &["audit", "--who", "alice"]);
    let is_complete = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        ["research", "partner", "proxy p1", "proxy p2"].iter().all(|word| text.contains(word))
    };
    let begun = Instant::now();
    // A proxy hears of the other one within a few rounds.
    while !is_complete(&audit()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", audit());
        sleep(LOOK_EVERY).await;
    }

    let id = fs::read_to_string(&file).unwrap();
    let id = id.lines().find_map(|line| line.strip_prefix("MARTLET_ADMIN_KEY=")).unwrap();
    printed(&asked(one, key, &["key", "revoke", id]));
    for proxy in [one, two] {
        let revoked = until("a revoked key", || asked(proxy, key, &["status"]), false).await;
        let sentence = String::from_utf8_lossy(&revoked.stderr).into_owned();
        assert!(sentence.contains("revoked"), "{sentence}");
        let session = || asked(proxy, By::Session(&token), &["status"]);
        until("a session of a revoked key", session, false).await;
    }
}
