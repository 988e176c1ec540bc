//! Aims of a rebalance on realistic clusters: balance, distance, least movement, and their
//! priorities in conflict.

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::builder::rebalance::{RebalanceContext, Report};
use crate::diff::Diff;
use crate::error::ErrorKind;
use crate::figures::Figures;
use crate::ring::{Move, Ring};
use crate::testing::{add_zones, builder, new_device, rebalance};

/// 3 zones × 4 nodes × 12 devices at 2^14 partitions: 341 replicas on each device.
fn three_zones() -> Builder {
    let mut builder = builder(14, 3.0);
    add_zones(&mut builder, 1..=3, 4, 12);
    let report = rebalance(&mut builder, 1);
    assert_eq!((report.moved, report.rebalances_to_go), (0, 0));
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
    builder
}

/// Rebalances until nothing is left, and sums up the reports.
fn rebalance_fully(builder: &mut Builder) -> Report {
    let mut sum = rebalance(builder, 1);
    for step in (0..sum.rebalances_to_go).rev() {
        let report = rebalance(builder, 1);
        assert_eq!(report.rebalances_to_go, step);
        sum = Report { moved: sum.moved + report.moved, ..report };
    }
    sum
}

fn replicas(builder: &Builder) -> f64 {
    f64::from(1u32 << builder.settings().part_power) * builder.settings().replicas
}

#[expect(clippy::cast_precision_loss, reason = "few replicas")]
fn assert_at_most_fair(moved: u64, fair: f64) {
    assert!(moved as f64 <= fair * 1.01, "{moved} moved, and {fair:.0} would be fair");
}

#[test]
fn new_devices_get_their_fair_share_and_nothing_else_moves() {
    let mut builder = three_zones();
    for zone in 1..=3 {
        builder.add(new_device(1, zone, 1, 50, 100.0)).unwrap();
    }
    let report = rebalance_fully(&mut builder);
    assert_at_most_fair(report.moved, replicas(&builder) * 3.0 / 147.0);
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
}

#[test]
fn a_heavier_device_takes_the_share_of_its_weight() {
    let mut builder = three_zones();
    for zone in 0..3 {
        builder.set_weight(DeviceId(zone * 48), 150.0).unwrap();
    }
    let report = rebalance_fully(&mut builder);
    let (before, after) = (1.0 / 144.0, 1.5 / 145.5);
    assert_at_most_fair(report.moved, replicas(&builder) * 3.0 * (after - before));
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
}

#[test]
fn dead_devices_lose_what_they_held_and_nothing_else_moves() {
    let mut builder = three_zones();
    builder.set_overload(0.2).unwrap();
    let held: u32 =
        Figures::of_builder(&builder).unwrap().devices[..5].iter().map(|d| d.parts).sum();
    for id in 0..5 {
        builder.remove(DeviceId(id), false).unwrap();
    }
    let report = rebalance_fully(&mut builder);
    assert_eq!((report.placed, report.moved), (u64::from(held), 0));
    assert!(report.dispersion == 0.0, "{report:?}");
}

#[test]
fn a_drained_node_gives_up_what_it_held_step_by_step() {
    let mut builder = three_zones();
    builder.set_overload(0.4).unwrap();
    let before = builder.current_ring().unwrap();
    for id in 0..12 {
        builder.drain(DeviceId(id), 4).unwrap();
    }
    let first = rebalance(&mut builder, 1);
    assert_eq!(first.rebalances_to_go, 3);
    let quarter = replicas(&builder) / 12.0 / 4.0;
    assert_at_most_fair(first.moved, quarter);
    let report = rebalance_fully(&mut builder);
    let after = builder.ring().unwrap();
    assert!(after.devices()[..12].iter().all(|device| device.weight == 0.0));
    assert_eq!(Figures::of_ring(&after).devices[..12].iter().map(|d| d.parts).sum::<u32>(), 0);
    let moved = Diff::new(&before, &after).unwrap().replicas_moved;
    assert_at_most_fair(moved, replicas(&builder) / 12.0);
    assert!(report.dispersion == 0.0, "{report:?}");
}

