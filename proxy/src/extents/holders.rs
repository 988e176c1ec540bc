//! Candidate devices of an extent, the likeliest first.

use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ExtentId};
use martlet_ring::Ring;

use crate::health::Health;

/// Homes of a fragment. While its replica moves, the previous home comes first.
pub(crate) fn homes(ring: &Ring, id: ExtentId) -> Vec<DeviceId> {
    let partition = ring.partition(id.placement());
    let replica = usize::from(id.fragment_number());
    let home = ring.primaries(partition).nth(replica);
    ring.previous(partition, replica).into_iter().chain(home).collect()
}

/// Likely devices of an extent: its primaries, and the previous holders of moving replicas, without
/// duplicates. Recently failed ones come last. For a fragment, only its homes.
pub(super) fn likely(ring: &Ring, health: &Health, id: ExtentId) -> Vec<DeviceId> {
    if ring.identity().redundancy.fragments().is_some() {
        return homes(ring, id);
    }
    let partition = ring.partition(id.placement());
    let mut likely = Vec::with_capacity(ring.replicas());
    let mut moving = Vec::new();
    for (replica, device) in ring.primaries(partition).enumerate() {
        match ring.previous(partition, replica) {
            // The new holder has recent extents, the previous one all others.
            Some(previous) => {
                likely.push(previous);
                moving.push(device);
            }
            None => likely.push(device),
        }
    }
    // The order is rotated by extent id to spread the load. The last byte is unusable: the bits of
    // the fragment number are zero in it.
    let count = likely.len().max(1);
    likely.rotate_left(usize::from(id.0[14]) % count);
    for device in moving {
        if !likely.contains(&device) {
            likely.push(device);
        }
    }
    prefer_healthy(&mut likely, health);
    likely
}

/// Moves recently failed devices behind the others.
fn prefer_healthy(likely: &mut [DeviceId], health: &Health) {
    // Only the first one is queried now, so only it may use up the probe of `shuns`.
    if let Some(first) = likely.iter().position(|device| !health.shuns(*device)) {
        likely[..=first].rotate_right(1);
        likely[1..].sort_by_key(|device| health.is_shunned(*device));
    }
}

/// All other devices, in handoff order; for a fragment, the homes of its siblings come last. The order is drawn as it is
/// read: all of it costs D·ln D look-ups for D devices, and its beginning a few.
pub(super) fn others(
    ring: &Ring,
    id: ExtentId,
    queried: &[DeviceId],
) -> impl Iterator<Item = DeviceId> {
    let partition = ring.partition(id.placement());
    let all = ring.handoffs(partition).chain(ring.primaries(partition));
    all.filter(|device| !queried.contains(device))
}

/// The error for an extent that no device has. An entry names the extent, so "not found" would be
/// wrong.
pub(super) fn lost(extent: &ExtentRef) -> Error {
    Error::internal(format!("extent {} is on none of its devices", extent.id))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use martlet_protocol::PolicyId;
    use martlet_ring::fixtures::device;

    use super::*;

    fn ring(devices: u32) -> Ring {
        let device = |id| device(id, format!("n{id}"), "disk");
        let devices: Vec<_> = (1..=devices).map(device).collect();
        Ring::of_devices(PolicyId(0), 3, &devices).unwrap()
    }

    #[tokio::test]
    async fn each_holder_is_listed_once_and_primaries_first() {
        let (ring, health) = (ring(14), Health::default());
        for byte in 0..50 {
            let id = ExtentId([byte; 16]);
            let mut all = likely(&ring, &health, id);
            let mut primaries: Vec<_> = ring.primaries(ring.partition(id.placement())).collect();
            primaries.sort();
            let mut first = all.clone();
            first.sort();
            assert_eq!(first, primaries);
            let others: Vec<_> = others(&ring, id, &all).collect();
            all.extend(others);
            all.sort();
            assert_eq!(all, (1..=14).map(DeviceId).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn the_first_holder_varies_and_has_not_just_failed() {
        let (ring, health) = (ring(3), Health::default());
        let mut reads: HashMap<DeviceId, u32> = HashMap::new();
        for _ in 0..6000 {
            *reads.entry(likely(&ring, &health, ExtentId::random().whole())[0]).or_default() += 1;
        }
        assert!(reads.len() == 3 && reads.values().all(|times| *times > 1800), "{reads:?}");
        health.failed(DeviceId(2));
        for _ in 0..100 {
            let order = likely(&ring, &health, ExtentId::random());
            assert_eq!(order[2], DeviceId(2), "it may still be the only one to have it");
        }
    }
}
