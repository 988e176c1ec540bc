//! Rewraps and counts as jobs of a real process, and the output of long commands: states after a
//! cancellation, errors in the middle, and standard output without progress.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_tests::server::{Server, finished, martlet};
use martlet_tests::{S3, Setup};
use serde_json::Value;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Versions on the first page of a rewrap.
const PAGE: usize = 200;
const NEW: &str = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";

fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "JSON has no progress beside it: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(server: &Server, arguments: &[&str]) -> String {
    let output = server.ask(arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// Polls a job until a condition holds.
async fn until(server: &Server, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let line = asked(server, &["job", "show", id]);
        if holds(&line) {
            return line;
        }
        assert!(begun.elapsed() < PATIENCE, "it stays: {line}");
        sleep(LOOK_EVERY).await;
    }
}

async fn put(client: &mut S3, key: &str) {
    let headers = [("x-amz-server-side-encryption", "AES256")];
    let target = format!("/box/{key}");
    let reply = client.send_with("PUT", &target, &headers, Bytes::from_static(b"some")).await;
    assert_eq!(reply.unwrap().status, 200, "{key}");
}

/// Starts a server with encrypted objects, and again with another master key before the old one.
async fn with_a_new_master_key(setup: &Setup, objects: usize) -> Server {
    let mut server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    for number in 0..objects {
        put(&mut client, &format!("k{number:03}")).await;
    }
    assert!(server.stop().await.success());
    let file = setup.data_dir().join("sse-master.key");
    let old = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{NEW}\n{old}")).unwrap();
    setup.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrap_outlives_its_client_and_keeps_its_last_state_when_it_is_cancelled() {
    let setup = Setup::new();
    let server = with_a_new_master_key(&setup, PAGE + 1).await;
    // The second page would begin after 200 s.
    let begun = asked(&server, &["bucket", "rewrap", "box", "--rate", "1", "--detach"]);
    let (id, kind) = (text(&begun, "id"), text(&begun, "kind"));
    assert_eq!((kind, text(&begun, "subject")), ("rewrap", "box"));
    let first_page = |line: &Value| line["progress"]["done"] == PAGE;
    let running = until(&server, id, first_page).await;
    assert_eq!(text(&running, "state"), "running", "no client follows it");
    assert_eq!(text(&running["progress"], "unit"), "versions");
    let detail = &running["detail"];
    assert_eq!((&detail["seen"], &detail["rewrapped"]), (&PAGE.into(), &PAGE.into()), "{running}");
    let again = asked(&server, &["bucket", "rewrap", "box", "--detach"]);
    assert_eq!(text(&again, "id"), id, "one rewrap runs at a time");

    let stopped = asked(&server, &["bucket", "rewrap", "box", "--stop"]);
    assert_eq!((text(&stopped, "state"), &stopped["seen"]), ("ended", &PAGE.into()));
    assert!(text(&stopped, "error").contains("was stopped"), "{stopped}");
    let line = asked(&server, &["job", "show", id]);
    assert_eq!((text(&line, "state"), &line["eta_s"]), ("cancelled", &Value::Null));
    assert_eq!(line["progress"]["done"], PAGE, "{line}");
    assert!(refusal(&server, &["bucket", "rewrap", "box", "--stop"]).contains("is running here"));

    let done = asked(&server, &["bucket", "rewrap", "box"]);
    let figures = ["seen", "rewrapped", "failed", "uploads"].map(|name| done[name].as_u64());
    assert_eq!(figures, [Some(PAGE as u64 + 1), Some(1), Some(0), Some(0)], "{done}");
    assert_eq!(text(&done, "state"), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrap_without_the_old_key_fails_and_a_crash_loses_nothing() {
    let setup = Setup::new();
    let mut server = with_a_new_master_key(&setup, PAGE + 1).await;
    let begun = asked(&server, &["bucket", "rewrap", "box", "--rate", "1", "--detach"]);
    let first_page = |line: &Value| line["progress"]["done"] == PAGE;
    until(&server, text(&begun, "id"), first_page).await;
    server.kill();
    let _ = server.ended().await;
    let file = setup.data_dir().join("sse-master.key");
    let both = fs::read_to_string(&file).unwrap();
    fs::write(&file, NEW).unwrap();
    let mut server = setup.start().await;
    let failed = refusal(&server, &["bucket", "rewrap", "box"]);
    assert!(failed.contains("1 versions still need the old master key"), "{failed}");
    let jobs = asked(&server, &["job", "list"]);
    assert_eq!(text(&jobs[0], "state"), "failed");
    let line = asked(&server, &["job", "show", text(&jobs[0], "id")]);
    assert_eq!((&line["detail"]["failed"], &line["detail"]["rewrapped"]), (&1.into(), &0.into()));
    assert!(text(&line["detail"], "failure").starts_with("k200: "), "{line}");

    assert!(server.stop().await.success());
    fs::write(&file, both).unwrap();
    let mut server = setup.start().await;
    let done = asked(&server, &["bucket", "rewrap", "box"]);
    assert_eq!((&done["rewrapped"], text(&done, "state")), (&1.into(), "done"));
    assert!(server.stop().await.success());
    fs::write(&file, NEW).unwrap();
    let server = setup.start().await;
    let mut client = server.client();
    for number in [0, 100, PAGE] {
        let reply = client.get(&format!("/box/k{number:03}")).await.unwrap();
        assert_eq!((reply.status, &reply.body[..]), (200, &b"some"[..]), "{number}");
    }
    let unknown = refusal(&server, &["bucket", "rewrap", "nothing"]);
    assert!(unknown.contains("does not exist"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_is_a_job_for_operators_and_a_request_for_viewers() {
    let setup = Setup::new();
    let server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    for number in 0..3 {
        put(&mut client, &format!("k{number}")).await;
    }
    let counted = asked(&server, &["bucket", "usage", "box", "--now"]);
    assert_eq!((&counted["objects"], &counted["bytes"]), (&3.into(), &12.into()), "{counted}");
    let jobs = asked(&server, &["job", "list"]);
    let kinds: Vec<&str> = jobs.as_array().unwrap().iter().map(|job| text(job, "kind")).collect();
    assert_eq!(kinds, ["bucket-count"]);
    let line = asked(&server, &["job", "show", text(&jobs[0], "id")]);
    assert_eq!((text(&line, "state"), text(&line, "subject")), ("done", "box"));
    assert_eq!(line["detail"], counted);
    assert_eq!(text(&line["progress"], "text"), "3 versions counted");
    // The published count is enough from now on.
    put(&mut client, "later").await;
    assert!(asked(&server, &["bucket", "usage", "box"])["counted_ms"].is_u64());

    let key = setup.join("viewer.key");
    let key = key.to_str().unwrap();
    asked(&server, &["key", "create", "--role", "viewer", "--name", "v", "--key-file", key]);
    let address = server.admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address, "--admin-key-file", key]);
    let seen = finished(command.args(["--json", "bucket", "usage", "box", "--now"]));
    assert!(seen.status.success(), "{seen:?}");
    let seen: Value = serde_json::from_slice(&seen.stdout).unwrap();
    assert_eq!(seen["objects"], 4);
    assert_eq!(asked(&server, &["job", "list"]).as_array().unwrap().len(), 1, "no job of a viewer");
    let unknown = refusal(&server, &["bucket", "usage", "nothing", "--now"]);
    assert!(unknown.contains("does not exist"), "{unknown}");
}
