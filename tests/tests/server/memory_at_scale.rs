//! Memory by the number of connections and of uploads: it grows as `docs/SCALE.md` states for 10⁴
//! of each.

use futures::{StreamExt, stream};
use martlet_tests::bytes::body;
use martlet_tests::{S3, Server, Setup, Upload, process};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

/// Connections or uploads for which the bounds are stated.
const SCALE: u64 = 10_000;
/// Numbers whose memory is compared: a hundredth and a tenth of them.
const COUNTS: [u64; 2] = [SCALE / 100, SCALE / 10];
/// Bytes that `docs/SCALE.md` states for idle connections: buffers of 128 KiB.
const CONNECTIONS_BYTES: u64 = SCALE * (128 << 10);
/// Bytes that `docs/SCALE.md` states for uploads that have begun and have a part.
const UPLOADS_BYTES: u64 = 64 << 20;
/// Bytes that `docs/SCALE.md` states for parts whose clients pause after [`SENT`] bytes: half a MiB
/// each.
const PARTS_BYTES: u64 = SCALE * (512 << 10);
/// Variation of one measurement.
const NOISE_BYTES: u64 = 4 << 20;
const PART: usize = 64 * 1024;
/// Bytes of a part before its client pauses.
const SENT: usize = 300_000;

async fn started() -> Server {
    process::raise_file_limit(4 * COUNTS[1]);
    let setup = Setup::new()
        .set("MARTLET_MAX_CONNECTIONS", "12000")
        .set("MARTLET_MAX_REQUESTS", "12000")
        // Bodies that devices gather are a fixed part of memory; here they shall be few.
        .set("MARTLET_WRITE_BUFFER", "64MiB");
    let server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    client.put("/box/k", body("k", PART)).await.unwrap();
    server
}

/// Fails if memory grows by more from the first number to the second than the stated bytes allow.
fn check_growth(what: &str, resident: [u64; 2], stated: u64) {
    let (growth, more) = (resident[1].saturating_sub(resident[0]), COUNTS[1] - COUNTS[0]);
    let at_scale = (growth * SCALE / more) >> 20;
    println!("{what}: {growth} bytes for {more} more, {at_scale} MiB for {SCALE}");
    assert!(
        growth <= stated * more / SCALE + NOISE_BYTES,
        "{what}: {growth} bytes for {more} more; {SCALE} would take {at_scale} MiB of {}",
        stated >> 20
    );
}

/// Returns resident bytes once the server has worked off what it was sent.
async fn resident(server: &Server) -> u64 {
    sleep(Duration::from_secs(1)).await;
    process::resident_bytes(server.pid())
}

/// Runs `make` for each number below the first count, then below the second. Keeps what it returns,
/// and returns the memory at both moments.
async fn grow<T, F: Future<Output = T>>(
    server: &Server,
    make: impl Fn(u64) -> F,
) -> ([u64; 2], Vec<T>) {
    let (mut held, mut measured) = (Vec::new(), [0; 2]);
    for (at, count) in COUNTS.into_iter().enumerate() {
        let more = stream::iter((held.len() as u64..count).map(&make)).buffered(8);
        held.extend(more.collect::<Vec<_>>().await);
        measured[at] = resident(server).await;
    }
    (measured, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_take_no_more_than_stated() {
    let server = started().await;
    let connect = |_| async {
        let mut client = server.client();
        let reply = client.put("/box/k", body("k", PART)).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(client.get("/box/k").await.unwrap().body.len(), PART);
        client
    };
    let (measured, mut held) = grow(&server, connect).await;
    assert!(process::sockets(server.pid()) as u64 >= COUNTS[1]);
    check_growth("idle connections", measured, CONNECTIONS_BYTES);
    for client in held.iter_mut().step_by(97) {
        assert_eq!(client.request_once("/box/k").await.unwrap().status, 200, "it was kept open");
    }
}

async fn upload(client: &mut S3, number: u64) -> Upload {
    let mut upload = Upload::begin(client, &format!("/box/upload-{number}")).await;
    let reply = client.put(&upload.target(1), body("part", PART)).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    upload.part(1, reply.header("etag"));
    upload
}

#[tokio::test(flavor = "multi_thread")]
async fn open_uploads_take_no_more_than_stated() {
    let server = started().await;
    let begin = |number| {
        let mut client = server.client();
        async move { upload(&mut client, number).await }
    };
    let (measured, mut held) = grow(&server, begin).await;
    check_growth("open uploads", measured, UPLOADS_BYTES);
    held.pop().unwrap().complete(&mut server.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_paused_clients_take_the_stated_memory() {
    const LENGTH: usize = 8 << 20;
    let server = started().await;
    let upload = Upload::begin(&mut server.client(), "/box/parts").await;
    let pause = |number: u64| {
        let target = upload.target(usize::try_from(number).unwrap() + 1);
        let mut bytes = server.client().head("PUT", &target, LENGTH).into_bytes();
        bytes.resize(bytes.len() + SENT, 7);
        async move {
            let mut stream = TcpStream::connect(server.s3_address).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream
        }
    };
    let (measured, held) = grow(&server, pause).await;
    server.wait_for_metric("martlet_requests_in_flight", |value| value >= COUNTS[1]).await;
    check_growth("parts whose clients pause", measured, PARTS_BYTES);
    assert_eq!(server.client().get("/box/k").await.unwrap().status, 200);
    drop(held);
}
