//! Extents that are kept as fragments, on clusters in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_erasure::{Code, Codec, Encoder, Geometry};
use martlet_protocol::backend::NewExtent;
use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::extent::{ExtentRef, ExtentRole, Layout, Owner, Stripe};
use martlet_protocol::{Backend, BackendExt, DeviceId, ExtentId, PolicyId, Redundancy, WriteId};
use martlet_ring::{Builder, RebalanceContext, Ring, RingSettings};

use super::growth::new_device;
use super::multi_node::MultiNodeWorld;
use crate::replicate::testing::BUCKET;

/// Policy of fragments in these tests.
pub(crate) const CODED: PolicyId = PolicyId(1);

/// Returns a ring of the code k+m over `count` devices.
pub(crate) fn coded_ring(k: u8, m: u8, count: u32) -> Ring {
    let settings = RingSettings {
        policy: CODED,
        policy_name: "coded".to_owned(),
        redundancy: Redundancy::erasure(k, m).unwrap(),
        part_power: 5,
        replicas: f64::from(k + m),
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [8; 16]).unwrap();
    for id in 0..count {
        builder.add(new_device(id)).unwrap();
    }
    builder.rebalance(RebalanceContext { now_ms: 1, seed: 0 }).unwrap();
    builder.ring().unwrap()
}

/// Returns pseudo-random bytes, deterministic for `seed`.
pub(crate) fn noise(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// Holders of fragments, with hashes of their bytes.
pub(crate) type HeldFragments = BTreeMap<(ExtentId, DeviceId), [u8; 32]>;

impl MultiNodeWorld {
    /// Makes a cluster of devices under one code.
    pub(crate) fn coded(k: u8, m: u8, count: u32) -> Self {
        let world = Self::new(count);
        world.set_coded_ring(Arc::new(coded_ring(k, m, count)));
        world
    }

    /// Replaces the ring of coded extents.
    pub(crate) fn set_coded_ring(&self, ring: Arc<Ring>) {
        self.edit(|parts| {
            parts.data.insert(CODED, ring);
        });
    }

    pub(crate) fn coded_ring(&self) -> Arc<Ring> {
        self.data(CODED)
    }

    /// Returns the homes of all fragments of an extent, in order.
    pub(crate) fn homes(&self, id: ExtentId) -> Vec<DeviceId> {
        let ring = self.coded_ring();
        ring.primaries(ring.partition(id.placement())).collect()
    }

    /// Writes one fragment of an extent to a device.
    pub(crate) async fn fragment_on(
        &self,
        device: DeviceId,
        id: ExtentId,
        bytes: Bytes,
        stripe: Stripe,
        owner: Owner,
    ) {
        let layout = Layout { policy: CODED, stripe: Some(stripe) };
        let length = Some(bytes.len() as u64);
        let new = NewExtent { id, owner, length, birth_ms: None, layout, hashes: None };
        let body = stream::iter([Ok(bytes)]).boxed();
        self.memory(device).write_extent(device, new, body).await.unwrap();
    }

    /// Writes an extent of the object `key`, with all of its fragments at home.
    pub(crate) async fn stripe(&self, id: ExtentId, bytes: &Bytes, key: &str) -> ExtentRef {
        self.stripe_as(id, bytes, owner(key, ExtentRole::Data)).await
    }

    pub(crate) async fn stripe_as(&self, id: ExtentId, bytes: &Bytes, owner: Owner) -> ExtentRef {
        let Redundancy::Erasure { k, m } = self.coded_ring().identity().redundancy else {
            unreachable!("the ring is one of a code")
        };
        let length = u32::try_from(bytes.len()).unwrap();
        let stripe = Stripe { k, m, length };
        for ((number, bytes), home) in fragments(k, m, bytes).into_iter().zip(self.homes(id)) {
            if !bytes.is_empty() {
                let id = id.fragment(number);
                self.fragment_on(home, id, bytes, stripe, owner.clone()).await;
            }
        }
        ExtentRef { id: id.whole(), length, blake3: *blake3::hash(bytes).as_bytes() }
    }

    /// Writes an object with these coded extents to its primaries.
    pub(crate) async fn commit_coded(&self, key: &str, extents: Vec<ExtentRef>) {
        let body = Body::Extents(Manifest {
            policy: CODED,
            extents,
            parts: Vec::new(),
            part_checksums: Vec::new(),
        });
        self.commit_body(key, body).await;
    }

    /// Returns all fragments on devices that answer.
    pub(crate) async fn fragments(&self, devices: u32) -> HeldFragments {
        let mut held = HeldFragments::new();
        for device in (0..devices).map(DeviceId) {
            let memory = self.memory(device);
            for record in memory.list_extents(device, None, usize::MAX).await.unwrap_or_default() {
                held.insert((record.extent.id, device), record.extent.blake3);
            }
        }
        held
    }

    /// Removes a fragment from its home.
    pub(crate) async fn lose(&self, id: ExtentId, number: u8) {
        let home = self.homes(id)[usize::from(number)];
        self.memory(home).release_extents(home, &[id.fragment(number)]).await.unwrap();
    }
}

/// Returns the owner of extents of `key`.
pub(crate) fn owner(key: &str, role: ExtentRole) -> Owner {
    let write_id = WriteId([5; 16]);
    Owner { bucket: BUCKET, key: key.into(), write_id, upload: None, role, offset: 0 }
}

/// Returns the fragments of `bytes`, including empty ones.
pub(crate) fn fragments(k: u8, m: u8, bytes: &Bytes) -> Vec<(u8, Bytes)> {
    let code = Code::new(k, m).unwrap();
    let geometry = Geometry::new(code, bytes.len() as u64).unwrap();
    let mut encoder = Encoder::new(&Codec::new(code), &geometry).unwrap();
    let mut blocks = encoder.push(bytes).unwrap();
    blocks.extend(encoder.finish().unwrap().0);
    let of = |number: u8| {
        let mine = blocks.iter().filter(|block| block.fragment.0 == number);
        let bytes: Vec<Bytes> = mine.map(|block| block.bytes.clone()).collect();
        (number, bytes.concat().into())
    };
    (0..k + m).map(of).collect()
}
