//! A device with a damaged index begins anew if it has peers, and stays offline if it is alone
//! (rule G1). Its extents stay in both cases.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use futures::TryStreamExt;
use martlet_protocol::backend::{Backend, DeviceHealth, DeviceStatus, Presence, Want, WriteReply};
use martlet_protocol::{BackendExt, ErrorKind, ExtentId, Term};
use martlet_storage_node::{NodeOptions, StorageNode};

const REGISTERS: usize = 300;

fn open_beside_peers(folder: &Path) -> StorageNode {
    let options = NodeOptions { votes_when_new: false, ..NodeOptions::default() };
    StorageNode::open(vec![config(folder, 0)], options).unwrap()
}

async fn status(node: &StorageNode) -> DeviceStatus {
    node.devices().await.unwrap().remove(0)
}

/// Makes a device with votes, registers and extents, closed in good order.
async fn filled(folder: &Path) -> (DeviceStatus, Vec<ExtentId>) {
    let node = open_beside_peers(folder);
    give_fences(&node).await;
    node.set_voting(DEVICE, true).await.unwrap();
    node.raise_term(DEVICE, Term(6)).await.unwrap();
    for number in 0..REGISTERS {
        let length = if number % 2 == 0 { 200 } else { 3000 };
        node.write(DEVICE, inline(&number.to_string(), length)).await.unwrap();
    }
    let mut extents = Vec::new();
    for (name, length) in [("packed", 70_000), ("file", 2_000_000)] {
        extents.push(put_extent(&node, name, length).await.unwrap().id);
    }
    let before = status(&node).await;
    node.shutdown().await.unwrap();
    (before, extents)
}

