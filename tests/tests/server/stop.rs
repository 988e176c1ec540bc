//! Stop of a server: requests under way finish, and the exit code is 0.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::Duration;

use martlet_tests::bytes::body;
use martlet_tests::{Server, Setup};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const LENGTH: usize = 3_000_000;

/// Sends the first half of a PUT.
async fn half_a_put(server: &Server) -> TcpStream {
    let client = server.client();
    let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
    stream.write_all(client.head("PUT", "/box/k", LENGTH).as_bytes()).await.unwrap();
    stream.write_all(&body("k", LENGTH)[..LENGTH / 2]).await.unwrap();
    server.wait_for_metric("martlet_requests_in_flight", |value| value > 0).await;
    stream
}

async fn started() -> (Setup, Server) {
    let setup = Setup::new();
    let server = setup.start().await;
    server.client().make_bucket("box").await;
    (setup, server)
}

#[tokio::test]
async fn a_request_under_way_finishes() {
    for signal in [Signal::TERM, Signal::INT] {
        let (setup, mut server) = started().await;
        let mut stream = half_a_put(&server).await;
        let idle = TcpStream::connect(server.s3_address).await.unwrap();
        server.signal(signal);
        while TcpStream::connect(server.s3_address).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
        let ready = server.admin("/readyz").await.unwrap();
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains("the process is stopping"), "{}", ready.text());
        stream.write_all(&body("k", LENGTH)[LENGTH / 2..]).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        assert_eq!(server.ended().await.code(), Some(0), "{}", server.logged());
        drop(idle);
        let server = setup.start().await;
        assert_eq!(server.client().get("/box/k").await.unwrap().body, body("k", LENGTH));
    }
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let (setup, mut server) = started().await;
    let stream = half_a_put(&server).await;
    server.signal(Signal::TERM);
    while TcpStream::connect(server.s3_address).await.is_ok() {
        sleep(Duration::from_millis(10)).await;
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended().await.code(), Some(1));
    drop(stream);
    let server = setup.start().await;
    assert_eq!(server.client().get("/box/k").await.unwrap().status, 404);
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_cut_off() {
    let setup = Setup::new().set("MARTLET_DRAIN_TIMEOUT", "300ms");
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;
    let _stream = half_a_put(&server).await;
    assert_eq!(server.stop().await.code(), Some(0));
    assert!(server.logged().contains("did not finish in time"), "{}", server.logged());
    let server = setup.start().await;
    assert_eq!(server.client().get("/box/k").await.unwrap().status, 404);
}
