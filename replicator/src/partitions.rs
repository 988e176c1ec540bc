//! Partitions of a device on the index ring: those about which it decides, found by one scan of the
//! ring for each device, ring and term, or for many devices together.
//!
//! A scan looks each replica's device up among those that are sought, and looks at the deciding sets of
//! few partitions: ≈ 50 ms for 2^22 partitions. It lets other tasks run on its way.

use std::collections::BTreeMap;

use martlet_protocol::{DeviceId, Partition, Term};
use martlet_ring::{Ring, RingHash, Sets};

/// Partitions that are scanned before other tasks run.
const SLICE: u32 = 1 << 16;

/// The partitions about which a device decides, by the ring and the term of the last question.
#[derive(Debug, Default)]
pub(crate) struct DevicePartitions {
    of: Option<(RingHash, Term, DeviceId)>,
    partitions: Vec<Partition>,
}

impl DevicePartitions {
    /// Returns the partitions about which `device` decides at `term`, ascending. Scans the ring if
    /// the device, the ring or the term is another than at the last call.
    pub(crate) async fn decided_by(
        &mut self,
        ring: &Ring,
        device: DeviceId,
        term: Term,
    ) -> &[Partition] {
        let of = (ring.hash(), term, device);
        if self.of != Some(of) {
            self.of = None;
            self.partitions = scan(ring, [device]).await.remove(&device).unwrap_or_default();
            self.partitions.retain(|partition| ring.sets(*partition, term).contains(device));
            self.of = Some(of);
        }
        &self.partitions
    }
}

/// Partitions near devices that are looked at together, by the ring of the last question.
#[derive(Debug, Default)]
pub(crate) struct NearPartitions {
    ring: Option<RingHash>,
    of: BTreeMap<DeviceId, Vec<Partition>>,
}

impl NearPartitions {
    /// Returns the partitions about which `device` decides at `term`, ascending, with their deciding
    /// devices. If the ring is another than at the last call, or the device is new, one scan serves
    /// the device and all of `others`.
    pub(crate) async fn decided_by(
        &mut self,
        ring: &Ring,
        device: DeviceId,
        term: Term,
        others: &[DeviceId],
    ) -> Vec<(Partition, Sets)> {
        if self.ring != Some(ring.hash()) || !self.of.contains_key(&device) {
            *self = Self::default();
            self.of = scan(ring, others.iter().copied().chain([device])).await;
            self.ring = Some(ring.hash());
        }
        let sets = self.of[&device].iter().map(|at| (*at, ring.sets(*at, term)));
        sets.filter(|(_, sets)| sets.contains(device)).collect()
    }
}

/// Returns the partitions near each of `devices`, ascending: those of which it is a primary, or from
/// which a replica moves away from it. No other partition has it in a deciding set, at any term.
async fn scan(
    ring: &Ring,
    devices: impl IntoIterator<Item = DeviceId>,
) -> BTreeMap<DeviceId, Vec<Partition>> {
    let mut near: BTreeMap<DeviceId, Vec<Partition>> =
        devices.into_iter().map(|device| (device, Vec::new())).collect();
    let count = partition_count(ring);
    for first in (0..count).step_by(SLICE as usize) {
        for partition in (first..count.min(first + SLICE)).map(Partition) {
            add(&mut near, ring.primaries(partition), partition);
        }
        tokio::task::yield_now().await;
    }
    for step in ring.moves() {
        add(&mut near, [step.previous], step.partition);
    }
    for partitions in near.values_mut() {
        partitions.sort();
        partitions.dedup();
    }
    near
}

fn add(
    near: &mut BTreeMap<DeviceId, Vec<Partition>>,
    devices: impl IntoIterator<Item = DeviceId>,
    partition: Partition,
) {
    for device in devices {
        if let Some(partitions) = near.get_mut(&device) {
            partitions.push(partition);
        }
    }
}

