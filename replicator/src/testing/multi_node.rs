//! A cluster of several nodes in memory, each with one device.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{DeviceCondition, EntryWrite, RegisterView, Want, WriteReply};
use martlet_protocol::entry::{Attributes, Body, ETag, Object, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{
    Backend, BackendExt, BucketId, DeviceId, DeviceIdentity, Entry, ErrorKind, ManualClock,
    PolicyId, RegisterKey, Stamp, StampSource, Term, WriteId,
};
use martlet_ring::{Device, Node, Ring};
use martlet_topology::{Cluster, Topology};
use parking_lot::Mutex;

use super::POLICY;
use crate::cluster::StepTopology;

const BUCKET: BucketId = BucketId([7; 16]);
/// CRC32C of `abc`.
const ABC_CRC32C: u32 = 0x364b_3fb7;

/// Nodes `n0`, `n1`, … with a device each, entries and extents in three replicas.
pub(crate) struct MultiNodeWorld {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) shared: Topology,
    pub(crate) stamps: StampSource,
    parts: Mutex<ClusterParts>,
    memories: Mutex<HashMap<DeviceId, Arc<MemoryBackend>>>,
    wrap: BackendWrapper,
}

/// Rings and nodes of a world's cluster, which tests replace.
pub(crate) struct ClusterParts {
    pub(crate) index: Arc<Ring>,
    pub(crate) data: BTreeMap<PolicyId, Arc<Ring>>,
    nodes: HashMap<DeviceId, Arc<dyn Backend>>,
}

impl ClusterParts {
    fn cluster(&self) -> Cluster {
        let data = self.data.values().cloned().collect();
        Cluster::partial(self.index.clone(), data, self.nodes.clone()).unwrap()
    }
}

type BackendWrapper = Box<dyn Fn(DeviceId, Arc<MemoryBackend>) -> Arc<dyn Backend> + Send + Sync>;

pub(crate) fn ring(devices: impl IntoIterator<Item = u32>) -> Ring {
    ring_of(devices.into_iter().map(|id| (id, 1.0)))
}

/// Returns a ring of devices with these weights.
pub(crate) fn ring_of(devices: impl IntoIterator<Item = (u32, f64)>) -> Ring {
    ring_under(POLICY, devices)
}

/// Returns a ring of a policy.
pub(crate) fn ring_under(policy: PolicyId, devices: impl IntoIterator<Item = (u32, f64)>) -> Ring {
    let device = |(id, weight): (u32, f64)| Device {
        id: DeviceId(id),
        region: 1,
        zone: 1,
        node: Node { name: format!("n{id}"), address: String::new() },
        name: "d".into(),
        weight,
        meta: String::new(),
    };
    let devices: Vec<Device> = devices.into_iter().map(device).collect();
    Ring::of_devices(policy, 3, &devices).unwrap()
}

impl MultiNodeWorld {
    pub(crate) fn new(count: u32) -> Self {
        Self::wrapped(count, Arc::new(ManualClock::at(1_000_000_000)), |_, memory| memory)
    }

    /// Makes a cluster whose nodes are wrapped by `wrap`, later nodes too.
    pub(crate) fn wrapped(
        count: u32,
        clock: Arc<ManualClock>,
        wrap: impl Fn(DeviceId, Arc<MemoryBackend>) -> Arc<dyn Backend> + Send + Sync + 'static,
    ) -> Self {
        let ring = Arc::new(ring(0..count));
        let memory =
            |id: u32| (DeviceId(id), Arc::new(MemoryBackend::new(clock.clone(), [DeviceId(id)])));
        let memories: HashMap<_, _> = (0..count).map(memory).collect();
        let nodes = memories.iter().map(|(id, memory)| (*id, wrap(*id, memory.clone())));
        let data = BTreeMap::from([(POLICY, ring.clone())]);
        let parts = ClusterParts { index: ring, data, nodes: nodes.collect() };
        let stamps = StampSource::new(clock.clone());
        Self {
            clock,
            shared: Topology::new(parts.cluster()),
            stamps,
            parts: Mutex::new(parts),
            memories: Mutex::new(memories),
            wrap: Box::new(wrap),
        }
    }

    pub(crate) fn memory(&self, device: DeviceId) -> Arc<MemoryBackend> {
        self.memories.lock()[&device].clone()
    }

    /// Wipes a device; it comes back without votes.
    pub(crate) async fn wipe(&self, device: DeviceId) {
        let fresh = Arc::new(MemoryBackend::new(self.clock.clone(), [device]));
        fresh.set_identity(device, DeviceIdentity::random());
        fresh.set_voting(device, false).await.unwrap();
        fresh.forget_fences(device);
        // Holders of the old node get no answers any more.
        self.memory(device).set_offline(device, true);
        self.put_in_place(device, fresh);
    }

