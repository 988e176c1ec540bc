//! A full device refuses new bytes, still deletes, loses nothing, and recovers when space returns.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::{Duration, Instant};

use crate::support::*;
use martlet_protocol::backend::{Backend, DeviceHealth, WriteReply};
use martlet_protocol::entry::Value;
use martlet_protocol::{BackendExt, ErrorKind};

const MIB: u64 = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_goes_on_deleting() {
    let Some(image) = Image::new("a full device", 192) else { return };
    let root = image.path().join("device");
    let node = open(&root, 24 * MIB).unwrap();
    for number in 0..200 {
        node.write(DEVICE, inline(&format!("{number}"), 4000)).await.unwrap();
    }
    put_object(&node, "extent", 100_000).await.unwrap();
    let packed = put_extent(&node, "packed", 100_000).await.unwrap();
    let file = put_extent(&node, "file", 3_000_000).await.unwrap();
    assert_eq!(health(&node).await, DeviceHealth::Ready);

    let mut fillers = Vec::new();
    // Preallocated space of volumes is returned only once.
    for _ in 0..2 {
        fillers.push(image.fill(2 * MIB));
        wait_for_health(&node, |health| *health == DeviceHealth::Full).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    let error = put_object(&node, "more", 100_000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    let error = node.write(DEVICE, inline("more", 4000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    for number in 0..100 {
        let delete = tombstone(&format!("{number}"));
        assert_eq!(node.write(DEVICE, delete).await.unwrap(), WriteReply::Stored);
    }
    node.delete_extents(DEVICE, &[packed.id, file.id]).await.unwrap();
    for gone in [packed, file] {
        let error = node.stat_extent(DEVICE, gone.id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    let ballast = std::fs::metadata(root.join("ballast")).unwrap();
    assert_eq!(ballast.len(), 0, "the ballast was given up");
    assert_eq!(get(&node, "extent").await.unwrap().unwrap(), pattern("extent", 100_000));

    for filler in fillers {
        std::fs::remove_file(filler).unwrap();
    }
    wait_for_health(&node, |health| *health == DeviceHealth::Ready).await;
    node.write(DEVICE, inline("more", 4000)).await.unwrap();
    put_object(&node, "more extents", 100_000).await.unwrap();
    assert_eq!(std::fs::metadata(root.join("ballast")).unwrap().len(), 24 * MIB, "and taken back");
    check(&node).await;
    drop(node);
    check(&open(&root, 24 * MIB).unwrap()).await;
}

async fn check(node: &martlet_storage_node::StorageNode) {
    for number in 0..200 {
        let name = format!("{number}");
        let wanted = (number >= 100).then(|| pattern(&name, 4000));
        assert_eq!(get(node, &name).await.unwrap(), wanted, "{name}");
    }
}

/// Extents fill a device up to its high-water mark; after deletes, the whole space is usable again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extents_that_filled_a_device_leave_room_for_as_many() {
    let Some(image) = Image::new("extents at the end of the disk", 192) else { return };
    let root = image.path().join("device");
    let node = open(&root, 24 * MIB).unwrap();
    for length in [100_000, 3_000_000] {
        let began = Instant::now();
        let mut stored = Vec::new();
        let error = loop {
            match put_extent(&node, &stored.len().to_string(), length).await {
                Ok(extent) => stored.push(extent),
                // Space suffices for a short extent before it suffices for a long one.
                Err(_) if stored.is_empty() && began.elapsed() < Duration::from_secs(40) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => break error,
            }
            assert!(stored.len() < 2000, "the disk never filled");
        };
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        let bytes = (stored.len() * length) as u64;
        assert!(bytes > 80 * MIB, "only {bytes} bytes of {length} each");
        for (number, extent) in stored.iter().enumerate() {
            let range = 0..u64::from(extent.length);
            let stream = node.read_extent(DEVICE, extent.id, range).await.unwrap();
            let pieces: Vec<bytes::Bytes> =
                futures::TryStreamExt::try_collect(stream).await.unwrap();
            assert!(pieces.concat() == pattern(&number.to_string(), length));
        }
        let ids: Vec<_> = stored.iter().map(|extent| extent.id).collect();
        node.delete_extents(DEVICE, &ids).await.unwrap();
        wait_for_health(&node, |health| *health == DeviceHealth::Ready).await;
        put_extent(&node, "again", length).await.unwrap();
    }
    assert_eq!(node.devices().await.unwrap()[0].extents, 2);
}

/// Lengths of packed extents from 8 KiB to 1 MiB, in no order; each power of two is as frequent.
fn packed_length(number: usize) -> usize {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let power = 13 + random % 7;
    (1 << power) + (random >> 8) % (1 << power)
}

/// Extents of all packed lengths fill a device. After half of them was deleted at random, at least
/// 80 % of that half can be written again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_at_random_make_room_for_most_of_what_they_removed() {
    let Some(image) = Image::new("random deletes on a full disk", 256) else { return };
    let root = image.path().join("device");
    let node = open(&root, 24 * MIB).unwrap();
    let (mut stored, mut number, mut refused) = (Vec::new(), 0, 0);
    while refused < 20 {
        number += 1;
        match put_extent(&node, &number.to_string(), packed_length(number)).await {
            Ok(extent) => stored.push((number, extent)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
            }
        }
        assert!(stored.len() < 20_000, "the disk never filled");
    }
    let is_deleted = |number: usize| number.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 1;
    let (gone, mut kept): (Vec<_>, Vec<_>) =
        stored.into_iter().partition(|(number, _)| is_deleted(*number));
    let deleted: u64 = gone.iter().map(|(_, extent)| u64::from(extent.length)).sum();
    assert!(deleted > 40 * MIB, "only {deleted} bytes");
    let ids: Vec<_> = gone.iter().map(|(_, extent)| extent.id).collect();
    node.delete_extents(DEVICE, &ids).await.unwrap();

    let (began, mut written) = (Instant::now(), 0);
    while written * 10 < deleted * 8 {
        number += 1;
        match put_extent(&node, &number.to_string(), packed_length(number)).await {
            Ok(extent) => {
                written += u64::from(extent.length);
                kept.push((number, extent));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_mins(2), "{written} of {deleted} bytes");
    }
    eprintln!("{written} of {deleted} bytes after {:?}", began.elapsed());
    for (number, extent) in kept {
        let range = 0..u64::from(extent.length);
        let stream = node.read_extent(DEVICE, extent.id, range).await.unwrap();
        let pieces: Vec<bytes::Bytes> = futures::TryStreamExt::try_collect(stream).await.unwrap();
        assert!(pieces.concat() == pattern(&number.to_string(), packed_length(number)));
    }
}

/// Without a reserve RocksDB itself meets ENOSPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_met_the_end_of_the_disk_is_reopened_when_space_returns() {
    let Some(image) = Image::new("the end of the disk", 96) else { return };
    let root = image.path().join("device");
    let node = open(&root, 0).unwrap();
    node.write(DEVICE, inline("first", 4000)).await.unwrap();
    let filler = image.fill(0);
    let mut acknowledged = vec!["first".to_owned()];
    let error = loop {
        let name = format!("{}", acknowledged.len());
        match node.write(DEVICE, inline(&name, 4000)).await {
            Ok(reply) => assert_eq!(reply, WriteReply::Stored),
            Err(error) => break error,
        }
        acknowledged.push(name);
        assert!(acknowledged.len() < 50_000, "the disk never filled");
    };
    assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable), "{error}");
    std::fs::remove_file(filler).unwrap();
    wait_for_health(&node, |health| *health == DeviceHealth::Ready).await;
    node.write(DEVICE, inline("last", 4000)).await.unwrap();
    acknowledged.push("last".to_owned());
    for name in &acknowledged {
        assert_eq!(get(&node, name).await.unwrap().unwrap(), pattern(name, 4000), "{name}");
    }
}

fn tombstone(name: &str) -> martlet_protocol::backend::EntryWrite {
    let mut delete = write(name, Value::Tombstone);
    delete.entry.order.time += 100 << 16;
    delete
}
