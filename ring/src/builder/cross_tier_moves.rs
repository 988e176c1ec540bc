//! Moves between regions, zones and nodes, made before moves within them.
//!
//! Only one replica of a partition may move. Most replicas that could move across zones could also
//! move within one, but few partitions can give a replica to a zone that must grow. So surpluses of
//! whole regions are moved first, then of zones, then of nodes. Otherwise random moves use up those
//! partitions, and the rest takes two moves instead of one.

use super::assignment::Assignment;
use super::needs::Needs;
use super::tree::{LEAF, Tree};

/// Surplus of the elements of one level, and the devices that may receive it.
struct TierSurplus {
    depth: usize,
    /// First element of the level.
    start: u32,
    /// Replicas of each element beyond its quota.
    surplus: Vec<i64>,
    /// Sum of the positive surpluses.
    excess: u64,
    /// Devices below their quotas, in elements below theirs.
    takers: Needs,
}

impl Assignment {
    /// Moves replicas from elements over their quotas to elements below, from the root down.
    pub(super) fn cross(&mut self) {
        for level in 1..=LEAF {
            let mut level = self.level(level);
            if level.excess > 0 {
                self.cross_level(&mut level);
            }
        }
    }

    fn cross_level(&mut self, level: &mut TierSurplus) {
        for partition in self.chance.walk(self.table.part_power()) {
            if level.excess == 0 {
                return;
            }
            let replicas = self.replicas_from_any(partition);
            if !self.has_over(partition) {
                continue;
            }
            for replica in replicas {
                let holder = self.slot(replica);
                if self.is_over(holder)
                    && level.of(&self.rules.tree, holder) > 0
                    && self.is_movable(replica)
                    && let Some(taker) = self.find_within(replica, &level.takers, level.depth - 1)
                {
                    self.assign(replica, taker);
                    level.moved(&self.rules.tree, holder, taker);
                }
            }
        }
    }

    fn level(&self, level: usize) -> TierSurplus {
        let tree = &self.rules.tree;
        let elements = tree.level(level);
        let sum = |element| tree.leaves(element).map(|leaf| self.surplus_of(leaf)).sum::<i64>();
        let surplus: Vec<i64> = elements.clone().map(sum).collect();
        let mut takers = Needs::new(tree);
        for (element, _) in elements.clone().zip(&surplus).filter(|(_, surplus)| **surplus < 0) {
            for leaf in tree.leaves(element) {
                let path = &tree.paths[usize::from(tree.element(leaf).slot)];
                takers.raise(tree, path, self.needs.of(leaf));
            }
        }
        let excess = surplus.iter().map(|surplus| surplus.max(&0).unsigned_abs()).sum();
        TierSurplus { depth: level, start: elements.start, surplus, excess, takers }
    }
}

impl TierSurplus {
    fn at(&self, tree: &Tree, slot: u16) -> usize {
        (tree.paths[usize::from(slot)][self.depth] - self.start) as usize
    }

    /// Surplus of the element that contains a device.
    fn of(&self, tree: &Tree, slot: u16) -> i64 {
        self.surplus[self.at(tree, slot)]
    }

    /// Records a move from an element over its quota to one below.
    fn moved(&mut self, tree: &Tree, from: u16, to: u16) {
        let (giver, taker) = (self.at(tree, from), self.at(tree, to));
        self.surplus[giver] -= 1;
        self.surplus[taker] += 1;
        self.excess -= 1;
        self.takers.lower(tree, &tree.paths[usize::from(to)], 1);
        if self.surplus[taker] == 0 {
            for leaf in tree.leaves(tree.paths[usize::from(to)][self.depth]) {
                let path = &tree.paths[usize::from(tree.element(leaf).slot)];
                self.takers.lower(tree, path, self.takers.of(leaf));
            }
        }
    }
}
