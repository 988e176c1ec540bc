//! Partitions of the index ring that lost most of their replicas.
//!
//! They are kept as ranges: a whole ring of 2²⁴ partitions is one range. Workers decode them every
//! ten seconds under a hold.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::DeviceId;

use crate::cluster::StepTopology;

/// Most part powers that a ring has.
const PART_POWER_MAX: u8 = 24;

/// Partitions of the index ring at the time of a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPartitions {
    /// Power of two of the number of partitions.
    part_power: u8,
    /// Last partition of each range, by the first. Ranges neither overlap nor touch.
    ranges: BTreeMap<u32, u32>,
}

impl LostPartitions {
    /// Returns the partitions of which most replicas are on these devices, by the ring of now. While
    /// a replica moves, its old and its new holders count: either may have decided alone.
    pub(super) fn of(cluster: &StepTopology, lost: &BTreeSet<DeviceId>) -> Self {
        let (index, term) = (cluster.index(), cluster.term());
        let mut partitions = Self { part_power: index.part_power(), ranges: BTreeMap::new() };
        for at in index.partitions() {
            let sets = index.sets(at, term);
            let is_lost = most_of(index.primaries(at), lost)
                || (0..sets.count()).any(|of| most_of(sets.set(of), lost));
            if is_lost {
                partitions.insert(at.0, at.0);
            }
        }
        partitions
    }

    /// Number of partitions.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns true if no partition was lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns true if a placement lies in one of the partitions.
    pub(super) fn contains(&self, placement: u64) -> bool {
        let number = (placement >> 1) >> (63 - u32::from(self.part_power));
        let holds = |number: u32| {
            self.ranges.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
        };
        u32::try_from(number).is_ok_and(holds)
    }

    /// Adds partitions. Those of another part power become all that they overlap.
    pub(super) fn extend(&mut self, other: &Self) {
        let (from, to) = (self.part_power, other.part_power);
        let ranges = std::mem::take(&mut self.ranges);
        self.part_power = to;
        for (first, last) in ranges {
            if from < to {
                let step = to - from;
                self.insert(first << step, (last << step) | ((1 << step) - 1));
            } else {
                self.insert(first >> (from - to), last >> (from - to));
            }
        }
        for (first, last) in &other.ranges {
            self.insert(*first, *last);
        }
    }

    /// Adds a range, and joins it with those that it overlaps or touches.
    fn insert(&mut self, mut first: u32, mut last: u32) {
        while let Some((&start, &end)) = self.ranges.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            self.ranges.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.ranges.insert(first, last);
    }

    /// Returns the words of the document: the part power, and the ranges or `-`.
    pub(super) fn document(&self) -> String {
        let ranges = self.ranges.iter().map(|(first, last)| format!("{first}-{last}"));
        let ranges: Vec<String> = ranges.collect();
        let ranges = if ranges.is_empty() { "-".to_owned() } else { ranges.join(",") };
        format!("{} {ranges}", self.part_power)
    }

    /// Decodes the words of a document; none if they are none of this version.
    pub(super) fn parse(part_power: &str, ranges: &str) -> Option<Self> {
        let part_power = part_power.parse().ok().filter(|power| *power <= PART_POWER_MAX)?;
        let mut partitions = Self { part_power, ranges: BTreeMap::new() };
        for range in ranges.split(',').filter(|range| *range != "-") {
            let (first, last) = range.split_once('-')?;
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >> part_power > 0 {
                return None;
            }
            partitions.insert(first, last);
        }
        Some(partitions)
    }
}

/// A write needs most replicas. So writes may have been lost if most of them forgot.
fn most_of(devices: impl Iterator<Item = DeviceId>, lost: &BTreeSet<DeviceId>) -> bool {
    let (mut all, mut gone) = (0, 0);
    for device in devices {
        all += 1;
        gone += usize::from(lost.contains(&device));
    }
    gone > all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(part_power: u8, numbers: &[u32]) -> LostPartitions {
        let mut partitions = LostPartitions { part_power, ranges: BTreeMap::new() };
        for number in numbers {
            partitions.insert(*number, *number);
        }
        partitions
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
    fn ranges_join_in_any_order_and_a_whole_ring_is_one() {
        for numbers in [[9, 2, 1, 0, 3, 11], [0, 1, 3, 2, 11, 9], [3, 1, 11, 9, 0, 2]] {
            let partitions = at(4, &numbers);
            assert_eq!(partitions.document(), "4 0-3,9-9,11-11");
            assert_eq!(partitions.count(), 6);
        }
        let mut all = at(4, &[2, 15]);
        all.insert(0, 15);
        assert_eq!(all.document(), "4 0-15");
        let whole = LostPartitions::parse("24", "0-16777215").unwrap();
        assert_eq!((whole.ranges.len(), whole.count()), (1, 1 << 24));
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