/// Returns the longest file of the index with this suffix.
fn longest(folder: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(folder.join("index")).unwrap().map(|entry| entry.unwrap().path());
    let named = files.filter(|path| path.to_str().unwrap().ends_with(end));
    named.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

fn flip_every(path: &Path, stride: usize) {
    let mut bytes = fs::read(path).unwrap();
    for at in (0..bytes.len()).step_by(stride) {
        bytes[at] ^= 0x20;
    }
    fs::write(path, bytes).unwrap();
}

type Damage = fn(&Path);

/// Damages to an index; the opening detects some of them, reads detect the rest.
fn damages() -> [(&'static str, Damage); 5] {
    [
        ("tables", |folder| {
            for entry in fs::read_dir(folder.join("index")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "sst") {
                    flip_every(&path, 1000);
                }
            }
        }),
        ("blob", |folder| flip_every(&longest(folder, ".blob"), 700)),
        ("manifest", |folder| {
            let current = fs::read_to_string(folder.join("index/CURRENT")).unwrap();
            let path = folder.join("index").join(current.trim());
            let middle = usize::try_from(path.metadata().unwrap().len()).unwrap() / 2;
            let mut bytes = fs::read(&path).unwrap();
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("current", |folder| {
            fs::write(folder.join("index/CURRENT"), b"MANIFEST-999999\n").unwrap();
        }),
        ("everything", |folder| fs::remove_dir_all(folder.join("index")).unwrap()),
    ]
}

/// Reads until all registers were read or the device was reopened. Panics on wrong bytes.
async fn read_all(node: &StorageNode) {
    for number in 0..REGISTERS {
        let name = number.to_string();
        match node.read(DEVICE, &key(&name), Want::EntryAndInline, Term::ANY).await {
            Ok(view) => {
                if let Some(bytes) = view.inline {
                    assert_eq!(bytes, pattern(&name, bytes.len()), "{name} is wrong");
                }
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_peers_a_damaged_index_makes_the_device_another_without_votes() {
    for (what, damage) in damages() {
        let folder = tempfile::tempdir().unwrap();
        let (before, extents) = filled(folder.path()).await;
        damage(folder.path());
        let node = open_beside_peers(folder.path());
        read_all(&node).await;
        let mut now = status(&node).await;
        for _ in 0..500 {
            if now.identity != before.identity && now.health == DeviceHealth::Ready {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            now = status(&node).await;
        }
        assert!(now.identity != before.identity, "{what}: {now:?}");
        assert_eq!((now.voting, now.term, now.joined), (false, Term::NONE, 0), "{what}");
        assert_eq!(node.registers(DEVICE, None, 10).await.unwrap(), [], "{what}");
        assert!(node.write(DEVICE, inline("a", 10)).await.unwrap_err().had_no_effect(), "{what}");
        give_fences(&node).await;
        assert_eq!(node.write(DEVICE, inline("a", 10)).await.unwrap(), WriteReply::Unvoted);

        // Its extents stay, as their own descriptions show.
        assert_eq!(now.extents, 2, "{what}");
        let found = node.presence(DEVICE, &extents).await.unwrap();
        assert_eq!(found, [Presence::Here, Presence::Here], "{what}");
        let audited = node.audit_extents(DEVICE, None, u64::MAX).await.unwrap();
        assert_eq!((audited.items, audited.corrupt.len()), (2, 0), "{what}");

        // The old index lies in quarantine, and the next start finds nothing new.
        let aside = fs::read_dir(folder.path().join("quarantine")).unwrap();
        let aside: Vec<_> = aside.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(aside.len(), usize::from(what != "everything"), "{what}: {aside:?}");
        drop(node);
        let again = status(&open_beside_peers(folder.path())).await;
        assert_eq!((again.identity, again.voting), (now.identity, false), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_device_with_a_damaged_index_stays_offline_with_advice() {
    for (what, damage) in damages() {
        let folder = tempfile::tempdir().unwrap();
        let (before, _) = filled(folder.path()).await;
        damage(folder.path());
        let alone = || StorageNode::open(vec![config(folder.path(), 0)], NodeOptions::default());
        let reason = match alone() {
            Err(error) => error.to_string(),
            Ok(node) => {
                read_all(&node).await;
                wait_for_health(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
                assert_eq!(status(&node).await.identity, before.identity);
                let DeviceHealth::Offline(reason) = health(&node).await else { unreachable!() };
                reason
            }
        };
        assert!(reason.contains("is not opened"), "{what}: {reason}");
        assert!(reason.contains("from a copy"), "{what}: {reason}");
        let aside = fs::read_dir(folder.path().join("quarantine")).unwrap();
        assert_eq!(aside.count(), 0, "{what}: nothing was moved");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Puts an index of an earlier time into a device, with the clean marker or without.
fn restore(copy: &Path, device: &Path, is_clean: bool) {
    fs::remove_dir_all(device.join("index")).unwrap();
    copy_folder(copy, &device.join("index"));
    if !is_clean {
        fs::remove_file(device.join("clean")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_restored_from_a_copy_hides_no_extent() {
    for is_clean in [false, true] {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let node = open(folder.path(), 0).unwrap();
        let first = put_extent(&node, "first", 70_000).await.unwrap();
        node.shutdown().await.unwrap();
        copy_folder(&folder.path().join("index"), copy.path());
        let node = open(folder.path(), 0).unwrap();
        node.delete_extents(DEVICE, &[first.id]).await.unwrap();
        // One takes the space of the deleted extent, one takes space that was free before.
        let newer = put_extent(&node, "newer", 70_000).await.unwrap();
        let other = put_extent(&node, "other", 90_000).await.unwrap();
        node.shutdown().await.unwrap();
        restore(copy.path(), folder.path(), is_clean);
        let node = open(folder.path(), 0).unwrap();
        for number in 0..20 {
            put_extent(&node, &format!("later {number}"), 70_000).await.unwrap();
        }
        for extent in [newer, other] {
            let found = node.presence(DEVICE, &[extent.id]).await.unwrap();
            assert_eq!(found, [Presence::Here], "clean {is_clean}");
            let range = 0..u64::from(extent.length);
            let stream = node.read_extent(DEVICE, extent.id, range).await.unwrap();
            stream.try_collect::<Vec<_>>().await.unwrap();
        }
        let usage = node.metrics().devices[0].extents;
        assert_eq!((usage.extents, usage.quarantined), (22, 0));
        node.shutdown().await.unwrap();
        // The index belongs to the device again.
        let node = open(folder.path(), 0).unwrap();
        assert_eq!(node.metrics().devices[0].extents.extents, 22);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_an_index_that_was_restored_beside_peers_has_no_votes() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    open_beside_peers(folder.path()).shutdown().await.unwrap();
    copy_folder(&folder.path().join("index"), copy.path());
    let node = open_beside_peers(folder.path());
    let before = status(&node).await.identity;
    node.shutdown().await.unwrap();
    restore(copy.path(), folder.path(), true);
    let node = open_beside_peers(folder.path());
    let renewed = status(&node).await;
    assert_ne!(renewed.identity, before);
    assert!(!renewed.voting);
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1);
    node.shutdown().await.unwrap();
    assert_eq!(status(&open_beside_peers(folder.path())).await.identity, renewed.identity);
}
