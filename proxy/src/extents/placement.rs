//! Choice of devices for the copies or fragments of one extent.
//!
//! Invariants: no device is queried twice for an extent, and none holds two replicas of it. Pieces
//! go to the nodes with the fewest of them.

use martlet_protocol::{DeviceId, ExtentId};
use martlet_ring::Ring;

use crate::health::Health;

/// Devices of an extent's replicas, and candidates for replacement.
#[derive(Debug)]
pub(super) struct Placement {
    id: ExtentId,
    /// Devices that hold or receive a replica; initially in the order of the replicas.
    taken: Vec<DeviceId>,
    /// Candidates, best first; computed at the first need.
    rest: Option<Vec<DeviceId>>,
}

/// Returns true if two devices belong to one node.
pub(super) fn same_node(ring: &Ring, a: DeviceId, b: DeviceId) -> bool {
    match (ring.device(a), ring.device(b)) {
        (Some(a), Some(b)) => a.node_path() == b.node_path(),
        _ => a == b,
    }
}

/// Returns true if a ring has at least `needed` nodes with devices of positive weight.
pub(super) fn has_nodes(ring: &Ring, needed: usize) -> bool {
    let mut seen: Vec<DeviceId> = Vec::with_capacity(needed);
    for device in ring.devices().iter().filter(|device| device.weight > 0.0) {
        if seen.len() >= needed {
            break;
        }
        if !seen.iter().any(|other| same_node(ring, *other, device.id)) {
            seen.push(device.id);
        }
    }
    seen.len() >= needed
}

/// Suitability of a device for a replica; the least is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Pieces of the extent on its node.
    crowd: usize,
    /// True if it is known to be out or full.
    is_out: bool,
}

impl Placement {
    /// The primaries of an extent for the `replicas`. A primary that is out or full is replaced, if
    /// a healthy device exists on a node with no more replicas.
    pub(super) fn new(
        ring: &Ring,
        health: &Health,
        id: ExtentId,
        replicas: impl Fn(usize) -> bool,
    ) -> Self {
        let primaries = ring.primaries(ring.partition(id.placement())).enumerate();
        let primaries = primaries.filter(|(replica, _)| replicas(*replica));
        let taken: Vec<_> = primaries.map(|(_, device)| device).collect();
        let mut placement = Self { id, taken, rest: None };
        for at in 0..placement.taken.len() {
            let home = placement.taken[at];
            if !health.is_full(home) && !health.shuns(home) {
                continue;
            }
            let crowd = placement.crowd(ring, home, Some(home));
            match placement.best(ring, health, Some(home)) {
                Some((found, rank)) if !rank.is_out && rank.crowd <= crowd => {
                    let rest = placement.rest(ring);
                    let instead = rest.remove(found);
                    rest.push(home);
                    placement.taken[at] = instead;
                }
                _ => {}
            }
        }
        placement
    }

    /// Devices that hold or receive a replica; in the order of the replicas until one fails.
    pub(super) fn devices(&self) -> &[DeviceId] {
        &self.taken
    }

    /// Removes a device that failed and holds no replica.
    pub(super) fn release(&mut self, failed: DeviceId) {
        self.taken.retain(|taken| *taken != failed);
    }

    /// Takes the next device for a replica.
    pub(super) fn next(&mut self, ring: &Ring, health: &Health) -> Option<DeviceId> {
        let (at, _) = self.best(ring, health, None)?;
        let next = self.rest(ring).remove(at);
        self.taken.push(next);
        Some(next)
    }

    /// Returns true if a candidate is left.
    pub(super) fn has_next(&mut self, ring: &Ring) -> bool {
        !self.rest(ring).is_empty()
    }

