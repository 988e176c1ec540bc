//! More concurrent uploads than memory holds: `make large`.
//!
//! The bytes repeat within each 4 KiB, so that devices with compression store a tenth of the bytes.
//! With `TMPDIR` on a zram device and `MARTLET_CROWD_MIB=1024`, 64 GiB fit into the memory of a
//! small machine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use martlet_tests::bytes::body;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{BUCKET, make_bucket};

const MIB: usize = 1 << 20;
const UPLOADS: usize = 64;
const WRITE_BUFFER_MIB: u64 = 128;
/// Other memory of a proxy in MiB: at rest, for connections, and in the queues of sockets.
const REST_MIB: u64 = 384;
/// Memory of a storage node in MiB: caches of the index, and a chunk of each fragment under way.
const NODE_MIB: u64 = 384;
/// Length of each object without `MARTLET_CROWD_MIB`: four extents, and 24 GiB on disk for all
/// objects.
const LENGTH_MIB: usize = 256;
/// Maximum time of an upload of 256 MiB from its first byte to its reply.
const PATIENCE: Duration = Duration::from_mins(8);
/// Length of the repeated pattern, and of the blocks that begin with their offset.
const PATTERN_BYTES: usize = 64;
const BLOCK_BYTES: usize = 4096;

fn length_mib() -> usize {
    std::env::var("MARTLET_CROWD_MIB").map_or(LENGTH_MIB, |text| text.parse().unwrap())
}

fn patience() -> Duration {
    PATIENCE * u32::try_from(length_mib().div_ceil(LENGTH_MIB)).unwrap()
}

/// Outcome of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadOutcome {
    Stored,
    /// 503, with a `Retry-After`.
    Later,
}

/// One MiB of an object: its pattern, with the offset at the beginning of each block.
fn mib_of(pattern: &[u8], number: usize) -> Vec<u8> {
    let mut bytes = pattern.repeat(MIB / pattern.len());
    for (at, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        let offset = (number * MIB + at * BLOCK_BYTES) as u64;
        block[..8].copy_from_slice(&offset.to_le_bytes());
    }
    bytes
}

/// Sends a request with the body of an object and returns the reply. A server that refuses need not
/// read the whole body.
async fn exchange(address: SocketAddr, head: String, pattern: &[u8]) -> String {
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let (mut input, mut output) = TcpStream::connect(address).await.unwrap().into_split();
    let sent = async {
        output.write_all(head.as_bytes()).await?;
        for number in 0..length_mib() {
            output.write_all(&mib_of(pattern, number)).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let answered = async {
        let mut reply = Vec::new();
        // The connection may end with a reset if the server did not read the whole body.
        let _ = input.read_to_end(&mut reply).await;
        String::from_utf8_lossy(&reply).into_owned()
    };
    let (sent, reply) = tokio::join!(sent, answered);
    assert!(sent.is_ok() || reply.starts_with("HTTP/1.1 503 "), "{sent:?}: {reply}");
    reply
}

/// Reads an object and compares all bytes.
async fn compare(address: SocketAddr, head: String, pattern: &[u8]) {
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut byte = [0];
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "the head ends early");
        reply.push(byte[0]);
    }
    assert!(reply.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&reply));
    let mut read = vec![0; MIB];
    for at in 0..length_mib() {
        stream.read_exact(&mut read).await.unwrap();
        assert!(read == mib_of(pattern, at), "MiB {at} is another");
    }
    assert_eq!(stream.read(&mut byte).await.unwrap(), 0, "it goes on");
}

/// Uploads an object. A stored object is read and deleted, to free space for other uploads.
async fn upload(cluster: &TestCluster, number: usize) -> UploadOutcome {
    let address = cluster.proxies[0].address;
    let mut client = cluster.client(0);
    let target = format!("/{BUCKET}/{number}");
    let pattern = body(&target, PATTERN_BYTES);
    let head = client.head("PUT", &target, length_mib() * MIB);
    let reply = timeout(patience(), exchange(address, head, &pattern)).await;
    let reply = reply.expect("an upload ends one way or the other");
    if reply.starts_with("HTTP/1.1 200 ") {
        compare(address, client.head("GET", &target, 0), &pattern).await;
        assert_eq!(client.delete(&target).await.unwrap().status, 204);
        return UploadOutcome::Stored;
    }
    assert!(reply.starts_with("HTTP/1.1 503 "), "{number}: {reply}");
    assert!(reply.to_lowercase().contains("\r\nretry-after: "), "{reply}");
    assert_eq!(client.get(&target).await.unwrap().status, 404, "what was refused isn't there");
    UploadOutcome::Later
}

/// 64 uploads under 4+2: each is stored whole or refused with 503, and no process exceeds its
/// configured memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes 24 GiB; `make large` runs it"]
async fn sixty_four_uploads_wait_or_get_slow_down() {
    let proxy_settings = format!("write_buffer = \"{WRITE_BUFFER_MIB}MiB\"\n");
    let cluster =
        ClusterPlan { proxies: 1, proxy_settings, ..ClusterPlan::coded(4, 2) }.start().await;
    make_bucket(&cluster, BUCKET).await;
    let members = || cluster.nodes.iter().chain(&cluster.proxies);
    for member in members() {
        process::forget_peak(member.pid());
    }
    let begun = Instant::now();
    let ends = join_all((0..UPLOADS).map(|number| upload(&cluster, number))).await;
    let stored = ends.iter().filter(|end| **end == UploadOutcome::Stored).count();
    println!("{stored} of {UPLOADS} stored, the others told to come later: {:?}", begun.elapsed());
    for member in members() {
        let peak_mib = process::peak_bytes(member.pid()) >> 20;
        println!("{}: at most {peak_mib} MiB", member.name);
    }
    let proxy_mib = process::peak_bytes(cluster.proxies[0].pid()) >> 20;
    assert!(proxy_mib <= WRITE_BUFFER_MIB + REST_MIB, "the proxy grew to {proxy_mib} MiB");
    for node in &cluster.nodes {
        let node_mib = process::peak_bytes(node.pid()) >> 20;
        assert!(node_mib <= NODE_MIB, "{} grew to {node_mib} MiB", node.name);
    }
    assert!(stored > 0, "somebody gets through");
    let again = upload(&cluster, UPLOADS).await;
    assert_eq!(again, UploadOutcome::Stored, "it serves on");
}
