//! Moves between regions, zones and nodes come before moves within them.
//!
//! Of a partition only one replica may move, and most of what could move across zones could as well
//! move within one, while few partitions may give a replica to a zone that must grow. So what regions
//! hold too much of, all their devices taken together, goes first, then what zones do, then nodes.
//! Otherwise chance uses those partitions up, and what is left takes two moves instead of one.

use super::needs::Needs;
use super::state::State;
use super::tree::{LEAF, Tree};

/// How much more than their quotas the elements of one level hold, and who takes it.
struct Level {
    depth: usize,
    /// The first element of the level.
    start: u32,
    /// For each element what it holds beyond its quota.
    surplus: Vec<i64>,
    /// Sum of what is above zero.
    excess: u64,
    /// Devices below their quotas in elements below theirs.
    takers: Needs,
}

impl State {
    /// Moves replicas from elements over their quotas to elements below, the largest first.
    pub(super) fn cross(&mut self) {
        for level in 1..=LEAF {
            let mut level = self.level(level);
            if level.excess > 0 {
                self.cross_level(&mut level);
            }
        }
    }

    fn cross_level(&mut self, level: &mut Level) {
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

    fn level(&self, level: usize) -> Level {
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
        Level { depth: level, start: elements.start, surplus, excess, takers }
    }
}

impl Level {
    fn at(&self, tree: &Tree, slot: u16) -> usize {
        (tree.paths[usize::from(slot)][self.depth] - self.start) as usize
    }

    /// What the element of a device holds beyond its quota.
    fn of(&self, tree: &Tree, slot: u16) -> i64 {
        self.surplus[self.at(tree, slot)]
    }

    /// A replica went from an element that held too much to one that held too little.
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
