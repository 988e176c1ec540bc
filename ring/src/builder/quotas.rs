//! Quotas: how many replicas of all partitions each element shall hold, in whole numbers.
//!
//! Each is its target rounded down or up, and those of children add up to their parent's. Such a set
//! of quotas always has an assignment within the bounds: lay the devices end to end, each as long as
//! its quota, and give partition p what lies at p, p + P, p + 2P, and so on.
//!
//! Which targets to round up is chosen so that the worst deviation of a device is as small as can
//! be, for one replica more or less is nothing to a large device and much to a small one; and within
//! that so that whoever holds more now keeps it. The first takes a pass up the tree: what is the worst
//! deviation below an element if it is rounded down, and if up?
//!
//! Last, quotas [lean](super::lean) away from where replicas lie too close together.

use super::lean::Leaning;
use super::targets::Targets;
use super::tree::{LEAF, ROOT, Tree};

/// Below this a part of a replica is an error of floating point.
const EPSILON: f64 = 1e-6;

/// A target that isn't whole, and what it would mean to round it.
#[derive(Clone, Copy, Debug, Default)]
struct Rounding {
    /// The target rounded down.
    whole: u32,
    /// What that leaves out.
    remainder: f64,
    /// Worst deviation of a device below if it is rounded down, relative to the device's target.
    off_if_down: f64,
    /// And if it is rounded up.
    off_if_up: f64,
    /// Whether more than the whole part is held already.
    keeps: bool,
}

/// The quotas of `total` replicas of `parts` partitions, where each element holds `held` now.
pub(super) fn quotas(
    targets: &Targets,
    tree: &Tree,
    parts: u32,
    total: u32,
    held: &[u32],
) -> Vec<u32> {
    let roundings = roundings(targets, tree, parts, held);
    let mut quotas = vec![0; tree.elements.len()];
    quotas[ROOT as usize] = total;
    let worst = least_worst(&children(tree, &roundings, ROOT), rest(tree, &roundings, ROOT, total));
    for parent in 0..tree.level(LEAF).start {
        let children = children(tree, &roundings, parent);
        let first = tree.element(parent).children.start as usize;
        let rest = rest(tree, &roundings, parent, quotas[parent as usize]);
        for (quota, child) in quotas[first..].iter_mut().zip(&children) {
            *quota = child.whole;
        }
        for at in round_up(&children, rest, worst) {
            quotas[first + at] += 1;
        }
    }
    let leaning = Leaning::new(tree, targets, (parts, total), worst);
    if leaning.is_settled(held, total) {
        return held.to_vec();
    }
    leaning.lean(&mut quotas, held);
    quotas
}

/// For each element what rounding it means, from the devices up.
fn roundings(targets: &Targets, tree: &Tree, parts: u32, held: &[u32]) -> Vec<Rounding> {
    let mut roundings = vec![Rounding::default(); tree.elements.len()];
    for element in (0..tree.level_starts[LEAF + 1]).rev() {
        let target = targets.replicas[element as usize] * f64::from(parts);
        let whole = (target + EPSILON).floor();
        let remainder = (target - whole).max(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below 2^30 replicas in all"
        )]
        let whole = whole as u32;
        let (off_if_down, off_if_up) = if element >= tree.level(LEAF).start {
            (off(remainder, target), off(1.0 - remainder, target))
        } else {
            let children = children(tree, &roundings, element);
            let rest = |quota| rest(tree, &roundings, element, quota);
            (least_worst(&children, rest(whole)), least_worst(&children, rest(whole + 1)))
        };
        let keeps = held[element as usize] > whole;
        // Whoever is exactly at a whole number takes no more, unless nobody else can.
        let off_if_up = if remainder <= EPSILON { f64::INFINITY } else { off_if_up };
        roundings[element as usize] = Rounding { whole, remainder, off_if_down, off_if_up, keeps };
    }
    roundings
}

fn off(difference: f64, target: f64) -> f64 {
    if difference <= EPSILON { 0.0 } else { difference / target }
}