    /// Position and rank of the best candidate, as if `leaving` held no replica.
    fn best(
        &mut self,
        ring: &Ring,
        health: &Health,
        leaving: Option<DeviceId>,
    ) -> Option<(usize, Rank)> {
        self.rest(ring);
        let rank = |device: &DeviceId| Rank {
            crowd: self.crowd(ring, *device, leaving),
            is_out: health.is_full(*device) || health.is_shunned(*device),
        };
        let ranked = self.rest.iter().flatten().map(rank).enumerate();
        ranked.min_by_key(|(at, rank)| (*rank, *at))
    }

    /// Pieces on the node of a device, not counting that of `leaving`.
    fn crowd(&self, ring: &Ring, device: DeviceId, leaving: Option<DeviceId>) -> usize {
        let others = self.taken.iter().filter(|taken| Some(**taken) != leaving);
        others.filter(|taken| same_node(ring, **taken, device)).count()
    }

    fn rest(&mut self, ring: &Ring) -> &mut Vec<DeviceId> {
        self.rest.get_or_insert_with(|| {
            let partition = ring.partition(self.id.placement());
            ring.handoffs(partition).filter(|device| !self.taken.contains(device)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::PolicyId;
    use martlet_ring::fixtures;

    use super::*;

    /// Devices 1, 2, … with `on_each_node` devices on each node.
    fn ring(devices: u32, on_each_node: u32) -> Ring {
        let devices = fixtures::devices(devices, on_each_node);
        Ring::of_devices(PolicyId(0), 3, &devices).unwrap()
    }

    fn nodes(ring: &Ring, devices: &[DeviceId]) -> usize {
        let mut nodes: Vec<_> =
            devices.iter().map(|id| ring.device(*id).unwrap().node_path()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    fn replace(
        placement: &mut Placement,
        ring: &Ring,
        health: &Health,
        failed: DeviceId,
    ) -> Option<DeviceId> {
        placement.release(failed);
        placement.next(ring, health)
    }

    #[tokio::test]
    async fn every_device_is_offered_once_and_nodes_without_a_copy_first() {
        let (ring, health) = (ring(12, 2), Health::default());
        let mut placement = Placement::new(&ring, &health, ExtentId([5; 16]), |_| true);
        let mut seen = placement.devices().to_vec();
        assert_eq!((seen.len(), nodes(&ring, &seen)), (3, 3));
        while let Some(next) = replace(&mut placement, &ring, &health, *seen.last().unwrap()) {
            assert!(!seen.contains(&next));
            seen.push(next);
            if seen.len() <= 6 {
                assert_eq!(nodes(&ring, placement.devices()), 3);
            }
        }
        assert_eq!(seen.len(), 12);
    }

    #[tokio::test]
    async fn a_primary_that_was_out_just_now_is_passed_over_and_kept_for_the_last() {
        let (ring, health) = (ring(4, 1), Health::default());
        let id = ExtentId([5; 16]);
        let primaries = Placement::new(&ring, &health, id, |_| true).devices().to_vec();
        health.failed(primaries[1]);
        let mut placement = Placement::new(&ring, &health, id, |_| true);
        let devices = placement.devices().to_vec();
        assert!(devices.len() == 3 && !devices.contains(&primaries[1]));
        assert_eq!(replace(&mut placement, &ring, &health, devices[0]), Some(primaries[1]));
        assert_eq!(replace(&mut placement, &ring, &health, primaries[1]), None);
    }

    #[tokio::test]
    async fn failed_primaries_are_used_without_a_better_device() {
        let (ring, health) = (ring(4, 1), Health::default());
        (1..=4).for_each(|id| health.failed(DeviceId(id)));
        assert_eq!(Placement::new(&ring, &health, ExtentId([5; 16]), |_| true).devices().len(), 3);
    }

    #[test]
    fn machines_are_counted_and_not_disks() {
        assert!(has_nodes(&ring(12, 2), 6) && !has_nodes(&ring(12, 2), 7));
        assert!(has_nodes(&ring(3, 3), 1) && !has_nodes(&ring(3, 3), 2));
    }
}
