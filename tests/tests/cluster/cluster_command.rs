//! `martlet cluster`: a cluster starts, survives a dead node, reports its state, and leaves nothing
//! behind. Real processes, on ports and in folders of their own.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use bytes::Bytes;
use martlet_tests::S3;
use martlet_tests::server::{finished, martlet};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

/// Held by each test: two clusters that start at one moment may choose the same free port.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// One range per test, far from the usual ports.
const S3_PORTS: [&str; 5] = ["19100", "19300", "19500", "19700", "19900"];

/// A cluster that was started.
struct Up {
    folder: TempDir,
    process: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Up {
    async fn start(s3_port: &str, shape: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("martlet-cluster-").tempdir().unwrap();
        Self::again(folder, s3_port, shape).await
    }

    /// Starts a cluster of one node with variables of the environment.
    async fn start_with(folder: TempDir, s3_port: &str, environment: &[(&str, String)]) -> Self {
        let mut command = in_folder(&folder.path().join("cluster"), &["up", "--s3-port", s3_port]);
        command.args(["--nodes", "1", "--zones", "1", "--replicas", "1"]);
        command.envs(environment.iter().map(|it| (it.0, &it.1)));
        Self::wait(folder, command).await
    }

    /// Starts a cluster in a folder, which may contain a cluster already, and waits until it is
    /// ready.
    async fn again(folder: TempDir, s3_port: &str, shape: &[&str]) -> Self {
        let mut command = in_folder(&folder.path().join("cluster"), &["up", "--s3-port", s3_port]);
        command.args(shape);
        Self::wait(folder, command).await
    }

    async fn wait(folder: TempDir, mut command: Command) -> Self {
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let process = command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let mut up = Self { folder, process, out, err };
        let begun = Instant::now();
        while !up.printed().contains("Ctrl-C stops everything") {
            let ended = up.process.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "it ended with {ended:?}:\n{}{}",
                up.printed(),
                up.complained()
            );
            assert!(begun.elapsed() < PATIENCE, "it does not come up:\n{}", up.complained());
            sleep(LOOK_EVERY).await;
        }
        up
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn complained(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Runs a command on the cluster; the command must succeed.
    fn run(&self, arguments: &[&str]) -> String {
        let output = finished(&mut in_folder(&self.dir(), arguments));
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.complained());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command on the cluster; the command must fail. Returns the error.
    fn refused(&self, arguments: &[&str]) -> String {
        refusal(&finished(&mut in_folder(&self.dir(), arguments)))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"])).unwrap()
    }

    fn process(&self, name: &str) -> Value {
        let status = self.status();
        let processes = status["processes"].as_array().unwrap();
        processes.iter().find(|process| process["name"] == name).unwrap().clone()
    }

    fn pids(&self) -> Vec<u32> {
        let status = self.status();
        let pids = status["processes"].as_array().unwrap().iter();
        pids.filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok()).collect()
    }

    /// Waits until the new holders of the index ring's moves decide about them (rule P2).
    async fn wait_for_the_new_holders(&self) {
        let (key, begun) = (self.dir().join("cluster.key"), Instant::now());
        let proxy = self.process("p1")["admin_address"].as_str().unwrap().to_owned();
        loop {
            let mut ask = martlet(&["admin", "--json", "--admin-address", &proxy, "status"]);
            let told = finished(ask.arg("--cluster-key-file").arg(&key));
            let status: Value = serde_json::from_slice(&told.stdout).unwrap();
            let moves = status["moves"].as_array().unwrap();
            let index = moves.iter().find(|line| line["ring"] == "index");
            // Reports of devices are up to 5 s older than the phase.
            let change = index.map(|line| line["change"].clone()).unwrap_or_default();
            if change["phase"] == "new" && change["joined"] == change["receivers"] {
                return println!("the new holders decide after {:?}", begun.elapsed());
            }
            assert!(begun.elapsed() < PATIENCE, "the change does not end: {status}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// A client with the credentials in the cluster's folder.
    fn client(&self) -> S3 {
        let file = fs::read_to_string(self.dir().join("credentials")).unwrap();
        let value = |name: &str| {
            let line = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap().to_owned()
        };
        let status = self.status();
        let endpoint = status["endpoints"][0].as_str().unwrap();
        let address: SocketAddr = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
        S3::with_keys(address, &value("MARTLET_ROOT_ACCESS_KEY"), &value("MARTLET_ROOT_SECRET_KEY"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Sends a signal, and waits until the process and all its children have ended. Returns the
    /// folder.
    async fn stop(mut self, signal: Signal) -> TempDir {
        let pids = self.pids();
        assert!(!pids.is_empty());
        self.signal(signal);
        if signal == Signal::TERM {
            // `timeout` sends the signal to the process and to its group. Two signals must count as
            // one.
            self.signal(signal);
        }
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not stop:\n{}", self.complained());
            sleep(LOOK_EVERY).await;
        };
        let in_order = signal == Signal::TERM;
        assert_eq!(status.success(), in_order, "{status}:\n{}", self.complained());
        while pids.iter().any(|pid| is_there(*pid)) {
            assert!(begun.elapsed() < PATIENCE, "some of {pids:?} outlived it");
            sleep(LOOK_EVERY).await;
        }
        let taken = tempfile::Builder::new().prefix("martlet-cluster-").tempdir().unwrap();
        std::mem::replace(&mut self.folder, taken)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("── what the cluster said ──\n{}{}", self.printed(), self.complained());
            for entry in fs::read_dir(self.dir()).into_iter().flatten().flatten() {
                let log = fs::read_to_string(entry.path().join("log")).unwrap_or_default();
                println!("── {} ──\n{log}", entry.path().display());
            }
        }
        // Its children end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns true if a process runs; a zombie does not.
fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn in_folder(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = martlet(&["cluster"]);
    command.args(arguments).arg("--data-dir").arg(dir);
    command
}

fn refusal(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

fn body(seed: u8, bytes: usize) -> Bytes {
    (0..bytes).map(|at| seed.wrapping_add(u8::try_from(at % 251).unwrap())).collect()
}

#[tokio::test]
async fn it_outlives_a_dead_node_and_leaves_nothing_behind() {
    let _alone = ALONE.lock().await;
    let up = Up::start(S3_PORTS[0], &["--nodes", "4"]).await;
    let printed = up.printed();
    assert!(printed.contains("Martlet serves S3 at http://127.0.0.1:"), "{printed}");
    assert!(printed.contains("New credentials were generated"), "{printed}");
    let mut client = up.client();
    client.make_bucket("mine").await;
    let (small, large) = (body(1, 3000), body(2, 20 << 20));
    assert_eq!(client.put("/mine/small", small.clone()).await.unwrap().status, 200);
    assert_eq!(client.put("/mine/large", large.clone()).await.unwrap().status, 200);

    let dead = up.process("n2")["pid"].as_u64().unwrap();
    let said = up.run(&["kill", "2"]);
    assert!(said.contains(&format!("n2 (process {dead}) was killed")), "{said}");
    assert!(!is_there(u32::try_from(dead).unwrap()));
    assert_eq!(up.process("n2")["state"], "stopped");
    assert_eq!(up.process("r2")["state"], "stopped", "the node's replicator went with it");
    for (target, bytes) in [("/mine/small", &small), ("/mine/large", &large)] {
        let reply = client.get(target).await.unwrap();
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        assert!(reply.body == *bytes, "{target} reads differently without node 2");
    }
    let meanwhile = client.put("/mine/meanwhile", small.clone()).await.unwrap();
    assert_eq!(meanwhile.status, 200, "{}", meanwhile.text());

    let said = up.run(&["start", "2"]);
    assert!(said.contains("n2 (process ") && said.contains("and ready"), "{said}");
    let status = up.status();
    for process in status["processes"].as_array().unwrap() {
        assert_eq!(process["state"], "running", "{process}");
        assert_eq!(process["ready"], true, "{process}");
    }
    assert_eq!(status["rings"][0]["epoch"], 1, "{status}");
    assert_eq!(client.get("/mine/meanwhile").await.unwrap().body, small);
    assert!(up.refused(&["start", "2"]).contains("already"));

    // A restart keeps objects and secrets.
    let folder = up.stop(Signal::TERM).await;
    let secret = fs::read(folder.path().join("cluster/credentials")).unwrap();
    let up = Up::again(folder, "1", &["--nodes", "2", "--replicas", "1"]).await;
    assert!(!up.printed().contains("New credentials"), "told twice: {}", up.printed());
    assert!(up.printed().contains("Credentials are in"), "{}", up.printed());
    assert_eq!(fs::read(up.dir().join("credentials")).unwrap(), secret);
    assert_eq!(up.status()["processes"].as_array().unwrap().len(), 9, "it is another cluster");
    let reply = up.client().get("/mine/large").await.unwrap();
    assert!(reply.status == 200 && reply.body == large, "{}", reply.status);
    up.stop(Signal::TERM).await;
}

#[tokio::test]
async fn its_children_go_with_it_however_it_went() {
    let _alone = ALONE.lock().await;
    let up = Up::start(S3_PORTS[1], &["--nodes", "1", "--zones", "1", "--replicas", "1"]).await;
    let mode = |path: &str| fs::metadata(up.dir().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("cluster.key"), mode("credentials")), (0o600, 0o600));
    assert_eq!((mode("control.sock"), mode("")), (0o600, 0o700));

    // A paused process is not ready, and can't be ended by a signal that it never receives.
    up.run(&["pause", "n1"]);
    let paused = up.process("n1");
    assert_eq!((&paused["state"], &paused["ready"]), (&"paused".into(), &false.into()));
    let again = refusal(&finished(&mut in_folder(&up.dir(), &["up"])));
    assert!(again.contains("runs in") && again.contains("already"), "{again}");
    assert!(up.refused(&["kill", "7"]).contains("there is no node 7; there are: n1, r1, p1"));

    // The command reports a process that dies by itself.
    let pid = i32::try_from(up.process("r1")["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    while !up.complained().contains("martlet cluster start r1") {
        assert!(begun.elapsed() < PATIENCE, "nobody was told: {}", up.complained());
        sleep(LOOK_EVERY).await;
    }
    assert_eq!(up.process("r1")["state"]["died"], "signal 9");

    let folder = up.stop(Signal::KILL).await;
    let dir = folder.path().join("cluster");
    let alone = refusal(&finished(&mut in_folder(&dir, &["status"])));
    assert!(alone.contains("no cluster runs in"), "{alone}");
}

#[tokio::test]
async fn a_node_joins_and_objects_from_before_are_found() {
    let _alone = ALONE.lock().await;
    let up = Up::start(S3_PORTS[2], &["--nodes", "3", "--zones", "3"]).await;
    let mut client = up.client();
    client.make_bucket("mine").await;
    for number in 0..20 {
        let reply = client.put(&format!("/mine/{number}"), body(number, 200_000)).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let said = up.run(&["add-node", "--zone", "2"]);
    for ring in ["the data-0 ring of epoch 2", "the index ring of epoch 2"] {
        assert!(said.contains(&format!("n4 has d1 and d2 in zone 2; {ring}")), "{said}");
    }
    // A status is up to 5 s old.
    let begun = Instant::now();
    let has_joined = |status: &Value| {
        let devices = status["devices"].as_array().unwrap();
        devices.iter().filter(|device| device["node"] == "n4").count() == 2
    };
    let status = loop {
        let status = up.status();
        if [0, 1].iter().all(|ring| status["rings"][ring]["epoch"] == 2) && has_joined(&status) {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status}");
        sleep(LOOK_EVERY).await;
    };
    let devices = status["devices"].as_array().unwrap();
    let joined: Vec<&Value> = devices.iter().filter(|device| device["node"] == "n4").collect();
    assert!(joined.iter().all(|it| it["data_replicas"].as_u64() > Some(0)), "{joined:?}");
    assert!(joined.iter().all(|it| it["index_replicas"].as_u64() > Some(0)), "{joined:?}");
    // Every node fetches the rings by itself.
    let begun = Instant::now();
    loop {
        let status = up.status();
        let mut nodes = status["processes"].as_array().unwrap().iter();
        let is_old =
            |it: &&Value| it["role"] == "storage-node" && it["rings"] != "index=2,data-0=2";
        let Some(old) = nodes.find(is_old) else { break };
        assert!(begun.elapsed() < PATIENCE, "a node keeps the old ring: {old}");
        sleep(LOOK_EVERY).await;
    }
    for number in 0..20 {
        let reply = client.get(&format!("/mine/{number}")).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.body == body(number, 200_000), "object {number} reads differently");
    }
    up.wait_for_the_new_holders().await;
    for number in 0..20 {
        let reply = client.get(&format!("/mine/{number}")).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    up.stop(Signal::TERM).await;
}

#[tokio::test]
async fn a_policy_of_fragments_lies_over_the_same_devices() {
    let _alone = ALONE.lock().await;
    let place = tempfile::tempdir().unwrap();
    let asked = ["up", "--nodes", "3", "--devices-per-node", "1", "--policy", "ec=4+2"];
    let refused = finished(&mut in_folder(place.path(), &asked));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.contains("ec=4+2 needs 6 devices, one for each fragment"), "{refused}");

    let shape = ["--nodes", "3", "--devices-per-node", "1", "--policy", "ec=2+1"];
    let up = Up::start(S3_PORTS[3], &shape).await;
    let mut client = up.client();
    let named = [("x-martlet-storage-policy", "ec")];
    let made = client.send_with("PUT", "/coded", &named, Bytes::new()).await.unwrap();
    assert_eq!((made.status, made.header("x-martlet-storage-policy")), (200, "ec"));
    let whole: Vec<u8> = (0..251u8).cycle().take(3 << 20).collect();
    assert_eq!(client.put("/coded/k", whole.clone().into()).await.unwrap().status, 200);

    let key = up.dir().join("cluster.key");
    let proxy = up.process("p1")["admin_address"].as_str().unwrap().to_owned();
    let mut list = martlet(&["admin", "--admin-address", &proxy, "policy", "list", "--json"]);
    let told = finished(list.arg("--cluster-key-file").arg(&key));
    let policies: Value = serde_json::from_slice(&told.stdout).unwrap();
    let names = policies.as_array().unwrap().iter().map(|it| (&it["name"], &it["redundancy"]));
    let names: Vec<_> =
        names.map(|(name, it)| (name.as_str().unwrap(), it.as_str().unwrap())).collect();
    assert_eq!(names, [("default", "replicated"), ("ec", "2+1")]);

    let said = up.run(&["add-node"]);
    assert!(said.contains("the data-1 ring of epoch 2 gives it"), "{said}");
    let status = up.status();
    let rings: Vec<_> = status["rings"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(rings, ["index", "data-0", "data-1"]);
    let got = client.get("/coded/k").await.unwrap();
    assert!(got.status == 200 && got.body == whole, "{}", got.status);
    up.stop(Signal::TERM).await;
}

const HEARS: &str = "<NotificationConfiguration><QueueConfiguration>\
    <Queue>arn:martlet:sqs:::queue</Queue><Event>s3:ObjectCreated:*</Event>\
    <Event>s3:LifecycleExpiration:*</Event></QueueConfiguration></NotificationConfiguration>";
const RULES: &str = "<LifecycleConfiguration><Rule><ID>all</ID><Filter></Filter>\
    <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";

#[tokio::test]
async fn event_targets_and_logs_are_passed_to_the_processes() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::Builder::new().prefix("martlet-cluster-").tempdir().unwrap();
    let (queue, log) = (folder.path().join("queue"), folder.path().join("access.log"));
    let environment = [
        ("MARTLET_NOTIFICATIONS", format!("queue={}", queue.display())),
        ("MARTLET_ACCESS_LOG", log.display().to_string()),
        ("MARTLET_LIFECYCLE_DAY_SECONDS", "1".to_owned()),
    ];
    let up = Up::start_with(folder, S3_PORTS[4], &environment).await;
    let mut client = up.client();
    client.make_bucket("mine").await;
    for (target, document) in [("/mine?notification=", HEARS), ("/mine?lifecycle=", RULES)] {
        let reply = client.send("PUT", target, document.into()).await.unwrap();
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    }
    assert_eq!(client.put("/mine/k", body(1, 3000)).await.unwrap().status, 200);
    // The proxy reports the first event, the replicator the second.
    let begun = Instant::now();
    for (path, what) in [
        (&queue, "ObjectCreated:Put"),
        (&queue, "LifecycleExpiration:Delete"),
        (&log, "REST.PUT.OBJECT k "),
    ] {
        while !fs::read_to_string(path).unwrap_or_default().contains(what) {
            assert!(begun.elapsed() < PATIENCE, "nobody was told of {what}");
            sleep(LOOK_EVERY).await;
        }
    }
    up.stop(Signal::TERM).await;
}

#[test]
fn invalid_targets_are_errors_before_any_file_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cluster");
    let mut command = in_folder(&dir, &["up"]);
    let output = finished(command.env("MARTLET_NOTIFICATIONS", "hook=ftp://h/"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("webhooks have http and https"), "{told}");
    assert!(!dir.exists());
}
