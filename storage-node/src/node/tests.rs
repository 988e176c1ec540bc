//! A node over a failing disk: effects of a failed sync on a device, and its recovery.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::backend::DeviceHealth;
use martlet_protocol::extent::{ExtentRole, Layout, Owner};
use martlet_protocol::id::WriteId;
use martlet_protocol::{BackendExt, BucketId, ErrorKind, ManualClock};

use super::*;
use crate::device::Reserve;
use crate::device::pulse::STALL_AFTER;
use crate::disk::{DiskFault, FaultyDisk};
use crate::metrics::DeviceMetrics;

mod hung;
mod sixty_devices;

const DEVICE: DeviceId = DeviceId(0);

fn open(folder: &std::path::Path, disk: &FaultyDisk) -> StorageNode {
    let config = DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, folder) };
    let options = NodeOptions { disk: Arc::new(disk.clone()), ..NodeOptions::default() };
    StorageNode::open(vec![config], options).unwrap()
}

async fn put(node: &StorageNode, byte: u8, length: usize) -> Result<ExtentRef> {
    put_on(node, DEVICE, byte, length).await
}

async fn put_on(
    node: &StorageNode,
    device: DeviceId,
    byte: u8,
    length: usize,
) -> Result<ExtentRef> {
    let owner = Owner {
        bucket: BucketId([1; 16]),
        key: "key".to_owned(),
        write_id: WriteId([2; 16]),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    let new = NewExtent {
        id: ExtentId([byte; 16]),
        owner,
        length: None,
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    let bytes = Bytes::from(vec![byte; length]);
    node.write_extent(device, new, futures::stream::iter([Ok(bytes)]).boxed()).await
}

async fn get(node: &StorageNode, byte: u8, length: usize) -> Result<()> {
    get_on(node, DEVICE, byte, length).await
}

async fn get_on(node: &StorageNode, device: DeviceId, byte: u8, length: usize) -> Result<()> {
    let stream = node.read_extent(device, ExtentId([byte; 16]), 0..length as u64).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    assert!(pieces.concat() == vec![byte; length], "extent {byte} is not whole");
    Ok(())
}

/// Returns true if an extent file exists with these digits in its name.
fn is_begun(disk: &FaultyDisk, root: &std::path::Path, digits: &str) -> bool {
    let extents = root.join("extents");
    let names = |folder: &std::path::Path| disk.list(folder).unwrap();
    let has = |folder: &String| names(&extents.join(folder)).iter().any(|it| it.contains(digits));
    names(&extents).iter().any(has)
}

async fn becomes(node: &StorageNode, wanted: impl Fn(&DeviceHealth) -> bool) {
    becomes_on(node, DEVICE, wanted).await;
}

async fn becomes_on(node: &StorageNode, device: DeviceId, wanted: impl Fn(&DeviceHealth) -> bool) {
    let began = Instant::now();
    loop {
        let statuses = node.devices().await.unwrap();
        let status = statuses.into_iter().find(|status| status.device == device);
        let health = status.expect("the node has the device").health;
        if wanted(&health) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{health:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_reopens_the_device_and_loses_nothing_that_was_acknowledged() {
    for length in [70_000, 1_500_000] {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(11);
        let node = open(folder.path(), &disk);
        put(&node, 1, length).await.unwrap();
        let (mut byte, mut acknowledged, mut reopened) = (1, vec![1], 0);
        for calls in 0.. {
            byte += 1;
            disk.fail_after(calls, DiskFault::Io);
            let outcome = put(&node, byte, length).await;
            if disk.heal() {
                break;
            }
            if outcome.is_ok() {
                acknowledged.push(byte);
            }
            becomes(&node, |health| *health == DeviceHealth::Ready).await;
            reopened = node.metrics().devices[0].reopened;
            for byte in &acknowledged {
                get(&node, *byte, length).await.unwrap();
            }
        }
        assert!(reopened > 0, "no sync failed in {byte} writes");
        node.shutdown().await.unwrap();
        let node = open(folder.path(), &disk);
        for byte in acknowledged {
            get(&node, byte, length).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_device_is_offline_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(12);
    let node = open(folder.path(), &disk);
    put(&node, 1, 70_000).await.unwrap();
    disk.fail_after(0, DiskFault::PowerCut);
    put(&node, 2, 70_000).await.unwrap_err();
    becomes(&node, |health| matches!(health, DeviceHealth::Suspect(_) | DeviceHealth::Offline(_)))
        .await;
    becomes(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
    let error = get(&node, 1, 70_000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_and_writers_do_not_keep_a_device_from_coming_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(13);
    let node = Arc::new(open(folder.path(), &disk));
    let length = 3_000_000;
    put(&node, 1, length).await.unwrap();
    let mut slow = node.read_extent(DEVICE, ExtentId([1; 16]), 0..length as u64).await.unwrap();
    let first = slow.next().await.unwrap().unwrap();
    let (writer, stalled) = (node.clone(), futures::stream::pending().boxed());
    let upload = tokio::spawn(async move {
        let owner = Owner {
            bucket: BucketId([1; 16]),
            key: "slow".to_owned(),
            write_id: WriteId([3; 16]),
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
        };
        let new = NewExtent {
            id: ExtentId([9; 16]),
            owner,
            length: Some(60_000_000),
            birth_ms: None,
            layout: Layout::default(),
            hashes: None,
        };
        writer.write_extent(DEVICE, new, stalled).await
    });
    while !is_begun(&disk, folder.path(), "0909") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    // A write must fail. A failed check of free space is no fault of the device.
    let is_well = |it: &DeviceMetrics| it.reopened == 0 && it.status.health == DeviceHealth::Ready;
    while is_well(&node.metrics().devices[0]) {
        disk.fail_after(3, DiskFault::Io);
        put(&node, 2, 2_000_000).await.unwrap_err();
    }
    let error = upload.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    becomes(&node, |_| node.metrics().devices[0].reopened == 1).await;
    becomes(&node, |health| *health == DeviceHealth::Ready).await;
    let rest: Vec<Bytes> = slow.try_collect().await.unwrap();
    assert_eq!(first.len() + rest.iter().map(Bytes::len).sum::<usize>(), length);
    put(&node, 3, length).await.unwrap();
}

/// A clock that panics on a committer's thread once the test has armed it.
#[derive(Debug, Default)]
struct PanicSwitch(AtomicBool);

impl Clock for PanicSwitch {
    fn now_ms(&self) -> u64 {
        let committer = std::thread::current().name().is_some_and(|it| it.starts_with("commit-"));
        assert!(!committer || !self.0.swap(false, Ordering::SeqCst), "the clock was to panic");
        1_700_000_000_000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_committer_panicked_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(PanicSwitch::default());
    let config =
        DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, folder.path()) };
    let options = NodeOptions { clock: clock.clone(), ..NodeOptions::default() };
    let node = StorageNode::open(vec![config], options).unwrap();
    node.set_joined(DEVICE, 7).await.unwrap();
    clock.0.store(true, Ordering::SeqCst);
    node.set_joined(DEVICE, 8).await.unwrap_err();
    becomes(&node, |_| node.metrics().devices[0].reopened == 1).await;
    becomes(&node, |health| *health == DeviceHealth::Ready).await;
    assert_eq!(node.devices().await.unwrap()[0].joined, 7);
    node.set_joined(DEVICE, 9).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_does_not_close_keeps_no_other_from_it() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let configs = (0..).zip(&folders).map(|(id, folder)| DeviceConfig {
        reserve: Reserve::Bytes(0),
        ..DeviceConfig::new(DeviceId(id), folder.path())
    });
    let node = StorageNode::open(configs.collect(), NodeOptions::default()).unwrap();
    // No file can replace a folder that isn't empty.
    std::fs::create_dir_all(folders[0].path().join("clean/not-empty")).unwrap();
    node.shutdown().await.unwrap_err();
    assert!(folders[1].path().join("clean").is_file(), "the second device is closed in good order");
}

/// Opens a node of one device on a clock that stands still; returns both.
fn open_by_clock(
    folder: &std::path::Path,
    disk: Arc<dyn Disk>,
    votes_when_new: bool,
) -> (StorageNode, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let config = DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, folder) };
    let options = NodeOptions { clock: clock.clone(), disk, votes_when_new, ..Default::default() };
    (StorageNode::open(vec![config], options).unwrap(), clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_did_not_open_for_a_bad_sector_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(14);
    let (node, clock) = open_by_clock(folder.path(), Arc::new(disk.clone()), true);
    put(&node, 1, 70_000).await.unwrap();
    for broken in ["volumes/0.vol", "volume-heads/0.head"] {
        disk.break_byte(&folder.path().join(broken), 40);
    }
    disk.fail_after(0, DiskFault::Io);
    put(&node, 2, 70_000).await.unwrap_err();
    becomes(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
    disk.mend_bytes();
    let began = Instant::now();
    while node.devices().await.unwrap()[0].health != DeviceHealth::Ready {
        assert!(began.elapsed() < Duration::from_secs(20));
        clock.advance_ms(1000);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    get(&node, 1, 70_000).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_file_that_the_disk_keeps_back_is_damage_where_there_are_peers() {
    for peers in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (node, _) = open_by_clock(folder.path(), Arc::new(PosixDisk), !peers);
        let before = node.devices().await.unwrap().remove(0).identity;
        node.set_joined(DEVICE, 7).await.unwrap();
        node.shutdown().await.unwrap();
        // A file of this name can't be read.
        std::fs::create_dir(folder.path().join("index/999999.log")).unwrap();
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let device = Device::new(
            DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, folder.path()) },
            SharedResources {
                clock: clock.clone(),
                caches: Caches::default(),
                disk: Arc::new(PosixDisk),
                cluster: None,
                votes_when_new: !peers,
                introduced: false,
                tree_key: TreeKey::default(),
                level: Arc::default(),
                lends: false,
                rings: None,
                stall_after: STALL_AFTER,
            },
        );
        device.open();
        for second in 0..115 {
            device.tend();
            assert!(device.offline().is_some(), "second {second}");
            clock.advance_ms(1000);
        }
        for _ in 0..60 {
            device.tend();
            clock.advance_ms(1000);
        }
        let status = device.status();
        assert_eq!(status.health == DeviceHealth::Ready, peers, "{:?}", status.health);
        let aside = std::fs::read_dir(folder.path().join("quarantine")).unwrap().count();
        assert_eq!(aside, usize::from(peers), "it begins anew, or is left alone");
        assert!(!peers || status.identity != before);
    }
}
