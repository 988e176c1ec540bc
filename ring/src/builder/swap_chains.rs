//! Chains of moves: the last resort of balancing, for devices over their quotas that can't give to
//! devices below, neither directly nor over one device between.
//!
//! A breadth-first search over devices starts from all devices over their quotas: device b follows
//! device a if some replica on a may go to b. The shortest chain to a device below its quota is
//! made, and the search starts again.

use std::collections::VecDeque;

use super::assignment::{Assignment, Replica, SearchedDevices};
use super::needs::Needs;
use super::passes::MovableReplicas;
use super::rules::Strictness;
use super::tree::{LEAF, ROOT};
use crate::table::NOBODY;

/// Most searches for a receiving device in one run of chains: some tenths of a second.
const SEARCHES_MAX: usize = 200_000;

/// Link of a search to a device: the replica that the device would receive.
type Link = Option<Replica>;

impl Assignment {
    /// Makes chains until none is left, or the searches are used up. Returns true if any was made.
    pub(super) fn swap_chains(&mut self, scope: MovableReplicas) -> bool {
        let mut searches_left = SEARCHES_MAX;
        let mut made = false;
        let mut held = self.held_in(scope);
        while self.excess > 0
            && let Some((links, last)) = self.search(&held, scope, &mut searches_left)
        {
            match self.make(&links, last, scope) {
                Ok(()) => made = true,
                Err(obstacle) => {
                    held[usize::from(self.slot(obstacle))].retain(|replica| *replica != obstacle);
                }
            }
        }
        made
    }

    /// Returns for each device its replicas within `scope`.
    fn held_in(&self, scope: MovableReplicas) -> Vec<Vec<Replica>> {
        let mut held = vec![Vec::new(); self.rules.tree.paths.len()];
        for partition in 0..self.table.parts() {
            for replica in
                self.replicas(partition).filter(|replica| self.may_touch(*replica, scope))
            {
                held[usize::from(self.slot(replica))].push(replica);
            }
        }
        held
    }

    /// Finds the shortest chain: the link of each visited device, and the last device, below its
    /// quota.
    fn search(
        &mut self,
        held: &[Vec<Replica>],
        scope: MovableReplicas,
        searches_left: &mut usize,
    ) -> Option<(Vec<Link>, u16)> {
        let mut links: Vec<Link> = vec![None; held.len()];
        let (mut unmet, mut queue) = self.unmet_and_over();
        while let Some(from) = queue.pop_front() {
            for &replica in &held[usize::from(from)] {
                if self.slot(replica) != from || !self.may_touch(replica, scope) {
                    continue;
                }
                while unmet.of(ROOT) > 0 {
                    *searches_left = searches_left.checked_sub(1)?;
                    let among = SearchedDevices::These(&unmet);
                    let Some(to) = self.find(replica, among, Strictness::Bounds) else { break };
                    links[usize::from(to)] = Some(replica);
                    if self.needs.of(self.rules.tree.leaf(to)) > 0 {
                        return Some((links, to));
                    }
                    unmet.lower(&self.rules.tree, &self.rules.tree.paths[usize::from(to)], 1);
                    queue.push_back(to);
                }
            }
        }
        None
    }

    /// Returns the devices that a chain may visit, and the devices where it may start.
    fn unmet_and_over(&self) -> (Needs, VecDeque<u16>) {
        let tree = &self.rules.tree;
        let (mut unmet, mut over) = (Needs::new(tree), VecDeque::new());
        for leaf in tree.level(LEAF) {
            let slot = tree.element(leaf).slot;
            if self.is_over(slot) {
                over.push_back(slot);
            } else if self.everyone.of(leaf) > 0 {
                unmet.raise(tree, &tree.paths[usize::from(slot)], 1);
            }
        }
        (unmet, over)
    }

    /// Makes a chain from its end, or undoes it: two of its replicas may be of one partition, of
    /// which only one may move. Then the error is the replica that could not move.
    fn make(&mut self, links: &[Link], last: u16, scope: MovableReplicas) -> Result<(), Replica> {
        let mut done: Vec<(Replica, u16)> = Vec::new();
        let mut to = last;
        while let Some(replica) = links[usize::from(to)] {
            let from = self.slot(replica);
            if !self.may_touch(replica, scope) || !self.may_take(replica, to) {
                for (replica, holder) in done.into_iter().rev() {
                    self.assign(replica, holder);
                }
                return Err(replica);
            }
            self.assign(replica, to);
            done.push((replica, from));
            to = from;
        }
        Ok(())
    }

    /// True if a move doesn't increase the faults of a partition.
    fn may_take(&mut self, replica: Replica, to: u16) -> bool {
        let row = self.table.row_mut(replica.partition);
        let before = self.rules.faults(row);
        let holder = std::mem::replace(&mut row[replica.column], to);
        let after = self.rules.faults(row);
        row[replica.column] = holder;
        holder != NOBODY && after <= before
    }
}
