//! Rounding of quotas away from crowded places.
//!
//! If weights make a zone (or a region, or a node) hold more replicas of a partition than distance
//! allows, each further replica on its devices lies beside another. So its devices may hold
//! slightly less than their share, by a [part](BIAS) of the surplus: the more crowded a place, the
//! less. Devices elsewhere receive the difference, within their rounding.

use super::targets::{ReplicaBounds, Targets, spread};
use super::tree::{LEAF, ROOT, Tree};

/// Differences below this, in replicas, are floating-point errors.
const EPSILON: f64 = 1e-6;
/// Relative shortfall of a device's share if all replicas around it were too close together. Small
/// against the percent within which devices count as balanced.
const BIAS: f64 = 0.0025;

/// State of shifting quotas away from crowded places.
pub(super) struct RoundingBias<'a> {
    tree: &'a Tree,
    targets: &'a Targets,
    parts: u32,
    bounds: Vec<ReplicaBounds>,
    /// For each element, replicas of a partition beyond what distance allows; negative if the
    /// element could hold more.
    beyond: Vec<f64>,
    /// Worst deviation of a device through rounding, relative to its share.
    worst: f64,
}

impl<'a> RoundingBias<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        targets: &'a Targets,
        parts: u32,
        total: u32,
        worst: f64,
    ) -> Self {
        let apart = spread(tree, f64::from(total) / f64::from(parts));
        let beyond = targets.replicas.iter().zip(apart).map(|(target, (_, most))| target - most);
        let beyond = beyond.collect();
        Self { tree, targets, parts, bounds: targets.bounds(), beyond, worst }
    }

    /// Shifts quotas from devices in crowded places, and from the elements above them, to others.
    pub(super) fn bias(&self, quotas: &mut [u32], held: &[u32]) {
        for parent in 0..self.tree.level(LEAF - 1).start {
            let children = self.tree.element(parent).children.clone();
            let level = self.tree.level_of(parent) + 1;
            let (crowded, roomy): (Vec<u32>, Vec<u32>) = children
                .filter(|child| self.beyond[*child as usize].abs() > EPSILON)
                .partition(|child| self.beyond[*child as usize] > 0.0);
            while !crowded.is_empty() && self.shift(level, &crowded, &roomy, quotas, held) {}
        }
    }

    /// Shifts one replica of quota from each device in a crowded place to another device. Returns
    /// true if any was shifted.
    fn shift(
        &self,
        level: usize,
        crowded: &[u32],
        roomy: &[u32],
        quotas: &mut [u32],
        held: &[u32],
    ) -> bool {
        let leaves = |places: &[u32]| places.iter().flat_map(|it| self.tree.leaves(*it)).collect();
        let (mut givers, mut takers): (Vec<u32>, Vec<u32>) = (leaves(crowded), leaves(roomy));
        let off_with =
            |leaf: u32, more: i64| self.off(leaf, i64::from(quotas[leaf as usize]) + more);
        givers.retain(|leaf| -off_with(*leaf, -1) <= self.slack(*leaf));
        takers.retain(|leaf| self.is_rounding(*leaf, off_with(*leaf, 1)));
        // Devices that must give or receive anyway come first, to reduce moves.
        let off = |leaf: u32| off_with(leaf, 0);
        let (has, quota) = (|leaf: u32| held[leaf as usize], |leaf: u32| quotas[leaf as usize]);
        givers.sort_by(|&a, &b| {
            let stays = (has(a) >= quota(a)).cmp(&(has(b) >= quota(b)));
            stays.then(off(b).total_cmp(&off(a))).then(a.cmp(&b))
        });
        takers.sort_by(|&a, &b| {
            let stays = (has(a) <= quota(a)).cmp(&(has(b) <= quota(b)));
            stays.then(off(a).total_cmp(&off(b))).then(a.cmp(&b))
        });
        let mut takers = takers.into_iter();
        let mut has_shifted = false;
        for giver in givers {
            if !self.path(giver, level).all(|it| quotas[it] > self.least(it)) {
                continue;
            }
            let has_room =
                |leaf: &u32| self.path(*leaf, level).all(|it| quotas[it] < self.most(it));
            let Some(taker) = takers.find(has_room) else { break };
            self.path(giver, level).for_each(|element| quotas[element] -= 1);
            self.path(taker, level).for_each(|element| quotas[element] += 1);
            has_shifted = true;
        }
        has_shifted
    }

    /// True if the held replicas satisfy the targets: no device deviates too much, and none could
    /// lean further. Then nothing has to move.
    pub(super) fn is_settled(&self, held: &[u32], total: u32) -> bool {
        let is_within = |it: usize| (self.least(it)..=self.most(it)).contains(&held[it]);
        let mut leaning = held.to_vec();
        held[ROOT as usize] == total
            && (0..held.len()).all(is_within)
            && self.tree.level(LEAF).all(|leaf| self.may_hold(leaf, held[leaf as usize]))
            && {
                self.bias(&mut leaning, held);
                leaning == held
            }
    }

    /// True if `replicas` is within a device's rounding, or at most slightly below its share.
    fn may_hold(&self, leaf: u32, replicas: u32) -> bool {
        let off = self.off(leaf, replicas.into());
        self.is_rounding(leaf, off) || off <= 0.0 && -off <= self.slack(leaf)
    }

    fn is_rounding(&self, leaf: u32, off: f64) -> bool {
        (off * self.target(leaf)).abs() < 1.0 && off.abs() <= self.worst
    }

    /// Allowed shortfall of a device, relative to its share.
    fn slack(&self, leaf: u32) -> f64 {
        let beyond = self.path(leaf, 1).map(|it| self.beyond[it] / self.targets.replicas[it]);
        BIAS * beyond.fold(0.0, f64::max)
    }

    /// Deviation of a device with so many replicas, relative to its share.
    fn off(&self, leaf: u32, replicas: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24 partitions")]
        let difference = replicas as f64 - self.target(leaf);
        if difference.abs() <= EPSILON { 0.0 } else { difference / self.target(leaf) }
    }

    fn target(&self, leaf: u32) -> f64 {
        self.targets.replicas[leaf as usize] * f64::from(self.parts)
    }

    /// The device's element and those above it, from `level` down.
    fn path(&self, leaf: u32, level: usize) -> impl Iterator<Item = usize> {
        let path = self.tree.paths[usize::from(self.tree.element(leaf).slot)];
        path.into_iter().skip(level).map(|element| element as usize)
    }

    fn least(&self, element: usize) -> u32 {
        u32::from(self.bounds[element].least) * self.parts
    }

    fn most(&self, element: usize) -> u32 {
        u32::from(self.bounds[element].most) * self.parts
    }
}
