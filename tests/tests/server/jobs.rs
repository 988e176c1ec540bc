//! Jobs of the admin API: a census and a rewrite that are started, followed, listed and cancelled.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use martlet_tests::Setup;
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
