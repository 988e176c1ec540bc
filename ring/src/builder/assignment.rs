//! The assignment during a rebalance: holders, surpluses, needs, and the replicas that may still
//! move.

use super::needs::Needs;
use super::rules::{Rules, Strictness};
use super::split_mix::SplitMix64;
use super::tree::LEAF;
use crate::table::{NOBODY, Table};

/// One replica of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) partition: u32,
    pub(super) column: usize,
}

/// Mark of a partition whose replicas with a holder may not move.
const FIXED: u8 = 0x80;

/// The assignment during a rebalance.
pub(super) struct Assignment {
    pub(super) rules: Rules,
    pub(super) table: Table,
    /// The assignment before the rebalance, without removed devices.
    origin: Table,
    /// Number of replicas whose move costs nothing: they had no holder, or have left it.
    free: u64,
    /// For each partition, the number of replicas that left their holder: at most one. Or
    /// [`FIXED`]: the partition is locked, or a replica had no holder. Then the other replicas stay
    /// until the new one has arrived, so that no more than the lost ones are missing.
    departed: Vec<u8>,
    /// Replicas of each device beyond its quota, by slot; negative below the quota.
    surplus: Vec<i32>,
    /// Devices below their quotas.
    pub(super) needs: Needs,
    /// All devices by quota, for replicas without a device in need.
    pub(super) everyone: Needs,
    /// Replicas of all devices beyond their quotas.
    pub(super) excess: u64,
    pub(super) chance: SplitMix64,
}

impl Assignment {
    pub(super) fn new(
        rules: Rules,
        table: Table,
        locked: &[bool],
        quotas: &[u32],
        chance: SplitMix64,
    ) -> Self {
        let mut held = vec![0; rules.tree.paths.len()];
        for (_, row) in table.rows() {
            for &slot in row.iter().filter(|slot| **slot != NOBODY) {
                held[usize::from(slot)] += 1;
            }
        }
        let (mut needs, mut everyone) = (Needs::new(&rules.tree), Needs::new(&rules.tree));
        let (mut excess, mut surplus) = (0, vec![0; held.len()]);
        for leaf in rules.tree.level(LEAF) {
            let slot = usize::from(rules.tree.element(leaf).slot);
            let path = &rules.tree.paths[slot];
            let (has, quota) = (held[slot], quotas[leaf as usize]);
            needs.raise(&rules.tree, path, quota.saturating_sub(has));
            everyone.raise(&rules.tree, path, quota);
            excess += u64::from(has.saturating_sub(quota));
            surplus[slot] = has.cast_signed() - quota.cast_signed();
        }
        let departed = fixed_partitions(&table, locked);
        let origin = table.clone();
        let nobodies = |row: &[u16]| row.iter().filter(|slot| **slot == NOBODY).count() as u64;
        let free = table.rows().map(|(_, row)| nobodies(row)).sum();
        Self { rules, table, origin, free, departed, surplus, needs, everyone, excess, chance }
    }

    pub(super) fn slot(&self, replica: Replica) -> u16 {
        self.table.row(replica.partition)[replica.column]
    }

    /// True if a device holds more than its quota.
    #[inline]
    pub(super) fn is_over(&self, slot: u16) -> bool {
        self.surplus[usize::from(slot)] > 0
    }

    /// True if a replica of the partition is on a device over its quota.
    #[inline]
    pub(super) fn has_over(&self, partition: u32) -> bool {
        self.table.row(partition).iter().any(|slot| self.is_over(*slot))
    }

    /// Returns the replicas beyond the quota of a leaf's device.
    pub(super) fn surplus_of(&self, leaf: u32) -> i64 {
        i64::from(self.surplus[usize::from(self.rules.tree.element(leaf).slot)])
    }

    /// True if a device holds less than its quota.
    #[inline]
    pub(super) fn is_below(&self, slot: u16) -> bool {
        self.surplus[usize::from(slot)] < 0
    }

    /// Returns the holder before the rebalance; `NOBODY` if that device was removed.
    #[inline]
    pub(super) fn origin(&self, replica: Replica) -> u16 {
        self.origin.row(replica.partition)[replica.column]
    }

    /// True if one replica of the partition moved away from its holder, and the partition isn't
    /// fixed.
    pub(super) fn has_departed(&self, partition: u32) -> bool {
        self.departed[partition as usize] == 1
    }

    /// True if moving the replica costs nothing: it had no holder, or has already left it.
    #[inline]
    pub(super) fn is_free(&self, replica: Replica) -> bool {
        let origin = self.origin(replica);
        origin == NOBODY || origin != self.slot(replica)
    }

