//! Targets: the replicas that each region, zone, node and device should hold.
//!
//! Each element has three figures, in replicas of one partition on average:
//!
//! * **weighted**: in proportion to weight, with at most one replica of each partition on a device.
//! * **wanted**: as far apart as the tree allows, and by weight within that.
//! * **target**: from weighted towards wanted, as far as overload allows for the most loaded
//!   device.
//!
//! The targets determine the **bounds** (replicas of one partition that an element may hold: the
//! target rounded down and up) and the **quotas** (replicas of all partitions that an element
//! should hold; see [`quotas`](super::quotas)).

use super::tree::{LEAF, LEVELS, ROOT, Tree};
use crate::device::Device;

/// Differences below this, in replicas, are floating-point errors.
const EPSILON: f64 = 1e-9;

/// Least and most replicas of one partition in an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplicaBounds {
    pub(super) least: u8,
    pub(super) most: u8,
}

/// Targets of all elements of the tree.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// Average replicas of one partition, for each element.
    pub(super) replicas: Vec<f64>,
    /// Overload at which `target` equals `wanted`.
    pub(super) required_overload: f64,
}

impl Targets {
    /// Computes the targets for `replicas`; at least as many devices of `tree` must have weight.
    pub(super) fn new(tree: &Tree, devices: &[Device], replicas: f64, overload: f64) -> Self {
        let weighted = weighted(tree, devices, replicas);
        let wanted = wanted(tree, devices, replicas);
        let required_overload = tree
            .level(LEAF)
            .map(|leaf| leaf as usize)
            .filter(|&leaf| weighted[leaf] > 0.0)
            .map(|leaf| (wanted[leaf] - weighted[leaf]) / weighted[leaf])
            .fold(0.0, f64::max);
        let reach = if required_overload <= EPSILON {
            1.0
        } else {
            (overload / required_overload).min(1.0)
        };
        let replicas =
            weighted.iter().zip(&wanted).map(|(from, to)| from + (to - from) * reach).collect();
        Self { replicas, required_overload }
    }

    /// Returns the bounds of each element.
    pub(super) fn bounds(&self) -> Vec<ReplicaBounds> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and REPLICAS_MAX"
        )]
        let bounds = |target: &f64| ReplicaBounds {
            least: (target + EPSILON).floor() as u8,
            most: (target - EPSILON).ceil().max(0.0) as u8,
        };
        self.replicas.iter().map(bounds).collect()
    }
}

/// Sums leaf figures up the tree.
fn sum_up(tree: &Tree, mut leaves: Vec<f64>) -> Vec<f64> {
    for index in (1..leaves.len()).rev() {
        let parent = tree.elements[index].parent as usize;
        let figure = leaves[index];
        leaves[parent] += figure;
    }
    leaves
}

/// Distributes `replicas` over the devices below an element by weight, at most one on each device.
fn by_weight(tree: &Tree, devices: &[Device], below: u32, replicas: f64) -> Vec<(u32, f64)> {
    let leaves = tree.leaves(below);
    let claims: Vec<ShareClaim> = leaves
        .clone()
        .map(|leaf| {
            let weight = devices[usize::from(tree.element(leaf).slot)].weight;
            ShareClaim { weight, least: 0.0, most: if weight > 0.0 { 1.0 } else { 0.0 } }
        })
        .collect();
    leaves.zip(share(replicas, &claims)).collect()
}

fn weighted(tree: &Tree, devices: &[Device], replicas: f64) -> Vec<f64> {
    let mut figures = vec![0.0; tree.elements.len()];
    for (leaf, share) in by_weight(tree, devices, ROOT, replicas) {
        figures[leaf as usize] = share;
    }
    sum_up(tree, figures)
}

/// Returns least and most replicas of a partition for each element, with replicas as far apart as
/// the tree allows.
pub(crate) fn spread(tree: &Tree, replicas: f64) -> Vec<(f64, f64)> {
    let mut spread = vec![(0.0, 0.0); tree.elements.len()];
    if spread.is_empty() {
        return spread;
    }
    spread[ROOT as usize] = (replicas.floor(), replicas.ceil());
    for level in 1..LEVELS {
        for index in tree.level(level) {
            let element = tree.element(index);
            if element.devices == 0 {
                continue;
            }
            let parent = tree.element(element.parent);
            let siblings = parent.children.clone();
            let live = siblings.filter(|&child| tree.element(child).devices > 0).count();
            let live = f64::from(u32::try_from(live).expect("at most 2^16 devices"));
            let (least, most) = spread[element.parent as usize];
            spread[index as usize] = ((least / live).floor(), (most / live).ceil());
            if level == LEAF {
                spread[index as usize].1 = spread[index as usize].1.min(1.0);
            }
        }
    }
    spread
}

