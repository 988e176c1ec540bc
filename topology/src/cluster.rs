//! Snapshot of the rings, with the node of each device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use martlet_protocol::{Backend, DeviceId, Error, PolicyId, Result, Term};
use martlet_ring::Ring;

/// The rings, and the node of each device. Immutable.
#[derive(Clone)]
pub struct Cluster {
    index: Arc<Ring>,
    data: BTreeMap<PolicyId, Arc<Ring>>,
    default_policy: PolicyId,
    nodes: HashMap<DeviceId, Arc<dyn Backend>>,
    /// Each node once, in the order of its lowest device.
    distinct: Vec<Arc<dyn Backend>>,
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
        if data.is_empty() {
            return Err(Error::invalid("a cluster needs a data ring"));
        }
        let cluster = Self::partial(index, data, nodes)?;
        let devices = || cluster.rings().flat_map(Ring::devices).map(|device| device.id);
        if let Some(device) = devices().find(|id| !cluster.nodes.contains_key(id)) {
            return Err(no_node(Error::invalid, device));
        }
        Ok(cluster)
    }

    /// A cluster as far as a process knows it. Devices may have no node, and policies no ring:
    /// [`Self::node`] and [`Self::data`] refuse these alone, so work on the other devices goes on.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](martlet_protocol::ErrorKind::Invalid) with two rings of one policy.
    pub fn partial(
        index: Arc<Ring>,
        data: Vec<Arc<Ring>>,
        nodes: HashMap<DeviceId, Arc<dyn Backend>>,
    ) -> Result<Self> {
        let count = data.len();
        let data: BTreeMap<_, _> =
            data.into_iter().map(|ring| (ring.identity().policy, ring)).collect();
        if data.len() != count {
            return Err(Error::invalid("two data rings have the same policy"));
        }
        let devices = std::iter::once(&index).chain(data.values()).flat_map(|ring| ring.devices());
        let names = devices.map(|device| (device.id, device.node.name.as_str().into())).collect();
        let index_nodes: HashSet<&str> =
            index.devices().iter().map(|device| device.node.name.as_str()).collect();
        let index_nodes = index_nodes.len();
        let default_policy = data.keys().next().copied().unwrap_or_default();
        let distinct = distinct_nodes(&nodes);
        Ok(Self { index, data, default_policy, nodes, distinct, names, index_nodes })
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

    /// The ring that places index entries.
    pub fn index(&self) -> &Ring {
        &self.index
    }

    /// The ring that places the extents of a policy.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) if it has no ring.
    pub fn data(&self, policy: PolicyId) -> Result<&Ring> {
        let ring = self.data.get(&policy).map(Arc::as_ref);
        ring.ok_or_else(|| {
            Error::unavailable(format!("there is no ring for the storage policy {}", policy.0))
        })
    }

    /// The data rings, in order of policy number. Each names its policy and its redundancy.
    pub fn policies(&self) -> impl Iterator<Item = &Ring> {
        self.data.values().map(Arc::as_ref)
    }

    /// All rings: that of the index, then the data rings.
    pub fn rings(&self) -> impl Iterator<Item = &Ring> {
        std::iter::once(self.index()).chain(self.policies())
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
    pub fn index_nodes(&self) -> usize {
        self.index_nodes
    }

    /// The node of a device.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) if none is known.
    pub fn node(&self, device: DeviceId) -> Result<&Arc<dyn Backend>> {
        self.nodes.get(&device).ok_or_else(|| no_node(Error::unavailable, device))
    }

    /// Each node once, in the order of its lowest device. Costs O(nodes).
    pub fn nodes(&self) -> Vec<&Arc<dyn Backend>> {
        self.distinct.iter().collect()
    }

    /// Each node of some devices once, in the order of its first device. Devices without a node are
    /// left out. Costs O(devices given).
    pub fn nodes_of(&self, devices: impl IntoIterator<Item = DeviceId>) -> Vec<&Arc<dyn Backend>> {
        let nodes = devices.into_iter().filter_map(|device| self.nodes.get(&device));
        first_of_each(nodes, |node| Arc::as_ptr(node).cast::<()>())
    }

    /// Term of requests by the index ring, while `known` is the highest known term (rule P1).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) while the ring waits
    /// for the change before its own.
    pub fn request_term(&self, known: Term) -> Result<Term> {
        self.index.term_at(known).ok_or_else(|| {
            Error::unavailable(format!(
                "the index ring of epoch {} waits for the end of the ring change before it",
                self.index.epoch()
            ))
        })
    }
}

fn distinct_nodes(nodes: &HashMap<DeviceId, Arc<dyn Backend>>) -> Vec<Arc<dyn Backend>> {
    let mut by_device: Vec<_> = nodes.iter().collect();
    by_device.sort_unstable_by_key(|(device, _)| **device);
    let nodes = by_device.into_iter().map(|(_, node)| node);
    first_of_each(nodes, |node| Arc::as_ptr(node).cast::<()>()).into_iter().cloned().collect()
}

/// Returns the first item of each identity, in the order of the items. Hashes each identity once.
pub(crate) fn first_of_each<T, K: Hash + Eq>(
    items: impl IntoIterator<Item = T>,
    identity: impl Fn(&T) -> K,
) -> Vec<T> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(identity(item))).collect()
}

fn no_node(error: fn(String) -> Error, device: DeviceId) -> Error {
    error(format!("no node is known for device {device}"))
}
