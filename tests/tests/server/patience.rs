//! Slow, silent and too many clients: each is refused or disconnected, and other clients are
//! served.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::Duration;

use martlet_tests::bytes::body;
use martlet_tests::s3::ACCESS_KEY;
use martlet_tests::{S3, Server, Setup, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const IN_FLIGHT: &str = "martlet_requests_in_flight";

async fn started(setup: &Setup) -> Server {
    let server = setup.start().await;
    server.client().make_bucket("box").await;
    server
}

async fn sent(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Reads from the connection until the server closes it.
async fn last_words(mut stream: TcpStream) -> String {
    let mut words = Vec::new();
    // A reset closes the connection, too.
    let _ = stream.read_to_end(&mut words).await;
    String::from_utf8_lossy(&words).into_owned()
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let server = started(&Setup::new().set("MARTLET_HEADER_TIMEOUT", "300ms")).await;
    for head in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: x\r\nx: "] {
        let words = last_words(sent(&server, head.as_bytes()).await).await;
        assert!(words.is_empty() || words.starts_with("HTTP/1.1 408"), "{words}");
    }
}

#[tokio::test]
async fn a_body_that_stalls_is_refused_and_leaves_nothing() {
    let server = started(&Setup::new().set("MARTLET_BODY_IDLE_TIMEOUT", "300ms")).await;
    for length in [1000, 100_000, 5_000_000] {
        let head = server.client().head("PUT", "/box/k", length);
        let mut stream = sent(&server, head.as_bytes()).await;
        stream.write_all(&body("k", length)[..length / 2]).await.unwrap();
        let words = last_words(stream).await;
        assert!(words.contains("RequestTimeout"), "{length}: {words}");
    }
    assert_eq!(server.client().get("/box/k").await.unwrap().status, 404);
    server.wait_for_metric(IN_FLIGHT, |value| value == 0).await;
}

#[tokio::test]
async fn a_reader_that_stalls_is_cut_off() {
    let server = started(&Setup::new().set("MARTLET_BODY_IDLE_TIMEOUT", "300ms")).await;
    let mut client = server.client();
    client.put("/box/k", body("k", 50_000_000)).await.unwrap();
    let before = process::sockets(server.pid());
    let stream = sent(&server, client.head("GET", "/box/k", 0).as_bytes()).await;
    server.wait_for_metric(IN_FLIGHT, |value| value > 0).await;
    server.wait_for_metric(IN_FLIGHT, |value| value == 0).await;
    // The connection of a request for metrics may close later.
    let closed = async {
        while process::sockets(server.pid()) > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), closed).await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn requests_beyond_the_limit_get_retry_after() {
    let server = started(&Setup::new().set("MARTLET_MAX_REQUESTS", "2")).await;
    let mut client = server.client();
    let mut stalled = Vec::new();
    for at in 0..2 {
        let head = client.head("PUT", &format!("/box/{at}"), 10);
        stalled.push(sent(&server, (head + "12345").as_bytes()).await);
    }
    server.wait_for_metric(IN_FLIGHT, |value| value >= 2).await;
    let reply = client.get("/box").await.unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (503, "1"), "{}", reply.text());
    assert_eq!(reply.all("Code"), ["SlowDown"]);
    for mut stream in stalled {
        stream.write_all(b"67890").await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    server.wait_for_metric(IN_FLIGHT, |value| value == 0).await;
    assert_eq!(client.keys("box").await, ["0", "1"]);
}

#[tokio::test]
async fn connections_beyond_the_limit_get_retry_after_while_all_are_busy() {
    let server = started(&Setup::new().set("MARTLET_MAX_CONNECTIONS", "2")).await;
    let mut stalled = Vec::new();
    for at in 0..2 {
        let head = server.client().head("PUT", &format!("/box/{at}"), 10);
        stalled.push(sent(&server, (head + "12345").as_bytes()).await);
        server.wait_for_metric(IN_FLIGHT, |value| value > at).await;
    }
    let refused = last_words(sent(&server, b"").await).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    for mut stream in stalled {
        stream.write_all(b"67890").await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn an_idle_connection_makes_place_for_another_those_without_a_key_first() {
    let server = started(&Setup::new().set("MARTLET_MAX_CONNECTIONS", "8")).await;
    let mut known = server.client();
    assert_eq!(known.get("/box").await.unwrap().status, 200);
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(sent(&server, b"GET / HTTP/1.1\r\n").await);
        assert_eq!(known.request_once("/box").await.unwrap().status, 200);
    }
    assert_eq!(last_words(idle.remove(0)).await, "");
    assert_eq!(server.client().get("/box").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_body_that_trickles_is_refused() {
    let setup =
        Setup::new().set("MARTLET_BODY_IDLE_TIMEOUT", "1s").set("MARTLET_MIN_BODY_RATE", "10KiB");
    let server = started(&setup).await;
    let head = server.client().head("PUT", "/box/k", 5_000_000);
    let (mut read, mut write) = sent(&server, head.as_bytes()).await.into_split();
    let trickle = tokio::spawn(async move {
        while write.write_all(&[7; 100]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut start = [0; 12];
    let ended = tokio::time::timeout(Duration::from_secs(20), read.read_exact(&mut start)).await;
    ended.expect("it ends").unwrap();
    assert_eq!(&start, b"HTTP/1.1 400");
    trickle.abort();
    server.wait_for_metric(IN_FLIGHT, |value| value == 0).await;
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused() {
    let server = started(&Setup::new()).await;
    let long = format!(
        "GET /box HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: {}\r\n\r\n",
        "y".repeat(400_000)
    );
    let many = format!(
        "GET /box HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}\r\n",
        "x: y\r\n".repeat(500)
    );
    for head in [long, many] {
        let words = last_words(sent(&server, head.as_bytes()).await).await;
        let refused = words.is_empty() || words.starts_with("HTTP/1.1 4");
        assert!(refused, "{words}");
    }
    assert_eq!(server.client().get("/box").await.unwrap().status, 200);
}

#[tokio::test]
async fn early_refusals_carry_their_reason() {
    let server = started(&Setup::new()).await;
    let bytes = body("k", 20_000_000);
    let mut stranger = S3::with_keys(server.s3_address, ACCESS_KEY, "another-secret-key");
    for _ in 0..3 {
        let reply = server.client().put("/nowhere/k", bytes.clone()).await.unwrap();
        assert_eq!((reply.status, reply.all("Code").concat().as_str()), (404, "NoSuchBucket"));
        let reply = stranger.put("/box/k", bytes.clone()).await.unwrap();
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
}
