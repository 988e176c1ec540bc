//! Clusters whose weights put more replicas into some zones than distance allows: surpluses move
//! without detours, no more replicas than necessary are too close, and rounding leans away.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::figures::Figures;
use crate::testing::{TestRng, builder, new_device, rebalance};

const PART_POWER: u8 = 13;
const SEEDS: u64 = 6;
const CLUSTERS: u64 = 60;

/// Zones of 6, 4 and 2 nodes, with four devices in each node.
fn lopsided() -> Builder {
    let mut builder = builder(PART_POWER, 3.0);
    for (zone, nodes) in [(1, 6), (2, 4), (3, 2)] {
        add_zone(&mut builder, zone, 1..=nodes);
    }
    builder
}

fn add_zone(builder: &mut Builder, zone: u32, nodes: std::ops::RangeInclusive<u32>) {
    for node in nodes {
        for disk in 0..4 {
            builder.add(new_device(1, zone, node, disk, 100.0)).unwrap();
        }
    }
}

fn held(builder: &Builder) -> BTreeMap<DeviceId, u32> {
    let figures = Figures::of_builder(builder).unwrap();
    figures.devices.iter().map(|device| (device.id, device.parts)).collect()
}

/// Rebalances until nothing is left. Returns the number of moved replicas and of rebalances.
fn settle_down(builder: &mut Builder, seed: u64) -> (u64, u32) {
    let (mut moved, mut runs) = (0, 0);
    loop {
        let report = rebalance(builder, seed);
        (moved, runs) = (moved + report.moved, runs + 1);
        if report.rebalances_to_go == 0 {
            return (moved, runs);
        }
    }
}

/// Number of replicas that devices gained by a change.
fn gained(before: &BTreeMap<DeviceId, u32>, after: &BTreeMap<DeviceId, u32>) -> u64 {
    let gain = |(id, parts): (&DeviceId, &u32)| {
        u64::from(parts.saturating_sub(before.get(id).copied().unwrap_or(0)))
    };
    after.iter().map(gain).sum()
}

/// Number of replicas beyond one of each partition, over all zones.
fn beyond_one(builder: &Builder) -> u64 {
    let mut zones: BTreeMap<u32, u64> = BTreeMap::new();
    for (device, (_, parts)) in builder.devices().zip(held(builder)) {
        *zones.entry(device.zone).or_default() += u64::from(parts);
    }
    zones.values().map(|parts| parts.saturating_sub(1 << PART_POWER)).sum()
}

/// Dispersion for a number of replicas too close together.
fn dispersion(too_close: u64) -> f64 {
    let [too_close, total] =
        [too_close, 3 << PART_POWER].map(|it| f64::from(u32::try_from(it).unwrap()));
    100.0 * too_close / total
}

/// A new zone with more than a replica of each partition is filled in two rebalances. Its replicas
/// come from partitions that leave the fewest replicas with another in one zone.
#[test]
fn a_large_new_zone_moves_its_share_alone() {
    for seed in 0..SEEDS {
        let mut builder = lopsided();
        settle_down(&mut builder, seed);
        let before = held(&builder);
        add_zone(&mut builder, 4, 1..=7);
        let (moved, runs) = settle_down(&mut builder, seed);
        assert_eq!(moved, gained(&before, &held(&builder)), "seed {seed}: a detour");
        assert_eq!(runs, 2, "seed {seed}");
        let figures = Figures::of_builder(&builder).unwrap();
        assert!(figures.balance < 1.0, "seed {seed}: {}", figures.balance);
        let least = dispersion(beyond_one(&builder));
        assert!((figures.dispersion - least).abs() < 1e-9, "seed {seed}: {}", figures.dispersion);
    }
}

/// Half of all replicas move, and the zones' shares change. The few partitions that may move
/// between zones are not used up by moves that other partitions could make.
#[test]
fn doubling_a_lopsided_cluster_costs_what_it_takes() {
    for seed in 0..SEEDS {
        let mut builder = lopsided();
        add_zone(&mut builder, 4, 1..=7);
        settle_down(&mut builder, seed);
        let before = held(&builder);
        for (zone, nodes) in [(1, 6), (2, 4), (3, 2), (4, 4)] {
            add_zone(&mut builder, zone, 101..=100 + nodes);
        }
        let (moved, runs) = settle_down(&mut builder, seed);
        assert_eq!(moved, gained(&before, &held(&builder)), "seed {seed}: a detour");
        assert_eq!(runs, 2, "seed {seed}");
        let least = dispersion(beyond_one(&builder));
        let figures = Figures::of_builder(&builder).unwrap();
        assert!((figures.dispersion - least).abs() < 1e-9, "seed {seed}: {}", figures.dispersion);
    }
}

/// A device in the crowded zone has a share of 1,365.3 replicas, and may be short by slightly more
/// than one, since a third of the zone's replicas are too close. Devices elsewhere exceed their
/// shares by less than one replica.
#[test]
fn rounding_leans_away_from_a_crowded_zone() {
    let mut builder = builder(15, 3.0);
    for (zone, nodes) in [(1, 9), (2, 6), (3, 3)] {
        add_zone(&mut builder, zone, 1..=nodes);
    }
    settle_down(&mut builder, 1);
    let figures = Figures::of_builder(&builder).unwrap();
    let devices: Vec<_> = builder.devices().zip(&figures.devices).collect();
    let crowded = devices.iter().filter(|(device, _)| device.zone == 1);
    let off: f64 = crowded.map(|(_, it)| f64::from(it.parts) - it.desired).sum();
    assert!(off < -1.0, "the crowded zone is {off} off its share");
    for (device, it) in &devices {
        let off = f64::from(it.parts) - it.desired;
        assert!(off < 1.0 && it.balance.abs() < 0.1, "{} is {off} off", device.id);
    }
}

/// A leaning ring stays unchanged by further rebalances.
#[test]
fn a_second_rebalance_finds_nothing_to_do() {
    let mut leaning = 0;
    for seed in 0..CLUSTERS {
        let mut lots = TestRng::new(seed);
        let weights: &[f64] = lots.one_of(&[&[100.0][..], &[100.0, 200.0], &[93.3, 100.0, 171.7]]);
        let mut builder = builder(15, 3.0);
        for zone in 1..=3 + lots.below(2) {
            for node in 1..=2 + lots.below(5) {
                for disk in 0..2 + lots.below(3) {
                    builder.add(new_device(1, zone, node, disk, lots.one_of(weights))).unwrap();
                }
            }
        }
        settle_down(&mut builder, seed);
        for _ in 0..3 {
            let zone = 1 + lots.below(3);
            builder.add(new_device(1, zone, 1, 20 + lots.below(1 << 20), 100.0)).unwrap();
            settle_down(&mut builder, seed);
            let again = rebalance(&mut builder, seed + 1);
            assert_eq!((again.moved, again.placed), (0, 0), "seed {seed}: nothing changed");
            leaning += u32::from(again.dispersion > 0.0);
        }
    }
    assert!(leaning > 20, "only {leaning} rings were crowded");
}