fn children(tree: &Tree, roundings: &[Rounding], parent: u32) -> Vec<Rounding> {
    let children = &tree.element(parent).children;
    roundings[children.start as usize..children.end as usize].to_vec()
}

/// How many of the children of an element with this quota are rounded up.
fn rest(tree: &Tree, roundings: &[Rounding], parent: u32, quota: u32) -> usize {
    let children = tree.element(parent).children.clone();
    let whole: u32 = children.map(|child| roundings[child as usize].whole).sum();
    quota.saturating_sub(whole) as usize
}

/// Which `rest` of some shares to round up, given that a worst deviation of `allowed` elsewhere lets
/// these deviate as much.
fn round_up(shares: &[Rounding], rest: usize, allowed: f64) -> Vec<usize> {
    let worst = least_worst(shares, rest).max(allowed);
    let class = |share: &Rounding| match () {
        () if share.off_if_down > worst => 0,
        () if share.off_if_up > worst => 3,
        () if share.keeps => 1,
        () => 2,
    };
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| {
        let by_remainder = shares[b].remainder.total_cmp(&shares[a].remainder);
        class(&shares[a]).cmp(&class(&shares[b])).then(by_remainder).then(a.cmp(&b))
    });
    order.truncate(rest);
    order
}

/// The smallest worst deviation that rounding `rest` of some shares up, and the others down, allows.
fn least_worst(shares: &[Rounding], rest: usize) -> f64 {
    let is_enough = |worst: f64| {
        let must = shares.iter().filter(|share| share.off_if_down > worst);
        let may = shares.iter().filter(|share| share.off_if_up <= worst);
        let can = must.clone().all(|share| share.off_if_up <= worst);
        can && must.count() <= rest && rest <= may.count()
    };
    let mut levels: Vec<f64> =
        shares.iter().flat_map(|share| [share.off_if_up, share.off_if_down]).collect();
    levels.sort_by(f64::total_cmp);
    let at = levels.partition_point(|level| !is_enough(*level));
    // A hair above, so that equal deviations compare as equal.
    levels.get(at).map_or(f64::INFINITY, |level| level * (1.0 + 1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::lopsided;

    #[test]
    fn quotas_add_up_and_keep_what_is_held() {
        let devices = lopsided();
        let tree = Tree::new(&devices, 0..4);
        let targets = Targets::new(&tree, &devices, 3.0, 0.0);
        let mut held = vec![0; tree.elements.len()];
        let first = quotas(&targets, &tree, 16, 48, &held);
        assert_eq!(tree.level(LEAF).map(|leaf| first[leaf as usize]).sum::<u32>(), 48);
        assert_eq!(first[tree.leaf(3) as usize], 16);
        // Two of three devices of 10.67 hold eleven; whoever does so keeps it.
        for (slot, holds) in [10, 11, 11, 16].into_iter().enumerate() {
            for element in tree.paths[slot] {
                held[element as usize] += holds;
            }
        }
        let again = quotas(&targets, &tree, 16, 48, &held);
        let leaves: Vec<u32> = (0..4).map(|slot| again[tree.leaf(slot) as usize]).collect();
        assert_eq!(leaves, [10, 11, 11, 16]);
    }

    /// Of shares that can't all be rounded to the nearest whole number the small ones come first: one
    /// replica more or less is more to them.
    #[test]
    fn rounding_keeps_the_worst_deviation_small() {
        let share = |target: f64, keeps| Rounding {
            whole: 0,
            remainder: target.fract(),
            off_if_down: target.fract() / target,
            off_if_up: (1.0 - target.fract()) / target,
            keeps,
        };
        let shares =
            [share(100.9, false), share(100.8, true), share(5.7, false), share(5.6, false)];
        assert_eq!(round_up(&shares, 2, 0.0), [2, 3]);
        assert_eq!(round_up(&shares, 3, 0.0), [2, 3, 1], "whoever has it keeps it");
        assert_eq!(round_up(&shares, 2, 0.5), [1, 0], "others are worse anyway");
        assert!(round_up(&shares, 0, 0.0).is_empty());
    }
}