fn wanted(tree: &Tree, devices: &[Device], replicas: f64) -> Vec<f64> {
    let spread = spread(tree, replicas);
    let mut wanted = vec![0.0; tree.elements.len()];
    wanted[ROOT as usize] = replicas;
    for parent in 0..tree.level(LEAF).start {
        let children = tree.element(parent).children.clone();
        let total = wanted[parent as usize];
        let mut weights = vec![0.0; children.len()];
        for (leaf, share) in by_weight(tree, devices, parent, total) {
            let child = tree.ancestor(leaf, tree.level_of(parent) + 1);
            weights[(child - children.start) as usize] += share;
        }
        let mut claims: Vec<ShareClaim> = children
            .clone()
            .zip(weights)
            .map(|(child, weight)| {
                let room = f64::from(tree.element(child).devices);
                let (least, most) = spread[child as usize];
                ShareClaim { weight, least: least.min(room), most: most.min(room) }
            })
            .collect();
        if claims.iter().map(|claim| claim.most).sum::<f64>() < total - EPSILON {
            // Too few devices in some children: the others must hold more.
            for (claim, child) in claims.iter_mut().zip(children.clone()) {
                claim.most = f64::from(tree.element(child).devices);
            }
        }
        if claims.iter().map(|claim| claim.least).sum::<f64>() > total + EPSILON {
            for claim in &mut claims {
                claim.least = 0.0;
            }
        }
        for (child, share) in children.zip(share(total, &claims)) {
            wanted[child as usize] = share;
        }
    }
    wanted
}

/// A claim to a share of a total, with limits.
struct ShareClaim {
    weight: f64,
    least: f64,
    most: f64,
}

/// Distributes `total` in proportion to weight within each claim's limits: finds the factor at
/// which all shares add up.
fn share(total: f64, claims: &[ShareClaim]) -> Vec<f64> {
    let at = |level: f64, claim: &ShareClaim| (claim.weight * level).clamp(claim.least, claim.most);
    let sum = |level: f64| claims.iter().map(|claim| at(level, claim)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    while sum(high) < total && high < 1e300 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if sum(middle) < total {
            low = middle;
        } else {
            high = middle;
        }
    }
    // Exact for claims between their limits, so that equal weights get equal shares.
    let is_free = |claim: &ShareClaim| {
        let level = claim.weight * high;
        level > claim.least && level < claim.most
    };
    let fixed: f64 = claims.iter().filter(|c| !is_free(c)).map(|c| at(high, c)).sum();
    let free: f64 = claims.iter().filter(|c| is_free(c)).map(|c| c.weight).sum();
    let level = if free > 0.0 { (total - fixed) / free } else { high };
    claims
        .iter()
        .map(|claim| if is_free(claim) { at(level, claim) } else { at(high, claim) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::lopsided;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn shares_respect_their_limits() {
        let claim = |weight, least, most| ShareClaim { weight, least, most };
        let shares =
            share(3.0, &[claim(1.0, 0.0, 1.0), claim(1.0, 0.0, 1.0), claim(8.0, 0.0, 1.0)]);
        assert!(shares.iter().all(|share| close(*share, 1.0)));
        let shares =
            share(2.0, &[claim(1.0, 0.0, 1.0), claim(1.0, 0.0, 1.0), claim(8.0, 0.0, 1.0)]);
        assert!(close(shares[0], 0.5) && close(shares[2], 1.0));
        let shares = share(2.0, &[claim(1.0, 1.0, 2.0), claim(9.0, 0.0, 2.0)]);
        assert!(close(shares[0], 1.0) && close(shares[1], 1.0));
    }

    #[test]
    fn overload_goes_from_weight_to_spread() {
        let devices = lopsided();
        let tree = Tree::new(&devices, 0..4);
        let none = Targets::new(&tree, &devices, 3.0, 0.0);
        let leaf = |slot: u16| tree.leaf(slot) as usize;
        assert!(close(none.replicas[leaf(0)], 2.0 / 3.0), "weighted: {:?}", none.replicas);
        assert!(close(none.required_overload, 0.5));
        let full = Targets::new(&tree, &devices, 3.0, 9.0);
        assert!(close(full.replicas[leaf(0)], 1.0) && close(full.replicas[leaf(3)], 2.0 / 3.0));
        let half = Targets::new(&tree, &devices, 3.0, 0.25);
        assert!(close(half.replicas[leaf(0)], 5.0 / 6.0));
    }

    #[test]
    fn bounds_are_the_target_rounded_both_ways() {
        let devices = lopsided();
        let tree = Tree::new(&devices, 0..4);
        let bounds = Targets::new(&tree, &devices, 3.0, 0.0).bounds();
        assert_eq!(bounds[ROOT as usize], ReplicaBounds { least: 3, most: 3 });
        assert_eq!(bounds[tree.paths[3][2] as usize], ReplicaBounds { least: 1, most: 2 });
        assert_eq!(bounds[tree.leaf(3) as usize], ReplicaBounds { least: 1, most: 1 });
        assert_eq!(bounds[tree.leaf(0) as usize], ReplicaBounds { least: 0, most: 1 });
    }
}