#[test]
fn a_doubled_cluster_is_balanced_by_the_rebalances_that_the_first_announces() {
    let mut builder = three_zones();
    for zone in 1..=3 {
        for node in 5..=8 {
            for disk in 0..12 {
                builder.add(new_device(1, zone, node, disk, 100.0)).unwrap();
            }
        }
    }
    let first = rebalance(&mut builder, 1);
    assert_eq!(first.moved, 1 << 14, "one replica of every partition, and no second");
    assert!(first.rebalances_to_go > 0);
    let report = rebalance_fully(&mut builder);
    assert_at_most_fair(first.moved + report.moved, replicas(&builder) / 2.0);
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
}

#[test]
fn a_small_fourth_zone_takes_its_share_by_weight() {
    let mut builder = three_zones();
    add_zones(&mut builder, 4..=4, 1, 12);
    let report = rebalance_fully(&mut builder);
    assert_at_most_fair(report.moved, replicas(&builder) * 12.0 / 156.0);
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
}

#[test]
fn overload_buys_distance_as_far_as_it_reaches() {
    let uneven = |overload| {
        let mut builder = builder(12, 3.0);
        for (zone, disks) in [(1, 10), (2, 10), (3, 5)] {
            for disk in 0..disks {
                builder.add(new_device(1, zone, disk, 0, 100.0)).unwrap();
            }
        }
        builder.set_overload(overload).unwrap();
        (rebalance_fully(&mut builder), builder.required_overload())
    };
    let (none, required) = uneven(0.0);
    assert!(none.balance < 1.0 && none.dispersion > 10.0, "{none:?}");
    assert!((required - 2.0 / 3.0).abs() < 1e-6, "five devices must do the work of 8⅓: {required}");
    let (some, _) = uneven(0.3);
    assert!((29.0..31.0).contains(&some.balance), "{some:?}");
    assert!(some.dispersion > 0.0 && some.dispersion < none.dispersion, "{some:?}");
    let (full, _) = uneven(0.7);
    assert!(full.dispersion == 0.0 && full.balance < 67.5, "{full:?}");
}

#[test]
fn two_regions_keep_a_replica_each() {
    let mut builder = builder(12, 3.0);
    for region in 1..=2 {
        for zone in 1..=2 {
            for node in 1..=6 {
                builder.add(new_device(region, zone, node, 0, 100.0)).unwrap();
            }
        }
    }
    let report = rebalance_fully(&mut builder);
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
    let ring = builder.ring().unwrap();
    for partition in ring.partitions() {
        let zones: std::collections::BTreeSet<_> =
            ring.primaries(partition).map(|id| ring.device(id).unwrap().zone_path()).collect();
        assert_eq!(zones.len(), 3, "{partition:?}");
        assert_eq!(
            zones.iter().map(|zone| zone.0).collect::<std::collections::BTreeSet<_>>().len(),
            2
        );
    }
}

#[test]
fn mixed_weights_are_balanced() {
    let mut builder = builder(14, 3.0);
    for zone in 1..=3 {
        for node in 1..=4 {
            for (disk, weight) in [100.0, 200.0, 800.0, 100.0, 200.0, 800.0].into_iter().enumerate()
            {
                let disk = u32::try_from(disk).unwrap();
                builder.add(new_device(1, zone, node, disk, weight)).unwrap();
            }
        }
    }
    let report = rebalance_fully(&mut builder);
    assert!(report.balance < 1.0 && report.dispersion == 0.0, "{report:?}");
}

#[test]
fn fractional_replicas_are_placed_and_can_be_changed() {
    let mut builder = three_zones();
    builder.set_replicas(3.25).unwrap();
    let report = rebalance_fully(&mut builder);
    assert_eq!(report.placed, 1 << 12, "a quarter of the partitions has a fourth");
    let ring = builder.ring().unwrap();
    assert!((ring.replicas_exact() - 3.25).abs() < 1e-9 && ring.replicas() == 4);
    builder.set_replicas(2.0).unwrap();
    let report = rebalance_fully(&mut builder);
    assert_eq!((report.placed, report.dispersion), (0, 0.0));
}

#[test]
fn a_larger_part_power_moves_nothing() {
    let mut builder = three_zones();
    let before = builder.ring().unwrap();
    assert_eq!(builder.increase_part_power().unwrap(), 15);
    let after = builder.ring().unwrap();
    assert_eq!(Diff::new(&before, &after).unwrap().replicas_moved, 0);
    for placement in [0, 1 << 63, u64::MAX, 0x1234_5678_9abc_def0] {
        let holders = |ring: &Ring| ring.primaries(ring.partition(placement)).collect::<Vec<_>>();
        assert_eq!(holders(&before), holders(&after));
    }
    // Twice 341 or 342 replicas may differ by one from two thirds of 1024, rounded.
    assert!(rebalance(&mut builder, 1).moved <= 144);
}

