//! Profiles of a busy server: samples with the program's own functions, one profile at a time, and
//! nothing for others than operators.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::Setup;
use martlet_tests::s3::{self, Reply, S3, SECRET_KEY, exchange};
use martlet_tests::server::{Server, finished, martlet};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const CPU: &str = "/admin/v1/profile/cpu";
const HEAP: &str = "/admin/v1/profile/heap";

/// Stores and reads objects until it is aborted.
fn load(server: &Server) -> JoinHandle<()> {
    let address = server.s3_address;
    tokio::spawn(async move {
        let mut client = S3::new(address);
        let body = Bytes::from(vec![7; 1 << 20]);
        loop {
            assert_eq!(client.put("/busy/key", body.clone()).await.unwrap().status, 200);
            assert_eq!(client.get("/busy/key").await.unwrap().body.len(), body.len());
        }
    })
}

async fn busy_server() -> (Server, JoinHandle<()>) {
    let server = Setup::new().start().await;
    server.client().make_bucket("busy").await;
    let load = load(&server);
    (server, load)
}

/// Runs a command of `martlet admin` beside the load.
async fn asked(server: &Server, arguments: &[&str]) -> Output {
    let address = server.admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address]);
    command.env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY).args(arguments);
    tokio::task::spawn_blocking(move || finished(&mut command)).await.unwrap()
}

