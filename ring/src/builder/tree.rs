//! Failure domains as a tree: cluster, regions, zones, nodes, devices.
//!
//! Elements are stored level by level in one array, so that the children of each form a range.

use std::ops::Range;

use crate::device::Device;

/// Number of levels; the devices are on the last.
pub(crate) const LEVELS: usize = 5;
/// The level of the devices.
pub(crate) const LEAF: usize = LEVELS - 1;
/// Element of the whole cluster.
pub(crate) const ROOT: u32 = 0;

/// One region, zone, node or device.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) parent: u32,
    pub(crate) children: Range<u32>,
    /// Slot of the device; for other elements, of the first device below.
    pub(crate) slot: u16,
    /// Number of devices with weight below.
    pub(crate) devices: u32,
}

/// The tree of all devices that aren't removed.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) elements: Vec<Element>,
    /// First element of each level, and the end of the last level.
    pub(crate) level_starts: [u32; LEVELS + 1],
    /// For each slot the elements from the root to the device. Removed devices have only zeros.
    pub(crate) paths: Vec<[u32; LEVELS]>,
}

impl Tree {
    /// Builds the tree of the devices in `slots`.
    pub(crate) fn new(devices: &[Device], slots: impl Iterator<Item = u16>) -> Self {
        let at = |slot: u16| &devices[usize::from(slot)];
        let mut sorted: Vec<u16> = slots.collect();
        sorted.sort_by(|&a, &b| (at(a).node_path(), at(a).id).cmp(&(at(b).node_path(), at(b).id)));
        let mut tree = Self {
            elements: Vec::new(),
            level_starts: [0; LEVELS + 1],
            paths: vec![[ROOT; LEVELS]; devices.len()],
        };
        for level in 0..LEVELS {
            tree.level_starts[level] = tree.next_index();
            tree.push_level(&sorted, level, |a, b| same(at(a), at(b), level));
        }
        tree.level_starts[LEVELS] = tree.next_index();
        for &slot in &sorted {
            if at(slot).weight > 0.0 {
                for element in tree.paths[usize::from(slot)] {
                    tree.elements[element as usize].devices += 1;
                }
            }
        }
        tree
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.elements.len()).expect("at most five elements for each of 2^16 devices")
    }

    fn push_level(&mut self, sorted: &[u16], level: usize, same: impl Fn(u16, u16) -> bool) {
        for group in sorted.chunk_by(|&a, &b| same(a, b)) {
            let index = self.next_index();
            let parent =
                if level == 0 { ROOT } else { self.paths[usize::from(group[0])][level - 1] };
            if level > 0 {
                let children = &mut self.elements[parent as usize].children;
                *children = if children.end == 0 { index } else { children.start }..index + 1;
            }
            self.elements.push(Element { parent, children: 0..0, slot: group[0], devices: 0 });
            for &slot in group {
                self.paths[usize::from(slot)][level] = index;
            }
        }
    }

    /// The elements of a level.
    pub(crate) fn level(&self, level: usize) -> Range<u32> {
        self.level_starts[level]..self.level_starts[level + 1]
    }

    /// Returns the level of an element.
    pub(crate) fn level_of(&self, index: u32) -> usize {
        self.level_starts[1..].iter().take_while(|start| **start <= index).count()
    }

    /// Returns the devices below an element. Elements of a level are in the order of their parents,
    /// so that the devices below any element form a range.
    pub(crate) fn leaves(&self, index: u32) -> Range<u32> {
        let mut range = index..index + 1;
        for _ in self.level_of(index)..LEAF {
            let last = self.element(range.end - 1).children.end;
            range = self.element(range.start).children.start..last;
        }
        range
    }

    /// Returns the element of `level` above a device.
    pub(crate) fn ancestor(&self, leaf: u32, level: usize) -> u32 {
        self.paths[usize::from(self.element(leaf).slot)][level]
    }

    /// Returns the element of a device.
    #[inline]
    pub(crate) fn leaf(&self, slot: u16) -> u32 {
        self.paths[usize::from(slot)][LEAF]
    }

    pub(crate) fn element(&self, index: u32) -> &Element {
        &self.elements[index as usize]
    }
}

/// True if two devices share their element on a level.
fn same(a: &Device, b: &Device, level: usize) -> bool {
    match level {
        0 => true,
        1 => a.region == b.region,
        2 => a.zone_path() == b.zone_path(),
        3 => a.node_path() == b.node_path(),
        _ => a.id == b.id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    #[test]
    fn zones_of_two_regions_are_different_zones() {
        let devices = [device(0, 1, 1, "a"), device(1, 2, 1, "a"), device(2, 1, 1, "a")];
        let tree = Tree::new(&devices, 0..3);
        let sizes: Vec<usize> = (0..LEVELS).map(|level| tree.level(level).len()).collect();
        assert_eq!(sizes, [1, 2, 2, 2, 3]);
        assert_eq!(tree.paths[0][3], tree.paths[2][3]);
        assert_ne!(tree.paths[0][2], tree.paths[1][2]);
        let region = tree.element(tree.paths[0][1]);
        assert_eq!((region.devices, region.children.len()), (2, 1));
        let below =
            |index| tree.leaves(index).map(|leaf| tree.element(leaf).slot).collect::<Vec<_>>();
        assert_eq!(below(ROOT), [0, 2, 1]);
        assert_eq!(below(tree.paths[0][2]), [0, 2]);
        assert_eq!(below(tree.leaf(1)), [1]);
        assert_eq!(tree.level_of(tree.paths[1][3]), 3);
    }
}
