//! `martlet admin bucket list`: pages, owners, sizes and settings of all buckets.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use bytes::Bytes;
use martlet_tests::server::Server;
use martlet_tests::{S3, Setup};
use serde_json::Value;

fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(buckets: &Value) -> Vec<&str> {
    buckets.as_array().unwrap().iter().map(|bucket| bucket["bucket"].as_str().unwrap()).collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// Makes a tenant with a key, and returns a client with the key.
fn tenant(server: &Server, name: &str) -> S3 {
    asked(server, &["tenant", "create", name]);
    let key = asked(server, &["key", "create", "--tenant", name]);
    S3::with_keys(server.s3_address, text(&key, "access_key"), text(&key, "secret_key"))
}

#[tokio::test]
async fn buckets_come_in_pages_with_their_owners_sizes_and_settings() {
    let server = Setup::new().start().await;
    let mut root = server.client();
    let mut research = tenant(&server, "research");
    for at in 0..7 {
        root.make_bucket(&format!("root-{at}")).await;
    }
    research.make_bucket("data").await;
    research.put("/data/k", Bytes::from(vec![7; 5000])).await.unwrap();
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(root.put("/root-3?versioning=", Bytes::from(on)).await.unwrap().status, 200);
    asked(&server, &["bucket", "quota", "data", "--bytes", "1MiB"]);
    for counted in ["data", "root-0"] {
        asked(&server, &["bucket", "usage", counted, "--now"]);
    }
    asked(&server, &["bucket", "set", "data", "--consistency", "strict"]);

    let all = asked(&server, &["bucket", "list"]);
    let expected = ["data", "root-0", "root-1", "root-2", "root-3", "root-4", "root-5", "root-6"];
    assert_eq!(names(&all), expected);
    let data = &all[0];
    assert_eq!((text(data, "tenant"), text(data, "consistency")), ("research", "strict"));
    assert_eq!((data["bytes"].as_u64(), data["objects"].as_u64()), (Some(5000), Some(1)));
    assert!(data["counted_ms"].as_u64().is_some());
    assert_eq!(text(&all[1], "tenant"), "root");
    assert_eq!((all[1]["bytes"].as_u64(), all[1]["objects"].as_u64()), (Some(0), Some(0)));
    assert_eq!(text(&all[1], "versioning"), "off");
    assert_eq!(text(&all[4], "versioning"), "enabled");

    let two = asked(&server, &["bucket", "list", "--limit", "2", "--after", "root-1"]);
    assert_eq!(names(&two), ["root-2", "root-3"]);
    let owned = asked(&server, &["bucket", "list", "--tenant", "research"]);
    assert_eq!(names(&owned), ["data"]);
    let by_prefix = asked(&server, &["bucket", "list", "--prefix", "root-", "--tenant", "root"]);
    assert_eq!(names(&by_prefix), expected[1..]);
    let unknown = server.ask(&["bucket", "list", "--tenant", "nobody"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no tenant nobody"));
    let people = server.ask(&["bucket", "list"]);
    let people = String::from_utf8(people.stdout).unwrap();
    assert!(
        people.lines().any(|line| line.starts_with("data ") && line.contains("4.9 KiB")),
        "{people}"
    );
}