#[test]
fn the_same_seed_makes_the_same_ring() {
    let ring = |seed| {
        let mut builder = builder(10, 3.0);
        add_zones(&mut builder, 1..=3, 2, 3);
        rebalance(&mut builder, seed);
        builder.ring().unwrap().hash()
    };
    assert_eq!(ring(5), ring(5));
    assert_ne!(ring(5), ring(6));
}

const HOUR_MS: u64 = 3_600_000;

fn at(hours: u64) -> RebalanceContext {
    RebalanceContext { now_ms: 1_000_000_000 + hours * HOUR_MS, seed: 1 }
}

#[test]
fn min_part_hours_hold_until_they_pass_or_are_waived() {
    let mut builder = three_zones();
    builder.set_min_part_hours(4);
    builder.add(new_device(1, 1, 1, 50, 100.0)).unwrap();
    let first = builder.rebalance(at(10)).unwrap();
    builder.add(new_device(1, 2, 1, 50, 100.0)).unwrap();
    let error = builder.clone().rebalance(at(13)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let message = error.to_string();
    assert!(message.contains("wait 1 h 00 min"), "{message}");
    assert!(message.contains(&format!("moved {} replicas", first.moved)), "{message}");
    let later = builder.clone().rebalance(at(14)).unwrap();
    assert!(later.moved > 0 && later.locked == first.moved, "{later:?}");
    builder.pretend_min_part_hours_passed();
    let insisted = builder.rebalance(at(13)).unwrap();
    assert!(insisted.moved > 0 && insisted.locked == 0, "{insisted:?}");
    // A dead device is replaced without delay.
    builder.remove(DeviceId(0), false).unwrap();
    let report = builder.rebalance(at(13)).unwrap();
    assert!(report.placed > 0 && report.locked > 0, "{report:?}");
}

/// Checks that each former holder of a partition still holds a replica, or is listed as previous
/// holder.
fn check_named(first: &Ring, now: &Ring) {
    for partition in first.partitions() {
        let places = 0..now.primaries(partition).count();
        let mut named: Vec<DeviceId> = now.primaries(partition).collect();
        named.extend(places.filter_map(|at| now.previous(partition, at)));
        for holder in first.primaries(partition) {
            assert!(named.contains(&holder), "{partition:?}: {holder} isn't in {named:?}");
        }
    }
}

/// Additions faster than replication leave two replicas of each partition in place (rule P3).
#[test]
fn unsettled_moves_are_neither_forgotten_nor_overtaken() {
    let mut builder = three_zones();
    builder.set_min_part_hours(1);
    let first = builder.ring().unwrap();
    for hour in 0..3 {
        for zone in 1..=3 {
            builder.add(new_device(1, zone, 7, hour, 400.0)).unwrap();
        }
        let report = builder.rebalance(at(10 + u64::from(hour))).unwrap();
        assert!(hour > 0 || report.moved > 0, "{report:?}");
        let ring = builder.ring().unwrap();
        check_named(&first, &ring);
        for partition in ring.partitions() {
            let moving = (0..3).filter(|at| ring.previous(partition, *at).is_some()).count();
            assert!(moving <= 1, "{partition:?} has {moving} replicas that aren't settled");
        }
    }
    builder.remove(DeviceId(0), false).unwrap();
    builder.rebalance(at(13)).unwrap();
    check_named(&first, &builder.ring().unwrap());
    // Previous holders stay listed when an operator forces further moves.
    let before = builder.ring().unwrap();
    builder.pretend_min_part_hours_passed();
    builder.set_weight(DeviceId(144), 1.0).unwrap();
    builder.rebalance(at(13)).unwrap();
    let after = builder.ring().unwrap();
    let holder = |ring: &Ring, step: &Move| {
        ring.primaries(step.partition).nth(usize::from(step.replica)).unwrap()
    };
    for step in before.moves() {
        let named = after.previous(step.partition, usize::from(step.replica));
        assert!(holder(&after, step) == step.previous || named == Some(step.previous), "{step:?}");
    }
    let moved_on = |step: &&Move| holder(&before, step) != holder(&after, step);
    assert!(before.moves().iter().any(|step| moved_on(&step)));
}
