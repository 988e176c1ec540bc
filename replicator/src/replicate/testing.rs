//! Operations of replication tests on a cluster in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{NewExtent, WriteReply};
use martlet_protocol::entry::{Body, Bucket, BucketState, Manifest, Value};
use martlet_protocol::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{
    Backend, BackendExt, BucketId, Clock, DeviceId, ExtentId, Level, PolicyId, RegisterKey, WriteId,
};
use martlet_ring::Ring;

use crate::testing::POLICY;
use crate::testing::multi_node::{MultiNodeWorld, write};

/// Bucket of all extents of these tests.
pub(crate) const BUCKET: BucketId = BucketId([7; 16]);

impl MultiNodeWorld {
    /// Sets another ring for extents.
    pub(crate) fn set_data_ring(&self, ring: Ring) {
        self.edit(|parts| {
            parts.data.insert(POLICY, Arc::new(ring));
        });
    }

    pub(crate) fn data_primaries(&self, id: ExtentId) -> Vec<DeviceId> {
        let ring = self.data(POLICY);
        ring.primaries(ring.partition(id.placement())).collect()
    }

    /// Writes an extent of the object `key` to these devices.
    pub(crate) async fn extent_on(
        &self,
        devices: &[DeviceId],
        id: ExtentId,
        key: &str,
    ) -> ExtentRef {
        self.extent_under(POLICY, devices, id, key).await
    }

    /// Writes an extent under another policy.
    pub(crate) async fn extent_under(
        &self,
        policy: PolicyId,
        devices: &[DeviceId],
        id: ExtentId,
        key: &str,
    ) -> ExtentRef {
        let owner = Owner {
            bucket: BUCKET,
            key: key.into(),
            write_id: WriteId([5; 16]),
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
        };
        let mut written = None;
        for device in devices {
            let bytes = Bytes::copy_from_slice(&id.0);
            let body = stream::iter([Ok(bytes)]).boxed();
            let new = NewExtent {
                id,
                owner: owner.clone(),
                length: None,
                birth_ms: None,
                layout: Layout { policy, stripe: None },
                hashes: None,
            };
            written = self.memory(*device).write_extent(*device, new, body).await.ok();
        }
        written.expect("it was written somewhere")
    }

    /// Writes `count` extents to their primaries, old enough to be processed.
    pub(crate) async fn extents(&self, count: u16) -> Vec<ExtentId> {
        let mut ids = Vec::new();
        for n in 0..count {
            let id = extent_id(n);
            self.extent_on(&self.data_primaries(id), id, "object").await;
            ids.push(id);
        }
        self.clock.advance_ms(60_000);
        ids
    }

    /// Returns the holders of each extent.
    pub(crate) fn copies(&self, devices: u32) -> BTreeMap<ExtentId, Vec<DeviceId>> {
        let mut copies: BTreeMap<ExtentId, Vec<DeviceId>> = BTreeMap::new();
        for device in (0..devices).map(DeviceId) {
            for id in self.memory(device).extents(device) {
                copies.entry(id).or_default().push(device);
            }
        }
        copies
    }

    /// Returns true if each of `ids` is on its primaries and nowhere else.
    pub(crate) fn is_in_place(&self, devices: u32, ids: &[ExtentId]) -> bool {
        let copies = self.copies(devices);
        let mut all = copies.len() == ids.len();
        for (id, mut holders) in copies {
            let mut primaries = self.data_primaries(id);
            primaries.sort();
            holders.sort();
            all &= ids.contains(&id) && holders == primaries;
        }
        all
    }

    /// Returns a device's record of an extent.
    pub(crate) async fn record(&self, device: DeviceId, id: ExtentId) -> ExtentRecord {
        self.memory(device).stat_extent(device, id).await.unwrap().record
    }

    /// Replaces a device's copy by `length` other bytes, with a record that matches them: its own audit finds nothing.
    pub(crate) async fn replace_copy(&self, device: DeviceId, id: ExtentId, length: usize) {
        let record = self.record(device, id).await;
        let new = NewExtent {
            id,
            owner: record.owner,
            length: None,
            birth_ms: Some(record.birth_ms),
            layout: record.layout,
            hashes: None,
        };
        let body = stream::iter([Ok(Bytes::from(vec![9; length]))]).boxed();
        self.memory(device).write_extent(device, new, body).await.unwrap();
    }

    /// Writes the entry of the bucket of all extents to the index.
    pub(crate) async fn make_bucket(&self, policy: PolicyId) {
        let bucket = Bucket {
            id: BUCKET,
            created_ms: self.clock.now_ms(),
            generation: 1,
            state: BucketState::Open,
            index_shards: 16,
            policy,
            owner: "root".into(),
            consistency: Level::default(),
            settings: martlet_protocol::Settings::default(),
        };
        let key = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
        let mut made = write(&key, self.stamps.issue(), 0, Body::Empty);
        made.entry.value = Value::Bucket(Box::new(bucket));
        self.write_on(&self.primaries(&key), &made).await;
    }

    /// Writes an object with these extents to its primaries.
    pub(crate) async fn commit(&self, key: &str, extents: Vec<ExtentRef>) {
        self.commit_body(
            key,
            Body::Extents(Manifest {
                policy: POLICY,
                extents,
                parts: Vec::new(),
                part_checksums: Vec::new(),
            }),
        )
        .await;
    }

    /// Writes an object with this body to its primaries.
    pub(crate) async fn commit_body(&self, key: &str, body: Body) {
        let register = RegisterKey::object(BUCKET, 16, key);
        let made = write(&register, self.stamps.issue(), 16, body);
        for device in self.primaries(&register) {
            let reply = self.memory(device).write(device, made.clone()).await.unwrap();
            assert_eq!(reply, WriteReply::Stored);
        }
    }
}

/// Returns ids that are spread over the partitions.
pub(crate) fn extent_id(n: u16) -> ExtentId {
    let mut id = [0; 16];
    id.copy_from_slice(&spread(n));
    ExtentId(id)
}

/// Returns sixteen pseudo-random bytes, deterministic for `n`.
fn spread(n: u16) -> [u8; 16] {
    let mut state = u64::from(n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; 16];
    for half in bytes.chunks_exact_mut(8) {
        state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 32;
        half.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}
