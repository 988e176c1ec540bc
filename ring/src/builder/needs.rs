//! Needs: the number of replicas that each device still needs, summed up the tree. A receiving
//! device is drawn at random in proportion to its need.
//!
//! The children of an element share a Fenwick tree (sums over runs of doubling length), so that
//! drawing one of a thousand takes ten steps.

use super::split_mix::SplitMix64;
use super::tree::{LEVELS, Tree};

/// Needs of all elements.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    need: Vec<u32>,
    /// Fenwick trees, each in the range of its parent's children.
    sums: Vec<u32>,
}

impl Needs {
    pub(super) fn new(tree: &Tree) -> Self {
        let count = tree.elements.len();
        Self { need: vec![0; count], sums: vec![0; count] }
    }

    /// Returns the need of an element and all below it.
    #[inline]
    pub(super) fn of(&self, element: u32) -> u32 {
        self.need[element as usize]
    }

    /// Raises the need of a device and of the elements above it.
    pub(super) fn raise(&mut self, tree: &Tree, path: &[u32; LEVELS], by: u32) {
        self.change(tree, path, |figure| *figure += by);
    }

    /// Lowers the need of a device and of the elements above it.
    pub(super) fn lower(&mut self, tree: &Tree, path: &[u32; LEVELS], by: u32) {
        self.change(tree, path, |figure| *figure -= by);
    }

    fn change(&mut self, tree: &Tree, path: &[u32; LEVELS], change: impl Fn(&mut u32)) {
        change(&mut self.need[path[0] as usize]);
        for pair in path.windows(2) {
            change(&mut self.need[pair[1] as usize]);
            let children = &tree.element(pair[0]).children;
            let mut at = pair[1] - children.start + 1;
            let count = children.end - children.start;
            while at <= count {
                change(&mut self.sums[(children.start + at - 1) as usize]);
                at += at & at.wrapping_neg();
            }
        }
    }

    /// Draws a child of `parent` in proportion to need; the need of `parent` must not be zero.
    pub(super) fn draw(&self, tree: &Tree, parent: u32, chance: &mut SplitMix64) -> u32 {
        let children = &tree.element(parent).children;
        let count = children.end - children.start;
        let mut lot = chance.below(self.of(parent));
        let mut at = 0;
        let mut step = (count + 1).next_power_of_two() >> 1;
        while step > 0 {
            if at + step <= count {
                let sum = self.sums[(children.start + at + step - 1) as usize];
                if sum <= lot {
                    lot -= sum;
                    at += step;
                }
            }
            step >>= 1;
        }
        children.start + at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    #[test]
    fn lots_fall_in_proportion_and_never_on_those_who_need_nothing() {
        let devices: Vec<_> = (0..7).map(|id| device(id, 1, 1, "a")).collect();
        let tree = Tree::new(&devices, 0..7);
        let mut needs = Needs::new(&tree);
        for (slot, need) in [(1, 10), (4, 30), (6, 5)] {
            needs.raise(&tree, &tree.paths[slot], need);
        }
        needs.lower(&tree, &tree.paths[6], 5);
        let (parent, mut chance) = (tree.paths[0][3], SplitMix64::new(1));
        let mut drawn = [0; 7];
        for _ in 0..4000 {
            let leaf = needs.draw(&tree, parent, &mut chance);
            drawn[usize::from(tree.element(leaf).slot)] += 1;
        }
        assert_eq!(drawn[1] + drawn[4], 4000, "{drawn:?}");
        assert!((900..1100).contains(&drawn[1]), "{drawn:?}");
    }
}
