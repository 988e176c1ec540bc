//! A store of two policies over five devices: `first` keeps three copies, `second` two.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::{Attributes, Body, Object};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
use martlet_protocol::{
    Backend, BackendExt, DeviceId, ExtentId, Partition, PolicyId, Redundancy, RegisterKey, Stamp,
    SystemClock, Term, UploadId,
};
use martlet_ring::{Builder, NewDevice, Node, RebalanceContext, Ring, RingSettings};

use super::super::harness::{body, create, get};
use super::naming;
use crate::{
    Cluster, Error, ListObjects, NewUpload, ObjectStore, PutObject, ReadConditions, Rewrite,
    RewriteOptions, RewriteProgress, Selection, StoreOptions, WriteConditions,
};

/// Target policy of rewrites.
pub(in crate::tests) const SECOND: &str = "second";
const DEVICES: u32 = 5;

/// A store with its memory and rings.
pub(in crate::tests) struct RewriteFixture {
    pub(in crate::tests) memory: Arc<MemoryBackend>,
    /// A store without faults.
    pub(in crate::tests) store: ObjectStore,
    index: Arc<Ring>,
    data: [Arc<Ring>; 2],
}

fn ring(policy: u16, name: &str, replicas: f64) -> Arc<Ring> {
    let settings = RingSettings {
        policy: PolicyId(policy),
        policy_name: name.into(),
        redundancy: Redundancy::Replicated,
        part_power: 5,
        replicas,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).unwrap();
    for node in 0..DEVICES {
        let device = NewDevice {
            region: 1,
            zone: 1,
            node: Node { name: format!("n{node}"), address: format!("10.0.0.{node}:1") },
            name: "disk".into(),
            weight: 1.0,
            meta: String::new(),
        };
        builder.add(device).unwrap();
    }
    builder.rebalance(RebalanceContext { now_ms: 1_000_000, seed: 7 }).unwrap();
    builder.settle().unwrap();
    Arc::new(builder.ring().unwrap())
}

/// Polls until a condition holds.
pub(in crate::tests) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Policy of an object's extents; `None` without extents.
pub(in crate::tests) fn policy_of(object: &Object) -> Option<PolicyId> {
    match &object.body {
        Body::Empty | Body::Inline { .. } => None,
        Body::Extents(manifest) => Some(manifest.policy),
        Body::Spilled { policy, .. } => Some(*policy),
    }
}

impl RewriteFixture {
    /// Makes a store with a bucket `b` under the first policy.
    pub(in crate::tests) async fn new() -> Self {
        let index = ring(0, "index", 3.0);
        let data = [ring(0, "first", 3.0), ring(1, SECOND, 2.0)];
        let devices = index.devices().iter().map(|device| device.id);
        let memory = Arc::new(MemoryBackend::new(Arc::new(SystemClock), devices));
        let store = store_over(&memory, &index, &data, |_| Fault::None);
        create(&store, "b").await;
        Self { memory, store, index, data }
    }

