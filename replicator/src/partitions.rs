//! Partitions of a device on the index ring: those about which it decides, found by one scan of the
//! ring for each device, ring and term.
//!
//! A scan compares ids, and looks at the deciding sets of few partitions: ≈ 40 ms for 2^22 partitions.
//! It lets other tasks run on its way.

use std::collections::BTreeSet;
use std::ops::Range;

use martlet_protocol::{DeviceId, Partition, Term};
use martlet_ring::{Ring, RingHash};

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
            self.partitions = scan(ring, device).await;
            self.partitions.retain(|partition| ring.sets(*partition, term).contains(device));
            self.of = Some(of);
        }
        &self.partitions
    }
}

/// Returns all partitions of which `device` is a primary, or from which a replica moves away, in
/// ascending order. No other partition has the device in a deciding set, at any term.
pub(crate) fn partitions_near(ring: &Ring, device: DeviceId) -> Vec<Partition> {
    let all = 0..partition_count(ring);
    with_moves(ring, device, with_primary(ring, device, all).collect())
}

async fn scan(ring: &Ring, device: DeviceId) -> Vec<Partition> {
    let (count, mut found) = (partition_count(ring), Vec::new());
    for first in (0..count).step_by(SLICE as usize) {
        found.extend(with_primary(ring, device, first..count.min(first + SLICE)));
        tokio::task::yield_now().await;
    }
    with_moves(ring, device, found)
}

fn with_primary(
    ring: &Ring,
    device: DeviceId,
    run: Range<u32>,
) -> impl Iterator<Item = Partition> + '_ {
    let is_primary = move |at: &Partition| ring.primaries(*at).any(|id| id == device);
    run.map(Partition).filter(is_primary)
}

fn with_moves(ring: &Ring, device: DeviceId, found: Vec<Partition>) -> Vec<Partition> {
    let left = ring.moves().iter().filter(|step| step.previous == device);
    let left: Vec<Partition> = left.map(|step| step.partition).collect();
    if left.is_empty() {
        return found;
    }
    found.into_iter().chain(left).collect::<BTreeSet<_>>().into_iter().collect()
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
                let near = partitions_near(&grown, device);
                assert!(near.is_sorted() && found.iter().all(|at| near.contains(at)));
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
}
