//! Counts what nodes hold against the rings, past all faults: on whom an operator relies before
//! something is forgotten, and what must be so at the end.
//!
//! It does not look into what registers say: that is for reads and for [`super::aftermath`].

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{DeviceId, ExtentId, RegisterKey, Stamp, WriteId};

use super::cluster::Simulated;
use super::node::Node;

/// What holds an entry, and which.
type Holders = BTreeMap<DeviceId, (Stamp, WriteId)>;

/// Whether everything that moves is where it goes: extents at all of their primaries.
pub(crate) fn has_arrived(simulated: &Simulated) -> bool {
    let ring = simulated.rings().data;
    extents(simulated).iter().all(|(id, holders)| {
        ring.primaries(ring.partition(id.placement())).all(|device| holders.contains(&device))
    })
}

/// Whether a node has nothing left that anybody could want.
pub(crate) fn is_empty(node: &Node) -> bool {
    let memory = node.memory();
    memory.extents(node.device).is_empty() && memory.registers(node.device).is_empty()
}

/// What the nodes of the rings hold that differs from what the rings say.
pub(crate) fn complaints(simulated: &Simulated) -> Vec<String> {
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

/// Deletes from before `before_ms` that are remembered still.
pub(crate) fn tombstones(simulated: &Simulated, before_ms: u64) -> Vec<String> {
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

/// Everything that is held by nodes of the index ring.
fn registers(simulated: &Simulated) -> BTreeMap<RegisterKey, Holders> {
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

fn extents(simulated: &Simulated) -> BTreeMap<ExtentId, BTreeSet<DeviceId>> {
    let ring = simulated.rings().data;
    let mut all: BTreeMap<ExtentId, BTreeSet<DeviceId>> = BTreeMap::new();
    for device in ring.devices().iter().map(|device| device.id) {
        for id in simulated.node_of(device).memory().extents(device) {
            all.entry(id).or_default().insert(device);
        }
    }
    all
}