async fn post(server: &Server, target: &str, has_token: bool) -> Reply {
    let token = blake3::derive_key("martlet admin token v1", SECRET_KEY.as_bytes());
    let address = server.admin_address;
    let mut request =
        Request::builder().method("POST").uri(target).header("host", address.to_string());
    if has_token {
        request = request.header("authorization", format!("Bearer {}", hex::encode(token)));
    }
    exchange(address, request.body(Full::default()).unwrap()).await.unwrap()
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_of_a_busy_server_names_its_functions() {
    let (mut server, load) = busy_server().await;
    let folder = tempfile::tempdir().unwrap();
    let (folded, pprof) = (folder.path().join("cpu.folded"), folder.path().join("cpu.pb.gz"));
    let flags = ["profile", "cpu", "--seconds", "3", "--frequency", "200", "--format", "folded"];
    let output = asked(&server, &[&flags[..], &["--output", path(&folded)]].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&folded).unwrap();
    let mut own = 0;
    let mut all = 0;
    for line in text.lines() {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        let samples: u64 = samples.parse().unwrap();
        all += samples;
        own += if stack.contains("martlet_") { samples } else { 0 };
    }
    assert!(own >= 20, "{own} of {all} samples have own functions\n{text}");
    let flags = ["profile", "cpu", "--seconds", "1", "--output", path(&pprof)];
    let output = asked(&server, &flags).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(&pprof).unwrap()[..2], [0x1f, 0x8b], "gzip");
    // Signals at the highest rate interrupt no request.
    for _ in 0..3 {
        let reply = post(&server, &format!("{CPU}?seconds=1&frequency=999"), true).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.header("x-martlet-samples").parse::<u64>().unwrap() > 0);
    }
    assert!(!load.is_finished(), "the load goes on");
    load.abort();
    let audit = asked(&server, &["--json", "audit"]).await;
    let audit = String::from_utf8(audit.stdout).unwrap();
    assert_eq!(audit.matches(&format!("POST {CPU}")).count(), 5, "{audit}");
    assert!(server.stop().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_profile_runs_at_a_time_within_bounds() {
    let (server, load) = busy_server().await;
    let first = async { post(&server, &format!("{CPU}?seconds=4"), true).await };
    let second = async {
        sleep(Duration::from_secs(1)).await;
        post(&server, &format!("{CPU}?seconds=1"), true).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.status, second.status), (200, 409));
    assert!(second.text().contains("another CPU profile"), "{}", second.text());
    for (query, part) in [
        ("seconds=0", "from 1 to 60"),
        ("seconds=61", "from 1 to 60"),
        ("seconds=1&frequency=1000", "from 1 to 999"),
        ("seconds=1&format=svg", "pprof or folded"),
    ] {
        let reply = post(&server, &format!("{CPU}?{query}"), true).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.text().contains(part), "{}", reply.text());
    }
    assert_eq!(post(&server, CPU, true).await.status, 400, "the duration is required");
    load.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_are_for_operators_and_not_at_the_s3_port() {
    let server = Setup::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let (key, output) = (folder.path().join("viewer.key"), folder.path().join("cpu.pb.gz"));
    let flags = ["key", "create", "--role", "viewer", "--name", "v", "--key-file", path(&key)];
    assert!(asked(&server, &flags).await.status.success());
    for command in [
        &["profile", "cpu", "--seconds", "1", "--output", path(&output)][..],
        &["profile", "heap", "--seconds", "1", "--output", path(&output)],
        &["profile", "memory"],
    ] {
        let asked = asked(&server, &[&["--admin-key-file", path(&key)], command].concat()).await;
        let sentence = String::from_utf8(asked.stderr).unwrap();
        assert!(!asked.status.success() && sentence.contains("role operator"), "{sentence}");
    }
    assert!(!output.exists());
    assert_eq!(post(&server, &format!("{CPU}?seconds=1"), false).await.status, 401);
    let memory = "/admin/v1/profile/memory";
    assert_eq!(s3::plain(server.admin_address, memory).await.unwrap().status, 401);
    let at_s3 = s3::plain(server.s3_address, memory).await.unwrap();
    assert!(at_s3.status != 200 && at_s3.text().contains("<Error>"), "{}", at_s3.text());
    let target = format!("{CPU}?seconds=1");
    let at_s3 = server.client().send("POST", &target, Bytes::new()).await.unwrap();
    assert!(at_s3.status >= 400 && at_s3.header("x-martlet-samples").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heap_profile_of_a_busy_server_names_its_functions() {
    let (mut server, load) = busy_server().await;
    let folder = tempfile::tempdir().unwrap();
    let (folded, pprof) = (folder.path().join("heap.folded"), folder.path().join("heap.pb.gz"));
    let flags = ["profile", "heap", "--seconds", "3", "--interval", "65536", "--format", "folded"];
    let output = asked(&server, &[&flags[..], &["--output", path(&folded)]].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&folded).unwrap();
    let mut own = 0;
    for line in text.lines() {
        let (stack, bytes) = line.rsplit_once(' ').unwrap();
        assert!(stack.starts_with("in use;") || stack.starts_with("freed;"), "{line}");
        assert!(!stack.contains("martlet_heap_profile"), "the profiler is in no stack: {line}");
        own += if stack.contains("martlet_") { bytes.parse::<u64>().unwrap() } else { 0 };
    }
    assert!(own >= 1 << 20, "{own} bytes have own functions\n{text}");
    let output =
        asked(&server, &["profile", "heap", "--seconds", "1", "--output", path(&pprof)]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(&pprof).unwrap()[..2], [0x1f, 0x8b], "gzip");
    let first = async { post(&server, &format!("{HEAP}?seconds=3"), true).await };
    let second = async {
        sleep(Duration::from_secs(1)).await;
        post(&server, &format!("{HEAP}?seconds=1"), true).await
    };
    let cpu = async { post(&server, &format!("{CPU}?seconds=1"), true).await };
    let (first, second, cpu) = tokio::join!(first, second, cpu);
    assert_eq!((first.status, second.status, cpu.status), (200, 409, 200));
    assert!(second.text().contains("another heap profile"), "{}", second.text());
    assert!(first.header("x-martlet-samples").parse::<u64>().unwrap() > 0);
    for (query, part) in [
        ("seconds=0", "from 1 to 60"),
        ("seconds=1&interval=1", "from 16384 to"),
        ("seconds=1&format=svg", "pprof or folded"),
    ] {
        let reply = post(&server, &format!("{HEAP}?{query}"), true).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.text().contains(part), "{}", reply.text());
    }
    assert!(!load.is_finished(), "the load goes on");
    load.abort();
    let audit = String::from_utf8(asked(&server, &["--json", "audit"]).await.stdout).unwrap();
    assert!(audit.matches(&format!("POST {HEAP}")).count() >= 4, "{audit}");
    assert!(server.stop().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_a_server_is_shown_by_mappings() {
    let server = Setup::new().start().await;
    let output = asked(&server, &["--json", "profile", "memory"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let resident = report["resident_bytes"].as_u64().unwrap();
    assert!(resident > 10 << 20, "{report}");
    assert!(report["split"]["memory_bytes"].as_u64().unwrap() > 0, "{report}");
    let mappings = report["mappings"].as_array().unwrap();
    let sum: u64 = mappings.iter().map(|line| line["resident_bytes"].as_u64().unwrap()).sum();
    assert!(sum > resident / 2 && sum < resident * 2, "{sum} of {resident}");
    assert!(mappings.iter().any(|line| line["kind"] == "anonymous"), "{report}");
    let text = String::from_utf8(asked(&server, &["profile", "memory"]).await.stdout).unwrap();
    assert!(text.contains("mimalloc") && text.contains("index cache"), "{text}");
}
