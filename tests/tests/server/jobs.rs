//! Jobs of the admin API: a census and a rewrite that are started, followed, listed and cancelled.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, SECRET_KEY, exchange};
use martlet_tests::server::Server;
use serde_json::Value;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
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

async fn ended(server: &Server, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let line = asked(server, &["job", "show", id]);
        if text(&line, "state") != "running" {
            return line;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end: {line}");
        sleep(LOOK_EVERY).await;
    }
}

/// Starts a job by a request with the token of the root secret, or without one.
async fn started(server: &Server, body: String, has_token: bool) -> Reply {
    let token = blake3::derive_key("martlet admin token v1", SECRET_KEY.as_bytes());
    let mut request = Request::post("/admin/v1/jobs")
        .header("host", server.admin_address.to_string())
        .header("content-type", "application/json");
    if has_token {
        request = request.header("authorization", format!("Bearer {}", hex::encode(token)));
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    exchange(server.admin_address, request).await.unwrap()
}

#[tokio::test]
async fn requests_with_rings_may_be_large() {
    let server = Setup::new().start().await;
    let rings = |bytes: usize| {
        let file = "A".repeat(bytes);
        format!(r#"{{"kind": "ring-push", "rings": [{{"name": "index", "file": "{file}"}}]}}"#)
    };
    let read = started(&server, rings(5 << 20), true).await;
    assert_eq!(read.status, 400);
    assert!(read.text().contains("this server is no cluster"), "{}", read.text());
    let too_large = started(&server, rings(64 << 20), true).await;
    assert_eq!(too_large.status, 413, "{}", too_large.text());
    assert!(too_large.text().contains("larger than 64 MiB"), "{}", too_large.text());
    assert_eq!(started(&server, rings(1000), false).await.status, 401);
}

#[tokio::test]
async fn a_census_is_followed_or_detached() {
    let server = Setup::new().start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    client.put("/box/k", Bytes::from(vec![1; 100_000])).await.unwrap();
    let report = asked(&server, &["census"]);
    assert_eq!((&report["clean"], report["extents"]["things"].as_u64()), (&true.into(), Some(1)));
    let begun = asked(&server, &["census", "--detach"]);
    let id = text(&begun, "id");
    let done = ended(&server, id).await;
    assert_eq!((text(&done, "kind"), text(&done, "state")), ("census", "done"));
    assert_eq!(done["detail"]["clean"], true);
    let followed = asked(&server, &["job", "follow", id]);
    assert_eq!(followed, done, "an ended job is told at once");
    let jobs = asked(&server, &["job", "list"]);
    assert_eq!((jobs.as_array().unwrap().len(), text(&jobs[0], "id")), (2, id));
    assert_eq!(jobs[0]["detail"], Value::Null, "lists of jobs have no reports");
}

#[tokio::test]
async fn a_job_is_cancelled_and_its_id_is_not_of_another_process() {
    let setup = Setup::new();
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;
    // There are few pages, but each waits for the pause.
    let begun = asked(&server, &["census", "--detach", "--pause", "60s"]);
    let id = text(&begun, "id").to_owned();
    let again = asked(&server, &["census", "--detach", "--pause", "60s"]);
    assert_eq!(text(&again, "id"), id, "one census runs at a time");
    asked(&server, &["job", "cancel", &id]);
    let line = ended(&server, &id).await;
    assert_eq!(text(&line, "state"), "cancelled", "{line}");
    assert!(refusal(&server, &["job", "follow", &id]).contains("is cancelled"));
    assert!(refusal(&server, &["census", "--pause", "2m"]).contains("at most 60000"));
    assert!(refusal(&server, &["job", "show", "0123"]).contains("has no job 0123"));
    server.stop().await;
    let server = setup.start().await;
    assert!(refusal(&server, &["job", "show", &id]).contains("started anew"));
    assert_eq!(asked(&server, &["job", "list"]), serde_json::json!([]));
}

#[tokio::test]
async fn a_rewrite_is_a_job_of_its_bucket() {
    let server = Setup::new().start().await;
    server.client().make_bucket("box").await;
    let begun = asked(&server, &["bucket", "rewrite", "box", "--detach"]);
    assert_eq!((text(&begun, "kind"), text(&begun, "subject")), ("rewrite", "box"));
    let done = ended(&server, text(&begun, "id")).await;
    assert_eq!((text(&done, "state"), text(&done["detail"], "state")), ("done", "done"));
    let line = asked(&server, &["bucket", "rewrite", "box"]);
    assert_eq!((text(&line, "bucket"), text(&line, "state")), ("box", "done"));
    assert!(refusal(&server, &["bucket", "rewrite", "box", "--stop"]).contains("is running here"));
    assert!(refusal(&server, &["bucket", "rewrite", "nothing"]).contains("does not exist"));
    let slow = refusal(&server, &["bucket", "rewrite", "box", "--rate", "1KiB"]);
    assert!(slow.contains("at least 1MiB"), "{slow}");
}
