//! A part that a client sends again and again, over HTTP to a server with disks.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use bytes::Bytes;
use martlet_tests::Setup;
use martlet_tests::server::Server;
use martlet_tests::upload::Upload;
use serde_json::Value;

const PART_BYTES: usize = 300_000;
const REPETITIONS: u8 = 30;

/// Bytes that count against the bucket's quota, counted now.
fn counted_bytes(server: &Server) -> u64 {
    let counted = server.ask(&["--json", "bucket", "usage", "data", "--now"]);
    assert!(counted.status.success(), "{counted:?}");
    let listed = server.ask(&["--json", "bucket", "list"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed[0]["bytes"].as_u64().unwrap()
}

#[tokio::test]
async fn m1_replaced_parts_are_freed_before_the_upload_ends() {
    let server = Setup::new().start().await;
    let mut client = server.client();
    client.make_bucket("data").await;
    let mut upload = Upload::begin(&mut client, "/data/k").await;
    let body = |seed: u8| Bytes::from(vec![seed; PART_BYTES]);
    let mut tags = Vec::new();
    for seed in 0..REPETITIONS {
        let sent = client.put(&upload.target(1), body(seed)).await.unwrap();
        assert_eq!(sent.status, 200, "{}", sent.text());
        tags.push(sent.header("etag").to_owned());
    }
    let counted = counted_bytes(&server);
    assert!(counted <= 4 * PART_BYTES as u64, "{counted} bytes of {REPETITIONS} repetitions");

    let mut replaced = upload.clone();
    replaced.part(1, &tags[0]);
    let (target, document) = replaced.completion();
    let refused = client.send("POST", &target, document.into()).await.unwrap();
    assert_eq!((refused.status, refused.all("Code")), (400, vec!["InvalidPart".to_owned()]));

    upload.part(1, tags.last().unwrap());
    upload.complete(&mut client).await;
    let read = client.get("/data/k").await.unwrap();
    assert_eq!(read.body, body(REPETITIONS - 1));
    assert_eq!(counted_bytes(&server), PART_BYTES as u64);
}