    /// True if replicas exist whose move costs nothing.
    pub(super) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// True if a replica may move at all.
    #[inline]
    pub(super) fn is_movable(&self, replica: Replica) -> bool {
        self.departed[replica.partition as usize] == 0 || self.is_free(replica)
    }

    /// Assigns a replica to another device, or to none.
    pub(super) fn assign(&mut self, replica: Replica, to: u16) {
        let from = self.slot(replica);
        let origin = self.origin(replica);
        let departed = &mut self.departed[replica.partition as usize];
        if origin != NOBODY {
            *departed += u8::from(to != origin);
            *departed -= u8::from(from != origin);
            self.free += u64::from(to != origin);
            self.free -= u64::from(from != origin);
        }
        self.table.row_mut(replica.partition)[replica.column] = to;
        if from != NOBODY {
            self.release(from);
        }
        if to != NOBODY {
            self.receive(to);
        }
    }

    fn release(&mut self, slot: u16) {
        let slot = usize::from(slot);
        if self.surplus[slot] > 0 {
            self.excess -= 1;
        } else {
            self.needs.raise(&self.rules.tree, &self.rules.tree.paths[slot], 1);
        }
        self.surplus[slot] -= 1;
    }

    fn receive(&mut self, slot: u16) {
        let slot = usize::from(slot);
        self.surplus[slot] += 1;
        if self.surplus[slot] > 0 {
            self.excess += 1;
        } else {
            self.needs.lower(&self.rules.tree, &self.rules.tree.paths[slot], 1);
        }
    }

    /// Finds another device in `needs` that may take the replica.
    pub(super) fn find(
        &mut self,
        replica: Replica,
        needs: SearchedDevices<'_>,
        strictness: Strictness,
    ) -> Option<u16> {
        let needs = match needs {
            SearchedDevices::Needs => &self.needs,
            SearchedDevices::Everyone => &self.everyone,
            SearchedDevices::These(needs) => needs,
        };
        let row = self.table.row_mut(replica.partition);
        let holder = std::mem::replace(&mut row[replica.column], NOBODY);
        let found = self.rules.find(row, needs, strictness, &mut self.chance);
        row[replica.column] = holder;
        found.filter(|slot| *slot != holder)
    }

    /// Finds another device in `needs` that may take the replica, within the holder's element of
    /// `level`.
    pub(super) fn find_within(
        &mut self,
        replica: Replica,
        needs: &Needs,
        level: usize,
    ) -> Option<u16> {
        let row = self.table.row_mut(replica.partition);
        let holder = std::mem::replace(&mut row[replica.column], NOBODY);
        let element = self.rules.tree.paths[usize::from(holder)][level];
        let found = self.rules.find_within(row, needs, level, element, &mut self.chance);
        row[replica.column] = holder;
        found.filter(|slot| *slot != holder)
    }

    /// The replicas of a partition.
    pub(super) fn replicas(&self, partition: u32) -> impl Iterator<Item = Replica> + use<> {
        (0..self.table.replicas_of(partition)).map(move |column| Replica { partition, column })
    }

    /// The replicas of a partition, starting from a random one: only one can move, and a fixed
    /// start would favour the first column.
    pub(super) fn replicas_from_any(
        &mut self,
        partition: u32,
    ) -> impl Iterator<Item = Replica> + use<> {
        let count = self.table.replicas_of(partition);
        let first = self.chance.below(u32::try_from(count).expect("at most 64")) as usize;
        (0..count).map(move |step| Replica { partition, column: (first + step) % count })
    }

    /// Number of replicas that changed from one holder to another.
    pub(super) fn departures(&self) -> u64 {
        self.departed.iter().map(|count| u64::from(*count & !FIXED)).sum()
    }

    /// The assignment.
    pub(super) fn into_table(self) -> Table {
        self.table
    }
}

/// Marks partitions as [`FIXED`] that are locked, or that have replicas both with and without
/// holder. In a partition without any holder, nothing can go missing.
fn fixed_partitions(table: &Table, locked: &[bool]) -> Vec<u8> {
    let is_bare = |row: &[u16]| {
        let nobody = row.iter().filter(|slot| **slot == NOBODY).count();
        nobody > 0 && nobody < row.len()
    };
    let is_fixed = |((_, row), locked): ((u32, &[u16]), &bool)| *locked || is_bare(row);
    let rows = table.rows().zip(locked);
    rows.map(|it| if is_fixed(it) { FIXED } else { 0 }).collect()
}

/// Devices considered in a search.
#[derive(Clone, Copy)]
pub(super) enum SearchedDevices<'a> {
    /// Devices below their quotas.
    Needs,
    /// All devices with a quota.
    Everyone,
    /// Devices of the given needs.
    These(&'a Needs),
}
