//! Ends of leases: deletes, killed holders, full devices, corruption, failures and restarts.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use martlet_protocol::backend::{Backend, DeviceHealth, NewExtent};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::{new_extent, whole_body};
use martlet_protocol::{BackendExt, Clock, ErrorKind, SystemClock};
use martlet_storage_node::{DirectTimes, StorageNode};

use super::client::*;
use super::{BYTES, MIB, on_image, wait_until};
use crate::support::*;

/// Length of an extent that is large beside all that the index may write in a test.
const BIG: usize = 60_000_000;

/// Returns true if `bytes` more are free than `before`, or half of them: the index writes too.
fn is_free(image: &Image, before: u64, bytes: usize) -> bool {
    free_bytes(&image.path()) >= before + bytes as u64 / 2
}

/// Makes the index allocate the space of its log, which happens at its first write.
async fn allocate_log(node: &DirectNode) {
    let first = put_extent(&node.node, "first", 10_000).await.unwrap();
    node.node.delete_extents(DEVICE, &[first.id]).await.unwrap();
}

/// File of an extent.
fn file_of(image: &Image, extent: &ExtentRef) -> std::path::PathBuf {
    let id = extent.id.to_string();
    image.path().join("device/extents").join(&id[..2]).join(id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_keeps_the_bytes_of_a_deleted_extent() {
    let Some((image, node)) = on_image("kept bytes", 256, TestOptions::default()) else { return };
    let extent = put_extent(&node.node, "kept", BIG).await.unwrap();
    let client = node.client();
    let granted = client.lease(&extent).await;
    allocate_log(&node).await;
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    let error = node.node.stat_extent(DEVICE, extent.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "the delete is acknowledged and done");
    assert!(!file_of(&image, &extent).exists());
    assert_eq!(node.withheld_bytes(), BIG as u64);
    assert_eq!(read(&granted.direct, granted.length), pattern("kept", BIG));
    assert_eq!(client.refusal(extent.id, &grant(&extent)).await, 7, "no new lease");
    // The client keeps its descriptors beyond the lease, and the device has its space all the same.
    assert!(matches!(client.release(granted.lease).await, Packet::Released { .. }));
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
    assert_eq!(node.withheld_bytes(), 0);
    wait_until("reads go on", || read(&granted.direct, granted.length).is_empty()).await;
    assert!(read(&granted.plain, granted.length).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_descriptor_without_a_lease_keeps_no_space() {
    let Some((image, node)) = on_image("no lease", 256, TestOptions::default()) else { return };
    let extent = put_extent(&node.node, "kept", BIG).await.unwrap();
    let client = node.client();
    let granted = client.lease(&extent).await;
    drop(client);
    wait_until("the lease stays", || node.figures().leases == 0).await;
    assert_eq!(read(&granted.plain, granted.length), pattern("kept", BIG), "it is not deleted");
    allocate_log(&node).await;
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
    wait_until("reads go on", || read(&granted.plain, granted.length).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_runs_keeps_its_bytes_beyond_the_lease() {
    use futures::TryStreamExt;
    let Some((image, node)) = on_image("a read", 256, TestOptions::default()) else { return };
    let extent = put_extent(&node.node, "kept", BIG).await.unwrap();
    let client = node.client();
    let granted = client.lease(&extent).await;
    let reading = node.node.read_extent(DEVICE, extent.id, 0..BIG as u64).await.unwrap();
    allocate_log(&node).await;
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    client.release(granted.lease).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let chunks: Vec<_> = reading.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), pattern("kept", BIG));
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
    let corrupt = node.node.metrics().devices[0].extents.corrupt_reads;
    assert_eq!(corrupt, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extent_that_is_released_and_written_again_is_not_touched() {
    let Some((_image, node)) = on_image("written again", 160, TestOptions::default()) else {
        return;
    };
    let extent = put_extent(&node.node, "moved", BYTES).await.unwrap();
    let client = node.client();
    let old = client.lease(&extent).await;
    node.node.release_extents(DEVICE, &[extent.id]).await.unwrap();
    put_again(&node.node, &extent).await;
    let new = client.lease(&extent).await;
    client.release(old.lease).await;
    wait_until("the old file stays", || read(&old.plain, old.length).is_empty()).await;
    assert_eq!(read(&new.direct, new.length), pattern("moved", BYTES));
    assert_eq!(node.withheld_bytes(), 0);
}

/// Writes an extent again under its id.
async fn put_again(node: &StorageNode, extent: &ExtentRef) {
    let length = Some(u64::from(extent.length));
    let new = NewExtent { id: extent.id, ..new_extent(BUCKET, "moved", length) };
    let body = whole_body(pattern("moved", BYTES));
    node.write_extent(DEVICE, new, body).await.unwrap();
}

/// A process that takes a lease, reports, and waits to be killed.
fn holder(node: &DirectNode, extent: &ExtentRef) -> Child {
    let script = "import socket, sys, time\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        s.settimeout(20)\n\
        s.connect(sys.argv[1])\n\
        extent, token = bytes.fromhex(sys.argv[2]), sys.argv[3].encode()\n\
        s.send(b'MDS1\\x01\\0\\0\\0' + bytes(8) + extent + token)\n\
        packet, files, flags, _ = socket.recv_fds(s, 8192, 2)\n\
        print(packet[4], len(files), flush=True)\n\
        time.sleep(60)";
    let token = token_key().seal(&grant(extent));
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&node.path).args([extent.id.to_string(), token]);
    python.stdout(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_killed_gives_the_space_back() {
    let Some((image, node)) = on_image("killed holder", 256, TestOptions::default()) else {
        return;
    };
    let extent = put_extent(&node.node, "held", BIG).await.unwrap();
    let mut holder = holder(&node, &extent);
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "129 2\n");
    allocate_log(&node).await;
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    // The file system's free space tells nothing yet: the index may drop a log meanwhile.
    assert_eq!(node.withheld_bytes(), BIG as u64, "the lease keeps the bytes");
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
    let figures = node.figures();
    assert_eq!((figures.leases, figures.connections, node.withheld_bytes()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_takes_the_space_of_deleted_extents_back() {
    let options = TestOptions { reserve: 24 * MIB, ..TestOptions::default() };
    let Some((image, node)) = on_image("a full device", 256, options) else { return };
    let deleted = put_extent(&node.node, "deleted", BIG).await.unwrap();
    let kept = put_extent(&node.node, "kept", BYTES).await.unwrap();
    let client = node.client();
    let (of_deleted, of_kept) = (client.lease(&deleted).await, client.lease(&kept).await);
    node.node.delete_extents(DEVICE, &[deleted.id]).await.unwrap();
    assert_eq!(node.withheld_bytes(), BIG as u64);
    image.fill(2 * MIB);
    let began_ms = SystemClock.now_ms();
    let Packet::Revoked { code: 4, lease, until_ms } = client.receive().await else {
        panic!("no notice");
    };
    assert_eq!(lease, of_deleted.lease);
    assert!(until_ms >= began_ms);
    let refused = put_extent(&node.node, "more", BYTES).await;
    if SystemClock.now_ms() < until_ms {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Full, "new bytes go elsewhere");
        assert_eq!(read(&of_deleted.plain, deleted.length.into()).len(), BIG);
    }
    wait_until("the space is kept", || node.withheld_bytes() == 0).await;
    wait_until("bytes are there", || read(&of_deleted.plain, 4096).is_empty()).await;
    wait_for_health(&node.node, |health| *health == DeviceHealth::Ready).await;
    put_extent(&node.node, "more", BYTES).await.unwrap();
    assert_eq!(read(&of_kept.direct, of_kept.length), pattern("kept", BYTES), "others stay");
    assert_eq!(node.figures().leases, 1);
    client.lease(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_extent_is_revoked() {
    let Some((image, node)) = on_image("corruption", 160, TestOptions::default()) else { return };
    let extent = put_extent(&node.node, "rotten", BYTES).await.unwrap();
    let other = put_extent(&node.node, "sound", BYTES).await.unwrap();
    let client = node.client();
    let (granted, sound) = (client.lease(&extent).await, client.lease(&other).await);
    flip(&file_of(&image, &extent), 70_000);
    let audited = node.node.audit_extents(DEVICE, None, u64::MAX).await.unwrap();
    assert_eq!(audited.corrupt, [extent.id]);
    let Packet::Revoked { code: 2, lease, .. } = client.receive().await else {
        panic!("no notice");
    };
    assert_eq!(lease, granted.lease);
    let bytes = read(&granted.plain, granted.length);
    let crc = |block: &[u8]| {
        u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block)).unwrap()
    };
    let wrong = bytes.chunks(65_536).zip(&granted.crcs).filter(|(block, sum)| crc(block) != **sum);
    assert_eq!(wrong.count(), 1, "the list of checksums shows the wrong block");
    assert_eq!(client.refusal(extent.id, &grant(&extent)).await, 13);
    wait_until("the lease stays", || node.figures().leases == 1).await;
    assert_eq!(read(&granted.plain, granted.length), bytes, "quarantined bytes stay");
    assert_eq!(read(&sound.plain, sound.length), pattern("sound", BYTES));
    assert_eq!(node.figures().revoked, [0, 1, 0, 0]);
}

fn flip(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.sync_all().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_after_its_time() {
    let times =
        DirectTimes { lease: Duration::from_millis(900), notice: NOTICE, ..DirectTimes::default() };
    let options = TestOptions { times, ..TestOptions::default() };
    let Some((_image, node)) = on_image("an old lease", 160, options) else { return };
    let extent = put_extent(&node.node, "old", BYTES).await.unwrap();
    let client = node.client();
    let granted = client.lease(&extent).await;
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    let Packet::Revoked { code: 1, lease: 1, until_ms } = client.receive().await else {
        panic!("no notice");
    };
    assert!(until_ms.abs_diff(granted.expires_ms) < 500, "the end is the announced one");
    wait_until("the lease stays", || node.figures().leases == 0).await;
    assert!(SystemClock.now_ms() + 100 >= until_ms, "not before");
    wait_until("bytes are there", || read(&granted.plain, 4096).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_has_no_leases_and_leaks_nothing() {
    let Some((image, node)) = on_image("a restart", 256, TestOptions::default()) else { return };
    let root = image.path().join("device");
    let extent = put_extent(&node.node, "old", BIG).await.unwrap();
    let kept = put_extent(&node.node, "kept", BYTES).await.unwrap();
    let client = node.client();
    let (granted, of_kept) = (client.lease(&extent).await, client.lease(&kept).await);
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    let old = node.stop().await;
    assert!(matches!(client.receive().await, Packet::Closed));
    old.shutdown().await.unwrap();
    assert!(root.join("clean").exists(), "leases don't spoil an orderly closing");
    drop(old);
    let node = DirectNode::open(&root, TestOptions::default());
    assert_eq!((node.figures().leases, node.withheld_bytes()), (0, 0));
    assert_eq!(read(&of_kept.plain, of_kept.length), pattern("kept", BYTES));
    node.client().lease(&kept).await;
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
    assert!(!file_of(&image, &extent).exists());
    drop(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_nothing_of_deleted_extents() {
    let Some((mut image, node)) = on_image("a crash", 256, TestOptions::default()) else { return };
    let root = image.path().join("device");
    let extent = put_extent(&node.node, "old", BIG).await.unwrap();
    let kept = put_extent(&node.node, "kept", BYTES).await.unwrap();
    let client = node.client();
    let granted = client.lease(&extent).await;
    let kept_lease = client.lease(&kept).await;
    let before = free_bytes(&image.path());
    node.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    image.cut_power().unwrap();
    let error = put_extent(&node.node, "more", BYTES).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable), "{error}");
    for _ in 0..2 {
        let notice = client.receive().await;
        assert!(matches!(notice, Packet::Revoked { code: 3, .. }), "{notice:?}");
    }
    drop((node.stop().await, granted, kept_lease, client));
    image.unmount();
    assert!(image.mount());
    let node = DirectNode::open(&root, TestOptions::default());
    assert!(!file_of(&image, &extent).exists(), "the next opening finishes the delete");
    let bytes = node.client().lease(&kept).await;
    assert_eq!(read(&bytes.direct, bytes.length), pattern("kept", BYTES));
    wait_until("the space is kept", || is_free(&image, before, BIG)).await;
}