    /// Records that a new or wiped device has the fences of its peers.
    pub(crate) async fn give_fences(&self, device: DeviceId) {
        let memory = self.memory(device);
        let identity = memory.devices().await.unwrap()[0].identity;
        let condition = DeviceCondition { identity, not_after_ms: u64::MAX };
        memory.set_fenced_of(device, condition).await.unwrap();
    }

    /// Replaces the node of a device.
    pub(crate) fn put_in_place(&self, device: DeviceId, memory: Arc<MemoryBackend>) {
        self.memories.lock().insert(device, memory.clone());
        self.edit(|parts| {
            parts.nodes.insert(device, (self.wrap)(device, memory));
        });
    }

    /// Replaces parts of the cluster.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut ClusterParts)) {
        let mut parts = self.parts.lock();
        edit(&mut parts);
        self.shared.set_cluster(parts.cluster());
    }

    /// Returns the topology of a step that begins now.
    pub(crate) fn step(&self) -> StepTopology {
        StepTopology::of(&self.shared)
    }

    /// Returns the ring of the index.
    pub(crate) fn index(&self) -> Arc<Ring> {
        self.parts.lock().index.clone()
    }

    /// Returns the ring of a policy.
    pub(crate) fn data(&self, policy: PolicyId) -> Arc<Ring> {
        self.parts.lock().data[&policy].clone()
    }

    /// Returns all devices, by id.
    pub(crate) fn devices(&self) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> = self.memories.lock().keys().copied().collect();
        devices.sort();
        devices
    }

    pub(crate) async fn is_voting(&self, device: DeviceId) -> bool {
        self.memory(device).devices().await.unwrap()[0].voting
    }

    pub(crate) fn primaries(&self, key: &RegisterKey) -> Vec<DeviceId> {
        self.step().holders(key.placement()).primaries
    }

    /// Returns a device that is no primary of a key.
    pub(crate) fn handoff(&self, key: &RegisterKey) -> DeviceId {
        let cluster = self.step();
        cluster.index().handoffs(cluster.index().partition(key.placement())).next().unwrap()
    }

    /// Returns a device's register, with or without a vote. An offline device holds nothing.
    pub(crate) async fn held(&self, device: DeviceId, key: &RegisterKey) -> RegisterView {
        let memory = self.memory(device);
        let all = match BackendExt::registers(&*memory, device, None, usize::MAX).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Vec::new(),
            all => all.unwrap(),
        };
        all.into_iter().find(|(at, _)| at == key).map(|(_, view)| view).unwrap_or_default()
    }

    pub(crate) async fn write_on(&self, devices: &[DeviceId], write: &EntryWrite) {
        for device in devices {
            let reply = self.memory(*device).write(*device, write.clone()).await.unwrap();
            assert!(matches!(reply, WriteReply::Stored | WriteReply::Unvoted), "{reply:?}");
        }
    }

    pub(crate) async fn keep_on(&self, device: DeviceId, write: &EntryWrite) {
        let reply = self.memory(device).keep_hint(device, write.clone()).await.unwrap();
        assert_eq!(reply, WriteReply::Stored);
    }

    pub(crate) async fn hints(&self) -> usize {
        let mut count = 0;
        let memories: Vec<_> = self.memories.lock().clone().into_iter().collect();
        for (device, memory) in memories {
            count += memory.hints(device, None, usize::MAX).await.map_or(0, |hints| hints.len());
        }
        count
    }

    pub(crate) async fn promise_on(&self, devices: &[DeviceId], key: &RegisterKey, ballot: Stamp) {
        for device in devices {
            self.memory(*device).promise(*device, key, ballot, Term::ANY).await.unwrap();
        }
    }

    pub(crate) async fn read_on(&self, device: DeviceId, key: &RegisterKey) -> Option<Entry> {
        let memory = self.memory(device);
        memory.read(device, key, Want::Entry, Term::ANY).await.unwrap().entry
    }

    /// Makes a write of a new object, stamped now.
    pub(crate) fn write(&self, key: &RegisterKey) -> EntryWrite {
        self.clock.advance_ms(1);
        write(key, self.stamps.issue(), 0, Body::Empty)
    }

    /// Makes a write like [`Self::write`], with inline bytes.
    pub(crate) fn inline(&self, key: &RegisterKey) -> EntryWrite {
        let body = Body::Inline { crc32c: ABC_CRC32C };
        let inline = Some(Bytes::from_static(b"abc"));
        self.clock.advance_ms(1);
        EntryWrite { inline, ..write(key, self.stamps.issue(), 3, body) }
    }
}

pub(crate) fn key(name: &str) -> RegisterKey {
    RegisterKey::object(BUCKET, 16, name)
}

/// Makes a plain write of an object of `size`.
pub(crate) fn write(key: &RegisterKey, order: Stamp, size: u64, body: Body) -> EntryWrite {
    let object = Object {
        size,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body,
        version: None,
    };
    let value = Value::Object(Box::new(object));
    EntryWrite {
        key: key.clone(),
        entry: Entry { order, write_id: WriteId::random(), value },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}
