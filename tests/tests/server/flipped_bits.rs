//! A flipped bit on disk is never served: the read fails, the extent is quarantined, a metric
//! counts it.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use martlet_tests::bytes::body;
use martlet_tests::damage::flip;
use martlet_tests::{Server, Setup};

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
        // The key accepts a new body.
        assert_eq!(client.put(&target, bytes.clone()).await.unwrap().status, 200);
        assert!(client.get(&target).await.unwrap().body == bytes);
    }
}

async fn figures(server: &Server) -> (u64, u64) {
    (
        server.metric("martlet_device_corrupt_reads_total").await,
        server.metric("martlet_device_quarantined").await,
    )
}
