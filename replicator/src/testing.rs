//! A cluster of one node in memory, and tests' writes to it. [`multi_node`] has several nodes,
//! [`growth`] adds nodes, [`recorded`] records requests, [`delayed`] delays calls, [`stripes`] stores fragments, and [`storm`] runs concurrent clients.

pub(crate) mod delayed;
pub(crate) mod growth;
pub(crate) mod multi_node;
pub(crate) mod recorded;
pub(crate) mod storm;
pub(crate) mod stripes;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{EntryWrite, NewExtent, WriteReply};
use martlet_protocol::entry::{
    Attributes, Body, Bucket, BucketState, ETag, KeyCondition, Manifest, Object, Part, Upload,
    UploadState, Value,
};
use martlet_protocol::extent::{ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
use martlet_protocol::{
    Backend, BackendExt, BucketId, Clock, DeviceId, Entry, ExtentId, ManualClock, PolicyId,
    RegisterKey, StampSource, Term, UploadId, WriteId,
};
use martlet_ring::{Device, Node, Ring};
use martlet_topology::{Cluster, Topology};

pub(crate) const POLICY: PolicyId = PolicyId(0);
const SHARDS: u16 = 4;

/// Two devices, one bucket, and a clock that stands still.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) memory: Arc<MemoryBackend>,
    pub(crate) cluster: Topology,
    pub(crate) bucket: BucketId,
    stamps: StampSource,
}

