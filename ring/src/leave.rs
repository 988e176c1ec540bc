//! Partitions that keep too few of their holders when devices leave.

use martlet_protocol::{DeviceId, Partition};

use crate::ring::Ring;

impl Ring {
    /// Counts the partitions that lose a holder when devices leave, and keep fewer than needed.
    ///
    /// A replica that moves counts by its previous holder: until the move is settled, nothing
    /// proves that the new holder has the data. `needed` returns the holders that a partition of so
    /// many replicas needs; `leaves` returns true for a device that leaves.
    pub fn partitions_endangered(
        &self,
        needed: impl Fn(usize) -> usize,
        leaves: impl Fn(DeviceId) -> bool,
    ) -> usize {
        let is_endangered = |partition: &Partition| {
            let (mut kept, mut lost) = (0, 0);
            for holder in self.sure_holders(*partition).filter(|it| self.device(*it).is_some()) {
                if leaves(holder) {
                    lost += 1;
                } else {
                    kept += 1;
                }
            }
            lost > 0 && kept < needed(self.primaries(*partition).len())
        };
        self.partitions().filter(is_endangered).count()
    }

    /// Holders of a partition that have its data for sure; some may have left the ring.
    fn sure_holders(&self, partition: Partition) -> impl Iterator<Item = DeviceId> + '_ {
        let holders = self.primaries(partition).enumerate();
        holders.map(move |(replica, holder)| self.previous(partition, replica).unwrap_or(holder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add_zones, builder, new_device, rebalance};
    use crate::{Builder, RebalanceContext};

    fn majority(replicas: usize) -> usize {
        replicas / 2 + 1
    }

    fn all(replicas: usize) -> usize {
        replicas
    }

    /// Three zones of one node and one device: each partition lies on all of them.
    fn three() -> Builder {
        let mut builder = builder(4, 3.0);
        add_zones(&mut builder, 1..=3, 1, 1);
        rebalance(&mut builder, 1);
        builder
    }

    fn step(builder: &mut Builder, seed: u64) {
        builder.rebalance(RebalanceContext { now_ms: 1_000_000_000, seed }).unwrap();
    }

    #[test]
    fn a_majority_and_a_single_copy_are_counted_by_the_devices_that_stay() {
        let ring = three().ring().unwrap();
        let count = |gone: &[u32], needed: fn(usize) -> usize| {
            ring.partitions_endangered(needed, |id| gone.contains(&id.0))
        };
        assert_eq!(count(&[0], majority), 0, "two of three are a majority");
        assert_eq!(count(&[0, 1], majority), 16);
        assert_eq!(count(&[0, 1], |_| 1), 0);
        assert_eq!(count(&[0, 1, 2], |_| 1), 16);
        assert_eq!(count(&[], |_| 4), 0, "no device leaves");
    }

    #[test]
    fn a_replica_that_moves_counts_by_its_previous_holder_until_it_is_settled() {
        let mut builder = three();
        builder.add(new_device(1, 4, 1, 0, 100.0)).unwrap();
        step(&mut builder, 2);
        let ring = builder.ring().unwrap();
        let moved = ring.moves().len();
        assert!(moved > 0);
        let fourth = |id: DeviceId| id == DeviceId(3);
        assert_eq!(ring.partitions_endangered(all, fourth), 0, "it has taken nothing for sure");
        let first = |id: DeviceId| id == ring.moves()[0].previous;
        assert_eq!(ring.partitions_endangered(all, first), 16, "moves from a device don't count");
        builder.settle().unwrap();
        assert_eq!(builder.ring().unwrap().partitions_endangered(all, fourth), moved);
    }

    #[test]
    fn the_last_holder_is_missed_although_others_have_left_before() {
        let mut builder = builder(4, 3.0);
        add_zones(&mut builder, 1..=3, 3, 1);
        rebalance(&mut builder, 1);
        let row: Vec<DeviceId> = builder.ring().unwrap().primaries(Partition(0)).collect();
        for id in &row[..2] {
            builder.remove(*id, true).unwrap();
        }
        step(&mut builder, 2);
        let ring = builder.ring().unwrap();
        let third = row[2];
        assert!(ring.primaries(Partition(0)).any(|id| id == third), "it stays a primary");
        assert!(ring.partitions_endangered(|_| 1, |id| id == third) > 0, "new holders are empty");
        let newest = ring.primaries(Partition(0)).find(|id| !row.contains(id)).unwrap();
        let row_is_safe = ring.partitions_endangered(|_| 1, |id| id == newest);
        assert_eq!(row_is_safe, 0, "a copy is elsewhere, or had left before");
    }
}
