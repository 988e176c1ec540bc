//! The direct socket on an ext4 file system of its own: descriptors, refusals, and ends of leases.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod client;
mod ends;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::{Layout, Stripe};
use martlet_protocol::extent_token::ExtentGrant;
use martlet_protocol::network::Network;
use martlet_protocol::testing::{new_extent, whole_body};
use martlet_protocol::{Backend, Clock, ExtentId, PolicyId, SystemClock};
use martlet_storage_node::DirectTimes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use self::client::*;
use crate::support::*;

const MIB: u64 = 1024 * 1024;
const BYTES: usize = 3_000_000;

/// Opens a node on an image; `SKIPPED` where there is none.
fn on_image(test: &str, mib: u64, options: TestOptions) -> Option<(Image, DirectNode)> {
    let image = Image::new(test, mib)?;
    let node = DirectNode::open(&image.path().join("device"), options);
    Some((image, node))
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lent_bytes_are_those_of_a_read_and_cannot_be_written() {
    let Some((image, node)) = on_image("lent bytes", 160, TestOptions::default()) else { return };
    let extent = put_extent(&node.node, "lent", BYTES).await.unwrap();
    let client = node.client();
    let began_ms = SystemClock.now_ms();
    let granted = client.lease(&extent).await;
    assert_eq!((granted.flags, granted.offset, granted.length), (3, 0, BYTES as u64));
    assert!((began_ms + 3_600_000..began_ms + 3_660_000).contains(&granted.expires_ms));
    let bytes = pattern("lent", BYTES);
    assert_eq!(read(&granted.plain, granted.length), bytes);
    assert_eq!(read(&granted.direct, granted.length), bytes, "with O_DIRECT");
    let flags = rustix::fs::fcntl_getfl(&granted.direct).unwrap();
    assert!(flags.contains(OFlags::DIRECT) && !flags.intersects(OFlags::RDWR | OFlags::WRONLY));
    let crc = |block: &[u8]| {
        u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block)).unwrap()
    };
    assert_eq!(granted.crcs, bytes.chunks(65_536).map(crc).collect::<Vec<_>>());
    for file in [&granted.plain, &granted.direct] {
        for flags in [OFlags::RDWR, OFlags::WRONLY, OFlags::WRONLY | OFlags::TRUNC] {
            assert_eq!(open_again(file, flags).unwrap_err(), Errno::ROFS);
        }
        open_again(file, OFlags::RDONLY).unwrap();
        assert_eq!(rustix::fs::ftruncate(file, 0).unwrap_err(), Errno::INVAL);
        assert!(rustix::io::pwrite(file, b"x", 0).is_err());
    }
    let figures = node.figures();
    assert_eq!((figures.connections, figures.leases, figures.granted), (1, 1, 1));
    assert_eq!(figures.leased_bytes, BYTES as u64);
    assert!(matches!(client.release(granted.lease).await, Packet::Released { lease: 1 }));
    assert_eq!((node.figures().leases, node.figures().leased_bytes), (0, 0));
    assert_eq!(client.lease(&extent).await.lease, 2, "numbers are not used again");
    drop(client);
    wait_until("the lease stays", || node.figures().connections == 0).await;
    assert_eq!(node.figures().leases, 0);
    drop(granted);
    node.stop().await.shutdown().await.unwrap();
    drop(image);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_tokens_that_cover_the_extent_are_granted() {
    let folder = tempfile::tempdir().unwrap();
    let node = DirectNode::open(folder.path(), TestOptions::default());
    let extent = put_extent(&node.node, "one", BYTES).await.unwrap();
    let other = put_extent(&node.node, "two", BYTES).await.unwrap();
    let client = node.client();
    let whole = grant(&extent);
    assert_eq!(client.refusal(other.id, &whole).await, 3, "another extent");
    let elsewhere = grant(&other);
    assert_eq!(client.refusal(extent.id, &elsewhere).await, 3, "a token of another extent");
    let late = ExtentCase { expires_ms: Some(SystemClock.now_ms()), ..ExtentCase::default() };
    assert_eq!(client.refusal(extent.id, &late.of(&whole)).await, 4, "expired");
    for (first, last) in [(1, whole.last), (0, whole.last - 1), (4096, 8191)] {
        let part = ExtentCase { range: Some((first, last)), ..ExtentCase::default() };
        assert_eq!(client.refusal(extent.id, &part.of(&whole)).await, 5, "{first} to {last}");
    }
    let bound = ExtentCase { network: true, ..ExtentCase::default() };
    assert_eq!(client.refusal(extent.id, &bound.of(&whole)).await, 6, "a network");
    let away = ExtentCase { device: true, ..ExtentCase::default() };
    assert_eq!(client.refusal(extent.id, &away.of(&whole)).await, 7, "another device");
    let gone = ExtentId::random();
    let absent = ExtentGrant { extent: gone, ..whole.clone() };
    assert_eq!(client.refusal(gone, &absent).await, 7, "no such extent");
    let token = token_key().seal(&whole);
    for bit in (0..token.len() * 8).step_by(7) {
        let mut text = token.clone().into_bytes();
        text[bit / 8] ^= 1 << (bit % 8);
        let Ok(text) = String::from_utf8(text) else { continue };
        client.send_lease(7, extent.id, &text);
        let answer = client.receive().await;
        assert!(matches!(answer, Packet::Refused { code: 3, .. }), "bit {bit}: {answer:?}");
    }
    assert_eq!(node.figures().granted, 0);
    client.lease(&extent).await;
    // Wider than the extent is as good.
    let wide = ExtentCase { range: Some((0, u64::MAX)), ..ExtentCase::default() };
    assert!(matches!(client.ask(extent.id, &wide.of(&whole)).await, Packet::Granted(_)));
    client.send(b"MDS1 and more");
    assert!(matches!(client.receive().await, Packet::Refused { code: 1, .. }));
    assert!(matches!(client.receive().await, Packet::Closed));
}

