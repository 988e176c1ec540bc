//! `martlet admin backup`: what is backed up on one server is restored on a fresh one, and what one
//! proxy has backed up is restored through another.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use bytes::Bytes;
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::server::{Server, finished, martlet};
use martlet_tests::{S3, Setup};
use serde_json::Value;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

const POLICY: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::guests:root"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::data/*"}]}"#;
const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>old</ID><Filter><Prefix>tmp/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>7</Days></Expiration></Rule></LifecycleConfiguration>";
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>https://a.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
const TAGS: &str =
    "<Tagging><TagSet><Tag><Key>team</Key><Value>vision</Value></Tag></TagSet></Tagging>";
const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const ENCRYPTION: &str = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
const LOCK: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>3</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
const RULES: &str = r#"{"rules": [{"pattern": "run/*/", "profile": "dcp", "keep": 2}]}"#;
/// Sub-resources of the bucket `data`, each with its document.
const DOCUMENTS: [(&str, &str); 7] = [
    ("versioning", VERSIONING),
    ("policy", POLICY),
    ("lifecycle", LIFECYCLE),
    ("cors", CORS),
    ("tagging", TAGS),
    ("encryption", ENCRYPTION),
    ("object-lock", LOCK),
];

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn asked(server: &Server, arguments: &[&str]) -> Value {
    json(&server.ask(&[&["--json"], arguments].concat()))
}

fn text(output: &Output) -> String {
    let out = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(out).unwrap()
}

/// Credentials that a server gave, by the name of their owner.
struct Credentials {
    access_key: String,
    secret: String,
}

impl Credentials {
    fn client(&self, server: &Server) -> S3 {
        S3::with_keys(server.s3_address, &self.access_key, &self.secret)
    }
}

fn key(server: &Server, arguments: &[&str]) -> Credentials {
    let made = asked(server, &[&["key", "create"], arguments].concat());
    let field = |name: &str| made[name].as_str().unwrap().to_owned();
    Credentials { access_key: field("access_key"), secret: field("secret_key") }
}

/// Requests a path until the key is accepted: proxies keep what they know of a key for a second.
async fn until_accepted(client: &mut S3, path: &str) {
    let begun = Instant::now();
    loop {
        let reply = client.get(path).await.unwrap();
        if reply.status == 200 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
        sleep(LOOK_EVERY).await;
    }
}

/// Replies for the sub-resources of the bucket `data`.
async fn documents(client: &mut S3) -> Vec<String> {
    let mut found = Vec::new();
    for (name, _) in DOCUMENTS {
        let reply = client.get(&format!("/data?{name}=")).await.unwrap();
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        found.push(reply.text());
    }
    found
}

/// Sets of counts that a plan has, over all kinds.
fn planned(report: &Value, state: &str) -> u64 {
    let tallies = report["plan"].as_object().unwrap().values();
    tallies.map(|tally| tally[state].as_u64().unwrap_or_default()).sum()
}

/// Files of a backup and of its secret.
struct Files {
    backup: PathBuf,
    secret: PathBuf,
}

impl Files {
    fn new(setup: &Setup) -> Self {
        Self::within(|name| setup.join(name))
    }

    fn within(place: impl Fn(&str) -> PathBuf) -> Self {
        use std::os::unix::fs::PermissionsExt;

        let secret = place("backup.key");
        fs::write(&secret, "5a".repeat(32)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        Self { backup: place("martlet.backup"), secret }
    }

    fn arguments<'a>(&'a self, command: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
        let [file, secret] = [&self.backup, &self.secret].map(|path| path.to_str().unwrap());
        let arguments = ["--json", "backup", command, "--backup-key-file", secret, file];
        [&arguments, flags].concat()
    }

    fn run(&self, server: &Server, command: &str, flags: &[&str]) -> Output {
        server.ask(&self.arguments(command, flags))
    }
}

/// Makes tenants, keys, a role and buckets. Returns the credentials of a tenant and of its user.
async fn furnish(server: &Server) -> [Credentials; 2] {
    for tenant in ["research", "guests"] {
        asked(server, &["tenant", "create", tenant]);
    }
    asked(server, &["tenant", "quota", "research", "--bytes", "5GiB"]);
    asked(server, &["user", "create", "--tenant", "research", "reader", "--role", "read-only"]);
    let tenant = key(server, &["--tenant", "research"]);
    let user = key(server, &["--tenant", "research", "--user", "reader"]);
    asked(server, &["key", "create", "--role", "viewer", "--name", "dashboard"]);
    let mut client = tenant.client(server);
    client.make_bucket("data").await;
    for (name, document) in DOCUMENTS {
        let path = format!("/data?{name}=");
        let reply = client.put(&path, Bytes::from(document)).await.unwrap();
        assert!(reply.status < 300, "{name}: {}", reply.text());
    }
    asked(server, &["bucket", "quota", "data", "--objects", "1000"]);
    asked(server, &["bucket", "set", "data", "--consistency", "strict"]);
    server.client().make_bucket("plain").await;
    [tenant, user]
}

