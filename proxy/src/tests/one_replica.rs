//! An index with one copy of each entry.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{AchievedLevel, Level, PolicyId};
use martlet_ring::{Ring, fixtures};
use tokio::time::sleep;

use super::nodes::{Fortune, Nodes};
use crate::Error;

fn nodes(devices: u32) -> Nodes {
    let device = |id| fixtures::device(id, format!("n{id}"), "disk");
    let devices: Vec<_> = (0..devices).map(device).collect();
    Nodes::on(Arc::new(Ring::of_devices(PolicyId(0), 1, &devices).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a2_a_deleted_object_does_not_return_with_the_hint_that_its_only_primary_missed() {
    let nodes = nodes(2);
    let (proxy, primaries, handoffs) = nodes.with_bucket("key").await;
    let register = proxy.register("key").await;
    proxy.fares(&primaries, Fortune::Refused);
    let (given, written) = proxy.put(Level::Available, "key", "x").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    assert_eq!(nodes.hinted(handoffs[0]).await, [(register.clone(), written.stamp)]);
    // The primary is back, and has nothing of the key.
    proxy.heal();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(nodes.held(primaries[0], &register), None);
    let (_, deleted) = proxy.delete(Level::Available, "key").await.unwrap();
    assert!(deleted.is_some_and(|stamp| stamp > written.stamp), "{deleted:?}");
    nodes.deliver().await;
    let read = proxy.get(Level::Available, "key").await;
    assert!(matches!(read, Err(Error::NoSuchKey)), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_a_missing_key_leaves_nothing_on_a_single_device() {
    let nodes = nodes(1);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    let register = proxy.register("key").await;
    let (_, deleted) = proxy.delete(Level::Available, "key").await.unwrap();
    assert_eq!(deleted, None);
    assert_eq!(nodes.held(primaries[0], &register), None);
}