/// Differences between a grant and one that covers an extent.
#[derive(Default)]
struct ExtentCase {
    expires_ms: Option<u64>,
    range: Option<(u64, u64)>,
    network: bool,
    device: bool,
}

impl ExtentCase {
    fn of(&self, grant: &ExtentGrant) -> ExtentGrant {
        let mut grant = grant.clone();
        grant.expires_ms = self.expires_ms.unwrap_or(grant.expires_ms);
        (grant.first, grant.last) = self.range.unwrap_or((grant.first, grant.last));
        if self.network {
            grant.networks = vec![vec![Network::parse("127.0.0.0/8").unwrap()]];
        }
        if self.device {
            grant.device = OTHER_DEVICE;
        }
        grant
    }
}

/// Writes an extent of `length` bytes as fragment `number` of a 2+1 stripe.
async fn put_fragment(node: &DirectNode, number: u8, length: usize) -> ExtentId {
    let id = ExtentId::random().fragment(number);
    let stripe = Stripe { k: 2, m: 1, length: u32::try_from(2 * length).unwrap() };
    let layout = Layout { policy: PolicyId(1), stripe: Some(stripe) };
    let new = NewExtent { id, layout, ..new_extent(BUCKET, "fragment", Some(length as u64)) };
    node.node.write_extent(DEVICE, new, whole_body(pattern("f", length))).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_fragments_are_lent_and_packed_extents_and_parity_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let node = DirectNode::open(folder.path(), TestOptions::default());
    let client = node.client();
    let packed = put_extent(&node.node, "packed", 1_000_000).await.unwrap();
    assert_eq!(client.refusal(packed.id, &grant(&packed)).await, 8);
    let length = 2 * 1_048_576;
    for (number, is_lent) in [(0, true), (1, true), (2, false)] {
        let id = put_fragment(&node, number, length).await;
        let last = length as u64 - 1;
        let fragment = ExtentGrant { extent: id, last, ..grant(&packed) };
        match client.ask(id, &fragment).await {
            Packet::Granted(granted) if is_lent => {
                assert_eq!(read(&granted.direct, granted.length), pattern("f", length));
            }
            Packet::Refused { code: 9, .. } if !is_lent => {}
            other => panic!("fragment {number}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_leases_and_bytes_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let bytes_max = 2 * 100 * BYTES as u64;
    let times = DirectTimes { first_packet: Duration::from_mins(10), ..DirectTimes::default() };
    let options = TestOptions { bytes_max, times, ..TestOptions::default() };
    let node = DirectNode::open(folder.path(), options);
    let extent = put_extent(&node.node, "one", BYTES).await.unwrap();
    let client = node.client();
    for _ in 0..64 {
        client.lease(&extent).await;
    }
    assert_eq!(client.refusal(extent.id, &grant(&extent)).await, 11, "leases of a connection");
    let second = node.client();
    for _ in 0..36 {
        second.lease(&extent).await;
    }
    assert_eq!(second.refusal(extent.id, &grant(&extent)).await, 11, "bytes of a user");
    drop(client);
    wait_until("the leases stay", || node.figures().leases == 36).await;
    second.lease(&extent).await;
    let mut clients: Vec<_> = (0..63).map(|_| node.client()).collect();
    let refused = node.client();
    assert!(matches!(refused.receive().await, Packet::Refused { code: 11, .. }));
    assert!(matches!(refused.receive().await, Packet::Closed));
    clients.pop();
    wait_until("a connection stays", || node.figures().connections == 63).await;
    node.client().lease(&extent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_slow_clients_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(300);
    let times =
        DirectTimes { first_packet: short, idle: short, send: short, ..DirectTimes::default() };
    let node = DirectNode::open(folder.path(), TestOptions { times, ..TestOptions::default() });
    let extent = put_extent(&node.node, "one", BYTES).await.unwrap();
    let silent = node.client();
    assert!(matches!(silent.receive().await, Packet::Closed));
    let idle = node.client();
    let granted = idle.lease(&extent).await;
    tokio::time::sleep(3 * short).await;
    assert!(matches!(idle.release(granted.lease).await, Packet::Released { .. }), "it had a lease");
    assert!(matches!(idle.receive().await, Packet::Closed));
    // A client that sends without end, and receives nothing.
    let deaf = node.client();
    let sending = tokio::task::spawn_blocking(move || {
        let mut packet = b"MDS1\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        packet.extend_from_slice(&[7; 300]);
        let began = Instant::now();
        while deaf.try_send(&packet) && began.elapsed() < Duration::from_secs(20) {}
        began.elapsed()
    });
    assert!(sending.await.unwrap() < Duration::from_secs(20), "it is cut off");
    wait_until("a connection stays", || node.figures().connections == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = DirectNode::open(folder.path(), TestOptions::default());
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED other users are refused: it needs root");
        return;
    }
    open_to_all(&node.path);
    let code = as_another_user(&node.path);
    assert_eq!(code, Some(2), "the user is not named");
    let allowed = TestOptions { uids: vec![65_534], ..TestOptions::default() };
    let folder = tempfile::tempdir().unwrap();
    let node = DirectNode::open(folder.path(), allowed);
    open_to_all(&node.path);
    assert_eq!(as_another_user(&node.path), Some(3), "the user may ask, and has no token");
    let root = node.client();
    assert!(matches!(root.receive().await, Packet::Refused { code: 2, .. }), "root is not named");
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for (path, mode) in [(path.parent().unwrap(), 0o711), (path, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Connects as another user with a request without a token; returns the code of the refusal.
fn as_another_user(path: &Path) -> Option<i32> {
    let script = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        s.settimeout(20)\n\
        s.connect(sys.argv[1])\n\
        try: s.send(b'MDS1\\x01\\0\\0\\0' + bytes(8) + bytes(16) + b'no token')\n\
        except BrokenPipeError: pass\n\
        reply = s.recv(8192)\n\
        sys.exit(int.from_bytes(reply[6:8], 'little'))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(path).uid(65_534).gid(65_534);
    python.status().unwrap().code()
}

/// Runs itself again without the right to mount.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_read_only_mount_the_servers_user_gets_no_descriptor() {
    const WITHIN: &str = "MARTLET_TEST_WITHOUT_MOUNTS";
    if std::env::var_os(WITHIN).is_none() {
        let test = "direct::without_a_read_only_mount_the_servers_user_gets_no_descriptor";
        let mut again = Command::new("setpriv");
        again.args(["--bounding-set", "-sys_admin"]).arg(std::env::current_exe().unwrap());
        again.args([test, "--exact", "--nocapture"]).env(WITHIN, "1");
        match again.output() {
            Ok(output) if rustix::process::geteuid().is_root() => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
            }
            _ => eprintln!("SKIPPED {test}: it needs root and setpriv"),
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = TestOptions { uids: vec![0, 65_534], ..TestOptions::default() };
    let node = DirectNode::open(folder.path(), options);
    let extent = put_extent(&node.node, "one", BYTES).await.unwrap();
    let limits = node.node.lending_limits();
    assert!(limits[0].reason.contains("CAP_SYS_ADMIN"), "{limits:?}");
    assert_eq!(node.client().refusal(extent.id, &grant(&extent)).await, 10);
    let lent = node.node.lend(DEVICE, extent.id, 65_534).await.unwrap();
    assert!(!lent.is_read_only);
    assert_eq!(read(&lent.files.direct, lent.length), pattern("one", BYTES));
}