/// Starts a server with an empty data folder but for the master keys.
async fn fresh(from: &Path) -> (Setup, Server) {
    let setup = Setup::new();
    let keys = ["master.key", "sse-master.key"];
    fs::create_dir_all(setup.data_dir()).unwrap();
    for name in keys {
        fs::copy(from.join(name), setup.data_dir().join(name)).unwrap();
    }
    let server = setup.start().await;
    (setup, server)
}

#[tokio::test]
async fn a_fresh_server_gets_accounts_and_settings_back() {
    let setup = Setup::new();
    let files = Files::new(&setup);
    let mut server = setup.start().await;
    let [tenant, user] = furnish(&server).await;
    let before = documents(&mut tenant.client(&server)).await;
    let made = json(&files.run(&server, "create", &[]));
    assert_eq!(made["counts"]["bucket"], 2, "{made}");
    let again = files.run(&server, "create", &[]);
    assert!(text(&again).contains("exists: name a new file"), "{again:?}");
    let shown = json(&files.run(&server, "show", &[]));
    assert!(shown["files"].to_string().contains("index.ring"), "{shown}");
    let bytes = fs::read(&files.backup).unwrap();
    for secret in [tenant.secret.as_str(), &tenant.access_key, "research", "data"] {
        assert!(!bytes.windows(secret.len()).any(|it| it == secret.as_bytes()), "{secret}");
    }
    let unchanged = json(&files.run(&server, "restore", &[]));
    assert_eq!((planned(&unchanged, "same"), &unchanged["restored"]), (8, &0.into()));
    server.stop().await;

    let (_second, server) = fresh(&setup.data_dir()).await;
    assert_eq!(tenant.client(&server).get("/").await.unwrap().status, 403);
    let dry = json(&files.run(&server, "restore", &["--dry-run"]));
    assert_eq!((planned(&dry, "missing"), &dry["restored"]), (8, &0.into()), "{dry}");
    assert_eq!(asked(&server, &["tenant", "list"]).as_array().unwrap().len(), 0);
    let buckets = files.run(&server, "restore", &["--only", "buckets"]);
    assert!(text(&buckets).contains("restore accounts first"), "{buckets:?}");
    let rest = json(&files.run(&server, "restore", &[]));
    assert_eq!((planned(&rest, "same"), &rest["restored"]), (1, &7.into()), "{rest}");
    let second = json(&files.run(&server, "restore", &[]));
    assert_eq!((planned(&second, "same"), &second["restored"]), (8, &0.into()), "{second}");

    let mut client = tenant.client(&server);
    until_accepted(&mut client, "/data").await;
    assert_eq!(documents(&mut client).await, before);
    assert_eq!(client.put("/data/k", Bytes::from("x")).await.unwrap().status, 200);
    let mut reader = user.client(&server);
    until_accepted(&mut reader, "/data/k").await;
    assert_eq!(reader.put("/data/k", Bytes::from("y")).await.unwrap().status, 403);
    let listed = asked(&server, &["bucket", "list"]);
    let data = &listed[0];
    assert_eq!((&data["tenant"], &data["consistency"]), (&"research".into(), &"strict".into()));
    let quota = asked(&server, &["bucket", "quota", "data"]);
    assert_eq!(quota["objects_max"], 1000, "{quota}");
    let audited = text(&server.ask(&["audit", "--what", "research"]));
    assert!(audited.contains("PUT /admin/v1/backup/record"), "{audited}");
}

#[tokio::test]
async fn later_changes_stay_unless_they_are_to_be_replaced() {
    let setup = Setup::new();
    let files = Files::new(&setup);
    let server = setup.start().await;
    let [tenant, user] = furnish(&server).await;
    json(&files.run(&server, "create", &[]));
    asked(&server, &["key", "delete", &user.access_key]);
    asked(&server, &["key", "disable", &tenant.access_key]);
    let mut root = server.client();
    assert_eq!(root.delete("/data?cors=").await.unwrap().status, 204);
    assert_eq!(root.delete("/plain").await.unwrap().status, 204);

    let kept = json(&files.run(&server, "restore", &[]));
    let states = ["same", "newer", "deleted"].map(|state| planned(&kept, state));
    assert_eq!((states, &kept["restored"]), ([4, 2, 2], &0.into()), "{kept}");
    assert_eq!(user.client(&server).get("/").await.unwrap().status, 403, "a deleted key stays so");
    let accounts = json(&files.run(&server, "restore", &["--only", "accounts", "--replace"]));
    assert_eq!(accounts["restored"], 2, "{accounts}");
    let all = json(&files.run(&server, "restore", &["--replace"]));
    assert_eq!(all["restored"], 2, "{all}");
    let last = json(&files.run(&server, "restore", &["--replace"]));
    assert_eq!((planned(&last, "same"), &last["restored"]), (8, &0.into()), "{last}");
    until_accepted(&mut tenant.client(&server), "/data?cors=").await;
    until_accepted(&mut user.client(&server), "/data").await;
}