    /// Another store over the same memory, with faults that `choose` selects for each call.
    pub(in crate::tests) fn store_that(
        &self,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> ObjectStore {
        store_over(&self.memory, &self.index, &self.data, choose)
    }

    /// Another store over a node that has all devices.
    pub(in crate::tests) fn store_on(&self, node: &Arc<dyn Backend>) -> ObjectStore {
        store_on(node, &self.index, &self.data)
    }

    /// Sets the second policy for new objects.
    pub(in crate::tests) async fn turn_to_second(&self) {
        self.store.buckets().set_policy("b", SECOND).await.unwrap();
    }

    /// Rewrites the bucket without pauses.
    pub(in crate::tests) async fn rewrite_all(&self) -> RewriteProgress {
        let rewrite = Rewrite::new("b", RewriteOptions::default());
        self.store.rewrite(&rewrite).await.unwrap();
        rewrite.progress()
    }

    pub(in crate::tests) async fn put(&self, key: &str, bytes: &Bytes) {
        self.put_with(key, bytes, Attributes::default()).await;
    }

    pub(in crate::tests) async fn put_with(
        &self,
        key: &str,
        bytes: &Bytes,
        attributes: Attributes,
    ) {
        let conditions = WriteConditions::default();
        let put = PutObject { attributes, body: body(bytes.clone()), conditions };
        self.store.put("b", key, put).await.unwrap();
    }

    pub(in crate::tests) async fn begin(&self, key: &str) -> UploadId {
        let new = NewUpload { attributes: Attributes::default(), checksum: None };
        self.store.uploads().create("b", key, new).await.unwrap().id
    }

    pub(in crate::tests) async fn send_and_complete(
        &self,
        key: &str,
        upload: UploadId,
        parts: &[Bytes],
    ) {
        let mut written = Vec::new();
        for (number, part) in (1..).zip(parts) {
            let part = self.store.uploads().put_part("b", key, upload, number, body(part.clone()));
            written.push((number, part.await.unwrap()));
        }
        let named: Vec<_> = written.iter().map(|(number, part)| (*number, part)).collect();
        self.store.uploads().complete("b", key, upload, naming(&named)).await.unwrap();
    }

    pub(in crate::tests) async fn object(&self, key: &str) -> Object {
        let none = ReadConditions::default();
        let read = self.store.head("b", key, Selection::Whole, &none).await.unwrap();
        Object::clone(&read.object)
    }

    pub(in crate::tests) async fn stamp(&self, key: &str) -> Stamp {
        let none = ReadConditions::default();
        self.store.head("b", key, Selection::Whole, &none).await.unwrap().stamp
    }

    /// Bytes of an object; `None` if it is absent.
    pub(in crate::tests) async fn bytes(&self, key: &str) -> Option<Bytes> {
        match get(&self.store, key, Selection::Whole).await {
            Err(Error::NoSuchKey) => None,
            bytes => Some(bytes.unwrap()),
        }
    }

    pub(in crate::tests) async fn objects(&self) -> Vec<(String, Box<Object>)> {
        let all = ListObjects { limit: 1000, ..ListObjects::default() };
        self.store.list("b", all).await.unwrap().objects
    }

    /// Extents that objects name.
    pub(in crate::tests) async fn named(&self) -> BTreeSet<ExtentId> {
        let objects = self.objects().await.into_iter();
        let extents = objects.flat_map(|(_, object)| match object.body {
            Body::Extents(manifest) => manifest.extents,
            _ => Vec::new(),
        });
        extents.map(|extent| extent.id).collect()
    }

    /// Extents that devices hold and that are no garbage.
    pub(in crate::tests) fn in_use(&self) -> BTreeSet<ExtentId> {
        self.memory.extents_in_use().into_iter().collect()
    }

    /// Number of devices that hold an extent.
    pub(in crate::tests) fn copies(&self, id: ExtentId) -> usize {
        let devices = self.index.devices().iter();
        devices.filter(|device| self.memory.extents(device.id).contains(&id)).count()
    }

    /// Corrupts every copy of every extent.
    pub(in crate::tests) fn corrupt_all(&self) {
        for device in self.index.devices() {
            for id in self.memory.extents(device.id) {
                self.memory.corrupt(device.id, id);
            }
        }
    }

    pub(in crate::tests) async fn primaries(&self, key: &str) -> Vec<DeviceId> {
        self.index.primaries(self.partition(key).await).collect()
    }

    pub(in crate::tests) async fn handoffs(&self, key: &str) -> Vec<DeviceId> {
        self.index.handoffs(self.partition(key).await).collect()
    }

    pub(in crate::tests) async fn register(&self, key: &str) -> RegisterKey {
        let bucket = self.store.bucket("b").await.unwrap();
        RegisterKey::object(bucket.id, bucket.index_shards, key)
    }

    async fn partition(&self, key: &str) -> Partition {
        self.index.partition(self.register(key).await.placement())
    }

    /// Delivers hints to their devices.
    pub(in crate::tests) async fn deliver(&self) {
        for from in self.index.devices().iter().map(|device| device.id) {
            for hint in self.memory.hints(from, None, 100).await.unwrap() {
                let (key, order) = (hint.key, hint.entry.order);
                let write = EntryWrite {
                    key: key.clone(),
                    entry: hint.entry,
                    inline: hint.inline,
                    mode: WriteMode::Repair,
                    generation: 0,
                    commit_by_ms: u64::MAX,
                    keep_body: hint.keep_body,
                    term: Term::ANY,
                };
                for to in self.index.primaries(self.index.partition(key.placement())) {
                    self.memory.write(to, write.clone()).await.unwrap();
                }
                self.memory.forget_hint(from, &key, order).await.unwrap();
            }
        }
    }
}

fn store_over(
    memory: &Arc<MemoryBackend>,
    index: &Arc<Ring>,
    data: &[Arc<Ring>; 2],
    choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> ObjectStore {
    store_on(&(Arc::new(FaultyBackend::new(memory.clone(), choose)) as _), index, data)
}

fn store_on(node: &Arc<dyn Backend>, index: &Arc<Ring>, data: &[Arc<Ring>; 2]) -> ObjectStore {
    let nodes: HashMap<_, _> =
        index.devices().iter().map(|device| (device.id, node.clone())).collect();
    let cluster = Cluster::new(index.clone(), data.to_vec(), nodes).unwrap();
    let options =
        StoreOptions { part_bytes_min: 10, bucket_cache_ms: 0, ..StoreOptions::default() };
    ObjectStore::new(cluster, Arc::new(SystemClock), options)
}
