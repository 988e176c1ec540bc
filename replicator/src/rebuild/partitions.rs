//! Partitions of the index ring that lost most of their replicas.

use std::collections::BTreeSet;

use martlet_protocol::DeviceId;

use super::ranges::Ranges;
use crate::cluster::StepTopology;

/// Most part powers that a ring has.
const PART_POWER_MAX: u8 = 24;
/// Most ranges that are recorded, of up to 18 bytes each. Beyond these the smallest gaps count as
/// lost too: the scan finds an entry for their extents.
const RANGES_MAX: usize = 1500;

/// Partitions of the index ring at the time of a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPartitions {
    /// Power of two of the number of partitions.
    part_power: u8,
    numbers: Ranges,
}

impl LostPartitions {
    /// Returns the partitions of which most replicas are on these devices, by the ring of now. While
    /// a replica moves, its old and its new holders count: either may have decided alone. A holder
    /// that left the ring is lost too.
    pub(super) fn of(cluster: &StepTopology, lost: &BTreeSet<DeviceId>) -> Self {
        let (index, term) = (cluster.index(), cluster.term());
        let is_gone = |id: DeviceId| lost.contains(&id) || index.device(id).is_none();
        let is_lost = |at: &_| {
            let sets = index.sets(*at, term);
            most_of(index.primaries(*at), is_gone)
                || (0..sets.count()).any(|of| most_of(sets.set(of), is_gone))
        };
        let numbers = index.partitions().filter(is_lost).map(|at| at.0).collect();
        Self { part_power: index.part_power(), numbers }
    }

    /// Number of partitions.
    pub fn count(&self) -> u64 {
        self.numbers.count()
    }

    /// Returns true if no partition was lost.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns true if a placement lies in one of the partitions.
    pub(super) fn contains(&self, placement: u64) -> bool {
        let number = (placement >> 1) >> (63 - u32::from(self.part_power));
        u32::try_from(number).is_ok_and(|number| self.numbers.contains(number))
    }

    /// Adds partitions. Those of another part power become all that they overlap.
    pub(super) fn extend(&mut self, other: &Self) {
        let (from, to) = (self.part_power, other.part_power);
        let mut numbers = other.numbers.clone();
        for (first, last) in self.numbers.iter() {
            if from < to {
                let step = to - from;
                numbers.insert(first << step, (last << step) | ((1 << step) - 1));
            } else {
                numbers.insert(first >> (from - to), last >> (from - to));
            }
        }
        numbers.coarsen(RANGES_MAX);
        *self = Self { part_power: to, numbers };
    }

    /// Returns the words of the document: the part power, and the ranges.
    pub(super) fn document(&self) -> String {
        format!("{} {}", self.part_power, self.numbers)
    }

    /// Decodes the words of a document; none if they are none of this version.
    pub(super) fn parse(part_power: &str, numbers: &str) -> Option<Self> {
        let part_power = part_power.parse().ok().filter(|power| *power <= PART_POWER_MAX)?;
        let numbers = Ranges::parse(numbers)?;
        let is_of_ring = numbers.iter().all(|(_, last)| last >> part_power == 0);
        is_of_ring.then_some(Self { part_power, numbers })
    }
}

/// A write needs most replicas. So writes may have been lost if most of them forgot.
fn most_of(devices: impl Iterator<Item = DeviceId>, is_gone: impl Fn(DeviceId) -> bool) -> bool {
    let (mut all, mut gone) = (0, 0);
    for device in devices {
        all += 1;
        gone += usize::from(is_gone(device));
    }
    gone > all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(part_power: u8, numbers: &[u32]) -> LostPartitions {
        LostPartitions { part_power, numbers: numbers.iter().copied().collect() }
    }

    #[test]
    fn partitions_are_those_of_the_ring_of_the_loss() {
        let lost = at(2, &[1]);
        let quarter = 1_u64 << 62;
        assert!(lost.contains(quarter) && lost.contains(2 * quarter - 1));
        assert!(!lost.contains(quarter - 1) && !lost.contains(2 * quarter));
        assert!(at(0, &[0]).contains(u64::MAX));
        let mut finer = lost.clone();
        finer.extend(&at(3, &[7]));
        assert_eq!(finer, at(3, &[2, 3, 7]));
        let mut coarser = lost;
        coarser.extend(&at(1, &[]));
        assert_eq!(coarser, at(1, &[0]));
    }

    #[test]
    fn a_document_stays_small() {
        let scattered: Vec<u32> = (0..1 << 23).step_by(64).map(|at| (1 << 23) + at).collect();
        let (mut lost, scattered) = (LostPartitions::default(), at(24, &scattered));
        lost.extend(&scattered);
        assert!(lost.document().len() < 32 * 1024, "{}", lost.document().len());
        assert!(lost.count() >= scattered.count());
        for (number, _) in scattered.numbers.iter() {
            assert!(lost.numbers.contains(number), "{number}");
        }
        let whole = LostPartitions::parse("24", "0-16777215").unwrap();
        assert_eq!((whole.numbers.iter().count(), whole.count()), (1, 1 << 24));
        assert!(whole.contains(0) && whole.contains(u64::MAX));
    }

    #[test]
    fn a_document_is_read_back_and_an_unknown_one_is_none() {
        for partitions in [at(0, &[]), at(16, &[0, 1, 2, 9, 65_535])] {
            let document = partitions.document();
            let (part_power, ranges) = document.split_once(' ').unwrap();
            assert_eq!(LostPartitions::parse(part_power, ranges), Some(partitions));
        }
        for (part_power, ranges) in
            [("4", "0-16"), ("99", "-"), ("4", "3-2"), ("4", "3"), ("x", "-")]
        {
            assert_eq!(LostPartitions::parse(part_power, ranges), None, "{part_power} {ranges}");
        }
    }
}
