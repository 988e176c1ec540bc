//! Nodes with memories of their own, and proxies with faults of their own for each node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
use martlet_protocol::{
    AchievedLevel, Backend, BackendExt, Clock, DeviceId, ErrorKind, Level, ManualClock, PolicyId,
    RegisterKey, Stamp, SystemClock, Term,
};
use martlet_ring::{Device, Ring, fixtures};
use parking_lot::Mutex;

use super::harness::{body, collect};
use crate::{
    Cluster, ConsistencyOptions, ListObjects, ObjectStore, ReadAfter, ReadConditions, Result,
    Selection, StoreOptions, WriteConditions, WrittenObject,
};

/// Fault of a proxy's calls to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fortune {
    Good,
    /// Connections are refused.
    Refused,
    /// No call takes effect, and no reply returns.
    Silent,
    /// Calls take effect, and no reply returns.
    Mute,
    /// Calls take effect, and the reply is an error.
    Lost,
    /// Calls are delayed.
    Late(Duration),
}

impl Fortune {
    fn fault(self) -> Fault {
        match self {
            Self::Good => Fault::None,
            Self::Refused => Fault::Refuse(ErrorKind::Unavailable),
            Self::Silent => Fault::Delay(Duration::from_secs(1_000_000)),
            Self::Mute => Fault::Hang,
            Self::Lost => Fault::LoseReply(ErrorKind::Unavailable),
            Self::Late(by) => Fault::Delay(by),
        }
    }
}

/// Nodes with one or several devices each. Device ids begin at `first`.
pub(super) struct Nodes {
    pub(super) memories: Vec<Arc<MemoryBackend>>,
    pub(super) ring: Arc<Ring>,
    /// Clock of all devices, and of proxies that are neither late nor early.
    clock: Arc<dyn Clock>,
    devices_per_node: u32,
    /// Id of the first device.
    first: u32,
}

/// A proxy, with its faults for each node.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) store: ObjectStore,
    fortunes: Arc<Mutex<HashMap<DeviceId, Fortune>>>,
}

fn device(id: u32, node: u32) -> Device {
    fixtures::device(id, format!("n{node}"), format!("disk{id}"))
}

impl Nodes {
    pub(super) fn new(nodes: u32) -> Self {
        Self::of(nodes, 1)
    }

    pub(super) fn of(nodes: u32, devices_per_node: u32) -> Self {
        Self::timed(nodes, devices_per_node, Arc::new(SystemClock))
    }

    /// Makes nodes whose time is that of a clock.
    pub(super) fn timed(nodes: u32, devices_per_node: u32, clock: Arc<dyn Clock>) -> Self {
        let ids = |node: u32| (1..=devices_per_node).map(move |at| node * devices_per_node + at);
        let memory = |node| Arc::new(MemoryBackend::new(clock.clone(), ids(node).map(DeviceId)));
        let devices: Vec<_> =
            (0..nodes).flat_map(|node| ids(node).map(move |id| device(id, node))).collect();
        let ring = Arc::new(Ring::of_devices(PolicyId(0), 3, &devices).unwrap());
        let memories = (0..nodes).map(memory).collect();
        Self { memories, ring, clock, devices_per_node, first: 1 }
    }

    /// Makes nodes of one device each, numbered from 0 as the ring's devices.
    pub(super) fn on(ring: Arc<Ring>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let memory = |id: u32| Arc::new(MemoryBackend::new(clock.clone(), [DeviceId(id)]));
        let devices = u32::try_from(ring.devices().len()).unwrap();
        let memories = (0..devices).map(memory).collect();
        Self { memories, ring, clock, devices_per_node: 1, first: 0 }
    }

    pub(super) fn memory(&self, device: DeviceId) -> &MemoryBackend {
        &self.memories[usize::try_from(self.node_of(device)).unwrap()]
    }

    pub(super) fn node_of(&self, device: DeviceId) -> u32 {
        (device.0 - self.first) / self.devices_per_node
    }

    /// A proxy without faults that caches buckets for a minute.
    pub(super) fn proxy(&self) -> Proxy {
        self.proxy_with(60_000, |_| Fault::None)
    }

    /// A proxy whose clock is late.
    pub(super) fn late_proxy(&self, by_ms: u64) -> Proxy {
        let clock = ManualClock::at(SystemClock.now_ms() - by_ms);
        self.proxy_by(Arc::new(clock), 60_000, |_| Fault::None)
    }

    /// A proxy whose clock is early.
    pub(super) fn early_proxy(&self, by_ms: u64) -> Proxy {
        let clock = ManualClock::at(SystemClock.now_ms() + by_ms);
        self.proxy_by(Arc::new(clock), 60_000, |_| Fault::None)
    }

