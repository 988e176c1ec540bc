//! A store over devices in memory, and bodies to put into it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_protocol::entry::{Attributes, ChecksumAlgorithm};
use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
use martlet_protocol::{Backend, Clock, DeviceId, ManualClock, PolicyId, SystemClock};
use martlet_ring::Ring;
use martlet_ring::fixtures::device;

use crate::{
    Cluster, NewBody, NewBucket, ObjectRead, ObjectStore, PutObject, ReadConditions, Result,
    Selection, StoreOptions, WriteConditions, WrittenObject,
};

/// A store with its memory, for most tests.
pub(super) struct Harness {
    pub(super) store: ObjectStore,
    pub(super) memory: Arc<MemoryBackend>,
}

fn ring(replicas: usize, devices: u32) -> Arc<Ring> {
    let device = |id| device(id, format!("n{id}"), "disk");
    let devices: Vec<_> = (1..=devices).map(device).collect();
    Arc::new(Ring::of_devices(PolicyId(0), replicas, &devices).unwrap())
}

/// A store with faults that `choose` selects for each call.
pub(super) fn faulty(
    memory: &Arc<MemoryBackend>,
    replicas: usize,
    devices: u32,
    choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> ObjectStore {
    let node: Arc<dyn Backend> = Arc::new(FaultyBackend::new(memory.clone(), choose));
    store_over(&node, replicas, devices)
}

fn store_over(node: &Arc<dyn Backend>, replicas: usize, devices: u32) -> ObjectStore {
    store_with(node, replicas, devices, 0, Arc::new(SystemClock))
}

/// A store of three replicas whose clock is late, with faults that `choose` selects.
pub(super) fn late(
    memory: &Arc<MemoryBackend>,
    late_ms: u64,
    choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> ObjectStore {
    let node: Arc<dyn Backend> = Arc::new(FaultyBackend::new(memory.clone(), choose));
    let clock = ManualClock::at(SystemClock.now_ms() - late_ms);
    store_with(&node, 3, 3, 0, Arc::new(clock))
}

/// A store over one device that caches buckets for a minute.
pub(super) fn remembering(memory: &Arc<MemoryBackend>) -> ObjectStore {
    let node: Arc<dyn Backend> = memory.clone();
    store_with(&node, 1, 1, 60_000, Arc::new(SystemClock))
}

pub(super) fn store_with(
    node: &Arc<dyn Backend>,
    replicas: usize,
    devices: u32,
    bucket_cache_ms: u64,
    clock: Arc<dyn Clock>,
) -> ObjectStore {
    let options = StoreOptions { bucket_cache_ms, ..options() };
    ObjectStore::new(cluster(node, replicas, devices), clock, options)
}

/// A store over one device whose readers share windows of so many bytes.
pub(super) fn sharing(memory: &Arc<MemoryBackend>, window_bytes_max: usize) -> ObjectStore {
    let node: Arc<dyn Backend> = memory.clone();
    let options = StoreOptions { window_bytes_max, ..options() };
    ObjectStore::new(cluster(&node, 1, 1), Arc::new(SystemClock), options)
}

fn options() -> StoreOptions {
    StoreOptions { part_bytes_min: 10, bucket_cache_ms: 0, ..StoreOptions::default() }
}

fn cluster(node: &Arc<dyn Backend>, replicas: usize, devices: u32) -> Cluster {
    let ring = ring(replicas, devices);
    let nodes: HashMap<_, _> = (1..=devices).map(|id| (DeviceId(id), node.clone())).collect();
    Cluster::new(ring.clone(), vec![ring], nodes).unwrap()
}

impl Harness {
    pub(super) fn new(replicas: usize, devices: u32) -> Self {
        Self::at(replicas, devices, Arc::new(SystemClock))
    }

    /// Makes a harness with this clock.
    pub(super) fn at(replicas: usize, devices: u32, clock: Arc<dyn Clock>) -> Self {
        let memory = Arc::new(MemoryBackend::new(clock.clone(), (1..=devices).map(DeviceId)));
        let node: Arc<dyn Backend> = memory.clone();
        Self { store: store_with(&node, replicas, devices, 0, clock), memory }
    }

    /// Makes a harness with one replica on `devices` devices, and a bucket `b`.
    pub(super) async fn with_bucket(devices: u32) -> Self {
        let harness = Self::new(1, devices);
        create(&harness.store, "b").await;
        harness
    }

    pub(super) async fn put(&self, key: &str, bytes: impl Into<Bytes>) -> Result<WrittenObject> {
        put(&self.store, key, body(bytes.into()), WriteConditions::default()).await
    }

    pub(super) async fn get(&self, key: &str, selection: Selection) -> Result<Bytes> {
        get(&self.store, key, selection).await
    }

    pub(super) async fn head(&self, key: &str, selection: Selection) -> Result<ObjectRead> {
        self.store.head("b", key, selection, &ReadConditions::default()).await
    }

    pub(super) async fn delete(&self, key: &str) {
        self.store.delete("b", key, &WriteConditions::default()).await.unwrap();
    }
}

pub(super) async fn create(store: &ObjectStore, name: &str) {
    let new = NewBucket {
        owner: "me".into(),
        index_shards: 8,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    };
    store.buckets().create(name, new).await.unwrap();
}

pub(super) async fn put(
    store: &ObjectStore,
    key: &str,
    body: NewBody,
    conditions: WriteConditions,
) -> Result<WrittenObject> {
    let attributes = Attributes { content_type: Some("text/x".into()), ..Attributes::default() };
    store.put("b", key, PutObject { attributes, body, conditions }).await
}

pub(super) async fn get(store: &ObjectStore, key: &str, selection: Selection) -> Result<Bytes> {
    let read = store.get("b", key, selection, &ReadConditions::default()).await?;
    collect(read).await
}

pub(super) async fn collect(read: ObjectRead) -> Result<Bytes> {
    let mut body = read.body.expect("a GET has a body");
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    assert_eq!(bytes.len() as u64, read.range.end - read.range.start);
    Ok(bytes.freeze())
}

/// A body of known length in chunks of an odd size.
pub(super) fn body(bytes: Bytes) -> NewBody {
    NewBody { size: Some(bytes.len() as u64), ..unsized_body(bytes) }
}

/// A body of unknown length.
pub(super) fn unsized_body(bytes: Bytes) -> NewBody {
    let mut rest = bytes;
    let chunks = std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(999_983))))
    });
    NewBody {
        bytes: futures::stream::iter(chunks).boxed(),
        size: None,
        md5: None,
        compute: vec![ChecksumAlgorithm::Crc32c],
        expected: Box::new(|| Ok(Vec::new())),
    }
}

/// Pseudo-random bytes of a seed.
pub(super) fn pattern(length: usize, seed: u32) -> Bytes {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut bytes = Vec::with_capacity(length + 4);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// Lets spawned tasks end.
pub(super) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
