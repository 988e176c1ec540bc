//! Openings with peers: votes rest until peers confirm them, and a refused device begins anew (rule
//! G1).

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::Path;

use crate::support::*;
use martlet_protocol::backend::{Backend, DeviceHealth, DeviceStatus, Want, WriteReply};
use martlet_protocol::{BackendExt, DeviceId, DeviceIdentity, Term};
use martlet_storage_node::{
    DeviceConfig, Incarnation, NodeOptions, OpeningStatus, StorageNode, Uuid,
};

fn try_open(config: DeviceConfig) -> martlet_protocol::Result<StorageNode> {
    let options = NodeOptions { votes_when_new: false, introduced: true, ..NodeOptions::default() };
    StorageNode::open(vec![config], options)
}

fn open(folder: &Path) -> StorageNode {
    try_open(DeviceConfig { place: "n1/d1".into(), ..config(folder, 0) }).unwrap()
}

fn opening(node: &StorageNode) -> OpeningStatus {
    node.openings().remove(0)
}

async fn status(node: &StorageNode) -> DeviceStatus {
    node.devices().await.unwrap().remove(0)
}

/// Makes a device with confirmed votes and one register; returns its opening.
async fn founded(folder: &Path) -> OpeningStatus {
    let node = open(folder);
    give_fences(&node).await;
    node.set_voting(DEVICE, true).await.unwrap();
    node.confirm(DEVICE, opening(&node).current).await.unwrap();
    assert_eq!(node.write(DEVICE, inline("a", 10)).await.unwrap(), WriteReply::Stored);
    let opening = opening(&node);
    node.shutdown().await.unwrap();
    opening
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_votes_rest_until_peers_confirm_the_opening() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(folder.path()).await;
    assert!(first.confirmed && first.has_votes);
    // After a crash before the confirmation, the next opening uses its generation again.
    let unconfirmed = opening(&open(folder.path()));
    let node = open(folder.path());
    let second = opening(&node);
    assert_eq!((second, second.base), (unconfirmed, Some(first.current)));
    assert!(second.current.generation > first.current.generation && !second.confirmed);
    let before = status(&node).await;
    assert!(!before.voting && matches!(before.health, DeviceHealth::Suspect(_)), "{before:?}");
    assert!(node.read(DEVICE, &key("a"), Want::Entry, Term::ANY).await.is_err());
    assert_eq!(node.write(DEVICE, inline("b", 10)).await.unwrap(), WriteReply::Unvoted);
    node.confirm(DEVICE, first.current).await.unwrap_err();
    assert!(!status(&node).await.voting, "that was another opening");
    node.confirm(DEVICE, second.current).await.unwrap();
    let after = status(&node).await;
    assert!(after.voting && after.health == DeviceHealth::Ready);
    assert!(node.read(DEVICE, &key("a"), Want::Entry, Term::ANY).await.unwrap().entry.is_some());
    // While the device is open, its next generation keeps the votes.
    node.advance(DEVICE).await.unwrap();
    let third = opening(&node);
    assert_eq!((third.base, third.confirmed), (Some(second.current), false));
    assert!(status(&node).await.voting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_device_that_was_refused_has_no_votes_until_it_has_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let first = founded(folder.path()).await;
    let another =
        Incarnation { device: Uuid([7; 16]), generation: u64::MAX / 2, nonce: Uuid([8; 16]) };
    let node = open(folder.path());
    node.confirm(DEVICE, opening(&node).current).await.unwrap();
    node.begin_anew(DEVICE).await.unwrap_err();
    node.refuse(DEVICE, another).await.unwrap();
    assert!(!status(&node).await.voting);
    node.shutdown().await.unwrap();
    drop(node);
    let node = open(folder.path());
    assert_eq!(opening(&node).replaced_by, Some(another));
    node.confirm(DEVICE, opening(&node).current).await.unwrap_err();
    let refused = status(&node).await;
    assert!(!refused.voting);
    let DeviceHealth::Suspect(reason) = &refused.health else { panic!("{refused:?}") };
    assert!(reason.contains("another disk in its place"), "{reason}");
    node.begin_anew(DEVICE).await.unwrap();
    let anew = opening(&node);
    assert_eq!((anew.base, anew.replaced_by, anew.has_votes), (Some(another), None, false));
    assert!(anew.current.generation > another.generation);
    assert_ne!(anew.current.device, first.current.device);
    assert_eq!(status(&node).await.identity, DeviceIdentity(anew.current.device.0));
    assert!(node.registers(DEVICE, None, 10).await.unwrap().is_empty(), "what it held is aside");
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_blank_device_that_was_refused_follows_who_refused_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = open(folder.path());
    let blank = opening(&node);
    assert_eq!((blank.base, blank.has_votes, blank.confirmed), (None, false, false));
    let another = Incarnation { device: Uuid([7; 16]), generation: 5, nonce: Uuid([8; 16]) };
    node.refuse(DEVICE, another).await.unwrap();
    node.begin_anew(DEVICE).await.unwrap();
    let follows = opening(&node);
    assert_eq!((follows.base, follows.current.device), (Some(another), blank.current.device));
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_folder_of_another_device_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    founded(folder.path()).await;
    let format = fs::read(folder.path().join("format.json")).unwrap();
    let other = DeviceConfig { id: DeviceId(4), place: "n2/d1".into(), ..config(folder.path(), 0) };
    let refusal = try_open(other).err().unwrap().to_string();
    assert!(refusal.contains("(n1/d1) and was given as device d4 (n2/d1)"), "{refusal}");
    assert_eq!(fs::read(folder.path().join("format.json")).unwrap(), format);
    assert!(opening(&open(folder.path())).has_votes);
}