/// Returns the number of partitions of a ring.
pub(crate) fn partition_count(ring: &Ring) -> u32 {
    1 << ring.part_power()
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Phase;

    use super::*;
    use crate::testing::growth::{new_device, small_ring, successor};

    /// Returns the partitions by their deciding sets, without a scan.
    fn expected(ring: &Ring, device: DeviceId, term: Term) -> Vec<Partition> {
        ring.partitions().filter(|at| ring.sets(*at, term).contains(device)).collect()
    }

    #[tokio::test]
    async fn a_scan_finds_old_and_new_holders_at_each_term() {
        let ring = small_ring(6);
        let grown = successor(&ring, |builder| {
            builder.add(new_device(6)).unwrap();
        });
        let change = grown.change();
        let terms = [Phase::Old, Phase::Joint, Phase::New].map(|phase| Term::of(change, phase));
        let mut partitions = DevicePartitions::default();
        for term in terms.into_iter().chain([Term::NONE]) {
            for device in (0..8).map(DeviceId) {
                let found = partitions.decided_by(&grown, device, term).await;
                assert_eq!(found, expected(&grown, device, term), "{device} at {term}");
            }
        }
        let joining = |term| expected(&grown, DeviceId(6), term).len();
        assert_eq!(joining(terms[0]), 0, "the new device decides about nothing yet");
        assert!(joining(terms[1]) > 0 && joining(terms[2]) == joining(terms[1]));
    }

    #[tokio::test]
    async fn a_scan_is_kept_until_the_device_the_ring_or_the_term_changes() {
        let (ring, mut partitions) = (small_ring(6), DevicePartitions::default());
        let term = ring.last_term();
        let later = Term::of(ring.change() + 1, Phase::Joint);
        let grown = successor(&ring, |builder| {
            builder.add(new_device(6)).unwrap();
        });
        let mut before = None;
        for (ring, device, term) in
            [(&ring, 1, term), (&ring, 2, term), (&ring, 2, later), (&*grown, 2, later)]
        {
            let device = DeviceId(device);
            partitions.decided_by(ring, device, term).await;
            assert_ne!(partitions.of, before);
            before = partitions.of;
            // A kept answer is returned as it is: a mark in it shows that nothing was scanned.
            partitions.partitions.push(Partition(u32::MAX));
            let again = partitions.decided_by(ring, device, term).await;
            assert_eq!(again.last(), Some(&Partition(u32::MAX)));
        }
    }

    /// Devices of all kinds: one that joins, some that stay, and one that the ring doesn't have.
    #[tokio::test]
    async fn one_scan_serves_all_devices_that_wait_together() {
        let ring = small_ring(6);
        let grown = successor(&ring, |builder| {
            builder.add(new_device(6)).unwrap();
        });
        let waiting: Vec<DeviceId> = (0..8).map(DeviceId).collect();
        let mut near = NearPartitions::default();
        for ring in [&ring, &*grown] {
            for phase in [Phase::Old, Phase::Joint, Phase::New] {
                let term = Term::of(ring.change(), phase);
                for device in &waiting {
                    let found = near.decided_by(ring, *device, term, &waiting).await;
                    assert!(found.iter().all(|(at, sets)| *sets == ring.sets(*at, term)));
                    let found: Vec<Partition> = found.into_iter().map(|(at, _)| at).collect();
                    assert_eq!(found, expected(ring, *device, term), "{device} at {term}");
                    // Only a scan would bring these back.
                    if phase == Phase::New {
                        near.of.get_mut(device).unwrap().clear();
                        assert!(near.decided_by(ring, *device, term, &[]).await.is_empty());
                    }
                }
            }
        }
        // A device that was not among those of the scan.
        let (device, term) = (DeviceId(9), grown.last_term());
        assert!(near.decided_by(&grown, device, term, &waiting).await.is_empty());
        let found = near.decided_by(&grown, DeviceId(6), term, &[]).await;
        assert_eq!(found.len(), expected(&grown, DeviceId(6), term).len(), "it was scanned again");
        assert!(!found.is_empty());
    }
}
