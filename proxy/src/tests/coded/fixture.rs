//! A store with coded objects, over devices whose behavior a test sets.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_erasure::{Code, Codec, Encoder, FragmentIndex, Geometry, Recovery};
use martlet_protocol::entry::Body;
use martlet_protocol::extent::{ExtentRef, Layout, Stripe};
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{
    Backend, BackendExt, DeviceId, ExtentId, PolicyId, Redundancy, SystemClock,
};
use martlet_ring::Ring;
use martlet_ring::fixtures::devices;

use crate::tests::extents::wayward::{Conduct, Wayward};
use crate::tests::harness::{body, create, put};
use crate::{Cluster, ObjectStore, Result, StoreOptions, WriteConditions, WrittenObject};

/// Policy of all objects.
pub(in crate::tests) const POLICY: PolicyId = PolicyId(1);

/// A store with one coded policy and a bucket `b`.
pub(in crate::tests) struct CodedFixture {
    pub(in crate::tests) store: ObjectStore,
    pub(in crate::tests) node: Arc<Wayward>,
    pub(in crate::tests) ring: Arc<Ring>,
    pub(in crate::tests) codec: Codec,
}

fn at(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

impl CodedFixture {
    /// Makes a store with a node for each device.
    pub(in crate::tests) async fn new(code: &str, count: u32) -> Self {
        Self::with(code, count, 1, StoreOptions::default()).await
    }

    pub(in crate::tests) async fn with(
        code: &str,
        count: u32,
        on_each_node: u32,
        options: StoreOptions,
    ) -> Self {
        let all = || (1..=count).map(DeviceId);
        let memory = Arc::new(MemoryBackend::new(Arc::new(SystemClock), all()));
        let node = Arc::new(Wayward::new(memory));
        let devices = devices(count, on_each_node);
        let index = Arc::new(Ring::of_devices(PolicyId(0), 3, &devices).unwrap());
        let redundancy: Redundancy = code.parse().unwrap();
        let ring = Arc::new(Ring::of_code(POLICY, "coded", redundancy, &devices).unwrap());
        let nodes: HashMap<_, _> = all().map(|id| (id, node.clone() as Arc<dyn Backend>)).collect();
        let cluster = Cluster::new(index, vec![ring.clone()], nodes).unwrap();
        let store = ObjectStore::new(cluster, Arc::new(SystemClock), options);
        create(&store, "b").await;
        let code = Code::of(redundancy).unwrap().unwrap();
        Self { store, node, ring, codec: Codec::new(code) }
    }

    pub(in crate::tests) fn code(&self) -> Code {
        self.codec.code()
    }

    pub(in crate::tests) async fn put(&self, key: &str, bytes: Bytes) -> Result<WrittenObject> {
        put(&self.store, key, body(bytes), WriteConditions::default()).await
    }

    pub(in crate::tests) fn let_be(
        &self,
        devices: impl IntoIterator<Item = DeviceId>,
        conduct: Conduct,
    ) {
        devices.into_iter().for_each(|device| self.node.let_be(device, conduct));
    }

    pub(in crate::tests) fn devices(&self) -> Vec<DeviceId> {
        self.ring.devices().iter().map(|device| device.id).collect()
    }

    /// Primary of a fragment.
    pub(in crate::tests) fn home(&self, id: ExtentId, fragment: FragmentIndex) -> DeviceId {
        let partition = self.ring.partition(id.placement());
        self.ring.primaries(partition).nth(usize::from(fragment.0)).unwrap()
    }

    /// Stored fragments of an extent with their devices.
    pub(in crate::tests) fn held(&self, id: ExtentId) -> Vec<(FragmentIndex, DeviceId)> {
        let mut held = Vec::new();
        for device in self.devices() {
            let ids = self.node.memory.extents(device);
            let ids = ids.into_iter().filter(|held| held.whole() == id);
            held.extend(ids.map(|held| (FragmentIndex(held.fragment_number()), device)));
        }
        held.sort_unstable();
        held
    }

    /// Number of nodes that hold a fragment of an extent.
    pub(in crate::tests) fn nodes_of(&self, id: ExtentId) -> usize {
        let name = |device| self.ring.device(device).unwrap().node.name.clone();
        let mut nodes: Vec<_> = self.held(id).iter().map(|(_, device)| name(*device)).collect();
        nodes.sort();
        nodes.dedup();
        nodes.len()
    }

    /// Encodes the bytes of an extent into its fragments.
    pub(in crate::tests) fn encoded(&self, bytes: &Bytes) -> Vec<Vec<u8>> {
        let geometry = Geometry::new(self.code(), bytes.len() as u64).unwrap();
        let mut encoder = Encoder::new(&self.codec, &geometry).unwrap();
        let mut fragments = vec![Vec::new(); usize::from(self.code().total())];
        let mut blocks = encoder.push(bytes).unwrap();
        blocks.extend(encoder.finish().unwrap().0);
        for block in blocks {
            fragments[usize::from(block.fragment.0)].extend_from_slice(&block.bytes);
        }
        fragments
    }

    async fn stored(&self, device: DeviceId, id: ExtentId) -> (Layout, Bytes) {
        let memory = &self.node.memory;
        let record = memory.stat_extent(device, id).await.unwrap().record;
        let length = u64::from(record.extent.length);
        let mut stream = memory.read_extent(device, id, 0..length).await.unwrap();
        let mut bytes = BytesMut::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        (record.layout, bytes.freeze())
    }

    /// Checks that an object's extents cover `bytes`, that each has at least d+1 correct fragments
    /// on devices of their own, and that any d of them decode the extent.
    pub(in crate::tests) async fn check(&self, written: &WrittenObject, bytes: &Bytes) {
        let mut from = 0;
        for extent in extents(written) {
            let part = bytes.slice(from..from + extent.length as usize);
            from += part.len();
            self.check_extent(&extent, &part).await;
        }
        assert_eq!(from, bytes.len(), "the extents cover the object");
    }

    /// Runs [`Self::check`], and checks that each fragment is stored once, on its primary.
    pub(in crate::tests) async fn check_at_home(&self, written: &WrittenObject, bytes: &Bytes) {
        self.check(written, bytes).await;
        for extent in extents(written) {
            let geometry = Geometry::new(self.code(), u64::from(extent.length)).unwrap();
            let stored = geometry.stored();
            let home: Vec<_> = stored.iter().map(|at| (at, self.home(extent.id, at))).collect();
            assert_eq!(self.held(extent.id), home);
        }
    }

    /// Returns an extent's bytes from its data fragments on any devices.
    pub(in crate::tests) async fn whole(&self, extent: &ExtentRef) -> Bytes {
        let mut bytes = BytesMut::new();
        for (fragment, device) in self.held(extent.id) {
            if self.code().is_data(fragment) {
                let (_, stored) = self.stored(device, extent.id.fragment(fragment.0)).await;
                bytes.extend_from_slice(&stored);
            }
        }
        bytes.freeze()
    }

    /// Checks one extent.
    pub(in crate::tests) async fn check_extent(&self, extent: &ExtentRef, bytes: &Bytes) {
        assert_eq!(extent.id, extent.id.whole());
        assert_eq!(extent.blake3, *blake3::hash(bytes).as_bytes());
        let geometry = Geometry::new(self.code(), bytes.len() as u64).unwrap();
        let expected = self.encoded(bytes);
        let held = self.held(extent.id);
        let stripe = Stripe { k: self.code().k(), m: self.code().m(), length: extent.length };
        let layout = Layout { policy: POLICY, stripe: Some(stripe) };
        let mut on: Vec<_> = held.iter().map(|(_, device)| *device).collect();
        for (fragment, device) in &held {
            let (found, stored) = self.stored(*device, extent.id.fragment(fragment.0)).await;
            assert_eq!(found, layout);
            assert!(stored == expected[usize::from(fragment.0)], "{fragment} of {geometry:?}");
        }
        let mut fragments: Vec<_> = held.iter().map(|(fragment, _)| *fragment).collect();
        fragments.dedup();
        on.sort_unstable();
        on.dedup();
        let needed = usize::from(geometry.needed());
        assert!(fragments.len() > needed && on.len() > needed, "{held:?}");
        fragments.reverse();
        self.check_decodes(&geometry, &fragments, &expected, bytes);
    }

    /// Checks that the last of the usable fragments are enough to decode the extent.
    fn check_decodes(
        &self,
        geometry: &Geometry,
        usable: &[FragmentIndex],
        fragments: &[Vec<u8>],
        bytes: &Bytes,
    ) {
        let usable = &usable[..usize::from(geometry.needed())];
        let all = 0..geometry.columns();
        let lost = self.code().data().filter(|at| !usable.contains(at)).collect();
        let recovery = Recovery::new(&self.codec, geometry, all.clone(), lost, usable).unwrap();
        let reads = recovery.reads(&all);
        let slice = |columns: &Range<u64>| at(columns.start)..at(columns.end);
        let read: Vec<&[u8]> = reads
            .iter()
            .map(|piece| &fragments[usize::from(piece.fragment.0)][slice(&piece.columns)])
            .collect();
        let mut made = vec![Vec::new(); recovery.wanted().count()];
        recovery.recover(&all, &read, &mut made).unwrap();
        for (fragment, made) in recovery.wanted().zip(made) {
            let from = u64::from(fragment.0) * geometry.fragment_bytes();
            let to = from + geometry.stored_bytes(fragment);
            let from = from.min(to);
            let range = at(from.min(geometry.length()))..at(to.min(geometry.length()));
            assert!(made == bytes[range], "{fragment} of {geometry:?}");
        }
    }
}

/// The extents of an object.
pub(in crate::tests) fn extents(written: &WrittenObject) -> Vec<ExtentRef> {
    match &written.object.body {
        Body::Extents(manifest) => manifest.extents.clone(),
        _ => Vec::new(),
    }
}
