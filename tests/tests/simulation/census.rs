//! Counts the data of nodes against the rings, without faults. The operator consults the count
//! before previous holders are dropped, and the end of a run checks it.
//!
//! The contents of entries are checked by reads and by [`super::aftermath`].

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{DeviceId, ExtentId, RegisterKey, Stamp, WriteId};

use super::cluster::SimulatedCluster;
use super::node::SimulatedNode;

/// Devices that hold an entry, with its order and write id.
type Holders = BTreeMap<DeviceId, (Stamp, WriteId)>;

/// Returns true if all extents are on all of their primaries.
pub(crate) fn has_arrived(simulated: &SimulatedCluster) -> bool {
    let ring = simulated.rings().data;
    extents(simulated).iter().all(|(id, holders)| {
        ring.primaries(ring.partition(id.placement())).all(|device| holders.contains(&device))
    })
}

/// Returns true if a node holds neither entries nor extents.
pub(crate) fn is_empty(node: &SimulatedNode) -> bool {
    let memory = node.memory();
    memory.extents(node.device).is_empty() && memory.registers(node.device).is_empty()
}

/// Differences between the data of the nodes and the rings.
pub(crate) fn complaints(simulated: &SimulatedCluster) -> Vec<String> {
    let (rings, mut wrong) = (simulated.rings(), Vec::new());
    for (key, holders) in registers(simulated) {
        let primaries: BTreeSet<DeviceId> =
            rings.index.primaries(rings.index.partition(key.placement())).collect();
        let what = || format!("{} ({holders:?}, primaries {primaries:?})", super::shown::key(&key));
        if holders.keys().any(|device| !primaries.contains(device)) {
            wrong.push(format!("stray register {}", what()));
        }
        let versions: BTreeSet<_> = holders.values().collect();
        if !primaries.iter().all(|device| holders.contains_key(device)) || versions.len() > 1 {
            wrong.push(format!("replicas differ: {}", what()));
        }
    }
    for (id, holders) in extents(simulated) {
        let primaries: BTreeSet<DeviceId> =
            rings.data.primaries(rings.data.partition(id.placement())).collect();
        if holders != primaries {
            wrong.push(format!("extent {id} is on {holders:?} and belongs on {primaries:?}"));
        }
    }
    wrong
}

/// Tombstones of deletes from before `before_ms`.
pub(crate) fn tombstones(simulated: &SimulatedCluster, before_ms: u64) -> Vec<String> {
    let ring = simulated.rings().index;
    let mut left = Vec::new();
    for device in ring.devices().iter().map(|device| device.id) {
        let held = simulated.node_of(device).memory().registers(device);
        let gone = held
            .iter()
            .filter(|(_, entry)| entry.value.is_tombstone() && entry.order.time_ms() < before_ms);
        left.extend(
            gone.map(|(key, _)| {
                format!("{device} keeps the tombstone of {}", super::shown::key(key))
            }),
        );
    }
    left
}

/// Returns the entries on all devices of the index ring.
fn registers(simulated: &SimulatedCluster) -> BTreeMap<RegisterKey, Holders> {
    let ring = simulated.rings().index;
    let mut all: BTreeMap<RegisterKey, Holders> = BTreeMap::new();
    for device in ring.devices().iter().map(|device| device.id) {
        for (key, entry) in simulated.node_of(device).memory().registers(device) {
            let holders = all.entry(key).or_default();
            holders.insert(device, (entry.order, entry.write_id));
        }
    }
    all
}

fn extents(simulated: &SimulatedCluster) -> BTreeMap<ExtentId, BTreeSet<DeviceId>> {
    let ring = simulated.rings().data;
    let mut all: BTreeMap<ExtentId, BTreeSet<DeviceId>> = BTreeMap::new();
    for device in ring.devices().iter().map(|device| device.id) {
        for id in simulated.node_of(device).memory().extents(device) {
            all.entry(id).or_default().insert(device);
        }
    }
    all
}