    /// A proxy with faults that `choose` selects for calls that their node's fortune lets pass.
    pub(super) fn proxy_with(
        &self,
        bucket_cache_ms: u64,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> Proxy {
        self.proxy_by(self.clock.clone(), bucket_cache_ms, choose)
    }

    fn proxy_by(
        &self,
        clock: Arc<dyn Clock>,
        bucket_cache_ms: u64,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> Proxy {
        let fortunes: Arc<Mutex<HashMap<DeviceId, Fortune>>> = Arc::default();
        let choose = Arc::new(choose);
        let mut by_device: HashMap<DeviceId, Arc<dyn Backend>> = HashMap::new();
        for device in self.ring.devices() {
            let memory = self.memories[usize::try_from(self.node_of(device.id)).unwrap()].clone();
            let (fortunes, choose) = (fortunes.clone(), choose.clone());
            let node = FaultyBackend::new(memory, move |call| {
                let fortune = fortunes.lock().get(&call.device).copied();
                match fortune.unwrap_or(Fortune::Good) {
                    Fortune::Good => choose(call),
                    bad => bad.fault(),
                }
            });
            by_device.insert(device.id, Arc::new(node));
        }
        let cluster = Cluster::new(self.ring.clone(), vec![self.ring.clone()], by_device).unwrap();
        let options =
            StoreOptions { part_bytes_min: 10, bucket_cache_ms, ..StoreOptions::default() };
        Proxy { store: ObjectStore::new(cluster, clock, options), fortunes }
    }

    /// A proxy with the bucket `b` in its cache. Returns the primaries and handoffs of the key,
    /// too.
    pub(super) async fn with_bucket(&self, key: &str) -> (Proxy, Vec<DeviceId>, Vec<DeviceId>) {
        let proxy = self.proxy();
        super::harness::create(&proxy.store, "b").await;
        let register = proxy.register(key).await;
        let partition = self.ring.partition(register.placement());
        let primaries = self.ring.primaries(partition).collect();
        (proxy, primaries, self.ring.handoffs(partition).collect())
    }

    /// The order that a device holds for a register.
    pub(super) fn held(&self, device: DeviceId, register: &RegisterKey) -> Option<Stamp> {
        let held = self.memory(device).registers(device);
        held.into_iter().find(|(key, _)| key == register).map(|(_, entry)| entry.order)
    }

    /// Registers and orders of the hints that a device keeps.
    pub(super) async fn hinted(&self, device: DeviceId) -> Vec<(RegisterKey, Stamp)> {
        let hints = BackendExt::hints(self.memory(device), device, None, 100).await.unwrap();
        hints.into_iter().map(|hint| (hint.key, hint.entry.order)).collect()
    }

    /// Delivers every hint to the primaries, as a replicator does.
    pub(super) async fn deliver(&self) {
        for from in self.ring.devices().iter().map(|device| device.id) {
            for hint in BackendExt::hints(self.memory(from), from, None, 100).await.unwrap() {
                let order = hint.entry.order;
                let write = martlet_protocol::backend::EntryWrite {
                    key: hint.key.clone(),
                    entry: hint.entry,
                    inline: hint.inline,
                    mode: martlet_protocol::register::WriteMode::Repair,
                    generation: 0,
                    commit_by_ms: u64::MAX,
                    keep_body: hint.keep_body,
                    term: Term::ANY,
                };
                let partition = self.ring.partition(hint.key.placement());
                for to in self.ring.primaries(partition) {
                    BackendExt::write(self.memory(to), to, write.clone()).await.unwrap();
                }
                let memory = self.memory(from);
                BackendExt::forget_hint(memory, from, &hint.key, order).await.unwrap();
            }
        }
    }
}

impl Proxy {
    pub(super) fn fares(&self, devices: &[DeviceId], fortune: Fortune) {
        let mut fortunes = self.fortunes.lock();
        fortunes.extend(devices.iter().map(|device| (*device, fortune)));
    }

    pub(super) fn heal(&self) {
        self.fortunes.lock().clear();
    }

    pub(super) async fn register(&self, key: &str) -> RegisterKey {
        let bucket = self.store.bucket("b").await.unwrap();
        RegisterKey::object(bucket.id, bucket.index_shards, key)
    }

    pub(super) async fn put(
        &self,
        level: Level,
        key: &str,
        text: &str,
    ) -> Result<(AchievedLevel, WrittenObject)> {
        let session =
            self.store.session(ConsistencyOptions { level: Some(level), read_after: None });
        let bytes = Bytes::from(text.to_owned());
        let conditions = WriteConditions::default();
        let written = super::harness::put(&session, key, body(bytes), conditions).await?;
        Ok((session.given(), written))
    }

    pub(super) async fn get(&self, level: Level, key: &str) -> Result<(AchievedLevel, String)> {
        self.get_after(level, key, None).await
    }

    pub(super) async fn get_after(
        &self,
        level: Level,
        key: &str,
        read_after: Option<ReadAfter>,
    ) -> Result<(AchievedLevel, String)> {
        let session = self.store.session(ConsistencyOptions { level: Some(level), read_after });
        let conditions = ReadConditions::default();
        let read = session.get("b", key, Selection::Whole, &conditions).await?;
        let text = String::from_utf8(collect(read).await?.to_vec()).unwrap();
        Ok((session.given(), text))
    }

    pub(super) async fn delete(
        &self,
        level: Level,
        key: &str,
    ) -> Result<(AchievedLevel, Option<Stamp>)> {
        let session =
            self.store.session(ConsistencyOptions { level: Some(level), read_after: None });
        let deleted = session.delete("b", key, &WriteConditions::default()).await?;
        Ok((session.given(), deleted.stamp))
    }

    pub(super) async fn list(
        &self,
        level: Level,
        read_after: Option<ReadAfter>,
    ) -> Result<(AchievedLevel, Vec<String>)> {
        let session = self.store.session(ConsistencyOptions { level: Some(level), read_after });
        let page = session.list("b", ListObjects { limit: 1000, ..ListObjects::default() }).await?;
        Ok((session.given(), page.objects.into_iter().map(|(key, _)| key).collect()))
    }
}
