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

/// The assignment while it is being changed.
pub(super) struct State<'a> {
    pub(super) rules: Rules,
    pub(super) table: Table,
    /// The assignment before, with nobody in the place of removed devices.
    origin: Table,
    /// Partitions of which no replica may move that has a holder.
    locked: &'a [bool],
    /// Replicas whose move costs nothing: those that had nobody, or have left who held them.
    free: u64,
    /// For each partition, how many replicas that had a holder have left it: at most one.
    departed: Vec<u8>,
    /// Partitions in which some replica had nobody: those that have a holder stay where they are
    /// until the new one is there, so that never more than the lost ones are missing.
    bare: Vec<bool>,
    /// What each device holds and should hold, by element.
    held: Vec<u32>,
    quotas: Vec<u32>,
    /// Who holds less than its quota.
    pub(super) needs: Needs,
    /// Everyone, by quota: for replicas that nobody needs.
    pub(super) everyone: Needs,
    /// Replicas that devices hold beyond their quotas.
    pub(super) excess: u64,
    pub(super) chance: Chance,
}

impl<'a> State<'a> {
    pub(super) fn new(
        rules: Rules,
        table: Table,
        locked: &'a [bool],
        quotas: Vec<u32>,
        chance: Chance,
    ) -> Self {
        let mut held = vec![0; rules.tree.elements.len()];
        for (_, row) in table.rows() {
            for &slot in row.iter().filter(|slot| **slot != NOBODY) {
                held[rules.tree.leaf(slot) as usize] += 1;
            }
        }
        let (mut needs, mut everyone) = (Needs::new(&rules.tree), Needs::new(&rules.tree));
        let mut excess = 0;
        for leaf in rules.tree.level(LEAF) {
            let path = &rules.tree.paths[usize::from(rules.tree.element(leaf).slot)];
            let (has, quota) = (held[leaf as usize], quotas[leaf as usize]);
            needs.raise(&rules.tree, path, quota.saturating_sub(has));
            everyone.raise(&rules.tree, path, quota);
            excess += u64::from(has.saturating_sub(quota));
        }
        let departed = vec![0; table.parts() as usize];
        let bare = bare_partitions(&table);
        let origin = table.clone();
        let nobodies = |row: &[u16]| row.iter().filter(|slot| **slot == NOBODY).count() as u64;
        let free = table.rows().map(|(_, row)| nobodies(row)).sum();
        Self {
            rules,
            table,
            origin,
            locked,
            free,
            departed,
            bare,
            held,
            quotas,
            needs,
            everyone,
            excess,
            chance,
        }
    }

    pub(super) fn slot(&self, replica: Replica) -> u16 {
        self.table.row(replica.partition)[replica.column]
    }

    /// Whether a device holds more than its quota.
    #[inline]
    pub(super) fn is_over(&self, slot: u16) -> bool {
        let leaf = self.rules.tree.leaf(slot) as usize;
        self.held[leaf] > self.quotas[leaf]
    }

    /// Whether a device holds less than its quota.
    #[inline]
    pub(super) fn is_below(&self, slot: u16) -> bool {
        self.needs.of(self.rules.tree.leaf(slot)) > 0
    }

    /// Who held a replica before; nobody, if that device was removed.
    #[inline]
    pub(super) fn origin(&self, replica: Replica) -> u16 {
        self.origin.row(replica.partition)[replica.column]
    }

    /// Whether a replica of a partition has left its device to make room, and no other was lost.
    pub(super) fn has_departed(&self, partition: u32) -> bool {
        let partition = partition as usize;
        self.departed[partition] == 1 && !self.bare[partition] && !self.locked[partition]
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
        let partition = replica.partition as usize;
        let may_depart =
            !self.locked[partition] && !self.bare[partition] && self.departed[partition] == 0;
        self.is_free(replica) || may_depart
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
        let leaf = self.rules.tree.leaf(slot) as usize;
        if self.held[leaf] > self.quotas[leaf] {
            self.excess -= 1;
        } else {
            self.needs.raise(&self.rules.tree, &self.rules.tree.paths[usize::from(slot)], 1);
        }
        self.held[leaf] -= 1;
    }

    fn receive(&mut self, slot: u16) {
        let leaf = self.rules.tree.leaf(slot) as usize;
        self.held[leaf] += 1;
        if self.held[leaf] > self.quotas[leaf] {
            self.excess += 1;
        } else {
            self.needs.lower(&self.rules.tree, &self.rules.tree.paths[usize::from(slot)], 1);
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
        self.departed.iter().map(|count| u64::from(*count)).sum()
    }

    /// The assignment.
    pub(super) fn into_table(self) -> Table {
        self.table
    }
}

/// Which partitions have a replica without a holder beside others that have one. Where nobody
/// holds anything yet, nothing can go missing.
fn bare_partitions(table: &Table) -> Vec<bool> {
    let is_bare = |row: &[u16]| {
        let nobody = row.iter().filter(|slot| **slot == NOBODY).count();
        nobody > 0 && nobody < row.len()
    };
    table.rows().map(|(_, row)| is_bare(row)).collect()
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
