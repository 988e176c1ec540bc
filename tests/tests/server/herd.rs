//! Many more requests at once than a server has turns: all are answered, and answers are whole.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use martlet_tests::Setup;
use martlet_tests::bytes::body;
use tokio::task::JoinSet;

const CLIENTS: usize = 64;
const KEYS: usize = 20;
const OBJECT_BYTES: usize = 6_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_herd_beyond_the_turns_is_served_and_every_answer_is_whole() {
    let setup = Setup::new().set("MARTLET_MAX_REQUESTS", "8");
    let server = setup.set("MARTLET_MAX_WAITING_REQUESTS", "128").start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    client.make_bucket("other").await;
    for key in 0..KEYS {
        assert_eq!(
            client.put(&format!("/box/small-{key}"), body("s", 100)).await.unwrap().status,
            200
        );
    }
    let whole = body("k", OBJECT_BYTES);
    assert_eq!(client.put("/box/large", whole.clone()).await.unwrap().status, 200);
    let mut herd = JoinSet::new();
    for number in 0..CLIENTS {
        let (mut client, whole) = (server.client(), whole.clone());
        herd.spawn(async move {
            let read = client.get("/box/large").await.unwrap();
            assert_eq!(read.status, 200, "{}", read.text());
            assert!(read.body == whole, "reader {number}");
            let small = client.get("/box/small-0").await.unwrap();
            assert_eq!((small.status, small.body.len()), (200, 100));
            assert_eq!(client.keys("box").await.len(), KEYS + 1, "no list is shorter");
            let put = client.put(&format!("/other/{number}"), body("p", 3_000)).await.unwrap();
            assert_eq!(put.status, 200);
        });
    }
    herd.join_all().await;
    assert!(server.metric("martlet_queue_waits_total").await > 0, "some had to wait");
    assert_eq!(server.metric("martlet_queue_expired_total").await, 0);
    let read = server.metric("martlet_extent_read_bytes_total").await;
    assert!(read < (CLIENTS * OBJECT_BYTES) as u64, "no window was shared: {read} bytes");
    server.wait_for_metric("martlet_queue_waiting", |value| value == 0).await;
    let shared = server.metric("martlet_window_bytes").await;
    assert!(shared <= OBJECT_BYTES as u64, "the object is cached once: {shared} bytes");
}
