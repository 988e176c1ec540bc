//! One rebalance as a pure function from devices and assignment to an assignment.

use super::assignment::Assignment;
use super::quotas::quotas;
use super::rules::Rules;
use super::split_mix::SplitMix64;
use super::targets::Targets;
use super::tree::{ROOT, Tree};
use crate::device::Device;
use crate::table::{NOBODY, Table};

/// Input of a rebalance.
pub(super) struct Problem<'a> {
    /// All devices, in the order of their slots.
    pub(super) devices: &'a [Device],
    /// True for devices that lose all their replicas at once.
    pub(super) removed: &'a [bool],
    /// Replicas of a partition; a fraction is an average.
    pub(super) replicas: f64,
    /// Share by which a device may exceed its share to increase distance.
    pub(super) overload: f64,
    /// Partitions with a move in progress.
    pub(super) locked: &'a [bool],
    /// Seed for ties.
    pub(super) seed: u64,
}

/// Result of a rebalance.
#[derive(Debug)]
pub(super) struct Solution {
    pub(super) table: Table,
    /// Replicas that changed from one holder to another.
    pub(super) moved: u64,
    /// Replicas that had no holder, or a removed device.
    pub(super) placed: u64,
    /// True if every device meets its quota and no replicas are too close, so that a further
    /// rebalance would find nothing to do.
    pub(super) is_final: bool,
}

impl Problem<'_> {
    /// The tree of all devices that aren't removed.
    pub(super) fn tree(&self) -> Tree {
        let slots = (0u16..).zip(self.removed).filter(|(_, gone)| !**gone).map(|(slot, _)| slot);
        Tree::new(self.devices, slots)
    }

    /// Computes the assignment. There must be at least as many devices with weight as replicas.
    pub(super) fn solve(&self, mut table: Table) -> Solution {
        let tree = self.tree();
        let targets = Targets::new(&tree, self.devices, self.replicas, self.overload);
        let placed = self.strip(&mut table);
        let held = held(&tree, &table);
        let total = u32::try_from(table.replicas_total()).expect("at most 2^24 times 64 replicas");
        let quotas = quotas(&targets, &tree, table.parts(), total, &held);
        let rules = Rules::new(tree, targets.bounds());
        let mut state =
            Assignment::new(rules, table, self.locked, &quotas, SplitMix64::new(self.seed));
        let is_final = state.run();
        Solution { moved: state.departures(), placed, is_final, table: state.into_table() }
    }

    /// Takes all replicas from removed devices. Returns the number of replicas without holder.
    fn strip(&self, table: &mut Table) -> u64 {
        let mut bare = 0;
        for partition in 0..table.parts() {
            for slot in table.row_mut(partition) {
                if *slot != NOBODY && self.removed[usize::from(*slot)] {
                    *slot = NOBODY;
                }
                bare += u64::from(*slot == NOBODY);
            }
        }
        bare
    }
}

/// Returns the number of replicas that each element holds.
fn held(tree: &Tree, table: &Table) -> Vec<u32> {
    let mut by_slot = vec![0; tree.paths.len()];
    for (_, row) in table.rows() {
        for &slot in row.iter().filter(|slot| **slot != NOBODY) {
            by_slot[usize::from(slot)] += 1;
        }
    }
    let mut held = vec![0; tree.elements.len()];
    for (path, count) in tree.paths.iter().zip(by_slot).filter(|(_, count)| *count > 0) {
        held[ROOT as usize] += count;
        for &element in &path[1..] {
            held[element as usize] += count;
        }
    }
    held
}