/// Extents of a write on the data devices.
#[derive(Clone, Debug)]
pub(crate) struct StoredBody {
    pub(crate) body: Body,
    pub(crate) ids: Vec<ExtentId>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let devices = [DeviceId(0), DeviceId(1)];
        let memory = Arc::new(MemoryBackend::new(clock.clone(), devices));
        let cluster = cluster(memory.clone());
        let stamps = StampSource::new(clock.clone());
        let world = Self { clock, memory, cluster, bucket: BucketId::random(), stamps };
        world.make_bucket().await;
        world
    }

    /// Returns the cluster with a node that fails as `choose` returns.
    pub(crate) fn faulty(
        &self,
        choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
    ) -> Topology {
        cluster(Arc::new(FaultyBackend::new(self.memory.clone(), choose)))
    }

    /// Makes another bucket, to which later writes go.
    pub(crate) async fn make_another_bucket(&mut self) {
        self.bucket = BucketId::random();
        self.make_bucket_named("another").await;
    }

    async fn make_bucket(&self) {
        self.make_bucket_named("bucket").await;
    }

    async fn make_bucket_named(&self, name: &str) {
        let bucket = Bucket {
            id: self.bucket,
            created_ms: self.clock.now_ms(),
            generation: 1,
            state: BucketState::Open,
            index_shards: SHARDS,
            policy: POLICY,
            owner: "root".into(),
            consistency: martlet_protocol::Level::default(),
            settings: martlet_protocol::Settings::default(),
        };
        let key = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, name);
        self.write(key, Value::Bucket(Box::new(bucket)), false).await;
    }

    async fn write(&self, key: RegisterKey, value: Value, keep_body: bool) {
        let entry = Entry { order: self.stamps.issue(), write_id: WriteId::random(), value };
        let write = EntryWrite {
            key,
            entry,
            inline: None,
            mode: WriteMode::Fresh,
            generation: 1,
            commit_by_ms: u64::MAX,
            keep_body,
            term: Term::ANY,
        };
        let reply = self.memory.write(DeviceId(0), write).await.unwrap();
        assert_eq!(reply, WriteReply::Stored);
    }

    fn owner(&self, key: &str, upload: Option<UploadId>) -> Owner {
        Owner {
            bucket: self.bucket,
            key: key.into(),
            write_id: WriteId::random(),
            upload,
            role: ExtentRole::Data,
            offset: 0,
        }
    }

    async fn extent(&self, owner: Owner, bytes: Vec<u8>) -> ExtentRef {
        let id = ExtentId::random();
        let device = DeviceId(u32::from(id.0[0] & 1));
        let body = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        let new = NewExtent {
            id,
            owner,
            length: None,
            birth_ms: None,
            layout: Layout::default(),
            hashes: None,
        };
        self.memory.write_extent(device, new, body).await.unwrap()
    }

    /// Writes extents of a key without an entry that names them.
    pub(crate) async fn extents(
        &self,
        key: &str,
        upload: Option<UploadId>,
        count: usize,
    ) -> StoredBody {
        let mut extents = Vec::new();
        for _ in 0..count {
            extents.push(self.extent(self.owner(key, upload), vec![7; 10]).await);
        }
        let ids = extents.iter().map(|extent| extent.id).collect();
        let manifest =
            Manifest { policy: POLICY, extents, parts: Vec::new(), part_checksums: Vec::new() };
        StoredBody { body: Body::Extents(manifest), ids }
    }

    /// Writes extents like [`Self::extents`], with the manifest in an extent of its own: the last
    /// id.
    pub(crate) async fn spilled(&self, key: &str, count: usize) -> StoredBody {
        self.spilled_part(key, None, count).await
    }

    /// Writes extents like [`Self::spilled`], for a part of `upload` if one is given.
    pub(crate) async fn spilled_part(
        &self,
        key: &str,
        upload: Option<UploadId>,
        count: usize,
    ) -> StoredBody {
        let StoredBody { body, mut ids } = self.extents(key, upload, count).await;
        let Body::Extents(manifest) = body else { unreachable!("just made so") };
        let owner = Owner { role: ExtentRole::Manifest, ..self.owner(key, upload) };
        let piece = self.extent(owner, manifest.encode()).await;
        ids.push(piece.id);
        StoredBody { body: Body::Spilled { policy: POLICY, manifest: vec![piece] }, ids }
    }

    /// Writes the entry of an object.
    pub(crate) async fn commit(&self, key: &str, body: &Body, keep_body: bool) {
        let register = RegisterKey::object(self.bucket, SHARDS, key);
        self.write(register, Value::Object(Box::new(object(body))), keep_body).await;
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, key: &str) {
        let register = RegisterKey::object(self.bucket, SHARDS, key);
        self.write(register, Value::Tombstone, false).await;
    }

    /// Writes the entry of a part, and returns its register.
    pub(crate) async fn commit_part(
        &self,
        key: &str,
        upload: UploadId,
        number: u16,
        body: &Body,
    ) -> RegisterKey {
        let part = Part {
            size: 10,
            tag: [0; 16],
            modified_ms: 0,
            checksums: Vec::new(),
            body: body.clone(),
        };
        let beside = RegisterKey::upload(self.bucket, SHARDS, key, upload);
        let register = RegisterKey::part(&beside, upload, number, WriteId::random());
        self.write(register.clone(), Value::Part(Box::new(part)), false).await;
        register
    }

    /// Frees a part: its body becomes garbage.
    pub(crate) async fn free_part(&self, register: RegisterKey) {
        self.write(register, Value::Tombstone, false).await;
    }

    /// Writes an upload that has decided on its object.
    pub(crate) async fn decide_upload(&self, key: &str, id: UploadId, body: &Body) {
        let state = UploadState::Completing {
            write_id: WriteId::random(),
            order: self.stamps.issue(),
            object: Box::new(object(body)),
            condition: KeyCondition::default(),
            follows: None,
        };
        self.set_upload(key, id, state).await;
    }

    /// Writes an upload.
    pub(crate) async fn set_upload(&self, key: &str, id: UploadId, state: UploadState) {
        let upload = Upload {
            key: key.into(),
            id,
            initiated_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
            policy: POLICY,
            state,
        };
        let register = RegisterKey::upload(self.bucket, SHARDS, key, id);
        self.write(register, Value::Upload(Box::new(upload)), false).await;
    }

    /// Returns those of `ids` that are still on a device.
    pub(crate) fn left(&self, ids: &[ExtentId]) -> Vec<ExtentId> {
        let mut there = self.memory.extents(DeviceId(0));
        there.extend(self.memory.extents(DeviceId(1)));
        ids.iter().copied().filter(|id| there.contains(id)).collect()
    }

    /// Returns true if no extent of `written` is left. Panics if only some are.
    pub(crate) fn is_gone(&self, written: &StoredBody) -> bool {
        let left = self.left(&written.ids);
        assert!(left.is_empty() || left.len() == written.ids.len(), "{left:?} of {written:?}");
        left.is_empty()
    }

    /// Number of records of garbage, due or not.
    pub(crate) async fn garbage(&self) -> usize {
        self.memory.garbage(DeviceId(0), u64::MAX, 1000).await.unwrap().len()
    }
}

fn object(body: &Body) -> Object {
    Object {
        size: 10,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: body.clone(),
        version: None,
    }
}

/// Makes a cluster with entries on the first device, extents on both.
fn cluster(node: Arc<dyn Backend>) -> Topology {
    let device = |id: u32| Device {
        id: DeviceId(id),
        region: 1,
        zone: 1,
        node: Node::default(),
        name: format!("d{id}"),
        weight: 1.0,
        meta: String::new(),
    };
    let index = Ring::of_devices(POLICY, 1, &[device(0)]).unwrap();
    let data = Ring::of_devices(POLICY, 1, &[device(0), device(1)]).unwrap();
    let nodes = HashMap::from([(DeviceId(0), node.clone()), (DeviceId(1), node)]);
    Cluster::new(Arc::new(index), vec![Arc::new(data)], nodes).unwrap().into()
}
