//! What the workers know of the cluster: its rings, and who answers for each device.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use martlet_protocol::{Backend, DeviceId, Error, PolicyId, Result};
use martlet_ring::Ring;

/// The rings, and the node of each device.
#[derive(Clone)]
pub struct Cluster {
    /// Where entries lie.
    pub index: Arc<Ring>,
    /// Where the extents of each policy lie.
    pub data: HashMap<PolicyId, Arc<Ring>>,
    /// Who answers for each device.
    pub nodes: HashMap<DeviceId, Arc<dyn Backend>>,
}

impl Cluster {
    /// The node of a device.
    pub(crate) fn node(&self, device: DeviceId) -> Result<&dyn Backend> {
        let node = self.nodes.get(&device);
        node.map(AsRef::as_ref)
            .ok_or_else(|| Error::unavailable(format!("no node answers for device {device}")))
    }

    /// Every device of the index ring: primaries and handoffs of any partition.
    pub(crate) fn index_devices(&self) -> Vec<DeviceId> {
        self.index.devices().iter().map(|device| device.id).collect()
    }

    /// Every device of a policy's ring, where a copy of any of its extents may lie.
    pub(crate) fn data_devices(&self, policy: PolicyId) -> Result<Vec<DeviceId>> {
        let ring = self.data.get(&policy).ok_or_else(|| {
            Error::unavailable(format!("there is no ring for the storage policy {}", policy.0))
        })?;
        Ok(ring.devices().iter().map(|device| device.id).collect())
    }

    /// Every device that may hold extents, of whatever policy.
    pub(crate) fn all_data_devices(&self) -> Vec<DeviceId> {
        let devices = self.data.values().flat_map(|ring| ring.devices());
        let ids: BTreeSet<DeviceId> = devices.map(|device| device.id).collect();
        ids.into_iter().collect()
    }
}
