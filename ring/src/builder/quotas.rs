//! Quotas: the replicas of all partitions that each element should hold, in whole numbers.
//!
//! Each quota is its target rounded down or up, and the quotas of children add up to their
//! parent's. Such quotas always have an assignment within the bounds: lay the devices end to end,
//! each as long as its quota, and give partition p the devices at p, p + P, p + 2P, and so on.
//!
//! The rounding minimizes the worst relative deviation of a device: one replica more or less is
//! little for a large device and much for a small one. Among equal solutions, devices keep the
//! replicas that they hold. The first step takes a pass up the tree: it computes the worst
//! deviation below each element, rounded down and rounded up.
//!
//! Last, quotas [lean](super::rounding_bias) away from places where replicas are too close
//! together.

use super::rounding_bias::RoundingBias;
use super::targets::Targets;
use super::tree::{LEAF, ROOT, Tree};

/// Fractions of a replica below this are floating-point errors.
const EPSILON: f64 = 1e-6;

/// A fractional target, with the effects of rounding it.
#[derive(Clone, Copy, Debug, Default)]
struct RoundedTarget {
    /// Target rounded down.
    whole: u32,
    /// Fractional part of the target.
    remainder: f64,
    /// Worst deviation of a device below if rounded down, relative to the device's target.
    off_if_down: f64,
    /// Worst deviation if rounded up.
    off_if_up: f64,
    /// True if more than the whole part is held already.
    keeps: bool,
}

/// Returns the quotas for `total` replicas of `parts` partitions; `held` are the replicas of each
/// element now.
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
    let leaning = RoundingBias::new(tree, targets, parts, total, worst);
    if leaning.is_settled(held, total) {
        return held.to_vec();
    }
    leaning.bias(&mut quotas, held);
    quotas
}

/// Computes the rounding of each element, from the devices up.
fn roundings(targets: &Targets, tree: &Tree, parts: u32, held: &[u32]) -> Vec<RoundedTarget> {
    let mut roundings = vec![RoundedTarget::default(); tree.elements.len()];
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
        // Elements with a whole target take no more, unless no other element can.
        let off_if_up = if remainder <= EPSILON { f64::INFINITY } else { off_if_up };
        roundings[element as usize] =
            RoundedTarget { whole, remainder, off_if_down, off_if_up, keeps };
    }
    roundings
}

fn off(difference: f64, target: f64) -> f64 {
    if difference <= EPSILON { 0.0 } else { difference / target }
}

fn children(tree: &Tree, roundings: &[RoundedTarget], parent: u32) -> Vec<RoundedTarget> {
    let children = &tree.element(parent).children;
    roundings[children.start as usize..children.end as usize].to_vec()
}

/// Number of children to round up for an element with this quota.
fn rest(tree: &Tree, roundings: &[RoundedTarget], parent: u32, quota: u32) -> usize {
    let children = tree.element(parent).children.clone();
    let whole: u32 = children.map(|child| roundings[child as usize].whole).sum();
    quota.saturating_sub(whole) as usize
}

/// Chooses `rest` shares to round up; `allowed` is a worst deviation that occurs elsewhere anyway.
fn round_up(shares: &[RoundedTarget], rest: usize, allowed: f64) -> Vec<usize> {
    let worst = least_worst(shares, rest).max(allowed);
    let class = |share: &RoundedTarget| match () {
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

/// Returns the smallest worst deviation with `rest` shares rounded up and the others down.
fn least_worst(shares: &[RoundedTarget], rest: usize) -> f64 {
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
    // Slightly above, so that equal deviations compare as equal.
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
        // Two of three devices with a target of 10.67 hold eleven, and keep them.
        for (slot, holds) in [10, 11, 11, 16].into_iter().enumerate() {
            for element in tree.paths[slot] {
                held[element as usize] += holds;
            }
        }
        let again = quotas(&targets, &tree, 16, 48, &held);
        let leaves: Vec<u32> = (0..4).map(|slot| again[tree.leaf(slot) as usize]).collect();
        assert_eq!(leaves, [10, 11, 11, 16]);
    }

    /// If not all shares can be rounded to the nearest whole number, small shares come first: one
    /// replica is more to them.
    #[test]
    fn rounding_keeps_the_worst_deviation_small() {
        let share = |target: f64, keeps| RoundedTarget {
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
