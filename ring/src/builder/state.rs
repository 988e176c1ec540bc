//! The assignment while it is being changed: who holds what, who holds too much, who needs more,
//! and which replicas may still move.

use super::chance::Chance;
use super::needs::Needs;
use super::rules::{Rules, Strictness};
use super::tree::LEAF;
use crate::table::{NOBODY, Table};

/// One replica of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) partition: u32,
    pub(super) column: usize,
}

/// No replica of the partition that has a holder may leave it.
const FIXED: u8 = 0x80;

/// The assignment while it is being changed.
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) table: Table,
    /// The assignment before, with nobody in the place of removed devices.
    origin: Table,
    /// Replicas whose move costs nothing: those that had nobody, or have left who held them.
    free: u64,
    /// For each partition, how many replicas that had a holder have left it: at most one. Or
    /// [`FIXED`]: the partition is locked, or some replica had nobody. Then those that have a holder
    /// stay where they are until the new one is there, so that never more than the lost ones are
    /// missing.
    departed: Vec<u8>,
    /// How much more than its quota each device holds, by slot.
    surplus: Vec<i32>,
    /// Who holds less than its quota.
    pub(super) needs: Needs,
    /// Everyone, by quota: for replicas that nobody needs.
    pub(super) everyone: Needs,
    /// Replicas that devices hold beyond their quotas.
    pub(super) excess: u64,
    pub(super) chance: Chance,
}

impl State {
    pub(super) fn new(
        rules: Rules,
        table: Table,
        locked: &[bool],
        quotas: &[u32],
        chance: Chance,
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

    /// Whether a device holds more than its quota.
    #[inline]
    pub(super) fn is_over(&self, slot: u16) -> bool {
        self.surplus[usize::from(slot)] > 0
    }

    /// Whether some replica of a partition is on such a device.
    #[inline]
    pub(super) fn has_over(&self, partition: u32) -> bool {
        self.table.row(partition).iter().any(|slot| self.is_over(*slot))
    }

    /// How much more than its quota the device of a leaf holds.
    pub(super) fn surplus_of(&self, leaf: u32) -> i64 {
        i64::from(self.surplus[usize::from(self.rules.tree.element(leaf).slot)])
    }

    /// Whether a device holds less than its quota.
    #[inline]
    pub(super) fn is_below(&self, slot: u16) -> bool {
        self.surplus[usize::from(slot)] < 0
    }

    /// Who held a replica before; nobody, if that device was removed.
    #[inline]
    pub(super) fn origin(&self, replica: Replica) -> u16 {
        self.origin.row(replica.partition)[replica.column]
    }

    /// Whether a replica of a partition has left its device to make room, and no other was lost.
    pub(super) fn has_departed(&self, partition: u32) -> bool {
        self.departed[partition as usize] == 1
    }

    /// Whether moving a replica costs nothing: it had no holder before, or has left it already.
    #[inline]
    pub(super) fn is_free(&self, replica: Replica) -> bool {
        let origin = self.origin(replica);
        origin == NOBODY || origin != self.slot(replica)
    }

    /// Whether there are such replicas.
    pub(super) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Whether a replica may move at all.
    #[inline]
    pub(super) fn is_movable(&self, replica: Replica) -> bool {
        self.departed[replica.partition as usize] == 0 || self.is_free(replica)
    }

    /// Gives a replica to another device, or to nobody.
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

    /// A device among `needs` that may take a replica instead of who has it.
    pub(super) fn find(
        &mut self,
        replica: Replica,
        needs: Whose<'_>,
        strictness: Strictness,
    ) -> Option<u16> {
        let needs = match needs {
            Whose::Needs => &self.needs,
            Whose::Everyone => &self.everyone,
            Whose::These(needs) => needs,
        };
        let row = self.table.row_mut(replica.partition);
        let holder = std::mem::replace(&mut row[replica.column], NOBODY);
        let found = self.rules.find(row, needs, strictness, &mut self.chance);
        row[replica.column] = holder;
        found.filter(|slot| *slot != holder)
    }

    /// A device among `needs` that may take a replica instead of who has it, and shares the holder's
    /// element of `level`.
    pub(super) fn find_within(
        &mut self,
        replica: Replica,
        needs: &Needs,
        level: usize,
    ) -> Option<u16> {
        let row = self.table.row_mut(replica.partition);
        let holder = std::mem::replace(&mut row[replica.column], NOBODY);
        let element = self.rules.tree.paths[usize::from(holder)][level];
        let found = self.rules.find_within(row, needs, (level, element), &mut self.chance);
        row[replica.column] = holder;
        found.filter(|slot| *slot != holder)
    }

    /// The replicas of a partition.
    pub(super) fn replicas(&self, partition: u32) -> impl Iterator<Item = Replica> + use<> {
        (0..self.table.replicas_of(partition)).map(move |column| Replica { partition, column })
    }

    /// The replicas of a partition, beginning with any: of which only one can move, each should
    /// have its chance, or what the first column holds would go first everywhere.
    pub(super) fn replicas_from_any(
        &mut self,
        partition: u32,
    ) -> impl Iterator<Item = Replica> + use<> {
        let count = self.table.replicas_of(partition);
        let first = self.chance.below(u32::try_from(count).expect("at most 64")) as usize;
        (0..count).map(move |step| Replica { partition, column: (first + step) % count })
    }

    /// Replicas that had a holder and have another now.
    pub(super) fn departures(&self) -> u64 {
        self.departed.iter().map(|count| u64::from(*count & !FIXED)).sum()
    }

    /// The assignment.
    pub(super) fn into_table(self) -> Table {
        self.table
    }
}

/// Partitions that are locked, and those that have a replica without a holder beside others that
/// have one, are [`FIXED`]. Where nobody holds anything yet, nothing can go missing.
fn fixed_partitions(table: &Table, locked: &[bool]) -> Vec<u8> {
    let is_bare = |row: &[u16]| {
        let nobody = row.iter().filter(|slot| **slot == NOBODY).count();
        nobody > 0 && nobody < row.len()
    };
    let is_fixed = |((_, row), locked): ((u32, &[u16]), &bool)| *locked || is_bare(row);
    let rows = table.rows().zip(locked);
    rows.map(|it| if is_fixed(it) { FIXED } else { 0 }).collect()
}

/// Among whom to look for a taker.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    /// Devices below their quotas.
    Needs,
    /// All devices that should hold anything.
    Everyone,
    /// These.
    These(&'a Needs),
}