#[tokio::test]
async fn unusable_backups_are_refused_with_advice() {
    let setup = Setup::new();
    let files = Files::new(&setup);
    let mut server = setup.start().await;
    furnish(&server).await;
    json(&files.run(&server, "create", &[]));
    server.stop().await;

    // Another server, with a master key of its own.
    let other = Setup::new();
    let server = other.start().await;
    let dry = files.run(&server, "restore", &["--dry-run"]);
    let report: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!((planned(&report, "refused"), dry.status.code()), (2, Some(1)), "{dry:?}");
    assert!(text(&dry).contains("master_key_file"), "{dry:?}");
    // A damaged file changes nothing, though its begin is whole.
    let mut bytes = fs::read(&files.backup).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&files.backup, bytes).unwrap();
    let damaged = files.run(&server, "restore", &[]);
    assert!(text(&damaged).contains("use another copy"), "{damaged:?}");
    assert_eq!(asked(&server, &["tenant", "list"]).as_array().unwrap().len(), 0);
    let viewer = asked(&server, &["key", "create", "--role", "viewer", "--name", "v"]);
    assert!(viewer["secret"].is_string(), "{viewer}");
}

/// Runs `martlet admin` at a member, with the key of its cluster.
fn asked_member(cluster: &TestCluster, member: &ClusterMember, arguments: &[&str]) -> Output {
    let (address, key) = (member.admin_address.to_string(), cluster.folder().join("cluster.key"));
    let mut command = martlet(&["admin", "--admin-address", &address]);
    finished(command.arg("--cluster-key-file").arg(key).args(arguments))
}

/// Runs a command until it succeeds: replicas of a new cluster may not be ready.
async fn until_done(mut run: impl FnMut() -> Output) -> Output {
    let begun = Instant::now();
    loop {
        let output = run();
        if output.status.success() {
            return output;
        }
        assert!(begun.elapsed() < PATIENCE, "{output:?}");
        sleep(LOOK_EVERY).await;
    }
}

/// Bucket with checkpoint rules, and a tenant, both deleted after the backup of a proxy. The other
/// proxy restores them, and the rings of the backup are known to all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_proxy_restores_a_deleted_version() {
    let cluster = ClusterPlan { nodes: 3, proxies: 2, ..ClusterPlan::default() }.start().await;
    let ask = |proxy: usize, arguments: &[&str]| {
        asked_member(&cluster, &cluster.proxies[proxy], arguments)
    };
    let files = Files::within(|name| cluster.folder().join(name));
    let rules = cluster.folder().join("rules.json");
    fs::write(&rules, RULES).unwrap();
    until_done(|| ask(0, &["tenant", "create", "research"])).await;
    let mut root = cluster.client(0);
    root.make_bucket("runs").await;
    let version = root.put("/runs?versioning=", VERSIONING.into()).await.unwrap();
    assert_eq!(version.status, 200, "{}", version.text());
    let set = ["bucket", "checkpoints", "runs", "--file", rules.to_str().unwrap()];
    until_done(|| ask(0, &set)).await;
    let made = json(&ask(0, &files.arguments("create", &[])));
    assert_eq!((&made["counts"]["bucket"], &made["counts"]["tenant"]), (&1.into(), &1.into()));
    assert_eq!(root.delete("/runs").await.unwrap().status, 204);
    until_done(|| ask(1, &["tenant", "delete", "research"])).await;

    let folder = cluster.folder().join("restored");
    let to = ["--replace", "--files-to", folder.to_str().unwrap()];
    let report = json(&until_done(|| ask(1, &files.arguments("restore", &to))).await);
    assert_eq!(report["restored"], 2, "{report}");
    let rules = json(&ask(0, &["--json", "bucket", "checkpoints", "runs"]));
    let rules: Value = serde_json::from_str(rules["rules"].as_str().unwrap()).unwrap();
    assert_eq!(rules, serde_json::from_str::<Value>(RULES).unwrap());
    let tenants = json(&ask(0, &["--json", "tenant", "list"]));
    assert_eq!(tenants[0]["tenant"], "research", "{tenants}");
    let [index, data] = [INDEX, DATA].map(|name| folder.join(format!("{name}.ring")));
    let push = ["--json", "ring", "push", index.to_str().unwrap(), data.to_str().unwrap()];
    let pushed = json(&ask(1, &push));
    let answers = pushed["detail"].as_array().unwrap();
    assert_eq!(answers.len(), 6, "{pushed}");
    assert!(answers.iter().all(|answer| answer["outcome"] == "known"), "{pushed}");
}
