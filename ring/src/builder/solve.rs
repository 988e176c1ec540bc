//! One rebalance as a pure function: devices and an assignment in, an assignment out.

use super::chance::Chance;
use super::quotas::quotas;
use super::rules::Rules;
use super::state::State;
use super::targets::Targets;
use super::tree::{ROOT, Tree};
use crate::device::Device;
use crate::table::{NOBODY, Table};

/// What there is to place.
pub(super) struct Problem<'a> {
    /// All devices, in the order of their slots.
    pub(super) devices: &'a [Device],
    /// Which of them are to lose everything at once.
    pub(super) removed: &'a [bool],
    /// Replicas of a partition; fractional on average.
    pub(super) replicas: f64,
    /// How far beyond its share a device may be loaded for the sake of distance.
    pub(super) overload: f64,
    /// Partitions that moved lately or are still moving.
    pub(super) locked: &'a [bool],
    /// For breaking ties.
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Solution {
    pub(super) table: Table,
    /// Replicas that had a holder and have another now.
    pub(super) moved: u64,
    /// Replicas that had nobody, or a removed device.
    pub(super) placed: u64,
    /// Whether every device has its quota and nothing lies too close, so that the next rebalance
    /// would find nothing to do.
    pub(super) is_final: bool,
}

impl Problem<'_> {
    /// The tree of what isn't removed.
    pub(super) fn tree(&self) -> Tree {
        let slots = (0u16..).zip(self.removed).filter(|(_, gone)| !**gone).map(|(slot, _)| slot);
        Tree::new(self.devices, slots)
    }

    /// Solves it. There are at least as many devices with weight as replicas.
    pub(super) fn solve(&self, mut table: Table) -> Solution {
        let tree = self.tree();
        let targets = Targets::new(&tree, self.devices, self.replicas, self.overload);
        let placed = self.strip(&mut table);
        let held = held(&tree, &table);
        let total = u32::try_from(table.replicas_total()).expect("at most 2^24 times 64 replicas");
        let quotas = quotas(&targets, &tree, table.parts(), total, &held);
        let rules = Rules::new(tree, targets.bounds());
        let mut state = State::new(rules, table, self.locked, &quotas, Chance::new(self.seed));
        let is_final = state.run();
        Solution { moved: state.departures(), placed, is_final, table: state.into_table() }
    }

    /// Takes everything from the removed devices. Says how many replicas have no holder.
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

/// How many replicas each element holds.
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
