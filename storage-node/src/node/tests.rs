//! A node over a disk that fails: what a failed sync does to a device, and how it comes back.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::ErrorKind;
use martlet_protocol::backend::DeviceHealth;
use martlet_protocol::extent::{ExtentRole, Layout, Owner};
use martlet_protocol::id::WriteId;

use super::*;
use crate::device::Reserve;
use crate::disk::{Fault, FaultyDisk};

const DEVICE: DeviceId = DeviceId(0);

fn open(folder: &std::path::Path, disk: &FaultyDisk) -> StorageNode {
    let config = DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, folder) };
    let options = NodeOptions { disk: Arc::new(disk.clone()), ..NodeOptions::default() };
    StorageNode::open(vec![config], options).unwrap()
}

async fn put(node: &StorageNode, byte: u8, length: usize) -> Result<ExtentRef> {
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
    };
    let bytes = Bytes::from(vec![byte; length]);
    node.write_extent(DEVICE, new, futures::stream::iter([Ok(bytes)]).boxed()).await
}

async fn get(node: &StorageNode, byte: u8, length: usize) -> Result<()> {
    let stream = node.read_extent(DEVICE, ExtentId([byte; 16]), 0..length as u64).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    assert!(pieces.concat() == vec![byte; length], "extent {byte} is not whole");
    Ok(())
}

async fn becomes(node: &StorageNode, wanted: impl Fn(&DeviceHealth) -> bool) {
    let began = Instant::now();
    loop {
        let health = node.devices().await.unwrap().remove(0).health;
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
            disk.fail_after(calls, Fault::Io);
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
async fn a_device_that_is_gone_is_offline_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(12);
    let node = open(folder.path(), &disk);
    put(&node, 1, 70_000).await.unwrap();
    disk.fail_after(0, Fault::PowerCut);
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
        };
        writer.write_extent(DEVICE, new, stalled).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The next write makes its room, writes, and fails.
    disk.fail_after(3, Fault::Io);
    put(&node, 2, 2_000_000).await.unwrap_err();
    let error = upload.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    becomes(&node, |_| node.metrics().devices[0].reopened == 1).await;
    becomes(&node, |health| *health == DeviceHealth::Ready).await;
    let rest: Vec<Bytes> = slow.try_collect().await.unwrap();
    assert_eq!(first.len() + rest.iter().map(Bytes::len).sum::<usize>(), length);
    put(&node, 3, length).await.unwrap();
}
