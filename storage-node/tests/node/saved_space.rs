//! Openings after an orderly closing, which believe the saved free space, and openings after a
//! crash, which must not.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::*;
use martlet_protocol::BackendExt;
use martlet_protocol::backend::Backend;
use martlet_protocol::extent::ExtentRef;
use martlet_storage_node::StorageNode;

/// Extents by the number that names their bytes.
type Stored = BTreeMap<usize, ExtentRef>;

fn length(number: usize) -> usize {
    9000 + number * 37 % 50 * 4000
}

async fn put(node: &StorageNode, stored: &mut Stored, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let extent = put_extent(node, &number.to_string(), length(number)).await.unwrap();
        stored.insert(number, extent);
    }
}

/// Deletes every third extent.
async fn thin_out(node: &StorageNode, stored: &mut Stored) {
    let gone: Vec<usize> = stored.keys().copied().step_by(3).collect();
    let ids: Vec<_> = gone.iter().filter_map(|number| stored.remove(number)).collect();
    let ids: Vec<_> = ids.iter().map(|extent| extent.id).collect();
    node.delete_extents(DEVICE, &ids).await.unwrap();
}

/// Checks that the device has these extents, all of them as they were written.
async fn check(node: &StorageNode, stored: &Stored) {
    for (number, extent) in stored {
        let stream = node.read_extent(DEVICE, extent.id, 0..u64::from(extent.length)).await;
        let pieces: Vec<bytes::Bytes> =
            futures::TryStreamExt::try_collect(stream.unwrap()).await.unwrap();
        assert!(pieces.concat() == pattern(&number.to_string(), length(*number)), "{number}");
    }
    let status = node.devices().await.unwrap().remove(0);
    let bytes: u64 = stored.values().map(|extent| u64::from(extent.length)).sum();
    assert_eq!((status.extents, status.extent_bytes), (stored.len() as u64, bytes));
    assert_eq!(status.quarantined, 0);
}

/// Words of the marker of an orderly closing; none without a marker.
fn marker(folder: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(folder.join("clean")).ok()?;
    Some(text.split(' ').map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_invalidates_the_marker_of_the_previous_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let mut stored = Stored::new();
    let node = open(folder.path(), 0).unwrap();
    put(&node, &mut stored, 0..60).await;
    thin_out(&node, &mut stored).await;
    node.shutdown().await.unwrap();
    drop(node);
    assert_eq!(marker(folder.path()).unwrap().len(), 2);

    let node = open(folder.path(), 0).unwrap();
    assert_eq!(marker(folder.path()), None, "removed before anything is written");
    check(&node, &stored).await;
    put(&node, &mut stored, 100..130).await;
    thin_out(&node, &mut stored).await;
    // Dropped without a closing, as in a crash: the saved map lies there, and is out of date.
    drop(node);
    assert!(folder.path().join("free-space").exists() && marker(folder.path()).is_none());

    let node = open(folder.path(), 0).unwrap();
    check(&node, &stored).await;
    put(&node, &mut stored, 200..260).await;
    check(&node, &stored).await;
    node.shutdown().await.unwrap();
    drop(node);
    check(&open(folder.path(), 0).unwrap(), &stored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_map_of_an_earlier_closing_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("free-space");
    let mut stored = Stored::new();
    let node = open(folder.path(), 0).unwrap();
    put(&node, &mut stored, 0..40).await;
    thin_out(&node, &mut stored).await;
    node.shutdown().await.unwrap();
    drop(node);
    let earlier = fs::read(&map).unwrap();
    let node = open(folder.path(), 0).unwrap();
    put(&node, &mut stored, 100..120).await;
    node.shutdown().await.unwrap();
    drop(node);
    assert_ne!(fs::read(&map).unwrap(), earlier);
    fs::write(&map, earlier).unwrap();
    let node = open(folder.path(), 0).unwrap();
    check(&node, &stored).await;
    put(&node, &mut stored, 200..260).await;
    check(&node, &stored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_marker_of_an_older_version_makes_rows_authoritative() {
    let folder = tempfile::tempdir().unwrap();
    let mut stored = Stored::new();
    let node = open(folder.path(), 0).unwrap();
    put(&node, &mut stored, 0..40).await;
    thin_out(&node, &mut stored).await;
    node.shutdown().await.unwrap();
    drop(node);
    // Older versions wrote the id of the formatting alone, and no map.
    let words = marker(folder.path()).unwrap();
    fs::write(folder.path().join("clean"), &words[0]).unwrap();
    fs::remove_file(folder.path().join("free-space")).unwrap();
    let node = open(folder.path(), 0).unwrap();
    check(&node, &stored).await;
    put(&node, &mut stored, 100..160).await;
    check(&node, &stored).await;
}
