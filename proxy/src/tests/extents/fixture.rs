//! A store over several nodes, whose devices behave as a test sets.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::entry::Body;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, BackendExt, DeviceId, ExtentId, PolicyId, SystemClock};
use martlet_ring::{Ring, fixtures};

use super::wayward::{Conduct, Wayward};
use crate::tests::harness::{body, create, get, put};
use crate::{
    Cluster, ObjectStore, Result, Selection, StoreOptions, WriteConditions, WrittenObject,
};

/// A store with three replicas of each extent.
pub(super) struct ExtentFixture {
    pub(super) store: ObjectStore,
    pub(super) node: Arc<Wayward>,
    pub(super) ring: Arc<Ring>,
}

/// A ring of devices 1, 2, … with `on_each_node` on each node.
pub(super) fn ring(devices: u32, on_each_node: u32) -> Arc<Ring> {
    let devices = fixtures::devices(devices, on_each_node);
    Arc::new(Ring::of_devices(PolicyId(0), 3, &devices).unwrap())
}

impl ExtentFixture {
    /// Makes a store with a node for each device, and a bucket `b`.
    pub(super) async fn new(devices: u32) -> Self {
        Self::with(devices, 1, StoreOptions::default()).await
    }

    pub(super) async fn with(devices: u32, on_each_node: u32, options: StoreOptions) -> Self {
        let all = || (1..=devices).map(DeviceId);
        let memory = Arc::new(MemoryBackend::new(Arc::new(SystemClock), all()));
        let node = Arc::new(Wayward::new(memory));
        let ring = ring(devices, on_each_node);
        let nodes: HashMap<_, _> = all().map(|id| (id, node.clone() as Arc<dyn Backend>)).collect();
        let cluster = Cluster::new(ring.clone(), vec![ring.clone()], nodes).unwrap();
        let store = ObjectStore::new(cluster, Arc::new(SystemClock), options);
        create(&store, "b").await;
        Self { store, node, ring }
    }

    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<WrittenObject> {
        put(&self.store, key, body(bytes), WriteConditions::default()).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Bytes> {
        get(&self.store, key, Selection::Whole).await
    }

    pub(super) fn let_be(&self, devices: impl IntoIterator<Item = DeviceId>, conduct: Conduct) {
        devices.into_iter().for_each(|device| self.node.let_be(device, conduct));
    }

    /// All devices of the ring.
    pub(super) fn devices(&self) -> Vec<DeviceId> {
        self.ring.devices().iter().map(|device| device.id).collect()
    }

    /// Devices that hold an extent.
    pub(super) fn holders(&self, id: ExtentId) -> Vec<DeviceId> {
        let mut holders = self.devices();
        holders.retain(|device| self.node.memory.extents(*device).contains(&id));
        holders
    }

    /// Number of nodes that hold an extent.
    pub(super) fn nodes_of(&self, id: ExtentId) -> usize {
        let mut nodes: Vec<_> = self
            .holders(id)
            .iter()
            .map(|device| self.ring.device(*device).unwrap().node.name.clone())
            .collect();
        nodes.sort();
        nodes.dedup();
        nodes.len()
    }

    /// Primaries, then handoffs of an extent, in the order of the ring.
    pub(super) fn order(&self, id: ExtentId) -> Vec<DeviceId> {
        let partition = self.ring.partition(id.placement());
        self.ring.primaries(partition).chain(self.ring.handoffs(partition)).collect()
    }

    /// Moves an extent to one device, which is then its only holder.
    pub(super) async fn move_to(&self, id: ExtentId, to: DeviceId) {
        let memory = &self.node.memory;
        let from = self.holders(id)[0];
        let stat = memory.stat_extent(from, id).await.unwrap();
        let length = u64::from(stat.record.extent.length);
        let bytes = memory.read_extent(from, id, 0..length).await.unwrap();
        let owner = stat.record.owner;
        let extent = martlet_protocol::backend::NewExtent {
            id,
            owner,
            length: Some(length),
            birth_ms: None,
            layout: martlet_protocol::extent::Layout::default(),
            hashes: None,
        };
        memory.write_extent(to, extent, bytes).await.unwrap();
        for holder in self.holders(id).into_iter().filter(|holder| *holder != to) {
            memory.delete_extents(holder, &[id]).await.unwrap();
        }
    }
}

/// The extents of an object.
pub(super) fn extents(written: &WrittenObject) -> Vec<ExtentId> {
    match &written.object.body {
        Body::Extents(manifest) => manifest.extents.iter().map(|extent| extent.id).collect(),
        _ => Vec::new(),
    }
}

/// The only extent of an object.
pub(super) fn extent(written: &WrittenObject) -> ExtentId {
    let extents = extents(written);
    assert_eq!(extents.len(), 1);
    extents[0]
}
