//! A flipped bit on disk is never served: the read fails, the extent is quarantined, a metric
//! counts it.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use martlet_tests::bytes::body;
use martlet_tests::damage::flip;
use martlet_tests::{Server, Setup};
use serde_json::Value;

#[tokio::test]
async fn a_flipped_bit_is_never_served() {
    let server = Setup::new().start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    // Packed, in a file, and in a block of the file that is sent long after the reply has begun.
    for (key, length, at) in
        [("packed", 50_000, 777), ("file", 2_000_000, 0), ("late", 9 << 20, 8 << 20)]
    {
        let target = format!("/box/{key}");
        let bytes = body(key, length);
        assert_eq!(client.put(&target, bytes.clone()).await.unwrap().status, 200);
        assert!(client.get(&target).await.unwrap().body == bytes);
        let (corrupt, quarantined) = figures(&server).await;
        flip(&server, key, at);
        match client.get(&target).await {
            Ok(reply) => assert!(reply.status >= 500, "{key}: {} was served", reply.status),
            // The reply had begun, so it broke off.
            Err(_) => assert_eq!(key, "late"),
        }
        let now = figures(&server).await;
        assert!(now.0 > corrupt && now.1 > quarantined, "{key}: {now:?}");
        the_quarantine_is_listed(&server, now.1);
        // The key accepts a new body.
        assert_eq!(client.put(&target, bytes.clone()).await.unwrap().status, 200);
        assert!(client.get(&target).await.unwrap().body == bytes);
    }
}

/// Checks the list of the device's quarantine by the command.
fn the_quarantine_is_listed(server: &Server, count: u64) {
    let listed = |flags: &[&str]| {
        let output = server.ask(&[&["--json", "device", "quarantine", "0"], flags].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let all = listed(&[]);
    let items = all["items"].as_array().unwrap();
    assert_eq!((items.len() as u64, &all["next"]), (count, &Value::Null), "{all}");
    for item in items {
        let is_named = match item["kind"].as_str().unwrap() {
            "extent" => item["extent"] == item["name"],
            "record" => item["volume"].is_u64() && item["offset"].is_u64(),
            _ => false,
        };
        assert!(is_named && item["bytes"].as_u64().unwrap() >= 50_000, "{item}");
        assert!(item["since_ms"].as_u64().unwrap() > 1_700_000_000_000, "{item}");
    }
    let first = listed(&["--limit", "1"]);
    assert_eq!(first["items"], Value::from(vec![items[0].clone()]));
    let rest = listed(&["--after", items[0]["name"].as_str().unwrap()]);
    assert_eq!(rest["items"].as_array().unwrap().len() as u64, count - 1);
    let missing = server.ask(&["device", "quarantine", "77"]);
    let sentence = String::from_utf8(missing.stderr).unwrap();
    assert!(
        !missing.status.success() && sentence.contains("no ring in use has a device"),
        "{sentence}"
    );
}

async fn figures(server: &Server) -> (u64, u64) {
    (
        server.metric("martlet_device_corrupt_reads_total").await,
        server.metric("martlet_device_quarantined").await,
    )
}
