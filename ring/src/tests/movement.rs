//! Least movement on random clusters where distance requires no moves: a change moves no more than
//! its share.

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::figures::Figures;
use crate::ring::Ring;
use crate::testing::{TestRng, builder, new_device, rebalance};

const CLUSTERS: u64 = 150;

/// Four to six zones of two to four nodes, at 2^11 partitions × 3.
fn cluster(lots: &mut TestRng, weights: &[f64]) -> Builder {
    let mut builder = builder(11, 3.0);
    let nodes = 2 + lots.below(3);
    for zone in 1..=4 + lots.below(3) {
        for node in 1..=nodes {
            for disk in 0..2 + lots.below(4) {
                builder.add(new_device(1, zone, node, disk, lots.one_of(weights))).unwrap();
            }
        }
    }
    builder
}

/// True if by weight no zone holds more than `most` replicas of a partition.
fn is_roomy(builder: &Builder, most: f64) -> bool {
    let total: f64 = builder.devices().map(|device| device.weight).sum();
    (1..=9).all(|zone| {
        let here = builder.devices().filter(|device| device.zone == zone);
        here.map(|device| device.weight).sum::<f64>() * 3.0 / total < most
    })
}

/// Rebalances until nothing is left, and returns the number of moved replicas.
fn settle_down(builder: &mut Builder) -> u64 {
    let mut moved = 0;
    loop {
        let report = rebalance(builder, 1);
        moved += report.moved;
        if report.rebalances_to_go == 0 {
            assert!(report.dispersion == 0.0, "{report:?}");
            return moved;
        }
    }
}

/// Number of replicas for a share of all weight, plus one percent; and one replica of rounding for
/// each of `devices`.
fn fair(ring: &Ring, share: f64, devices: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "few devices")]
    let rounding = devices as f64;
    f64::from(1u32 << ring.part_power()) * ring.replicas_exact() * share * 1.01 + rounding
}

fn check(seed: u64, what: &str, moved: u64, fair: f64) {
    #[expect(clippy::cast_precision_loss, reason = "few replicas")]
    let moved = moved as f64;
    assert!(moved <= fair, "seed {seed}: {what} moved {moved}, and {fair:.1} would be fair");
}

/// Adds, reweights and removes devices on one cluster. Returns true if distance required no moves.
fn history(seed: u64) -> bool {
    let mut lots = TestRng::new(seed);
    let weights: &[f64] = lots.one_of(&[&[100.0][..], &[100.0, 200.0], &[93.3, 100.0, 171.7]]);
    let mut builder = cluster(&mut lots, weights);
    let mut changed = builder.clone();
    let (mut added, count) = (0.0, 1 + lots.below(3));
    for disk in 0..count {
        let (zone, weight) = (1 + lots.below(4), lots.one_of(weights));
        changed.add(new_device(1, zone, 1, 50 + disk, weight)).unwrap();
        added += weight;
    }
    if !is_roomy(&builder, 0.98) || !is_roomy(&changed, 0.98) {
        return false;
    }
    settle_down(&mut builder);
    let devices = builder.devices().count();

    let mut grown = builder.clone();
    for device in changed.devices().skip(devices) {
        grown.add(new_device(1, device.zone, 1, device.id.0, device.weight)).unwrap();
    }
    let moved = settle_down(&mut grown);
    let total: f64 = grown.devices().map(|device| device.weight).sum();
    let ring = grown.ring().unwrap();
    check(seed, "adding devices", moved, fair(&ring, added / total, count as usize));

    let mut shrunk = builder.clone();
    let victim = DeviceId(lots.below(u32::try_from(devices).unwrap()));
    let held = Figures::of_builder(&shrunk).unwrap().devices[victim.0 as usize].parts;
    shrunk.remove(victim, true).unwrap();
    // A zone that holds a replica of nearly every partition already holds most of the lost
    // partitions: then other replicas must make room.
    if is_roomy(&shrunk, 0.75) {
        let report = rebalance(&mut shrunk, 1);
        assert_eq!(report.placed, u64::from(held), "seed {seed}");
        let after = if report.rebalances_to_go > 0 { settle_down(&mut shrunk) } else { 0 };
        check(seed, "removing a device", report.moved + after, 0.0);
    }

    let mut heavier = builder;
    let weight = heavier.devices().find(|device| device.id == victim).unwrap().weight;
    let before: f64 = heavier.devices().map(|device| device.weight).sum();
    heavier.set_weight(victim, weight * 1.5).unwrap();
    if is_roomy(&heavier, 0.98) {
        let moved = settle_down(&mut heavier);
        let share = weight * 1.5 / (before + weight / 2.0) - weight / before;
        check(seed, "more weight", moved, fair(&ring, share, 1));
    }
    true
}

#[test]
fn no_more_moves_than_a_change_is_worth() {
    let checked = (0..CLUSTERS).filter(|seed| history(*seed)).count();
    assert!(checked > 50, "only {checked} clusters had room");
}
