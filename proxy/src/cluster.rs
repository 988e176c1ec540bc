//! Topology of the cluster: the rings, and the node of each device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use martlet_protocol::{Backend, DeviceId, Error, PolicyId, Result};
use martlet_ring::Ring;

/// The rings, and the node of each device.
#[derive(Clone)]
pub struct Cluster {
    index: Arc<Ring>,
    data: BTreeMap<PolicyId, Arc<Ring>>,
    default_policy: PolicyId,
    nodes: HashMap<DeviceId, Arc<dyn Backend>>,
    /// Name of each device's node, from the rings.
    names: HashMap<DeviceId, Arc<str>>,
    /// Number of nodes with devices on the index ring.
    index_nodes: usize,
}

impl Cluster {
    /// A cluster with entries on ring `index` and extents on rings `data`, one for each policy. New
    /// buckets get the policy with the lowest number.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](martlet_protocol::ErrorKind::Invalid) without a data ring, with two
    /// rings of one policy, or with a device that has no node.
    pub fn new(
        index: Arc<Ring>,
        data: Vec<Arc<Ring>>,
        nodes: HashMap<DeviceId, Arc<dyn Backend>>,
    ) -> Result<Self> {
        let policies = data.iter().map(|ring| ring.identity().policy);
        let default_policy =
            policies.min().ok_or_else(|| Error::invalid("a cluster needs a data ring"))?;
        let devices = std::iter::once(&index).chain(&data).flat_map(|ring| ring.devices());
        if let Some(device) = devices.map(|device| device.id).find(|id| !nodes.contains_key(id)) {
            return Err(Error::invalid(format!("no node is known for device {device}")));
        }
        let devices = std::iter::once(&index).chain(&data).flat_map(|ring| ring.devices());
        let names = devices.map(|device| (device.id, device.node.name.as_str().into())).collect();
        let index_nodes: HashSet<&str> =
            index.devices().iter().map(|device| device.node.name.as_str()).collect();
        let index_nodes = index_nodes.len();
        let count = data.len();
        let data: BTreeMap<_, _> =
            data.into_iter().map(|ring| (ring.identity().policy, ring)).collect();
        if data.len() != count {
            return Err(Error::invalid("two data rings have the same policy"));
        }
        Ok(Self { index, data, default_policy, nodes, names, index_nodes })
    }

    /// The ring that places index entries.
    pub fn index(&self) -> &Ring {
        &self.index
    }

    /// The ring that places the extents of a policy.
    pub(crate) fn data(&self, policy: PolicyId) -> Result<&Ring> {
        self.data
            .get(&policy)
            .map(Arc::as_ref)
            .ok_or_else(|| Error::unavailable(format!("no ring for policy {}", policy.0)))
    }

    /// Sets the default policy of new buckets by name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](martlet_protocol::ErrorKind::Invalid) if no data ring has this name.
    pub fn with_default_policy(mut self, name: &str) -> Result<Self> {
        self.default_policy = self.policy_called(name).ok_or_else(|| {
            Error::invalid(format!("\"{name}\" is not a storage policy: {}", self.policy_names()))
        })?;
        Ok(self)
    }

    /// The data rings, in order of policy number. Each names its policy and its redundancy.
    pub fn policies(&self) -> impl Iterator<Item = &Ring> {
        self.data.values().map(Arc::as_ref)
    }

    /// The policy of new buckets.
    pub fn default_policy(&self) -> PolicyId {
        self.default_policy
    }

    /// Name of a device's node. Devices of one node fail together.
    pub fn node_name(&self, device: DeviceId) -> Option<&str> {
        self.names.get(&device).map(AsRef::as_ref)
    }

    /// Number of nodes with devices on the index ring.
    pub(crate) fn index_nodes(&self) -> usize {
        self.index_nodes
    }

    /// The node of a device.
    pub(crate) fn node(&self, device: DeviceId) -> Result<&Arc<dyn Backend>> {
        self.nodes
            .get(&device)
            .ok_or_else(|| Error::unavailable(format!("no node is known for device {device}")))
    }
}
