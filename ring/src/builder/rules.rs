//! Search down the tree for a device that may hold a replica, so that a partition's replicas are as
//! far apart as the bounds require.

use super::needs::Needs;
use super::split_mix::SplitMix64;
use super::targets::ReplicaBounds;
use super::tree::{LEAF, LEVELS, ROOT, Tree};
use crate::table::NOBODY;

/// Random draws before all children are tried in turn.
const DRAWS: usize = 4;

/// Strictness of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// No element above its most, none below its least.
    Bounds,
    /// Only no two replicas on one device.
    Devices,
}

/// The tree with its bounds.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) tree: Tree,
    pub(super) bounds: Vec<ReplicaBounds>,
    /// For each device the most of its elements, from the root to itself; in one array for walks
    /// over all rows.
    mosts: Vec<[u8; LEVELS]>,
    /// For each element, the elements below it that must hold a replica of every partition. They
    /// are few: their least replicas sum up to at most the number of replicas.
    musts: Vec<Vec<RequiredElement>>,
}

/// An element that must hold a replica of every partition.
#[derive(Clone, Copy, Debug)]
struct RequiredElement {
    level: usize,
    element: u32,
}

impl Rules {
    pub(super) fn new(tree: Tree, bounds: Vec<ReplicaBounds>) -> Self {
        let mut musts = vec![Vec::new(); tree.elements.len()];
        for level in 1..LEVELS {
            for element in tree.level(level).filter(|&index| bounds[index as usize].least > 0) {
                let path = tree.paths[usize::from(tree.element(element).slot)];
                for above in &path[..level] {
                    musts[*above as usize].push(RequiredElement { level, element });
                }
            }
        }
        let most = |&element: &u32| bounds[element as usize].most;
        let mosts = tree.paths.iter().map(|path| path.each_ref().map(most)).collect();
        Self { tree, bounds, mosts, musts }
    }

    /// Returns the number of replicas of a row in an element of `level`.
    #[inline]
    pub(super) fn count(&self, row: &[u16], level: usize, element: u32) -> u8 {
        let mut count = 0;
        for &slot in row {
            if slot != NOBODY && self.tree.paths[usize::from(slot)][level] == element {
                count += 1;
            }
        }
        count
    }

    /// Returns the number of replicas of a row that are too many or too few for an element; 0 if
    /// they are as far apart as required.
    pub(super) fn faults(&self, row: &[u16]) -> u32 {
        let mut faults = 0;
        for (at, &slot) in row.iter().enumerate().filter(|(_, slot)| **slot != NOBODY) {
            for (level, &most) in self.mosts[usize::from(slot)].iter().enumerate().skip(1) {
                // The replica is the n-th of its element: one fault for each beyond the most.
                if at >= usize::from(most) {
                    let element = self.tree.paths[usize::from(slot)][level];
                    faults += u32::from(self.count(&row[..at], level, element) >= most);
                }
            }
        }
        faults + self.musts[ROOT as usize].iter().map(|must| self.lack(row, *must)).sum::<u32>()
    }

    /// Returns the number of replicas that an element lacks in a row.
    fn lack(&self, row: &[u16], must: RequiredElement) -> u32 {
        let least = self.bounds[must.element as usize].least;
        u32::from(least.saturating_sub(self.count(row, must.level, must.element)))
    }

    /// Finds a device with needs that may take the replica of `row` without holder.
    pub(super) fn find(
        &self,
        row: &[u16],
        needs: &Needs,
        strictness: Strictness,
        chance: &mut SplitMix64,
    ) -> Option<u16> {
        let search = DeviceSearch { rules: self, row, needs, strictness };
        search.below(ROOT, 0, chance)
    }

    /// Finds a device as [`Rules::find`], within the element of `level` that held the replica: the
    /// counts of elements above stay.
    pub(super) fn find_within(
        &self,
        row: &[u16],
        needs: &Needs,
        level: usize,
        element: u32,
        chance: &mut SplitMix64,
    ) -> Option<u16> {
        let search = DeviceSearch { rules: self, row, needs, strictness: Strictness::Bounds };
        search.below(element, level, chance)
    }
}

/// One search for a device.
struct DeviceSearch<'a> {
    rules: &'a Rules,
    row: &'a [u16],
    needs: &'a Needs,
    strictness: Strictness,
}

impl DeviceSearch<'_> {
    /// Finds a device below `parent`, an element of `level`.
    fn below(&self, parent: u32, level: usize, chance: &mut SplitMix64) -> Option<u16> {
        if self.needs.of(parent) == 0 {
            return None;
        }
        if level == LEAF {
            return Some(self.rules.tree.element(parent).slot);
        }
        if self.strictness == Strictness::Bounds {
            let mut short = self.short_children(parent, level).peekable();
            if short.peek().is_some() {
                return short.find_map(|child| self.below(child, level + 1, chance));
            }
        }
        for _ in 0..DRAWS {
            let child = self.needs.draw(&self.rules.tree, parent, chance);
            if let Some(slot) = self.try_child(child, level + 1, chance) {
                return Some(slot);
            }
        }
        let children = self.rules.tree.element(parent).children.clone();
        let start = children.start + chance.below(children.end - children.start);
        (start..children.end)
            .chain(children.start..start)
            .find_map(|child| self.try_child(child, level + 1, chance))
    }

    /// Children of `parent` that contain an element lacking a replica, at any depth; the replica
    /// must go there.
    fn short_children(&self, parent: u32, level: usize) -> impl Iterator<Item = u32> {
        let musts = self.rules.musts[parent as usize].iter();
        musts.filter(|must| self.rules.lack(self.row, **must) > 0).map(move |must| {
            let slot = self.rules.tree.element(must.element).slot;
            self.rules.tree.paths[usize::from(slot)][level + 1]
        })
    }

    fn try_child(&self, child: u32, level: usize, chance: &mut SplitMix64) -> Option<u16> {
        let most = match self.strictness {
            Strictness::Devices if level == LEAF => 1,
            Strictness::Devices => u8::MAX,
            Strictness::Bounds => self.rules.bounds[child as usize].most,
        };
        if self.needs.of(child) == 0 || self.rules.count(self.row, level, child) >= most {
            return None;
        }
        self.below(child, level, chance)
    }
}
