//! Memory is bounded whatever is sent: at rest, after a load, and for the largest objects.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::Duration;

use futures::future::join_all;
use martlet_tests::bytes::body;
use martlet_tests::{Server, Setup, Upload, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const MIB: usize = 1 << 20;
const IDLE_MAX: u64 = 80 << 20;
const AFTER_LOAD_MAX: u64 = 250 << 20;
/// How much a single object may add, however large.
const GROWTH_MAX: u64 = 256 << 20;

async fn started(setup: &Setup) -> Server {
    let server = setup.start().await;
    server.client().make_bucket("box").await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn little_is_resident_at_rest_and_after_a_load() {
    let server = started(&Setup::new()).await;
    sleep(Duration::from_millis(500)).await;
    let idle = process::resident_bytes(server.pid());
    println!("at rest: {} MiB", idle >> 20);
    assert!(idle < IDLE_MAX, "{} MiB at rest", idle >> 20);
    let clients = (0..16).map(|client| {
        let mut s3 = server.client();
        async move {
            for round in 0..200 {
                let length = [2000, 70_000, 5 * MIB][if round % 40 == 0 { 2 } else { round % 2 }];
                let target = format!("/box/{client}-{round}");
                assert_eq!(s3.put(&target, body(&target, length)).await.unwrap().status, 200);
                assert_eq!(s3.get(&target).await.unwrap().body.len(), length);
            }
        }
    });
    join_all(clients).await;
    let after = process::resident_bytes(server.pid());
    println!("after the load: {} MiB", after >> 20);
    assert!(after < AFTER_LOAD_MAX, "{} MiB after the load", after >> 20);
}

/// How far the resident memory rose above what it was, at its highest.
struct Growth {
    pid: u32,
    before: u64,
}

impl Growth {
    fn since(server: &Server) -> Self {
        process::forget_peak(server.pid());
        Self { pid: server.pid(), before: process::resident_bytes(server.pid()) }
    }

    fn check(&self, what: &str) {
        let growth = process::peak_bytes(self.pid).saturating_sub(self.before);
        println!("memory: {what} raised it by {} MiB (limit 256)", growth >> 20);
        assert!(growth < GROWTH_MAX, "{what} raised it by {} MiB", growth >> 20);
    }
}

/// Sends a request whose body is `mib` times the same MiB; its reply, headers included.
async fn send_large(server: &Server, method: &str, target: &str, mib: usize) -> String {
    let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
    let head = server.client().head(method, target, mib * MIB);
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = body("chunk", MIB);
    for _ in 0..mib {
        stream.write_all(&chunk).await.unwrap();
    }
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    reply
}

/// Reads an object and says how long it is.
async fn read_large(server: &Server, target: &str) -> usize {
    let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
    let head = server.client().head("GET", target, 0);
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buffer = vec![0; MIB];
    let mut head_bytes = None;
    let mut total = 0;
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        if count == 0 {
            return total - head_bytes.expect("a head came");
        }
        if head_bytes.is_none() {
            let end = buffer[..count].windows(4).position(|window| window == b"\r\n\r\n");
            head_bytes = Some(end.expect("the head comes in one piece") + 4);
        }
        total += count;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes 5 GiB; `make large` runs it"]
async fn a_put_of_5_gib() {
    let server = started(&Setup::new()).await;
    let growth = Growth::since(&server);
    send_large(&server, "PUT", "/box/k", 5 * 1024).await;
    growth.check("a PUT of 5 GiB");
    assert_eq!(read_large(&server, "/box/k").await, 5 << 30);
    growth.check("a PUT and a GET of 5 GiB");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes 8 GiB; `make large` runs it"]
async fn an_upload_of_8_gib() {
    let server = started(&Setup::new()).await;
    let growth = Growth::since(&server);
    let mut client = server.client();
    let mut upload = Upload::begin(&mut client, "/box/k").await;
    for number in 1..=128 {
        let reply = send_large(&server, "PUT", &upload.target(number), 64).await;
        let (_, rest) = reply.split_once("etag: ").unwrap();
        upload.part(number, rest.lines().next().unwrap());
    }
    upload.complete(&mut client).await;
    growth.check("an upload of 8 GiB");
    assert_eq!(read_large(&server, "/box/k").await, 8 << 30);
    growth.check("an upload and a GET of 8 GiB");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "uploads 10,000 parts; `make large` runs it"]
async fn an_upload_of_10_000_parts() {
    const LENGTH: usize = 10_000;
    let setup = Setup::new().set("MARTLET_TEST_PART_BYTES_MIN", "1");
    let server = started(&setup).await;
    let growth = Growth::since(&server);
    let mut client = server.client();
    let mut upload = Upload::begin(&mut client, "/box/k").await;
    let clients = (0..16).map(|first| {
        let (mut client, upload) = (server.client(), upload.clone());
        async move {
            let mut tags = Vec::new();
            for number in (1 + first..=10_000).step_by(16) {
                let target = upload.target(number);
                let reply = client.put(&target, body(&number.to_string(), LENGTH)).await.unwrap();
                assert_eq!(reply.status, 200, "{}", reply.text());
                tags.push((number, reply.header("etag").to_owned()));
            }
            tags
        }
    });
    for (number, tag) in join_all(clients).await.into_iter().flatten() {
        upload.part(number, &tag);
    }
    upload.complete(&mut client).await;
    assert_eq!(read_large(&server, "/box/k").await, 10_000 * LENGTH);
    growth.check("an upload of 10,000 parts");
}
