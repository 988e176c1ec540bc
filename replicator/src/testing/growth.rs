//! Clusters in memory that grow and shrink: new devices, and successor rings.

use std::sync::Arc;

use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, BackendExt, DeviceId, DeviceIdentity, Entry, RegisterKey, Term};
use martlet_ring::{Builder, NewDevice, Node, RebalanceContext, Ring, RingSettings};

use super::POLICY;
use super::multi_node::{MultiNodeWorld, key};

/// Returns a ring of few partitions, so that changes move little.
pub(crate) fn small_ring(count: u32) -> Ring {
    let settings = RingSettings {
        policy: POLICY,
        policy_name: "default".to_owned(),
        redundancy: martlet_protocol::Redundancy::Replicated,
        part_power: 5,
        replicas: 3.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).unwrap();
    for id in 0..count {
        builder.add(new_device(id)).unwrap();
    }
    builder.rebalance(RebalanceContext { now_ms: 1, seed: 0 }).unwrap();
    builder.ring().unwrap()
}

/// Returns the successor of `ring` after `edit`.
pub(crate) fn successor(ring: &Ring, edit: impl FnOnce(&mut Builder)) -> Arc<Ring> {
    let mut builder = Builder::from_ring(ring, 0, 0.0, 0).unwrap();
    builder.settle().unwrap();
    edit(&mut builder);
    let change = ring.change();
    builder.rebalance(RebalanceContext { now_ms: 1, seed: change }).unwrap();
    Arc::new(builder.ring().unwrap())
}

/// Returns a device to add, on a node of its own.
pub(crate) fn new_device(id: u32) -> NewDevice {
    NewDevice {
        region: 1,
        zone: 1,
        node: Node { name: format!("n{id}"), address: format!("n{id}:6200") },
        name: "d".into(),
        weight: 1.0,
        meta: String::new(),
    }
}

impl MultiNodeWorld {
    /// Sets up a new device without votes, which no ring names yet.
    pub(crate) async fn set_up(&self, device: DeviceId) {
        let fresh = Arc::new(MemoryBackend::new(self.clock.clone(), [device]));
        fresh.set_identity(device, DeviceIdentity::random());
        fresh.set_voting(device, false).await.unwrap();
        fresh.forget_fences(device);
        self.put_in_place(device, fresh);
    }

    /// Replaces the index ring.
    pub(crate) fn follow(&self, index: Arc<Ring>) {
        self.edit(|parts| parts.index = index);
    }

    /// Adds a device, and a ring that moves partitions to it.
    pub(crate) async fn grow(&self, id: u32) -> Arc<Ring> {
        self.set_up(DeviceId(id)).await;
        let ring = successor(&self.index(), |builder| {
            assert_eq!(builder.add(new_device(id)).unwrap(), DeviceId(id));
        });
        self.follow(ring.clone());
        ring
    }

    /// Sets a ring that moves all partitions away from a device, which stays.
    pub(crate) fn drain(&self, device: DeviceId) -> Arc<Ring> {
        let ring = successor(&self.index(), |builder| {
            builder.set_weight(device, 0.0).unwrap();
        });
        self.follow(ring.clone());
        ring
    }

    /// Returns a device's entry of a key, if the device answers.
    pub(crate) async fn held_if_up(&self, device: DeviceId, key: &RegisterKey) -> Option<Entry> {
        let all =
            BackendExt::registers(&*self.memory(device), device, None, usize::MAX).await.ok()?;
        all.into_iter().find(|(at, _)| at == key).and_then(|(_, view)| view.entry)
    }

    /// Returns the term of a device.
    pub(crate) async fn term_of(&self, device: DeviceId) -> Term {
        self.memory(device).devices().await.unwrap()[0].term
    }

    /// Returns a key that moves to a device in the ring's change.
    pub(crate) fn key_moving_to(&self, device: DeviceId) -> RegisterKey {
        let ring = self.index().clone();
        let is_moving = |key: &RegisterKey| {
            let partition = ring.partition(key.placement());
            let at = ring.primaries(partition).position(|id| id == device);
            at.is_some_and(|at| ring.previous(partition, at).is_some())
        };
        (0..10_000).map(key_of).find(is_moving).unwrap()
    }
}

/// Returns a key in a bucket of its own, so that keys spread over all partitions.
pub(crate) fn key_of(number: u64) -> RegisterKey {
    let mut bucket = [9; 16];
    bucket[..8].copy_from_slice(&number.to_be_bytes());
    RegisterKey { bucket: martlet_protocol::BucketId(bucket), ..key(&format!("k{number}")) }
}
