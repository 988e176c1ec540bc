//! A node through [`Backend`](martlet_protocol::Backend): the contract of every backend, and
//! openings of devices.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use martlet_protocol::Term;
use std::fs;

use crate::support::*;
use martlet_protocol::backend::{Backend, DeviceHealth, Want, WriteReply};
use martlet_protocol::{BackendExt, DeviceId, ErrorKind, testing};
use martlet_storage_node::{DeviceConfig, NodeOptions, StorageNode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_a_backend() {
    let folder = tempfile::tempdir().unwrap();
    let node = open(folder.path(), 0).unwrap();
    testing::conformance::all(&node, DEVICE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_means_there_after_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let node = open(folder.path(), 0).unwrap();
        for before in 0..round {
            assert_eq!(get(&node, &format!("i{before}")).await.unwrap().unwrap().len(), 3000);
            let bytes = get(&node, &format!("e{before}")).await.unwrap().unwrap();
            assert_eq!(bytes, pattern(&format!("e{before}"), 200_000));
        }
        node.write(DEVICE, inline(&format!("i{round}"), 3000)).await.unwrap();
        put_object(&node, &format!("e{round}"), 200_000).await.unwrap();
        if round == 1 {
            node.shutdown().await.unwrap();
            assert!(folder.path().join("clean").exists());
            let after = node.read(DEVICE, &key("i0"), Want::Entry, Term::ANY).await.unwrap_err();
            assert_eq!(after.kind(), ErrorKind::Unavailable);
        }
    }
    assert!(!folder.path().join("clean").exists(), "a marker counts once");
}

#[tokio::test]
async fn a_second_node_on_a_folder_gets_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), 0).unwrap();
    let error = open(folder.path(), 0).err().unwrap().to_string();
    assert!(error.contains("is in use by another process"), "{error}");
    drop(first);
    open(folder.path(), 0).unwrap();
}

#[tokio::test]
async fn a_device_that_does_not_open_leaves_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), b"no folder").unwrap();
    let bad = DeviceConfig::new(DeviceId(7), folder.path().join("file"));
    let good = config(&folder.path().join("good"), 0);
    let node = StorageNode::open(vec![bad.clone(), good], NodeOptions::default()).unwrap();
    node.write(DEVICE, inline("a", 10)).await.unwrap();
    let devices = node.devices().await.unwrap();
    assert!(matches!(&devices[0].health, DeviceHealth::Offline(_)), "{devices:?}");
    assert_eq!(devices[1].health, DeviceHealth::Ready);
    let error = node.read(DeviceId(7), &key("a"), Want::Entry, Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = node.read(DeviceId(8), &key("a"), Want::Entry, Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(StorageNode::open(vec![bad], NodeOptions::default()).is_err());
    assert!(StorageNode::open(vec![], NodeOptions::default()).is_err());
}

#[tokio::test]
async fn a_newer_format_and_another_cluster_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), 0).unwrap());
    let cluster = Some(martlet_storage_node::Uuid([1; 16]));
    let options = NodeOptions { cluster, ..NodeOptions::default() };
    let error = StorageNode::open(vec![config(folder.path(), 0)], options).err().unwrap();
    assert!(error.to_string().contains("belongs to cluster"), "{error}");
    let path = folder.path().join("format.json");
    let newer = fs::read_to_string(&path).unwrap().replace("\"version\": 2", "\"version\": 3");
    fs::write(&path, newer).unwrap();
    let error = open(folder.path(), 0).err().unwrap().to_string();
    assert!(error.contains("has format 3"), "{error}");
}

#[tokio::test]
async fn a_flipped_byte_in_the_log_takes_the_device_offline() {
    let folder = tempfile::tempdir().unwrap();
    let node = open(folder.path(), 0).unwrap();
    for number in 0..100 {
        node.write(DEVICE, inline(&number.to_string(), 500)).await.unwrap();
    }
    drop(node);
    let logs =
        fs::read_dir(folder.path().join("index")).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let log = logs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    let good = DeviceConfig { id: DeviceId(1), ..config(&folder.path().join("good"), 0) };
    let configs = vec![config(folder.path(), 0), good];
    let node = StorageNode::open(configs, NodeOptions::default()).unwrap();
    match health(&node).await {
        DeviceHealth::Offline(reason) => assert!(reason.contains("does not open"), "{reason}"),
        other => panic!("synced writes were skipped over: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_lost_its_index_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let node = open(folder.path(), 0).unwrap();
    put_object(&node, "a", 2_000_000).await.unwrap();
    node.shutdown().await.unwrap();
    fs::rename(folder.path().join("index"), folder.path().join("gone")).unwrap();
    let error = open(folder.path(), 0).err().unwrap().to_string();
    assert!(error.contains("lost its index"), "{error}");
    fs::rename(folder.path().join("gone"), folder.path().join("index")).unwrap();
    assert_eq!(get(&open(folder.path(), 0).unwrap(), "a").await.unwrap().unwrap().len(), 2_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_formatted_beside_peers_has_no_vote_until_granted() {
    let folder = tempfile::tempdir().unwrap();
    let options = || NodeOptions { votes_when_new: false, ..NodeOptions::default() };
    let reopen = || StorageNode::open(vec![config(folder.path(), 0)], options()).unwrap();
    let status = async |node: &StorageNode| node.devices().await.unwrap().remove(0);
    let node = reopen();
    let first = status(&node).await;
    assert!(!first.voting && first.identity.0 != [0; 16]);
    drop(node);
    // A later start that would format with votes changes nothing: this formatting has none.
    let node = open(folder.path(), 0).unwrap();
    let again = status(&node).await;
    assert_eq!((again.voting, again.identity), (false, first.identity));
    assert!(node.write(DEVICE, inline("a", 10)).await.unwrap_err().had_no_effect());
    give_fences(&node).await;
    assert_eq!(node.write(DEVICE, inline("a", 10)).await.unwrap(), WriteReply::Unvoted);
    node.set_voting(DEVICE, true).await.unwrap();
    assert_eq!(node.keep_hint(DEVICE, inline("b", 10)).await.unwrap(), WriteReply::Stored);
    drop(node);
    let node = reopen();
    let now = status(&node).await;
    assert_eq!((now.voting, now.hints, now.identity), (true, 1, first.identity));
    assert!(get(&node, "a").await.unwrap().is_some());
    drop(node);
    // After a wipe, the device has another identity.
    fs::remove_dir_all(folder.path()).unwrap();
    let wiped = status(&reopen()).await;
    assert!(!wiped.voting && wiped.identity != first.identity && wiped.hints == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_from_before_hints_and_votes_opens_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let node = open(folder.path(), 0).unwrap();
    node.write(DEVICE, inline("a", 3000)).await.unwrap();
    node.shutdown().await.unwrap();
    drop(node);
    {
        // An index of an earlier version: without the column family of hints.
        let index = folder.path().join("index");
        let names = rocksdb::DB::list_cf(&rocksdb::Options::default(), &index).unwrap();
        let mut db = rocksdb::DB::open_cf(&rocksdb::Options::default(), &index, names).unwrap();
        db.drop_cf("hints").unwrap();
    }
    let node = open(folder.path(), 0).unwrap();
    assert!(node.devices().await.unwrap()[0].voting);
    assert_eq!(get(&node, "a").await.unwrap().unwrap(), pattern("a", 3000));
    assert_eq!(node.keep_hint(DEVICE, inline("b", 10)).await.unwrap(), WriteReply::Stored);
    assert_eq!(node.hints(DEVICE, None, 10).await.unwrap().len(), 1);
}
