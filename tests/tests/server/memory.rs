//! Memory is bounded: at rest, after a load, and for the largest objects.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use martlet_tests::bytes::body;
use martlet_tests::{Server, Setup, Upload, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const MIB: usize = 1 << 20;
/// Maximum resident memory at rest in bytes, without huge pages.
const IDLE_MAX: u64 = 64 << 20;
/// Maximum that huge pages add at rest, in bytes: a touched one is resident whole.
const HUGE_PAGES_MAX: u64 = 48 << 20;
const AFTER_LOAD_MAX: u64 = 250 << 20;
/// Maximum growth in bytes during requests for a single object of any size.
const GROWTH_MAX: u64 = 256 << 20;

async fn started(setup: &Setup) -> Server {
    let server = setup.start().await;
    server.client().make_bucket("box").await;
    server
}

/// Checks the resident memory of a server without load.
async fn resident_at_rest(server: &Server, bytes_max: u64) {
    sleep(Duration::from_millis(500)).await;
    let idle = process::resident_bytes(server.pid());
    println!("at rest: {} MiB (limit {})", idle >> 20, bytes_max >> 20);
    assert!(idle < bytes_max, "{} MiB at rest", idle >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn little_is_resident_at_rest_and_after_a_load() {
    let setup = Setup::new().set("MIMALLOC_ALLOW_THP", "0");
    resident_at_rest(&started(&setup).await, IDLE_MAX).await;
    let server = started(&Setup::new()).await;
    resident_at_rest(&server, IDLE_MAX + HUGE_PAGES_MAX).await;
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

/// Growth of a server's peak resident memory since a moment.
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
        self.check_within(what, GROWTH_MAX >> 20);
    }

    fn check_within(&self, what: &str, mib_max: u64) {
        let growth = process::peak_bytes(self.pid).saturating_sub(self.before) >> 20;
        println!("memory: {what} raised it by {growth} MiB (limit {mib_max})");
        assert!(growth < mib_max, "{what} raised it by {growth} MiB");
    }
}

/// Sends a request whose body is one MiB repeated `mib` times. Returns the reply with its head.
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

/// Reads an object and returns its length.
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

/// Opens connections. Sends `bytes(number)` on each until the server replies or closes the
/// connection.
async fn crowd(server: &Server, count: usize, bytes: impl Fn(usize) -> Vec<u8>) -> Vec<TcpStream> {
    process::raise_file_limit(2 * count as u64);
    let hold = |bytes: Vec<u8>| async move {
        let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
        for piece in bytes.chunks(64 * 1024) {
            let is_over = stream.try_read(&mut [0; 1]).is_ok();
            if is_over || stream.write_all(piece).await.is_err() {
                break;
            }
        }
        stream
    };
    stream::iter((0..count).map(|at| hold(bytes(at)))).buffered(16).collect().await
}

/// A bucket policy that allows any principal to complete uploads.
pub(crate) fn open_to_all(bucket: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":"*",
        "Action":"s3:PutObject","Resource":"arn:aws:s3:::{bucket}/*"}}]}}"#
    ))
}

async fn open(server: &Server, bucket: &str) {
    let target = format!("/{bucket}?policy=");
    let reply = server.client().send("PUT", &target, open_to_all(bucket)).await.unwrap();
    assert_eq!(reply.status, 204, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_documents_of_strangers_hold_little() {
    const DOCUMENT: usize = 4 * MIB;
    let server = started(&Setup::new()).await;
    open(&server, "box").await;
    let growth = Growth::since(&server);
    let half = |at: usize| {
        let bucket = ["nowhere", "box"][at % 2];
        let head = format!(
            "POST /{bucket}/k?uploadId=x HTTP/1.1\r\nhost: x\r\ncontent-length: {DOCUMENT}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + DOCUMENT / 4, b' ');
        bytes
    };
    let crowd = crowd(&server, 900, half).await;
    growth.check_within("900 half-sent documents", 200);
    assert_eq!(server.client().get("/box").await.unwrap().status, 200);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_stall_hold_little() {
    let server = started(&Setup::new()).await;
    let growth = Growth::since(&server);
    let client = server.client();
    let half = |at: usize| {
        let mut bytes = client.head("PUT", &format!("/box/{at}"), 2 * MIB).into_bytes();
        bytes.resize(bytes.len() + [70_000, 900_000][at % 2], 7);
        bytes
    };
    let crowd = crowd(&server, 600, half).await;
    server.wait_for_metric("martlet_requests_in_flight", |value| value >= 600).await;
    sleep(Duration::from_secs(2)).await;
    growth.check_within("600 bodies that stall", 750);
    // Buffers are short now. Bodies still pass through them unchanged.
    let mut client = server.client();
    for length in [300_000, 700_000, 3_000_000] {
        let sent = body("k", length);
        assert_eq!(client.put("/box/k", sent.clone()).await.unwrap().status, 200);
        assert_eq!(client.get("/box/k").await.unwrap().body, sent, "{length}");
    }
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_bodies_that_stall_hold_what_write_buffer_allows() {
    let server = started(&Setup::new().set("MARTLET_WRITE_BUFFER", "128MiB")).await;
    let growth = Growth::since(&server);
    let client = server.client();
    let most = |at: usize| {
        let mut bytes = client.head("PUT", &format!("/box/{at}"), MIB).into_bytes();
        bytes.resize(bytes.len() + 1_000_000, 7);
        bytes
    };
    let crowd = crowd(&server, 600, most).await;
    server.wait_for_metric("martlet_requests_in_flight", |value| value >= 600).await;
    sleep(Duration::from_secs(2)).await;
    growth.check_within("600 bodies of a MiB that stall", 400);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_replies_hold_little_memory() {
    let server = started(&Setup::new()).await;
    let mut client = server.client();
    client.put("/box/k", body("k", 32 * MIB)).await.unwrap();
    let growth = Growth::since(&server);
    let crowd = crowd(&server, 600, |_| client.head("GET", "/box/k", 0).into_bytes()).await;
    server.wait_for_metric("martlet_requests_in_flight", |value| value >= 600).await;
    sleep(Duration::from_secs(1)).await;
    growth.check_within("600 replies that nobody reads", 350);
    assert_eq!(server.client().get("/box/k").await.unwrap().body.len(), 32 * MIB);
    drop(crowd);
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
